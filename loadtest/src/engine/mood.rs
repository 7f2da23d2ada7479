//! The state of the whole engine: what it does with new requests, with running ones and with its port.
//!
//! One value in a watch channel; every connection sees a change at once, in the middle of a stream too. `lifecycle` is the
//! only writer besides the handle's hang and kill.

use super::config::Ending;

/// What running requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fate {
    /// They go on.
    #[default]
    Run,
    /// One of the endings.
    End(Ending),
    /// RST to all of them.
    Reset,
}

/// What new requests get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Door {
    /// They are taken.
    #[default]
    Open,
    /// 500: told to stop.
    Stopping,
    /// The engine process is gone: 500, or the error as a first event.
    CoreDead,
    /// A status on command.
    Status(u16),
}

/// How deep a hang goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hang {
    /// No hang.
    #[default]
    None,
    /// The engine process is stopped: streams get their head and then nothing, `/health` says 200.
    Engine,
    /// No request for text gets a byte, not even a head; `/health` says 200.
    Silent,
    /// The whole process is stopped: nothing is answered.
    Process,
}

/// The whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mood {
    pub(crate) fate: Fate,
    /// A fate for what runs at this moment, and its number: requests that begin later are not touched.
    pub(crate) once: (u64, Fate),
    pub(crate) door: Door,
    pub(crate) hang: Hang,
    /// Status of `/health`.
    pub(crate) health: u16,
    /// The port accepts.
    pub(crate) listening: bool,
    /// Ends when no connection is left.
    pub(crate) leaving: bool,
    /// Ends now.
    pub(crate) killed: bool,
}

impl Mood {
    /// What a request does that began when `once` had the number `began`.
    pub(crate) fn fate_since(&self, began: u64) -> Fate {
        if self.once.0 > began { self.once.1 } else { self.fate }
    }

    pub(crate) fn new() -> Self {
        Self {
            fate: Fate::Run,
            once: (0, Fate::Run),
            door: Door::Open,
            hang: Hang::None,
            health: 200,
            listening: false,
            leaving: false,
            killed: false,
        }
    }
}
