//! The state of one simulated engine: its port, what new requests get, what running ones do.
//!
//! Owns: the words. `cluster` changes it, every connection of a `leader` sees the change at once.

use crate::plan::Break;

/// What a connect gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Port {
    /// Refused: not up yet, or gone.
    Refuses,
    /// Accepted.
    Accepts,
    /// No answer: the host is lost.
    Swallows,
}

/// What a new request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// It is taken.
    Open,
    /// 503.
    Busy,
    /// 500: told to stop, nothing was executed.
    Stopping,
    /// The error as first event, or 500.
    CoreDead,
}

/// What running requests do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// They go on.
    Run,
    /// Nothing, until this changes.
    Still,
    /// They break.
    Break(Break),
}

/// The whole state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mood {
    /// The port.
    pub(crate) port: Port,
    /// New requests.
    pub(crate) door: Door,
    /// Running ones, and those that come through the door.
    pub(crate) fate: Fate,
    /// What broke at a moment only: its number and how. Requests that begin later are not touched.
    pub(crate) once: Option<(u32, Break)>,
}

impl Mood {
    /// An engine that starts.
    pub(crate) fn starting() -> Self {
        Self { port: Port::Refuses, door: Door::Open, fate: Fate::Run, once: None }
    }

    /// Number of the last break at a moment.
    pub(crate) fn round(&self) -> u32 {
        self.once.map_or(0, |(round, _)| round)
    }

    /// What a request does that began in round `began`.
    pub(crate) fn fate_since(&self, began: u32) -> Fate {
        match self.once {
            Some((round, how)) if round > began && self.fate == Fate::Run => Fate::Break(how),
            _ => self.fate,
        }
    }

    /// The engine can be working on what it was given.
    pub(crate) fn works(&self) -> bool {
        self.fate == Fate::Run && self.port == Port::Accepts
    }

    /// A probe's generation would be good.
    pub(crate) fn proves(&self) -> bool {
        self.works() && self.door == Door::Open
    }
}
