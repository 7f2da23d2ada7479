//! Proof that a leader serves: one task for each incarnation asks its engine, and says when the answer changes.
//!
//! Owns: the verdict on each incarnation (`GroupId`) and the names that its engine serves. Must not: know Kubernetes, decide a phase
//! (`group` does, with the verdict) or publish. Next step of a watch event: `publish`, which is woken by the `changed` channel.
//!
//! What counts as proof, in this order and on one connection: `GET /health` 200, `GET /v1/models` 200 with a list, and a completion of
//! `max_tokens: 1`. `/health` alone proves nothing: it answers 200 while an engine hangs and while it drains. A probe that hangs delays
//! nothing but its own task. Parts: `record` (pure: what a result means), `task` (the loop), `stand_in` (rounds that requests make needless),
//! `round` (one go through the steps), `session` (HTTP), `answer` (pure: what an answer says), `key`, `counters`.

mod answer;
mod counters;
mod key;
mod record;
mod round;
mod session;
mod stand_in;
mod task;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{mpsc, watch};

pub use counters::{ProbeCounters, ProbeResult, ProbeStep};
pub use stand_in::Traffic;

use crate::dial::Dialer;
use crate::snapshot::{Address, GroupId, GroupKey, Reason};
use crate::tasks::TaskSet;
use counters::Tally;
use record::Record;
use stand_in::StandIn;
use task::{Control, ProbeTask};

/// What went wrong with a real request at a leader. Each voids the proof; the kinds are told apart in the log only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The port refused the connection, or connecting timed out.
    Refused,
    /// The connection was reset before an answer.
    Reset,
    /// No byte within its clock.
    Hang,
    /// A stream ended without an end.
    BrokenStream,
    /// A 5xx that says that the engine is gone or going.
    ServerError,
}

/// One incarnation to be probed.
#[derive(Debug, Clone)]
pub struct ProbeTarget {
    /// The incarnation: the proof belongs to it and ends with it.
    pub id: GroupId,
    /// The place, for the log.
    pub key: GroupKey,
    /// Where its leader answers.
    pub address: Address,
    /// The operator built the command line (`ProbeSettings::trust_managed` applies).
    pub managed: bool,
    /// The target is a role's router: its `/health` may not exist (404).
    pub router: bool,
    /// The served name as far as Kubernetes tells it; used for the generation if the engine lists it.
    pub model_hint: Option<Arc<str>>,
    /// Pace, limits, key and TLS policy.
    pub settings: Arc<config::PoolSettings>,
}

impl ProbeTarget {
    fn trusted(&self) -> bool {
        self.managed && self.settings.probe.trust_managed
    }

    fn same_as(&self, other: &Self) -> bool {
        let settings = Arc::ptr_eq(&self.settings, &other.settings) || self.settings == other.settings;
        settings
            && self.address == other.address
            && self.managed == other.managed
            && self.router == other.router
            && self.model_hint == other.model_hint
    }
}

/// What is known of an incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Its engine may get requests.
    pub proven: bool,
    /// Why it is not proven; while `proven` at most a remark (a trusted role whose names cannot be learned).
    pub reason: Option<Reason>,
    /// Every name the engine listed last, LoRA adapters too, in its order; `None` before the first list.
    pub models: Option<Arc<[Arc<str>]>>,
    /// Good full proofs of this incarnation; grows by each one that began after the last reported fault.
    pub proof: u64,
}

/// Probes a set of incarnations.
#[derive(Debug)]
pub struct Prober {
    tasks: TaskSet,
    dialer: Arc<Dialer>,
    changed: mpsc::Sender<GroupId>,
    tally: Arc<Tally>,
    traffic: stand_in::Shared,
    entries: Mutex<HashMap<GroupId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Mutex<Record>>,
    /// Dropping it ends the task.
    control: watch::Sender<Control>,
}

impl Prober {
    /// A prober without targets. Its tasks live in `tasks`; each change of a verdict sends the incarnation's id on `changed`, which must
    /// be read: a full channel stops the tasks that have news until there is room.
    pub fn new(tasks: TaskSet, dialer: Arc<Dialer>, changed: mpsc::Sender<GroupId>) -> Self {
        Self { tasks, dialer, changed, tally: Arc::default(), traffic: Arc::default(), entries: Mutex::default() }
    }

    /// Lets good answers stand in for light rounds from now on. Only the first call counts.
    pub fn heed(&self, traffic: Weak<dyn Traffic>) {
        self.traffic.get_or_init(|| traffic);
    }

    /// Makes `targets` the whole wanted set: starts probing the new ones at once, hands changed settings to the known ones, stops the rest
    /// and forgets their verdicts. Of two targets with one id the first counts. Must be called inside a tokio runtime.
    pub fn sync(&self, targets: Vec<ProbeTarget>) {
        let mut entries = self.entries();
        let mut wanted = HashSet::with_capacity(targets.len());
        for target in targets {
            if !wanted.insert(target.id.clone()) {
                continue;
            }
            match entries.get(&target.id) {
                Some(entry) => entry.update(target),
                None => {
                    let entry = self.start(&target);
                    entries.insert(target.id, entry);
                }
            }
        }
        entries.retain(|id, _| wanted.contains(id));
    }

    /// Changes the wanted set by what differs: `start` as in [`Prober::sync`] (also for changed settings of a known one), `stop` ends and
    /// forgets. An id in both is stopped first. Must be called inside a tokio runtime.
    pub fn change(&self, start: &[ProbeTarget], stop: &[GroupId]) {
        let mut entries = self.entries();
        for id in stop {
            entries.remove(id);
        }
        for target in start {
            match entries.get(&target.id) {
                Some(entry) => entry.update(target.clone()),
                None => {
                    let entry = self.start(target);
                    entries.insert(target.id.clone(), entry);
                }
            }
        }
    }

    /// What is known of `id`; not proven if it is not a target.
    pub fn verdict(&self, id: &GroupId) -> Verdict {
        match self.entries().get(id) {
            Some(entry) => lock(&entry.record).verdict().clone(),
            None => Verdict { reason: Some(Reason::NotProven), ..Verdict::default() },
        }
    }

    /// A real request failed at `id`: it is not proven from this moment on, and only a proof that begins now or later brings it back.
    /// A probe in flight is broken off and begun anew. Unknown ids are ignored.
    pub fn report_fault(&self, id: &GroupId, fault: Fault) {
        if let Some(entry) = self.entries().get(id) {
            tracing::debug!(?id, ?fault, "fault reported");
            lock(&entry.record).fault();
            entry.control.send_modify(|control| control.nudges = control.nudges.wrapping_add(1));
        }
    }

    /// Results of all probes since the start of the process.
    pub fn counters(&self) -> ProbeCounters {
        self.tally.read()
    }

    fn start(&self, target: &ProbeTarget) -> Entry {
        let record = Arc::new(Mutex::new(Record::new(target.trusted())));
        let (control, receiver) = watch::channel(Control { target: Arc::new(target.clone()), nudges: 0 });
        let stand_in = StandIn::new(self.traffic.clone());
        let task = ProbeTask::new((record.clone(), stand_in), receiver, self.dialer.clone(), self.tally.clone(), self.changed.clone());
        self.tasks.spawn("probe", task.run());
        Entry { record, control }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<GroupId, Entry>> {
        lock(&self.entries)
    }
}

impl Entry {
    fn update(&self, target: ProbeTarget) {
        self.control.send_if_modified(|control| {
            if control.target.same_as(&target) {
                return false;
            }
            lock(&self.record).set_trusted(target.trusted());
            control.target = Arc::new(target);
            true
        });
    }
}

/// A poisoned lock still holds whole values here: every change under it is a plain assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
