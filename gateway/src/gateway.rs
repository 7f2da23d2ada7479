//! What all requests share: configuration, routing table, dialler, limits, identity.
//!
//! Built once by `app`; read by everything under `proxy`. No request state lives here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use config::Config;
use discovery::dial::Dialer;
use discovery::snapshot::GroupId;
use discovery::{Fault, FaultSink, Traffic};
use http::{HeaderValue, Version};

use crate::groups::queue::{HeldLimit, Queue};
use crate::groups::state::GroupState;
use crate::groups::table::Tables;
use crate::proxy::dice::Dice;
use crate::proxy::headers::via_version;
use crate::proxy::ingress::BodyBudget;
use crate::proxy::kept::KeptTotal;
use crate::proxy::record::Telemetry;
use crate::shutdown::{LameDuck, Phase};
use crate::upstream::keys::EngineKeys;

/// See the module.
#[derive(Debug)]
pub struct Gateway {
    /// Replaced whole on reload.
    pub config: ArcSwap<Config>,
    /// Pools and incarnations.
    pub tables: Tables,
    /// Connections to leaders.
    pub dialer: Arc<Dialer>,
    /// Keys that engines ask for.
    pub keys: EngineKeys,
    /// Requests held in queues, over all pools.
    pub held: Arc<HeldLimit>,
    /// Requests whose model nobody has learned yet.
    pub unnamed: Arc<Queue>,
    /// Bytes of request bodies.
    pub bodies: Arc<BodyBudget>,
    /// Bytes kept so that streams can be carried on.
    pub kept: Arc<KeptTotal>,
    /// Randomness of picks.
    pub dice: Dice,
    /// The gateway's own end.
    pub lame_duck: LameDuck,
    /// Our `Via` entries and the name in them.
    pub identity: Identity,
    /// Where requests leave their marks.
    pub telemetry: Arc<Telemetry>,
    faults: FaultSink,
    requests: AtomicUsize,
}

impl Gateway {
    /// An empty gateway: no table yet.
    pub fn new(config: Arc<Config>, dialer: Arc<Dialer>, faults: FaultSink, telemetry: Arc<Telemetry>) -> Self {
        let held = config.limits.requests.min(config.limits.connections) / 2;
        Self {
            tables: Tables::new(config.workers, telemetry.metrics.clone()),
            config: ArcSwap::new(config),
            dialer,
            keys: EngineKeys::default(),
            held: Arc::new(HeldLimit::new(held.max(1))),
            unnamed: Arc::default(),
            bodies: Arc::default(),
            kept: Arc::default(),
            dice: Dice::default(),
            lame_duck: LameDuck::default(),
            identity: Identity::new(),
            telemetry,
            faults,
            requests: AtomicUsize::new(0),
        }
    }

    /// Counts a request in; `None`: the limit is reached.
    pub fn enter(self: &Arc<Self>) -> Option<Entered> {
        let limit = self.config.load().limits.requests;
        let entered = Entered { gateway: self.clone() };
        (self.requests.fetch_add(1, Ordering::Relaxed) < limit).then_some(entered)
    }

    /// Requests in the gateway now.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// A request met a fault at `group`: no new picks until a good generation, and discovery probes at once.
    pub fn fault(&self, group: &GroupState, fault: Fault) {
        group.failed();
        if group.health.fault(group.proof()) {
            tracing::warn!(group = %group.key, ?fault, "leader distrusted until a good generation");
        }
        if fault == Fault::Refused {
            group.refused();
        }
        self.report(&group.id, fault);
    }

    /// Ends what still runs, each stream by an error event.
    pub fn cut(&self) {
        self.lame_duck.advance(Phase::Cutting);
        self.tables.nudge();
    }

    /// Tells discovery alone.
    pub fn report(&self, id: &GroupId, fault: Fault) {
        self.faults.report(id, fault);
    }
}

impl Traffic for Gateway {
    fn good_answers(&self, id: &GroupId) -> u64 {
        self.tables.load().group(id).map_or(0, |group| group.good_answers())
    }
}

/// One request in the gateway, counted out by drop.
#[derive(Debug)]
pub struct Entered {
    gateway: Arc<Gateway>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.gateway.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the gateway calls itself in `Via` (RFC 9110 7.6.3): a pseudonym with a random part, no host name.
#[derive(Debug)]
pub struct Identity {
    /// The pseudonym.
    pub name: String,
    via: [HeaderValue; 3],
}

impl Identity {
    fn new() -> Self {
        let name = format!("leadgate-{:08x}", rand::random::<u32>());
        let entry = |version| {
            let text = format!("{} {name}", via_version(version));
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("1.1 leadgate"))
        };
        let via = [entry(Version::HTTP_10), entry(Version::HTTP_11), entry(Version::HTTP_2)];
        Self { name, via }
    }

    /// Our entry for a message that came by `version`.
    pub fn via(&self, version: Version) -> &HeaderValue {
        match via_version(version) {
            "1.0" => &self.via[0],
            "2.0" => &self.via[2],
            _ => &self.via[1],
        }
    }
}
