//! A scripted engine: proves that it serves when the gateway probes it, and does with other requests what the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};
use tests::Outcome;
use tests::poll::{PATIENCE, eventually};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::message::{End, Head, Peer};
use super::own_address;
use super::script::{Step, answer};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// Request line and fields.
    pub(crate) head: Head,
    /// Body without its framing.
    pub(crate) body: Vec<u8>,
    /// Which connection it came by, counted from 0 over all that carried requests for text.
    pub(crate) connection: usize,
}

/// Answers a request with steps.
pub(crate) type Script = Arc<dyn Fn(&Received) -> Vec<Step> + Send + Sync>;

struct Shared {
    script: Script,
    received: Mutex<Vec<Received>>,
    /// Connections that carried requests for text.
    connections: AtomicUsize,
    /// Times that a peer was gone in a `Hold`, a `Drip` or a `Flood`, or between two requests.
    gone: AtomicUsize,
    /// Times that a script closed.
    ended: AtomicUsize,
    flooded: AtomicUsize,
    ready: AtomicBool,
    deaf: AtomicBool,
    heard: Notify,
}

/// A running scripted engine; its connections end with it.
pub(crate) struct ScriptedEngine {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl ScriptedEngine {
    /// Starts one that answers by `script`.
    pub(crate) fn start(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Outcome<Self> {
        Self::start_as(true, script)
    }

    /// Starts one that is not ready: its probes get 503 until [`ScriptedEngine::set_ready`] says otherwise.
    pub(crate) fn start_unready(script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Outcome<Self> {
        Self::start_as(false, script)
    }

    fn start_as(ready: bool, script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) -> Outcome<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&own_address().into())?;
        // A short backlog, so that a test can fill it.
        socket.listen(8)?;
        let listener = TcpListener::from_std(socket.into())?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Arc::new(script),
            received: Mutex::default(),
            connections: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            flooded: AtomicUsize::new(0),
            ready: AtomicBool::new(ready),
            deaf: AtomicBool::new(false),
            heard: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, shared.clone()));
        Ok(Self { address, shared, _tasks: tasks })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// `MODEL=URL`.
    pub(crate) fn leader(&self, model: &str) -> String {
        format!("{model}=http://{}", self.address)
    }

    /// Its group's key in a snapshot.
    pub(crate) fn key(&self) -> String {
        format!("static/{}", self.address)
    }

    /// Requests for text so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest request for text.
    pub(crate) fn last(&self) -> Outcome<Received> {
        Ok(self.received().pop().ok_or("no request reached the engine")?)
    }

    /// The newest request for text, which is forgotten: for large bodies.
    pub(crate) fn take_last(&self) -> Outcome<Received> {
        let taken = self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(taken.ok_or("no request reached the engine")?)
    }

    /// Waits until so many requests for text have come.
    pub(crate) async fn wait_received(&self, n: usize) -> Outcome<()> {
        eventually(PATIENCE, "requests at the engine", || async {
            let seen = self.received().len();
            if seen >= n { Ok(()) } else { Err(format!("{seen} of {n}")) }
        })
        .await
    }

    /// Waits until so many peers have gone.
    pub(crate) async fn wait_gone(&self, n: usize) -> Outcome<()> {
        count("connections closed by the gateway", &self.shared.gone, n).await
    }

    /// Waits until scripts have closed so many connections.
    pub(crate) async fn wait_ended(&self, n: usize) -> Outcome<()> {
        count("connections closed by the engine", &self.shared.ended, n).await
    }

    /// Bytes that floods have written.
    pub(crate) fn flooded(&self) -> usize {
        self.shared.flooded.load(Ordering::Relaxed)
    }

    /// Whether probes are answered from now on.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.shared.ready.store(ready, Ordering::Relaxed);
    }

    /// Accepts no connection any more and fills the backlog, so that the kernel drops every SYN. The connections that fill it are given
    /// back: they have to live as long as the black hole.
    pub(crate) async fn become_black_hole(&self) -> Outcome<Vec<TcpStream>> {
        self.shared.deaf.store(true, Ordering::Relaxed);
        // The accept in progress takes one more.
        let mut fillers = vec![TcpStream::connect(self.address).await?];
        self.shared.heard.notified().await;
        loop {
            match tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(self.address)).await {
                Ok(connected) => fillers.push(connected?),
                Err(_) => return Ok(fillers),
            }
        }
    }
}

async fn count(what: &str, counter: &AtomicUsize, n: usize) -> Outcome<()> {
    eventually(PATIENCE, what, || async {
        let seen = counter.load(Ordering::Relaxed);
        if seen >= n { Ok(()) } else { Err(format!("{seen} of {n}")) }
    })
    .await
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut kept = Vec::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                if shared.deaf.load(Ordering::Relaxed) {
                    kept.push(stream);
                    break;
                }
                let shared = shared.clone();
                connections.spawn(async move {
                    // What a test has to see is in the counters; a connection that ends is no failure by itself.
                    let _ = serve(stream, &shared).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    shared.heard.notify_one();
    // Deaf: the listener stays bound, connections go on.
    while connections.join_next().await.is_some() {}
    std::future::pending::<()>().await;
    drop((listener, kept));
}

async fn serve(stream: TcpStream, shared: &Shared) -> Outcome<()> {
    let mut peer = Peer::new(stream)?;
    let mut number = None;
    loop {
        let Some(head) = peer.head().await? else {
            if number.is_some() {
                shared.gone.fetch_add(1, Ordering::Relaxed);
            }
            return Ok(());
        };
        let (body, End::Whole) = peer.body(&head, false).await? else { return Ok(()) };
        if head.get("user-agent") == Some("leadgate-probe") {
            peer.send(probe_answer(&head, shared.ready.load(Ordering::Relaxed))).await?;
            continue;
        }
        let connection = *number.get_or_insert_with(|| shared.connections.fetch_add(1, Ordering::Relaxed));
        let received = Received { head, body, connection };
        shared.received.lock().unwrap_or_else(PoisonError::into_inner).push(received.clone());
        if !act(&mut peer, (shared.script)(&received), shared).await? {
            return Ok(());
        }
    }
}

fn probe_answer(head: &Head, ready: bool) -> Vec<u8> {
    if !ready {
        return answer(503, "", "");
    }
    if head.start.contains("/health") {
        answer(200, "", "")
    } else if head.start.contains("/v1/models") {
        answer(200, "", r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#)
    } else {
        answer(
            200,
            "",
            r#"{"id":"p","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"a","message":{"role":"assistant","content":"a"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#,
        )
    }
}

/// False: the connection is over.
async fn act(peer: &mut Peer, steps: Vec<Step>, shared: &Shared) -> Outcome<bool> {
    for step in steps {
        match step {
            Step::Send(bytes) => peer.send(bytes).await?,
            Step::Wait(gate) => gate.acquire().await?.forget(),
            Step::Drip(bytes, pace) => {
                while peer.stream.write_all(&bytes).await.is_ok() {
                    tokio::time::sleep(pace).await;
                }
                shared.gone.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
            Step::Flood(bytes, times) => flood(peer, &bytes, times, shared).await?,
            Step::Hold => {
                peer.rest().await?;
                shared.gone.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
            Step::Fin | Step::Reset => {
                if matches!(step, Step::Reset) {
                    SockRef::from(&peer.stream).set_linger(Some(Duration::ZERO))?;
                } else {
                    peer.stream.shutdown().await?;
                }
                shared.ended.fetch_add(1, Ordering::Relaxed);
                return Ok(false);
            }
        }
    }
    Ok(true)
}

async fn flood(peer: &mut Peer, bytes: &[u8], times: usize, shared: &Shared) -> Outcome<()> {
    for _ in 0..times {
        if let Err(error) = peer.stream.write_all(bytes).await {
            shared.gone.fetch_add(1, Ordering::Relaxed);
            return Err(error.into());
        }
        shared.flooded.fetch_add(bytes.len(), Ordering::Relaxed);
    }
    Ok(())
}
