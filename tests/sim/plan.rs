//! What one seed means: the pool, its settings, the clients and the troubles. Pure.
//!
//! Owns: every random choice that is made before the run. Next step: `world` plays it.
//!
//! What a seed means is kept, or the tests in `seeds` lose theirs: a new choice is drawn behind the old ones.

use std::sync::Arc;
use std::time::Duration;

use config::{Config, PoolSettings};
use loadtest::engine::template::RAW_MARK;
use loadtest::engine::{Persona, Template};
use loadtest::text::Rng;
use serde_json::{Value, json};

/// The path of chats.
pub(crate) const CHAT: &str = "/v1/chat/completions";
/// The path of texts.
pub(crate) const COMPLETIONS: &str = "/v1/completions";
/// Troubles and clients come within this time, in milliseconds.
const SPAN: usize = 40_000;

/// One run.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where it came from.
    pub(crate) seed: u64,
    /// Replica groups of the pool.
    pub(crate) slots: usize,
    /// Managed role: it goes on working while it drains.
    pub(crate) managed: bool,
    /// Pods of each group.
    pub(crate) members: usize,
    /// `terminationGracePeriodSeconds`.
    pub(crate) grace: Duration,
    /// What engines write.
    pub(crate) persona: Persona,
    /// From a request to its first token, and from token to token.
    pub(crate) pace: (Duration, Duration),
    /// Longest start of an engine, in milliseconds.
    pub(crate) startup: usize,
    /// Longest delay of a watch event, in milliseconds.
    pub(crate) watch_delay: usize,
    /// Nothing happens but what the operator announces, and waits are long: nothing may fail.
    pub(crate) announced: bool,
    /// The gateway's configuration.
    pub(crate) config: Arc<Config>,
    /// Who asks.
    pub(crate) clients: Vec<ClientPlan>,
    /// What goes wrong, by time.
    pub(crate) troubles: Vec<Trouble>,
    /// When the deployment is in no snapshot, and for how long.
    pub(crate) absence: Option<(Duration, Duration)>,
    /// When the gateway begins to end, and the grace of what runs then.
    pub(crate) end: Option<(Duration, Duration)>,
    /// The highest slot is said to be the next to go.
    pub(crate) rollout: bool,
}

/// One client and its one request.
#[derive(Debug, Clone)]
pub(crate) struct ClientPlan {
    /// When it comes.
    pub(crate) at: Duration,
    /// `X-Request-Id`.
    pub(crate) id: String,
    /// `/v1/chat/completions` or `/v1/completions`.
    pub(crate) path: &'static str,
    /// As sent.
    pub(crate) body: Value,
    /// Wants a stream.
    pub(crate) stream: bool,
    /// Leaves after this time.
    pub(crate) leaves: Option<Duration>,
    /// Waits this long between two reads.
    pub(crate) slow: Duration,
    /// Bytes that fit between it and the gateway.
    pub(crate) buffer: usize,
    /// HTTP/2 instead of 1.1.
    pub(crate) h2: bool,
}

impl ClientPlan {
    /// Makes it a request of `/v1/completions` with the same fields.
    fn complete_text(&mut self) {
        let Some(fields) = self.body.as_object_mut() else { return };
        let content = fields.remove("messages").and_then(|messages| messages[0]["content"].as_str().map(str::to_owned));
        fields.insert("prompt".to_owned(), format!("{}{RAW_MARK}", content.unwrap_or_default()).into());
        // Engines generate 16 tokens of a text where nobody says how many.
        fields.entry("max_tokens").or_insert(400.into());
        self.path = COMPLETIONS;
    }
}

/// Something that goes wrong at one slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    /// When.
    pub(crate) at: Duration,
    /// Which group.
    pub(crate) slot: usize,
    /// What.
    pub(crate) kind: TroubleKind,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TroubleKind {
    /// The operator replaces the slot.
    Replace(Ending),
    /// A retirement that is taken back after so many milliseconds.
    TakenBack(usize),
    /// The leader dies without a sign.
    Die(Blow),
    /// A follower is lost; the leader hangs, and the group is replaced.
    FollowerLost,
    /// A member is NotReady for so many milliseconds while the engine works on.
    Flap(usize),
    /// What runs at this moment breaks; the engine goes on.
    Glitch(Break),
    /// 503 for so many milliseconds.
    Busy(usize),
}

/// How a SIGTERM ends running requests (engine facts, section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `finish_reason: "abort"`.
    Abort,
    /// An error event.
    Error,
    /// Nothing ever again.
    Silence,
    /// They run on to the end of the grace period; new ones get 500.
    RunOn,
}

/// How a leader dies unplanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL: FIN between two events, the port refuses.
    Kill,
    /// The same in the middle of an event.
    KillInside,
    /// RST to everything, the port refuses.
    Reset,
    /// The engine process is killed: error events a second later, 500, then the port refuses.
    Core,
    /// The process stops: everything is silent, the port accepts.
    Hang,
    /// The host is lost: everything is silent, SYNs are swallowed.
    HostLost,
}

/// How one answer breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Break {
    /// FIN between two events.
    Cut,
    /// FIN inside an event.
    CutInside,
    /// RST.
    Reset,
    /// Abort event, mark, proper end.
    Abort,
    /// Error event, mark, proper end.
    Error,
    /// Proper end of the chunks without finish and mark.
    NoFinish,
    /// Mark and proper end without finish.
    MarkOnly,
}

impl Plan {
    /// The run of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 0x1405_7b7e_f767_814f);
        let rng = &mut rng;
        let slots = 1 + rng.below(3);
        let announced = rng.chance(30);
        let template = if rng.chance(50) { Template::Plain } else { Template::Trim };
        let mut plan = Self {
            seed,
            slots,
            managed: rng.chance(50),
            members: 1 + rng.below(3),
            grace: Duration::from_secs(if rng.chance(50) { 30 } else { 60 }),
            persona: Persona { template, ..Persona::named("m") },
            pace: (millis(rng, 20, 3000), millis(rng, 5, 300)),
            startup: 1000 + rng.below(40_000),
            watch_delay: if rng.chance(50) { 50 } else { 5000 },
            config: configuration(rng, announced),
            announced,
            clients: Vec::new(),
            troubles: Vec::new(),
            absence: None,
            end: None,
            rollout: false,
        };
        plan.clients = (0..6 + rng.below(9)).map(|n| client(rng, seed, n)).collect();
        // A request moves to so many leaders and no further: with more replacements than that some would rightly fail.
        let troubles = if announced { 1 + rng.below(3) } else { 2 + rng.below(7) };
        plan.troubles = (0..troubles).map(|_| trouble(rng, slots, announced)).collect();
        plan.troubles.sort_by_key(|trouble| trouble.at);
        plan.more(rng);
        plan
    }

    /// What was added to the plans later.
    fn more(&mut self, rng: &mut Rng) {
        self.rollout = rng.chance(40);
        for client in &mut self.clients {
            if rng.chance(12) {
                client.complete_text();
            }
        }
        if self.announced {
            return;
        }
        if rng.chance(12) {
            self.absence = Some((millis(rng, 1000, SPAN), millis(rng, 100, 20_000)));
        }
        if rng.chance(12) {
            self.end_at(millis(rng, 5000, SPAN), millis(rng, 100, 20_000));
        }
    }

    /// The gateway is told to end at `at`: who would come later is not let in.
    pub(crate) fn end_at(&mut self, at: Duration, grace: Duration) {
        self.end = Some((at, grace));
        self.clients.retain(|client| client.at < at);
    }

    /// Settings of the pool.
    pub(crate) fn settings(&self) -> &PoolSettings {
        &self.config.defaults
    }
}

fn millis(rng: &mut Rng, least: usize, most: usize) -> Duration {
    Duration::from_millis((least + rng.below(most - least)) as u64)
}

fn configuration(rng: &mut Rng, announced: bool) -> Arc<Config> {
    let mut config = Config::default();
    let mut pool = PoolSettings::default();
    pool.clocks.first_event = Duration::from_secs(60);
    pool.clocks.idle = Duration::from_secs(60);
    pool.clocks.response = Duration::from_secs(240);
    pool.hold.timeout = Duration::from_secs(1800);
    pool.hold.timeout_unary = Duration::from_secs(1800);
    pool.hold.release = 1 + rng.below(4);
    pool.resume.stall = millis(rng, 1000, 5000);
    pool.resume.token_ids = rng.chance(30);
    pool.resume.comment = rng.chance(30);
    if !announced {
        pool.hold.timeout = millis(rng, 5000, 200_000);
        pool.hold.timeout_unary = millis(rng, 1000, 100_000);
        pool.resume.max_moves = u32::try_from(rng.below(4)).unwrap_or(3);
        pool.resume.enabled = !rng.chance(5);
        pool.retry.burst = if rng.chance(20) { 2 } else { 512 };
    }
    config.workers = 1;
    config.defaults = Arc::new(pool);
    Arc::new(config)
}

fn client(rng: &mut Rng, seed: u64, n: usize) -> ClientPlan {
    let stream = !rng.chance(25);
    let kind = rng.pick(&["prose", "prose", "mixed", "code", "cjk"]);
    let content = format!("Request {n} of {seed}. #kind={kind} #sentences={}", 1 + rng.below(5));
    let mut body = json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": content}]});
    let mut put = |name: &str, value: Value| body[name] = value;
    if rng.chance(70) {
        put("temperature", json!(0));
    }
    match rng.below(10) {
        0 => put("seed", json!(rng.below(1000))),
        1 => put("presence_penalty", json!(0.5)),
        2 => put("response_format", json!({"type": "json_object"})),
        3 => {
            put("n", json!(2));
            put("temperature", json!(0.7));
            put("seed", json!(5));
        }
        4 => put("max_tokens", json!(10 + rng.below(60))),
        5 => put("stop", json!(["ing"])),
        _ => {}
    }
    if stream && rng.chance(40) {
        put("stream_options", json!({"include_usage": true}));
    }
    ClientPlan {
        at: millis(rng, 0, SPAN),
        id: format!("r{n}"),
        path: CHAT,
        body,
        stream,
        leaves: rng.chance(15).then(|| millis(rng, 0, 20_000)),
        slow: if rng.chance(20) { millis(rng, 10, 800) } else { Duration::ZERO },
        buffer: if rng.chance(20) { 512 } else { 64 * 1024 },
        h2: rng.chance(30),
    }
}

fn trouble(rng: &mut Rng, slots: usize, announced: bool) -> Trouble {
    let kind = match rng.below(if announced { 5 } else { 14 }) {
        0..4 => TroubleKind::Replace(ending(rng)),
        4 => TroubleKind::TakenBack(200 + rng.below(30_000)),
        5..9 => TroubleKind::Die(blow(rng)),
        9 => TroubleKind::FollowerLost,
        10 => TroubleKind::Flap(500 + rng.below(20_000)),
        11 | 12 => TroubleKind::Glitch(how(rng)),
        _ => TroubleKind::Busy(500 + rng.below(10_000)),
    };
    Trouble { at: millis(rng, 500, SPAN), slot: rng.below(slots), kind }
}

fn ending(rng: &mut Rng) -> Ending {
    [Ending::Abort, Ending::Error, Ending::Silence, Ending::RunOn][rng.below(4)]
}

fn blow(rng: &mut Rng) -> Blow {
    [Blow::Kill, Blow::KillInside, Blow::Reset, Blow::Core, Blow::Hang, Blow::HostLost][rng.below(6)]
}

fn how(rng: &mut Rng) -> Break {
    [Break::Cut, Break::CutInside, Break::Reset, Break::Abort, Break::Error, Break::NoFinish, Break::MarkOnly][rng.below(7)]
}
