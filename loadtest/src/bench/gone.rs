//! How long it takes until the engine sees that a client has left.
//!
//! Clients and engine are both in this process and so have one clock. The engine is as small as can be: it answers a prober, and for the
//! clients that will leave, which it knows by a mark in the body, it streams or says nothing and notices the end of its connection.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use super::round::Figures;

/// What the engine does while the client leaves.
const MODES: [Mode; 3] = [
    Mode { name: "decode", stream: true, missed: "decode_missed", p50: "decode_p50_ms", p99: "decode_p99_ms" },
    Mode { name: "prefill", stream: true, missed: "prefill_missed", p50: "prefill_p50_ms", p99: "prefill_p99_ms" },
    Mode { name: "whole", stream: false, missed: "whole_missed", p50: "whole_p50_ms", p99: "whole_p99_ms" },
];

/// Who has not been seen to leave by then was missed.
const MISSED_AFTER: Duration = Duration::from_secs(4);
const EVENT_EVERY: Duration = Duration::from_millis(20);
const MAX_HEAD: usize = 64 * 1024;
/// Begins the `user` of a request whose client will leave; its number follows.
const MARK: &str = "leaves-";

struct Mode {
    name: &'static str,
    stream: bool,
    missed: &'static str,
    p50: &'static str,
    p99: &'static str,
}

/// What the engine saw of the client of this number. A proxy may close a connection long after its client was given up as missed.
enum News {
    Arrived(u64),
    Left(u64, Instant),
}

/// The engine's port; ends with it.
pub(super) struct Engine {
    pub(super) address: SocketAddr,
    news: mpsc::Receiver<News>,
    /// Clients so far.
    clients: u64,
    _tasks: JoinSet<()>,
}

impl Engine {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (tell, news) = mpsc::channel(16);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let tell = tell.clone();
                connections.spawn(async move {
                    // A connection that breaks has told all that it can.
                    let _ = serve(tcp, &tell).await;
                });
            }
        });
        Ok(Self { address, news, clients: 0, _tasks: tasks })
    }

    /// Lets `clients` leave one after the other in each mode.
    pub(super) async fn round(&mut self, proxy: SocketAddr, clients: usize) -> io::Result<Figures> {
        let mut figures = Figures::new();
        for mode in &MODES {
            let (mut delays, mut missed) = (Vec::new(), 0.0);
            for nth in 0..clients {
                match self.leave(proxy, mode, nth).await? {
                    Some(delay) => delays.push(delay.as_secs_f64() * 1e3),
                    None => missed += 1.0,
                }
                // It will be as slow the next time: a few show it.
                if missed >= 3.0 {
                    break;
                }
            }
            delays.sort_by(f64::total_cmp);
            let at = |share: usize| delays.get(((delays.len() * share) / 100).min(delays.len().saturating_sub(1))).copied();
            figures.extend([(mode.p50, at(50)), (mode.p99, at(99))].into_iter().filter_map(|(name, value)| Some((name, value?))));
            figures.insert(mode.missed, missed);
        }
        Ok(figures)
    }

    async fn leave(&mut self, proxy: SocketAddr, mode: &Mode, nth: usize) -> io::Result<Option<Duration>> {
        self.clients += 1;
        let number = self.clients;
        let mut client = TcpStream::connect(proxy).await?;
        client.write_all(&request(mode, number)).await?;
        if self.wait(|news| matches!(news, News::Arrived(who) if who == number).then_some(())).await.is_none() {
            return Err(io::Error::other(format!("{}: a request did not reach the engine", mode.name)));
        }
        if mode.name == "decode" {
            // Whatever comes first: the head, or more.
            let _ = client.read(&mut [0; 4096]).await?;
        }
        // At another moment between two events each time.
        sleep(Duration::from_millis(10 + nth as u64 % 17)).await;
        let left = Instant::now();
        drop(client);
        let seen = |news| match news {
            News::Left(who, at) => (who == number).then_some(at),
            News::Arrived(_) => None,
        };
        Ok(self.wait(seen).await.map(|at| at.saturating_duration_since(left)))
    }

    /// The first news that `wanted` takes; `None` if it does not come in time.
    async fn wait<T>(&mut self, wanted: impl Fn(News) -> Option<T>) -> Option<T> {
        let look = async {
            loop {
                if let Some(found) = wanted(self.news.recv().await?) {
                    return Some(found);
                }
            }
        };
        timeout(MISSED_AFTER, look).await.ok().flatten()
    }
}

fn request(mode: &Mode, number: u64) -> Vec<u8> {
    let body = json!({"model": "tiny", "stream": mode.stream, "user": format!("{MARK}{number}"), "metadata": {"mode": mode.name},
        "messages": [{"role": "user", "content": "Go."}]})
    .to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

async fn serve(mut tcp: TcpStream, tell: &mpsc::Sender<News>) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    while let Some(request) = read(&mut tcp).await? {
        let body: Value = request.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()).unwrap_or_default();
        let Some(number) = body["user"].as_str().and_then(|user| user.strip_prefix(MARK)?.parse().ok()) else {
            tcp.write_all(&to_prober(&request)).await?;
            continue;
        };
        // The round goes on without whoever asks no longer.
        let _ = tell.send(News::Arrived(number)).await;
        hold(&mut tcp, body["metadata"]["mode"] == "decode").await;
        let _ = tell.send(News::Left(number, Instant::now())).await;
        return Ok(());
    }
    Ok(())
}

/// A prober wants to be told that the engine is well, what it serves, and one token of it.
fn to_prober(request: &str) -> Vec<u8> {
    let body = if request.starts_with("POST ") {
        r#"{"object":"text_completion","choices":[{"index":0,"text":"a","finish_reason":"length"}]}"#
    } else {
        r#"{"object":"list","data":[{"id":"tiny","object":"model"}]}"#
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    (head + body).into_bytes()
}

/// Streams or says nothing until the connection ends.
async fn hold(tcp: &mut TcpStream, stream: bool) {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    const EVENT: &[u8] = b"42\r\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word word \"}}]}\n\n\r\n";
    let (mut reader, mut writer) = tcp.split();
    if stream && writer.write_all(HEAD).await.is_err() {
        return;
    }
    let mut ticks = interval(EVENT_EVERY);
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            biased;
            _ = reader.read(&mut rest) => return,
            _ = ticks.tick(), if stream => if writer.write_all(EVENT).await.is_err() { return },
        }
    }
}

/// One request, head and body.
async fn read(tcp: &mut TcpStream) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some(end) = text.find("\r\n\r\n") {
            let head = text[..end].to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
            // Engines get a length from every proxy here, since the client sent one.
            if text.len() >= end + 4 + length {
                return Ok(Some(text.into_owned()));
            }
        }
        if bytes.len() > MAX_HEAD || tcp.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_proxy_no_client_is_missed() {
        let mut engine = Engine::start().await.unwrap();
        let figures = engine.round(engine.address, 2).await.unwrap();
        for mode in &MODES {
            assert_eq!(figures.get(mode.missed), Some(&0.0), "{}", mode.name);
            assert!(figures.contains_key(mode.p50), "{}", mode.name);
        }
    }

    /// A prober's generation is answered on a connection that stays open, and is no news.
    #[tokio::test]
    async fn a_prober_gets_its_token() {
        let mut engine = Engine::start().await.unwrap();
        let mut prober = TcpStream::connect(engine.address).await.unwrap();
        for _ in 0..2 {
            let ask = b"POST /v1/completions HTTP/1.1\r\nhost: e\r\ncontent-length: 33\r\n\r\n{\"model\":\"tiny\",\"max_tokens\":1  }";
            prober.write_all(ask).await.unwrap();
            let answer = read(&mut prober).await.unwrap().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""finish_reason":"length""#), "{answer}");
        }
        assert!(engine.news.try_recv().is_err());
    }

    /// News of a client that was given up must not count for the next one.
    #[tokio::test]
    async fn news_of_others_is_passed_over() {
        let mut engine = Engine::start().await.unwrap();
        let (tell, news) = mpsc::channel(4);
        engine.news = news;
        tell.send(News::Left(1, Instant::now())).await.unwrap();
        tell.send(News::Arrived(2)).await.unwrap();
        assert_eq!(engine.wait(|news| matches!(news, News::Arrived(2)).then_some(2)).await, Some(2));
        drop(tell);
        assert_eq!(engine.wait(|_| Some(())).await, None);
    }
}
