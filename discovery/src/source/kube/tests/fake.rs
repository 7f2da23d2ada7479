//! An API server that answers from a script: HTTP/1.1 by hand, because its faults are the point.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// What one request gets.
pub(super) enum Reply {
    /// Status and body.
    Json(u16, String),
    /// The connection is closed without an answer.
    Drop,
    /// The body ends before its length.
    Truncated(String),
    /// An open watch.
    Stream(mpsc::Receiver<Piece>),
    /// No answer until the client gives up.
    Hold,
}

impl Reply {
    pub(super) fn json(code: u16, body: &Value) -> Self {
        Self::Json(code, body.to_string())
    }
}

/// A part of an open watch.
pub(super) enum Piece {
    Text(String),
    End,
    Cut,
}

/// The test's end of an open watch.
pub(super) struct Stream(mpsc::Sender<Piece>);

impl Stream {
    pub(super) fn send(&self, text: String) {
        self.0.try_send(Piece::Text(text)).expect("room in the script");
    }

    /// The server ends the watch properly.
    pub(super) fn end(&self) {
        self.0.try_send(Piece::End).expect("room in the script");
    }

    /// The connection breaks.
    pub(super) fn cut(&self) {
        self.0.try_send(Piece::Cut).expect("room in the script");
    }
}

#[derive(Default)]
struct Shared {
    script: Mutex<HashMap<(String, &'static str), VecDeque<Reply>>>,
    requests: Mutex<Vec<(String, String)>>,
    away: AtomicBool,
}

/// Requests without a script get an empty list, or a watch without events.
pub(super) struct FakeApi {
    port: u16,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

impl FakeApi {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let mut server = JoinSet::new();
        server.spawn(accept(listener, shared.clone()));
        Self { port, shared, _server: server }
    }

    pub(super) fn url(&self) -> http::Uri {
        format!("http://127.0.0.1:{}", self.port).parse().expect("a URL")
    }

    pub(super) fn script(&self, resource: &str, verb: &'static str, reply: Reply) {
        self.shared.script.lock().unwrap().entry((resource.to_owned(), verb)).or_default().push_back(reply);
    }

    /// The next request of this kind hangs.
    pub(super) fn hold(&self, resource: &str, verb: &'static str) {
        self.script(resource, verb, Reply::Hold);
    }

    /// The next watch of this resource.
    pub(super) fn stream(&self, resource: &str) -> Stream {
        let (sender, receiver) = mpsc::channel(16);
        self.script(resource, "watch", Reply::Stream(receiver));
        Stream(sender)
    }

    /// While it is away, connections are closed at once.
    pub(super) fn away(&self, away: bool) {
        self.shared.away.store(away, Ordering::SeqCst);
    }

    /// Paths with queries, in order.
    pub(super) fn requests(&self, resource: &str) -> Vec<String> {
        self.shared.requests.lock().unwrap().iter().filter(|(of, _)| of == resource).map(|(_, path)| path.clone()).collect()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, shared.clone()));
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut stream = BufReader::new(stream);
    while let Some(path) = request(&mut stream).await {
        if shared.away.load(Ordering::SeqCst) {
            return;
        }
        let resource = path.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned();
        let verb = if path.contains("watch=true") { "watch" } else { "list" };
        shared.requests.lock().unwrap().push((resource.clone(), path));
        let reply = shared.script.lock().unwrap().get_mut(&(resource, verb)).and_then(VecDeque::pop_front);
        let reply = reply.unwrap_or_else(|| match verb {
            "list" => Reply::Json(200, r#"{"metadata":{"resourceVersion":"1"},"items":[]}"#.to_owned()),
            _ => Reply::Hold,
        });
        if answer(&mut stream, reply).await.is_none() {
            return;
        }
    }
}

/// The path of the next request; a GET has no body.
async fn request(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut first = String::new();
    stream.read_line(&mut first).await.ok()?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        if line.trim().is_empty() {
            return first.split(' ').nth(1).map(str::to_owned);
        }
    }
}

/// `None`: the connection is over.
async fn answer(stream: &mut BufReader<TcpStream>, reply: Reply) -> Option<()> {
    match reply {
        Reply::Drop => None,
        Reply::Hold => std::future::pending().await,
        Reply::Json(code, body) => {
            let head = format!("HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.ok()
        }
        Reply::Truncated(body) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len() + 1);
            stream.write_all((head + &body).as_bytes()).await.ok()?;
            None
        }
        Reply::Stream(mut pieces) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.ok()?;
            while let Some(piece) = pieces.recv().await {
                match piece {
                    Piece::Text(text) => stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.ok()?,
                    Piece::End => return stream.write_all(b"0\r\n\r\n").await.ok(),
                    Piece::Cut => return None,
                }
            }
            std::future::pending().await
        }
    }
}
