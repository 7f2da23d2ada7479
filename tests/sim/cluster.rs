//! The cluster's side of a run: slots, incarnations, the operator's replacements, the kubelet's restarts and the prober.
//!
//! Owns: the truth about every incarnation and the moments at which it changes. Each slot is one task that goes through its troubles in turn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use discovery::snapshot::{GroupId, Reason};
use discovery::{Fault, FaultReceiver};
use loadtest::text::Rng;
use tokio::sync::mpsc;
use tokio::time::{sleep, sleep_until};

use crate::group::{FOLLOWERS_GONE, HOOK_ENDS, Truth, host};
use crate::leader::{Leader, Scene};
use crate::mood::{Door, Fate, Mood, Port};
use crate::net::Net;
use crate::plan::{Blow, Break, Ending, Plan, Trouble, TroubleKind};
use crate::views::Views;

/// Pause between two probes of an engine that is not proven.
const PROBE: Duration = Duration::from_secs(1);
/// Reports of faults that wait for the prober.
const REPORTS: usize = 1024;

/// Where the gateway reports faults.
#[derive(Debug)]
pub(crate) struct Reports(mpsc::Sender<GroupId>);

impl FaultReceiver for Reports {
    fn report(&self, id: &GroupId, _: Fault) {
        // A full channel means that the prober has work for this group already.
        let _ = self.0.try_send(id.clone());
    }
}

/// The two ends of the reports.
pub(crate) fn reports() -> (Arc<Reports>, mpsc::Receiver<GroupId>) {
    let (sender, receiver) = mpsc::channel(REPORTS);
    (Arc::new(Reports(sender)), receiver)
}

/// One life of a slot.
#[derive(Debug)]
struct Incarnation {
    truth: Truth,
    leader: Arc<Leader>,
    host: Arc<str>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cluster {
    scene: Arc<Scene>,
    net: Arc<Net>,
    views: Arc<Views>,
    truths: Mutex<BTreeMap<GroupId, Incarnation>>,
    rng: Mutex<Rng>,
    plan: Arc<Plan>,
}

impl Cluster {
    /// A cluster without groups.
    pub(crate) fn new(scene: Arc<Scene>, net: Arc<Net>, views: Arc<Views>, plan: Arc<Plan>) -> Arc<Self> {
        let rng = Mutex::new(Rng::new(plan.seed ^ 0x00c1_u64));
        Arc::new(Self { scene, net, views, truths: Mutex::default(), rng, plan })
    }

    /// Starts the groups and everything that will happen to them.
    pub(crate) fn start(self: &Arc<Self>, reports: mpsc::Receiver<GroupId>) {
        for slot in 0..self.plan.slots {
            let cluster = self.clone();
            self.scene.tasks.spawn(async move { cluster.live(slot).await });
        }
        let cluster = self.clone();
        self.scene.tasks.spawn(async move { cluster.take_reports(reports).await });
        if let Some((at, lasts)) = self.plan.absence {
            let views = self.views.clone();
            let from = self.scene.journal.at(at);
            self.scene.tasks.spawn(async move {
                sleep_until(from).await;
                views.set_absent(true);
                sleep(lasts).await;
                views.set_absent(false);
            });
        }
    }

    async fn live(self: Arc<Self>, slot: usize) {
        let mut life = 0;
        let mut id = self.create(slot, life);
        // The first incarnations serve from the beginning.
        self.with(&id, |truth| truth.ready = true);
        self.mood(&id, |mood| mood.port = Port::Accepts);
        self.prove(&id);
        let troubles: Vec<Trouble> = self.plan.troubles.iter().filter(|trouble| trouble.slot == slot).copied().collect();
        for trouble in troubles {
            sleep_until(self.scene.journal.at(trouble.at)).await;
            self.scene.journal.note(format_args!("slot {slot}: {:?}", trouble.kind));
            if self.strike(&id, trouble.kind).await {
                life += 1;
                id = self.come_up(slot, life).await;
            }
        }
    }

    /// Makes the Pods of an incarnation and shows them.
    fn create(self: &Arc<Self>, slot: usize, life: usize) -> GroupId {
        let mut truth = Truth::forming(slot, life, self.plan.members, self.plan.managed);
        truth.next_to_go = self.plan.rollout && slot + 1 == self.plan.slots;
        let (id, host) = (truth.id.clone(), host(slot, life));
        let leader = Leader::new(id.clone(), self.scene.clone());
        self.net.give(&host, &leader);
        self.truths().insert(id.clone(), Incarnation { truth, leader, host });
        id
    }

    /// A new incarnation, from its Pods to its first proof.
    async fn come_up(self: &Arc<Self>, slot: usize, life: usize) -> GroupId {
        let id = self.create(slot, life);
        self.show(&id);
        let ready = self.draw(3000);
        sleep(ready).await;
        // A take-over role has no probes: Ready at process start, long before its engine answers.
        self.with(&id, |truth| truth.ready = true);
        self.show(&id);
        sleep(self.draw(self.plan.startup)).await;
        self.mood(&id, |mood| mood.port = Port::Accepts);
        sleep(self.draw(1000)).await;
        self.prove(&id);
        id
    }

    /// Lets a trouble happen; true: the incarnation is over.
    async fn strike(self: &Arc<Self>, id: &GroupId, kind: TroubleKind) -> bool {
        match kind {
            TroubleKind::Replace(ending) => self.replace(id, ending).await,
            TroubleKind::TakenBack(after) => {
                self.leave(id, Reason::Retiring);
                sleep(Duration::from_millis(after as u64)).await;
                self.with(id, |truth| truth.leaving = None);
                self.show(id);
                return false;
            }
            TroubleKind::Die(blow) => self.die(id, blow).await,
            TroubleKind::FollowerLost => self.lose_follower(id).await,
            TroubleKind::Flap(lasts) => {
                self.with(id, |truth| (truth.broken, truth.ready) = (true, false));
                self.show(id);
                sleep(Duration::from_millis(lasts as u64)).await;
                self.with(id, |truth| (truth.broken, truth.ready) = (false, true));
                self.show(id);
                return false;
            }
            TroubleKind::Glitch(how) => {
                self.mood(id, |mood| mood.once = Some((mood.round() + 1, how)));
                return false;
            }
            TroubleKind::Busy(lasts) => {
                self.mood(id, |mood| mood.door = Door::Busy);
                sleep(Duration::from_millis(lasts as u64)).await;
                self.mood(id, |mood| mood.door = Door::Open);
                return false;
            }
        }
        true
    }

    /// The operator deletes the Pods of a slot; what comes after them is not made before they are gone.
    async fn replace(self: &Arc<Self>, id: &GroupId, ending: Ending) {
        let grace = self.plan.grace;
        self.leave(id, Reason::MemberDeleting);
        if self.plan.managed {
            // The hook keeps the leader at work; its followers get no such time.
            let works = grace.saturating_sub(HOOK_ENDS);
            if self.plan.members > 1 {
                sleep(FOLLOWERS_GONE).await;
                self.mood(id, |mood| mood.fate = Fate::Still);
                sleep(works.saturating_sub(FOLLOWERS_GONE)).await;
            } else {
                sleep(works).await;
            }
        } else {
            sleep(self.draw(300)).await;
        }
        self.terminate(id, ending).await;
        sleep(self.draw(1000)).await;
        self.end(id);
        sleep(self.draw(10_000)).await;
    }

    /// SIGTERM, and SIGKILL at the end of what is left.
    async fn terminate(self: &Arc<Self>, id: &GroupId, ending: Ending) {
        let left = if self.plan.managed { HOOK_ENDS } else { self.plan.grace };
        if ending == Ending::RunOn {
            self.mood(id, |mood| mood.door = Door::Stopping);
            sleep(left).await;
            return self.kill(id, Break::Cut);
        }
        self.mood(id, |mood| mood.door = Door::Stopping);
        sleep(self.draw(300)).await;
        self.mood(id, |mood| {
            mood.port = Port::Refuses;
            mood.fate = match ending {
                Ending::Abort => Fate::Break(Break::Abort),
                Ending::Error => Fate::Break(Break::Error),
                Ending::Silence | Ending::RunOn => Fate::Still,
            };
        });
        sleep(if ending == Ending::Silence { left } else { Duration::from_secs(1) }).await;
        self.kill(id, Break::Cut);
    }

    /// The leader dies first; the cluster learns of it later.
    async fn die(self: &Arc<Self>, id: &GroupId, blow: Blow) {
        match blow {
            Blow::Kill => self.kill(id, Break::Cut),
            Blow::KillInside => self.kill(id, Break::CutInside),
            Blow::Reset => self.kill(id, Break::Reset),
            Blow::Core => self.kill_core(id).await,
            Blow::Hang | Blow::HostLost => {
                let port = if blow == Blow::Hang { Port::Accepts } else { Port::Swallows };
                self.mood(id, |mood| (mood.fate, mood.port) = (Fate::Still, port));
                sleep(Duration::from_secs(10) + self.draw(30_000)).await;
                self.with(id, |truth| (truth.broken, truth.ready) = (true, false));
                self.show(id);
                sleep(self.draw(20_000)).await;
                self.kill(id, Break::Cut);
            }
        }
        sleep(self.draw(5000)).await;
        self.end(id);
    }

    async fn kill_core(self: &Arc<Self>, id: &GroupId) {
        self.mood(id, |mood| mood.fate = Fate::Still);
        sleep(Duration::from_millis(1100)).await;
        self.mood(id, |mood| (mood.fate, mood.door) = (Fate::Break(Break::Error), Door::CoreDead));
        sleep(self.draw(100)).await;
        self.kill(id, Break::Cut);
    }

    async fn lose_follower(self: &Arc<Self>, id: &GroupId) {
        self.mood(id, |mood| mood.fate = Fate::Still);
        sleep(self.draw(2000)).await;
        self.with(id, |truth| (truth.broken, truth.ready) = (true, false));
        self.show(id);
        sleep(self.draw(20_000)).await;
        self.leave(id, Reason::MemberDeleting);
        sleep(self.draw(10_000)).await;
        self.kill(id, Break::Cut);
        self.end(id);
    }

    fn leave(self: &Arc<Self>, id: &GroupId, reason: Reason) {
        let since = self.views.wall();
        self.with(id, |truth| truth.leaving = Some((since, reason, self.plan.grace)));
        self.show(id);
    }

    fn kill(&self, id: &GroupId, how: Break) {
        self.mood(id, |mood| (mood.port, mood.fate) = (Port::Refuses, Fate::Break(how)));
    }

    /// The incarnation is no more.
    fn end(self: &Arc<Self>, id: &GroupId) {
        let Some(Incarnation { truth, .. }) = self.truths().remove(id) else { return };
        self.views.show((truth.slot, id), None, self.draw(self.plan.watch_delay));
    }

    // ---- the prober

    async fn take_reports(self: Arc<Self>, mut reports: mpsc::Receiver<GroupId>) {
        while let Some(id) = reports.recv().await {
            let known = self.truths().get(&id).is_some_and(|running| running.truth.proven);
            if !known {
                continue;
            }
            self.scene.journal.note(format_args!("fault reported at {}", id.0));
            self.with(&id, |truth| truth.proven = false);
            self.show(&id);
            let cluster = self.clone();
            self.scene.tasks.spawn(async move { cluster.prove_again(id).await });
        }
    }

    async fn prove_again(self: Arc<Self>, id: GroupId) {
        loop {
            sleep(PROBE).await;
            let Some(leader) = self.truths().get(&id).map(|running| running.leader.clone()) else { return };
            if leader.mood().proves() {
                return self.prove(&id);
            }
        }
    }

    fn prove(self: &Arc<Self>, id: &GroupId) {
        let Some(leader) = self.truths().get(id).map(|running| running.leader.clone()) else { return };
        leader.prove();
        self.with(id, |truth| {
            truth.proven = true;
            truth.proof += 1;
        });
        self.show(id);
    }

    // ---- small things

    fn with(&self, id: &GroupId, change: impl FnOnce(&mut Truth)) {
        if let Some(running) = self.truths().get_mut(id) {
            change(&mut running.truth);
        }
    }

    fn mood(&self, id: &GroupId, change: impl FnOnce(&mut Mood)) {
        let leader = self.truths().get(id).map(|running| running.leader.clone());
        if let Some(leader) = leader {
            leader.change(change);
        }
    }

    fn show(self: &Arc<Self>, id: &GroupId) {
        let shown = self.truths().get(id).map(|running| (running.truth.slot, running.truth.published(&running.host)));
        if let Some((slot, group)) = shown {
            // The beginning is no news.
            let delay = if self.scene.journal.now().is_zero() { Duration::ZERO } else { self.draw(self.plan.watch_delay) };
            self.views.show((slot, id), Some(group), delay);
        }
    }

    fn draw(&self, most: usize) -> Duration {
        Duration::from_millis(self.rng.lock().unwrap_or_else(PoisonError::into_inner).below(most.max(1)) as u64)
    }

    fn truths(&self) -> MutexGuard<'_, BTreeMap<GroupId, Incarnation>> {
        self.truths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
