//! `loadtest flood`: as much load as possible for as little CPU, for benchmarks of a proxy.
//!
//! Sends one request, rendered once, over a fixed number of HTTP/1.1 connections and looks at answers only as far as is
//! needed to count events and find the end. Checks no text: that is `loadtest run`'s work. With a rate, each connection
//! has its own evenly spaced schedule and times count from the moment at which a request was due.

mod counted;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::Uri;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use counted::Counted;

use crate::record::Times;
use crate::report::summary;
use crate::run::resolve;

/// Floods one address.
#[derive(Debug, Clone, clap::Args)]
pub struct FloodArgs {
    /// Where to send.
    #[arg(long)]
    url: Uri,
    /// Connections, each with one request at a time.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0)]
    duration: f64,
    /// Seconds before that, which are not.
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Ends when each connection has sent this many, instead of behind the duration.
    #[arg(long)]
    requests: Option<u64>,
    /// Requests for each second over all connections; 0 sends the next one behind each answer.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Ask for streams.
    #[arg(long)]
    stream: bool,
    /// `max_tokens`.
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Length of the body in bytes, at least.
    #[arg(long, default_value_t = 0)]
    body_bytes: usize,
    /// The `model` field.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// Write the result as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What all connections saw.
#[derive(Debug, Clone, Default)]
pub struct Flooded {
    /// Whole answers with status 200.
    pub good: u64,
    /// Anything else.
    pub bad: u64,
    /// `data:` lines.
    pub events: u64,
    /// Bytes of answers.
    pub bytes: u64,
    /// Until the whole answer.
    pub total: Vec<u32>,
    /// Until the first event or byte of the body.
    pub first: Vec<u32>,
    /// Between reads that carried events.
    pub gaps: Vec<u32>,
}

/// The end of a run that ends by its requests.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Samples that are kept of each kind and connection.
const MAX_SAMPLES: usize = 1 << 20;

impl FloodArgs {
    fn request(&self) -> Vec<u8> {
        let filler = "word ".repeat(self.body_bytes / 5 + 1);
        let body = json!({
            "model": self.model, "messages": [{"role": "user", "content": filler}], "temperature": 0, "max_tokens": self.max_tokens,
            "stream": self.stream
        })
        .to_string();
        let authority = self.url.authority().map(ToString::to_string).unwrap_or_default();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {authority}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}

/// Runs the command; true if nothing was bad.
///
/// # Errors
///
/// If the URL is of no use or the result cannot be written.
pub async fn command(args: FloodArgs) -> io::Result<bool> {
    let address = resolve(&args.url)?;
    let flooded = flood(&args, address).await;
    let seconds = args.duration.max(0.001);
    let result = json!({
        "good": flooded.good, "bad": flooded.bad, "events": flooded.events, "bytes": flooded.bytes,
        "requests_per_second": flooded.good as f64 / seconds, "events_per_second": flooded.events as f64 / seconds,
        "total_ms": times(&flooded.total), "first_ms": times(&flooded.first), "gap_ms": times(&flooded.gaps)
    });
    println!("{result:#}");
    if let Some(path) = &args.json {
        std::fs::write(path, result.to_string())?;
    }
    Ok(flooded.bad == 0)
}

/// Floods `address` and sums up.
pub async fn flood(args: &FloodArgs, address: SocketAddr) -> Flooded {
    let request: std::sync::Arc<[u8]> = args.request().into();
    let begin = Instant::now();
    let from = begin + Duration::try_from_secs_f64(args.warmup).unwrap_or_default();
    let measured = if args.requests.is_some() { FOR_EVER } else { Duration::try_from_secs_f64(args.duration).unwrap_or_default() };
    let until = from + measured;
    let every = (args.rate > 0.0).then(|| Duration::from_secs_f64(args.connections as f64 / args.rate));
    let mut tasks = JoinSet::new();
    for nth in 0..args.connections {
        let offset = every.map_or(Duration::ZERO, |every| every.mul_f64(nth as f64 / args.connections as f64));
        let pipe = Pipe { address, request: request.clone(), stream: None, seen: Flooded::default(), from, until, left: args.requests };
        tasks.spawn(pipe.run(begin + offset, every));
    }
    let mut sum = Flooded::default();
    while let Some(seen) = tasks.join_next().await {
        sum.add(seen.unwrap_or_default());
    }
    sum
}

impl Flooded {
    fn add(&mut self, other: Self) {
        self.good += other.good;
        self.bad += other.bad;
        self.events += other.events;
        self.bytes += other.bytes;
        self.total.extend(other.total);
        self.first.extend(other.first);
        self.gaps.extend(other.gaps);
    }
}

/// One connection.
struct Pipe {
    address: SocketAddr,
    request: std::sync::Arc<[u8]>,
    stream: Option<TcpStream>,
    seen: Flooded,
    from: Instant,
    until: Instant,
    left: Option<u64>,
}

impl Pipe {
    async fn run(mut self, first: Instant, every: Option<Duration>) -> Flooded {
        let mut buffer = vec![0; 64 * 1024];
        let mut due = first;
        loop {
            match every {
                Some(_) => sleep_until(due).await,
                None => due = Instant::now(),
            }
            if Instant::now() >= self.until || self.left == Some(0) {
                return self.seen;
            }
            self.left = self.left.map(|left| left - 1);
            // What is open at the end is neither good nor bad: long streams would count as failures.
            let Ok(asked) = timeout_at(self.until, self.ask(due, &mut buffer)).await else { return self.seen };
            if asked.is_err() {
                self.stream = None;
                self.seen.bad += 1;
                // A refused connection must not become a busy loop.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            due += every.unwrap_or_default();
        }
    }

    async fn ask(&mut self, due: Instant, buffer: &mut [u8]) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address).await?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(&self.request).await?;
        let mut answer = Counted::default();
        let mut last = None;
        while !answer.over {
            let read = stream.read(buffer).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let events = answer.take(&buffer[..read]);
            let now = Instant::now();
            if now < self.from {
                continue;
            }
            self.seen.bytes += read as u64;
            if events > 0 {
                self.seen.events += events;
                let (samples, since) = last.replace(now).map_or((&mut self.seen.first, due), |last| (&mut self.seen.gaps, last));
                sample(samples, now - since);
            }
        }
        if Instant::now() >= self.from {
            sample(&mut self.seen.total, due.elapsed());
            *(if answer.status == 200 { &mut self.seen.good } else { &mut self.seen.bad }) += 1;
        }
        self.stream = answer.keep.then_some(stream);
        Ok(())
    }
}

fn sample(samples: &mut Vec<u32>, time: Duration) {
    if samples.len() < MAX_SAMPLES {
        samples.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
    }
}

fn times(samples: &[u32]) -> Value {
    let mut times = Times::default();
    for us in samples {
        times.add(Duration::from_micros(u64::from(*us)));
    }
    summary(&times)
}
