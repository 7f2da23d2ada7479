//! What goes wrong on command. Everything is off at the start; `heal` turns everything off.

use std::time::Duration;

use tokio::sync::watch;

use super::refusal::Refusal;
use super::route::Kind;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// A list.
    List,
    /// A watch.
    Watch,
    /// Reading one object.
    Get,
    /// Creating one.
    Create,
    /// Replacing one or its status.
    Update,
    /// Patching one or its status.
    Patch,
    /// Deleting one.
    Delete,
}

impl Verb {
    /// As RBAC spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

/// How open watches end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cut {
    /// The connection breaks in the middle of the body.
    #[default]
    Reset,
    /// The body ends as after `timeoutSeconds`.
    Clean,
    /// An `ERROR` event with code 410, then the end.
    Expired,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Rules {
    refuse: Vec<(Verb, Option<Kind>, u16)>,
    pub(super) quiet: bool,
    pub(super) expiry_by_status: bool,
    pub(super) gone: bool,
    pub(super) bookmarks: Option<Duration>,
    delay: Duration,
    /// Counts cuts: a watch ends when it is not what it was at its start.
    pub(super) cuts: u64,
    pub(super) cut: Cut,
    /// Counts silencings, as `cuts`.
    pub(super) silences: u64,
}

/// The switches.
#[derive(Debug)]
pub struct Faults {
    rules: watch::Sender<Rules>,
}

impl Default for Faults {
    fn default() -> Self {
        Self { rules: watch::Sender::new(Rules::default()) }
    }
}

impl Faults {
    /// Ends every watch that is open now; new ones are served.
    pub fn cut_watches(&self, cut: Cut) {
        self.rules.send_modify(|rules| {
            rules.cuts += 1;
            rules.cut = cut;
        });
    }

    /// Watches, open and new ones, stay open and silent: no events, no bookmarks, no end. What they missed comes when this is over.
    pub fn quiet_watches(&self, quiet: bool) {
        self.rules.send_modify(|rules| rules.quiet = quiet);
    }

    /// Every watch that is open now is silent for good, like a connection of which one end has vanished; new ones are served.
    pub fn silence_open_watches(&self) {
        self.rules.send_modify(|rules| rules.silences += 1);
    }

    /// A watch from a version that is too old is answered by status 410, not by 200 and an `ERROR` event.
    pub fn expiry_by_status(&self, by_status: bool) {
        self.rules.send_modify(|rules| rules.expiry_by_status = by_status);
    }

    /// Every request of this kind (`None`: of any) is refused with `code`; 403 as RBAC words it.
    pub fn refuse(&self, verb: Verb, kind: Option<Kind>, code: u16) {
        self.rules.send_modify(|rules| rules.refuse.push((verb, kind, code)));
    }

    /// Every request waits this long before it is looked at.
    pub fn delay(&self, delay: Duration) {
        self.rules.send_modify(|rules| rules.delay = delay);
    }

    /// The server is gone: what is connected is cut, and every new connection is closed before an answer.
    pub fn gone(&self, gone: bool) {
        self.rules.send_modify(|rules| rules.gone = gone);
    }

    /// The pace of bookmarks, for watches opened from now on; a real server's is about a minute, which is the default.
    pub fn bookmarks_every(&self, pace: Duration) {
        self.rules.send_modify(|rules| rules.bookmarks = Some(pace));
    }

    /// Nothing goes wrong any longer.
    pub fn heal(&self) {
        self.rules.send_modify(|rules| {
            let Rules { cuts, cut, silences, bookmarks, .. } = *rules;
            *rules = Rules { cuts, cut, silences, bookmarks, ..Rules::default() };
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Rules> {
        self.rules.subscribe()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.rules.borrow().gone
    }

    /// Completes when the server goes away.
    pub(super) async fn going(&self) {
        // The sender lives as long as this borrow.
        self.rules.subscribe().wait_for(|rules| rules.gone).await.ok();
    }

    /// Waits as long as ordered, then refuses if that is ordered.
    pub(super) async fn admit(&self, verb: Verb, kind: Kind, namespace: Option<&str>) -> Result<(), Refusal> {
        let delay = self.rules.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let rules = self.rules.borrow();
        let hit = rules.refuse.iter().find(|(of, which, _)| *of == verb && which.is_none_or(|which| which == kind));
        hit.map_or(Ok(()), |(_, _, code)| Err(refusal(*code, verb, kind, namespace)))
    }
}

fn refusal(code: u16, verb: Verb, kind: Kind, namespace: Option<&str>) -> Refusal {
    match code {
        401 => Refusal::new(401, "Unauthorized", "Unauthorized"),
        403 => Refusal::new(403, "Forbidden", forbidden(verb, kind, namespace)),
        404 => Refusal::no_such_path(),
        410 => Refusal::expired(),
        429 => Refusal::new(429, "TooManyRequests", "the server has received too many requests"),
        503 => Refusal::new(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
        _ => Refusal::new(code, "InternalError", "an error on the server has prevented the request from succeeding"),
    }
}

fn forbidden(verb: Verb, kind: Kind, namespace: Option<&str>) -> String {
    let (resource, verb, plural, group) = (kind.resource(), verb.as_str(), kind.plural(), kind.group());
    let scope = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    format!(
        "{resource} is forbidden: User \"system:serviceaccount:default:leadgate\" cannot {verb} resource \"{plural}\" in API group \"{group}\" {scope}"
    )
}
