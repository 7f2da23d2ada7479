//! One simulated engine in one incarnation: HTTP/1.1 over connections in memory, and the deaths of engine facts, section 4.
//!
//! Owns: how a connection goes on under each mood. What it writes is `wording`'s matter, when it dies is `cluster`'s.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use discovery::snapshot::GroupId;
use loadtest::engine::Persona;
use loadtest::engine::ask::{Ask, Endpoint};
use loadtest::engine::errors::ApiError;
use loadtest::engine::job::Job;
use loadtest::engine::whole::Answer;
use tokio::io::{AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::arrivals::{Arrivals, How};
use crate::inbox::{Inbox, Request};
use crate::journal::Journal;
use crate::mood::{Door, Fate, Mood, Port};
use crate::plan::Break;
use crate::tasks::Tasks;
use crate::wording::{STREAM_HEAD, Wording, whole};

/// Engines close idle connections after this time.
const IDLE: Duration = Duration::from_secs(5);

/// What all leaders of a run share.
#[derive(Debug)]
pub(crate) struct Scene {
    /// For people.
    pub(crate) journal: Journal,
    /// Who asked whom.
    pub(crate) arrivals: Arrivals,
    /// Every task of the run.
    pub(crate) tasks: Tasks,
    /// What is written.
    pub(crate) persona: Persona,
    /// First token, next token.
    pub(crate) pace: (Duration, Duration),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Leader {
    /// The incarnation.
    pub(crate) id: GroupId,
    scene: Arc<Scene>,
    mood: Mutex<Mood>,
    /// Wakes in the order of waiting, which a watch channel does not: a seed must replay exactly.
    changed: Notify,
    proven: AtomicBool,
}

/// Why an answer ends early.
enum Stop {
    Gone,
    Break(Break),
}

impl Leader {
    /// An engine that does not listen yet.
    pub(crate) fn new(id: GroupId, scene: Arc<Scene>) -> Arc<Self> {
        Arc::new(Self { id, scene, mood: Mutex::new(Mood::starting()), changed: Notify::new(), proven: AtomicBool::new(false) })
    }

    /// Its state.
    pub(crate) fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes its state; every connection sees it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Mood)) {
        let accepted = self.mood().port == Port::Accepts;
        change(&mut self.mood.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_waiters();
        if accepted && self.mood().port != Port::Accepts {
            self.scene.arrivals.closed(&self.id, self.scene.journal.now());
        }
        self.scene.journal.note(format_args!("{} {:?}", self.id.0, self.mood()));
    }

    /// A probe has been answered by a generation.
    pub(crate) fn prove(&self) {
        self.proven.store(true, Ordering::Relaxed);
    }

    /// A new connection.
    pub(crate) fn accept(self: &Arc<Self>, wire: DuplexStream, reset: Arc<AtomicBool>) {
        let leader = self.clone();
        self.scene.tasks.spawn(async move { leader.serve(wire, reset).await });
    }

    async fn serve(self: Arc<Self>, wire: DuplexStream, reset: Arc<AtomicBool>) {
        let (reader, writer) = tokio::io::split(wire);
        let mut line = Line { leader: &self, inbox: Inbox::new(reader), writer, began: 0, reset };
        while let Some(request) = line.next().await {
            if !line.answer(request).await {
                return;
            }
        }
    }
}

/// One connection.
struct Line<'a> {
    leader: &'a Leader,
    inbox: Inbox,
    writer: WriteHalf<DuplexStream>,
    /// Round in which the request began.
    began: u32,
    reset: Arc<AtomicBool>,
}

impl Line<'_> {
    /// The next request; `None`: the connection ends.
    async fn next(&mut self) -> Option<Request> {
        loop {
            let mood = self.leader.mood();
            if mood.fate == Fate::Still {
                // Neither answered nor closed.
                tokio::select! {
                    biased;
                    () = self.inbox.gone() => return None,
                    () = self.leader.changed.notified() => {}
                }
                continue;
            }
            if mood.port == Port::Refuses {
                return None;
            }
            tokio::select! {
                biased;
                () = self.leader.changed.notified() => {}
                request = timeout(IDLE, self.inbox.next()) => return request.ok()?,
            }
        }
    }

    /// Answers one request; whether the connection can take another.
    async fn answer(&mut self, request: Request) -> bool {
        let scene = &self.leader.scene;
        let (journal, arrivals) = (&scene.journal, &scene.arrivals);
        self.began = self.leader.mood().round();
        if request.path == "/tokenize" {
            let answer = tokenize(&request.body, &scene.persona);
            return self.put(&answer).await.is_ok();
        }
        let number = arrivals.begin(journal.now(), &request.id, &self.leader.id, self.leader.proven.load(Ordering::Relaxed));
        journal.note(format_args!("{} reaches {} ({})", request.id, self.leader.id.0, shape(&request.body)));
        let how = self.work(&request, number).await;
        journal.note(format_args!("{} at {}: {how:?}", request.id, self.leader.id.0));
        arrivals.end(number, journal.now(), how);
        match how {
            How::Complete | How::Refused => true,
            How::Broken(Break::Abort | Break::Error | Break::NoFinish | Break::MarkOnly) => true,
            How::Broken(Break::Reset) => {
                self.reset.store(true, Ordering::Relaxed);
                false
            }
            How::Broken(Break::Cut | Break::CutInside) | How::Left { .. } => false,
        }
    }

    async fn work(&mut self, request: &Request, number: usize) -> How {
        let scene = self.leader.scene.clone();
        let endpoint = if request.path.starts_with("/v1/chat") { Endpoint::Chat } else { Endpoint::Completion };
        let asked = Ask::read(endpoint, &request.body);
        let streamed = asked.as_ref().is_ok_and(|ask| ask.stream);
        let door = self.leader.mood().door;
        let refusal = match door {
            Door::Open => None,
            Door::Busy => Some(ApiError::busy()),
            Door::Stopping => Some(ApiError::stopping()),
            Door::CoreDead if streamed => {
                let bytes = [STREAM_HEAD, &Wording::error()].concat();
                return self.put(&bytes).await.map_or_else(|stop| self.how(stop), |()| How::Refused);
            }
            Door::CoreDead => Some(ApiError::core_dead()),
        };
        let job = match refusal {
            Some(error) => Err(error),
            None => asked.and_then(|ask| Job::new(ask, &scene.persona, 0)),
        };
        let job = match job {
            Ok(job) => job,
            Err(error) => return self.put(&whole(error.status, &error.body())).await.map_or_else(|stop| self.how(stop), |()| How::Refused),
        };
        let id = format!("{}-{}", if endpoint == Endpoint::Chat { "chatcmpl" } else { "cmpl" }, request.id);
        let created = scene.journal.now().as_secs();
        if job.ask.stream { self.stream(&job, &id, created, number).await } else { self.full(&job, &id, created).await }
    }

    async fn stream(&mut self, job: &Job, id: &str, created: u64, number: usize) -> How {
        let mut wording = Wording::new(job, id, created);
        match self.generate(&mut wording, number).await {
            Ok(()) => How::Complete,
            Err(Stop::Gone) => self.how(Stop::Gone),
            Err(Stop::Break(how)) => self.break_off(&mut wording, how).await,
        }
    }

    async fn generate(&mut self, wording: &mut Wording<'_>, number: usize) -> Result<(), Stop> {
        let (first, token) = self.leader.scene.pace;
        self.put(STREAM_HEAD).await?;
        let mut due = Instant::now() + first;
        self.pause(due).await?;
        let mut events = wording.open();
        while let Some(event) = wording.next() {
            events.extend_from_slice(&event);
            self.put(&events).await?;
            self.leader.scene.arrivals.event(number);
            events.clear();
            due += token;
            self.pause(due).await?;
        }
        self.put(&wording.close()).await
    }

    /// The last bytes of a stream that breaks, if any.
    async fn break_off(&mut self, wording: &mut Wording<'_>, how: Break) -> How {
        let last = match how {
            Break::Cut | Break::Reset => Vec::new(),
            Break::CutInside => {
                let mut event = wording.next().unwrap_or_default();
                event.truncate(event.len() / 2);
                event
            }
            Break::Abort => wording.abort(),
            Break::Error => Wording::error(),
            Break::NoFinish => b"0\r\n\r\n".to_vec(),
            Break::MarkOnly => loadtest::engine::events::DONE.to_vec(),
        };
        match self.writer.write_all(&last).await {
            Ok(()) => How::Broken(how),
            Err(_) => self.how(Stop::Gone),
        }
    }

    async fn full(&mut self, job: &Job, id: &str, created: u64) -> How {
        let answer = Answer::of(job);
        let (first, token) = self.leader.scene.pace;
        let tokens = u32::try_from(answer.longest()).unwrap_or(u32::MAX);
        let done = self.pause(Instant::now() + first + token * tokens).await;
        let body = answer.body(job, id, created, "sim");
        let (bytes, how) = match done {
            Ok(()) => (whole(200, &body), How::Complete),
            Err(Stop::Gone) => return self.how(Stop::Gone),
            Err(Stop::Break(how)) => (broken_whole(job, id, created, how, &body), How::Broken(how)),
        };
        // A broken answer ends under the mood that broke it.
        let written =
            if how == How::Complete { self.put(&bytes).await } else { self.writer.write_all(&bytes).await.map_err(|_| Stop::Gone) };
        written.map_or_else(|stop| self.how(stop), |()| how)
    }

    fn how(&self, stop: Stop) -> How {
        match stop {
            Stop::Gone => How::Left { working: self.leader.mood().works() && self.leader.mood().fate_since(self.began) == Fate::Run },
            Stop::Break(how) => How::Broken(how),
        }
    }

    /// Writes, unless the mood says otherwise before all is written.
    async fn put(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let mut left = bytes;
        while !left.is_empty() {
            let begun = left.len() < bytes.len();
            self.pause(Instant::now()).await.map_err(|stop| match stop {
                // What was cut in the middle cannot be ended well any more.
                Stop::Break(_) if begun => Stop::Break(Break::Cut),
                Stop::Break(_) | Stop::Gone => stop,
            })?;
            tokio::select! {
                biased;
                written = self.writer.write(left) => left = &left[written.map_err(|_| Stop::Gone)?..],
                () = self.leader.changed.notified() => {}
            }
        }
        Ok(())
    }

    /// Waits until `until`, and as long as nothing moves.
    async fn pause(&mut self, until: Instant) -> Result<(), Stop> {
        loop {
            let fate = self.leader.mood().fate_since(self.began);
            match fate {
                Fate::Break(how) => return Err(Stop::Break(how)),
                Fate::Run if until <= Instant::now() => return Ok(()),
                Fate::Run | Fate::Still => {}
            }
            tokio::select! {
                biased;
                () = self.inbox.gone() => return Err(Stop::Gone),
                () = self.leader.changed.notified() => {}
                () = sleep_until(until), if fate == Fate::Run => {}
            }
        }
    }
}

/// How an answer that is not streamed looks when it breaks.
fn broken_whole(job: &Job, id: &str, created: u64, how: Break, body: &str) -> Vec<u8> {
    match how {
        Break::Abort => whole(200, &Answer::aborted(job, 3).body(job, id, created, "sim")),
        Break::Error | Break::NoFinish | Break::MarkOnly => whole(500, &ApiError::core_dead().body()),
        Break::CutInside => {
            let mut bytes = whole(200, body);
            bytes.truncate(bytes.len() - body.len() / 2 - 1);
            bytes
        }
        Break::Cut | Break::Reset => Vec::new(),
    }
}

fn tokenize(body: &[u8], persona: &Persona) -> Vec<u8> {
    let endpoint = if body.windows(10).any(|w| w == b"\"messages\"") { Endpoint::Chat } else { Endpoint::Completion };
    match Ask::read(endpoint, body).and_then(|ask| Job::new(ask, persona, 0)) {
        Ok(job) => {
            let tokens = job.prompt_ids();
            whole(200, &serde_json::json!({"count": tokens.len(), "max_model_len": persona.max_model_len, "tokens": tokens}).to_string())
        }
        Err(error) => whole(error.status, &error.body()),
    }
}

/// In a word, for people.
fn shape(body: &[u8]) -> &'static str {
    let has = |needle: &[u8]| body.windows(needle.len()).any(|w| w == needle);
    match () {
        () if has(b"continue_final_message") => "continued",
        () if has(b"\"prompt\"") => "token ids",
        () => "as asked",
    }
}
