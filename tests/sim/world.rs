//! One run: the real gateway between simulated clients and a simulated cluster, on a clock that stands still while anybody has work.
//!
//! Owns: the order of building, playing and looking. Everything runs in one thread and without sockets, so a seed replays exactly.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use discovery::FaultSink;
use discovery::dial::Dialer;
use gateway::gateway::Gateway;
use gateway::proxy::dice::Dice;
use gateway::proxy::record::Telemetry;
use gateway::shutdown::Phase;
use gateway::telemetry::metrics::Metrics;
use gateway::telemetry::recent::Recent;
use gateway::telemetry::traces::Traces;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};

use crate::arrivals::Arrivals;
use crate::client::{self, Open, Report};
use crate::cluster::{self, Cluster};
use crate::journal::Journal;
use crate::judge;
use crate::leader::Scene;
use crate::net::Net;
use crate::plan::Plan;
use crate::tasks::Tasks;
use crate::views::Views;

/// Longest run: far more than all waits of a request together.
const LONGEST: Duration = Duration::from_secs(3600);
/// What the server gets to let go of connections whose clients have left.
const SETTLE: Duration = Duration::from_secs(2);

/// What came of one run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What is wrong, in sentences.
    pub(crate) wrong: Vec<String>,
    /// What happened.
    pub(crate) journal: String,
}

/// Plays a plan.
pub(crate) fn play(plan: Plan) -> Outcome {
    try_play(plan).unwrap_or_else(|error| Outcome { wrong: vec![error.to_string()], journal: String::new() })
}

fn try_play(plan: Plan) -> Result<Outcome, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let world = World::build(Arc::new(plan))?;
        Ok(world.run().await)
    })
}

struct World {
    plan: Arc<Plan>,
    scene: Arc<Scene>,
    net: Arc<Net>,
    gateway: Arc<Gateway>,
    views: Arc<Views>,
    open: Arc<Open>,
}

impl World {
    fn build(plan: Arc<Plan>) -> Result<Self, Box<dyn std::error::Error>> {
        let scene = Arc::new(Scene {
            journal: Journal::begin(),
            arrivals: Arrivals::default(),
            tasks: Tasks::default(),
            persona: plan.persona.clone(),
            pace: plan.pace,
        });
        let net = Arc::new(Net::default());
        let telemetry =
            Telemetry { metrics: Metrics::new()?, access: ArcSwap::from_pointee(None), recent: Recent::new(), traces: Traces::off() };
        let (sink, reports) = cluster::reports();
        let dialer = Arc::new(Dialer::over(net.clone()));
        let mut gateway = Gateway::new(plan.config.clone(), dialer, FaultSink::new(sink), Arc::new(telemetry));
        gateway.dice = Dice::seeded(plan.seed);
        let gateway = Arc::new(gateway);
        scene.arrivals.watch(&gateway);
        let views = Views::new(scene.clone(), gateway.clone());
        Cluster::new(scene.clone(), net.clone(), views.clone(), plan.clone()).start(reports);
        Ok(Self { plan, scene, net, gateway, views, open: Arc::default() })
    }

    async fn run(self) -> Outcome {
        let mut clients = JoinSet::new();
        for plan in self.plan.clients.clone() {
            clients.spawn(client::run(self.scene.clone(), self.gateway.clone(), self.open.clone(), plan));
        }
        if let Some((at, grace)) = self.plan.end {
            let (gateway, from) = (self.gateway.clone(), self.scene.journal.at(at));
            self.scene.tasks.spawn(async move {
                sleep_until(from).await;
                gateway.lame_duck.advance(Phase::Closing);
                sleep(grace).await;
                gateway.cut();
            });
        }
        let ended = timeout(LONGEST, clients.join_all()).await;
        sleep(SETTLE).await;
        let mut wrong = match ended {
            Ok(reports) => self.judge(&reports),
            Err(_) => vec![format!("a client still waits after {LONGEST:?}")],
        };
        wrong.extend(self.left());
        self.scene.tasks.abort();
        Outcome { wrong, journal: self.head() + &self.scene.journal.print() }
    }

    fn judge(&self, reports: &[Report]) -> Vec<String> {
        let arrivals = &self.scene.arrivals;
        let mut wrong = judge::clients(&self.plan, reports);
        wrong.extend(judge::arrivals(&self.plan, reports, &arrivals.all(), &arrivals.ends()));
        wrong.extend(self.net.strays().into_iter().map(|address| format!("{address} was dialled and is no leader's")));
        wrong
    }

    /// What the gateway still holds though nobody asks anything any more.
    fn left(&self) -> Vec<String> {
        let gateway = &self.gateway;
        let mut held = vec![
            ("requests".to_owned(), gateway.requests()),
            ("held".to_owned(), gateway.held.held()),
            ("waiting for a name".to_owned(), gateway.unnamed.len()),
            ("bytes kept".to_owned(), gateway.kept.bytes()),
            ("bytes of bodies".to_owned(), usize::try_from(gateway.bodies.held()).unwrap_or(usize::MAX)),
            ("client connections".to_owned(), self.open.count()),
        ];
        for pool in gateway.tables.load().pools() {
            held.push(("waiting".to_owned(), pool.state.queue.len()));
            held.push(("released and not begun".to_owned(), pool.state.queue.unstarted()));
        }
        for state in self.views.states() {
            held.push((format!("permits of {}", state.id.0), state.in_flight() as usize));
        }
        let panics = gateway.telemetry.metrics.panics.get();
        let mut wrong: Vec<String> = held.into_iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what}: {n} left")).collect();
        if panics > 0 {
            wrong.push(format!("{panics} panics"));
        }
        wrong
    }

    fn head(&self) -> String {
        let plan = &self.plan;
        let mut head = format!(
            "seed {}: {} slots of {} members, managed {}, grace {:?}, pace {:?}, watch delay {} ms, absence {:?}, end {:?}\n{:?}\n{:?}\n{:?}\n",
            plan.seed,
            plan.slots,
            plan.members,
            plan.managed,
            plan.grace,
            plan.pace,
            plan.watch_delay,
            plan.absence,
            plan.end,
            plan.settings().hold,
            plan.settings().retry,
            plan.settings().resume,
        );
        for client in &plan.clients {
            // Writing to a string cannot fail.
            let _ = writeln!(head, "{client:?}");
        }
        head
    }
}
