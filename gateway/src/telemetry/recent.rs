//! The last refusals, errors, resumes and group changes, for the status page and `/debug/recent`.
//!
//! Owns: a bounded ring, in which a flood of one kind pushes out its own kind first: refusals by the thousand must not hide the resume that
//! somebody looks for. Must not: hold text from prompts or completions; ids, pool names and closed words only. Written off the hot
//! path (a refusal, a resume), read by `admin`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Events kept; older ones fall out.
pub const KEPT: usize = 200;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A request was refused.
    Refused,
    /// A stream ended in an error event.
    StreamError,
    /// A leader's 5xx was passed on, or its answer cut.
    UpstreamError,
    /// A request was tried again before its first event.
    Retried,
    /// A stream was carried on, or an attempt to do so failed.
    Resumed,
    /// Requests of a pool began to wait because nothing serves.
    Held,
    /// A group changed its phase.
    Group,
}

impl Kind {
    const COUNT: usize = Self::Group as usize + 1;
}

/// One line of what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Grows by one; a reader that knows one asks for what is newer.
    pub seq: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// What happened.
    pub kind: Kind,
    /// Model name of a known pool, or empty.
    pub pool: Arc<str>,
    /// A group key, or empty.
    pub group: Arc<str>,
    /// Words of closed sets: the reason of a refusal or of a cut, `status_` and the number of a 5xx, `cause way result` of a resume,
    /// `phase reason` of a group.
    pub detail: Arc<str>,
    /// The request's id, or empty.
    pub request_id: Arc<str>,
    /// 32 hexadecimal digits, or empty where there is no trace.
    pub trace_id: Arc<str>,
}

/// What a caller knows of an event; the ring adds number and time.
#[derive(Debug, Clone, Default)]
pub struct Note {
    /// Model name of a known pool.
    pub pool: Arc<str>,
    /// Group key.
    pub group: Arc<str>,
    /// Words of closed sets.
    pub detail: Arc<str>,
    /// The request's id.
    pub request_id: Arc<str>,
    /// 32 hexadecimal digits.
    pub trace_id: Arc<str>,
}

/// Bounded ring of events, shared by its writers and readers.
#[derive(Debug, Default)]
pub struct Recent {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    next: u64,
    events: VecDeque<Event>,
}

impl Recent {
    /// Empty.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Adds an event at `now`. Beyond `KEPT` the oldest of the most frequent kind falls out. A client's request id is cut to 128 bytes.
    pub fn note(&self, kind: Kind, note: Note, now: SystemTime) {
        let at_ms = now.duration_since(UNIX_EPOCH).map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        let request_id = cut(note.request_id);
        let mut ring = self.ring.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ring.next += 1;
        let event = Event {
            seq: ring.next,
            at_ms,
            kind,
            pool: note.pool,
            group: note.group,
            detail: note.detail,
            request_id,
            trace_id: note.trace_id,
        };
        ring.events.push_back(event);
        ring.trim();
    }

    /// Events with a number above `seq`, oldest first.
    pub fn since(&self, seq: u64) -> Vec<Event> {
        let ring = self.ring.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        ring.events.iter().filter(|e| e.seq > seq).cloned().collect()
    }
}

impl Ring {
    fn trim(&mut self) {
        if self.events.len() <= KEPT {
            return;
        }
        let mut counts = [0_usize; Kind::COUNT];
        self.events.iter().for_each(|event| counts[event.kind as usize] += 1);
        let most = |event: &Event| counts[event.kind as usize] == counts.iter().copied().max().unwrap_or_default();
        if let Some(place) = self.events.iter().position(most) {
            self.events.remove(place);
        }
    }
}

fn cut(id: Arc<str>) -> Arc<str> {
    const MOST: usize = 128;
    if id.len() <= MOST {
        return id;
    }
    let end = (0..=MOST).rev().find(|&at| id.is_char_boundary(at)).unwrap_or(0);
    Arc::from(&id[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest_and_numbers_them() {
        let recent = Recent::new();
        for n in 0..(KEPT + 5) {
            let note = Note { detail: Arc::from(n.to_string()), ..Note::default() };
            recent.note(Kind::Refused, note, UNIX_EPOCH);
        }
        let all = recent.since(0);
        assert_eq!(all.len(), KEPT);
        assert_eq!(&*all[0].detail, "5");
        assert_eq!(recent.since(all[KEPT - 1].seq), vec![]);
        assert_eq!(recent.since(all[KEPT - 2].seq).len(), 1);
    }

    #[test]
    fn a_flood_of_one_kind_leaves_the_others() {
        let recent = Recent::new();
        recent.note(Kind::Resumed, Note::default(), UNIX_EPOCH);
        for kind in [Kind::Refused, Kind::Group] {
            (0..KEPT * 3).for_each(|_| recent.note(kind, Note::default(), UNIX_EPOCH));
        }
        let count = |kind| recent.since(0).iter().filter(|event| event.kind == kind).count();
        assert_eq!((count(Kind::Resumed), recent.since(0).len()), (1, KEPT));
        assert!(count(Kind::Refused) >= KEPT / 3 && count(Kind::Group) >= KEPT / 3);
        let order: Vec<_> = recent.since(0).iter().map(|event| event.seq).collect();
        assert!(order.is_sorted());
    }

    #[test]
    fn a_long_request_id_is_cut_at_a_character() {
        let recent = Recent::new();
        let note = Note { request_id: Arc::from("é".repeat(100)), ..Note::default() };
        recent.note(Kind::Retried, note, UNIX_EPOCH);
        assert_eq!(recent.since(0)[0].request_id.len(), 128);
    }
}
