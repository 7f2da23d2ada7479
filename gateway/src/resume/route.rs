//! Which API a request speaks, as far as watching its stream needs to know.

/// The API of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Route {
    /// `/v1/chat/completions`: watched and carried on.
    Chat,
    /// `/v1/completions`: watched and carried on.
    Completions,
    /// `/v1/responses`: its end is watched, it is not carried on.
    Responses,
    /// `/v1/messages`: its end is watched, it is not carried on.
    Messages,
    /// Anything else: passed on as it comes.
    Other,
}

impl Route {
    /// By the exact path, without a query.
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            _ => Self::Other,
        }
    }

    /// Whether some way of carrying on exists at all.
    pub fn resumable(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }
}
