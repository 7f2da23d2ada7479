//! Running a plan: requests leave at their times, whatever happens to those before them.
//!
//! [`run`] is the library, [`RunArgs`] the command `loadtest run`. Open requests are bounded; one that is due beyond the
//! bound is counted as not sent, never delayed.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::uri::Uri;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::client::{Client, Expectation, Observation, Protocol, Target};
use crate::engine::{Persona, Template};
use crate::plan::{Arrival, Plan, PlanSpec};
use crate::record::Record;
use crate::report::Report;
use crate::text::Kind;

/// How a plan is run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// What the engines write; nothing is compared without it.
    pub due: Option<Arc<Expectation>>,
    /// Longest silence before a client gives up.
    pub patience: Duration,
    /// Open requests at most.
    pub open: usize,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self { due: None, patience: Duration::from_secs(1800), open: 20_000 }
    }
}

/// Runs a plan to the end of its last request.
pub async fn run(client: Arc<Client>, plan: impl Iterator<Item = Arrival>, options: RunOptions) -> Record {
    let start = Instant::now();
    let (mut open, mut record) = (JoinSet::new(), Record::default());
    for arrival in plan {
        wait(start + arrival.at, &mut open, &mut record).await;
        if open.len() >= options.open {
            record.not_sent += 1;
            continue;
        }
        let (client, options) = (client.clone(), options.clone());
        open.spawn(async move { client.observe(&arrival, start, options.due.as_deref(), options.patience).await });
    }
    while let Some(seen) = open.join_next().await {
        take(seen, &mut record);
    }
    record
}

/// Waits until `due`, summing up what ends meanwhile.
async fn wait(due: Instant, open: &mut JoinSet<Observation>, record: &mut Record) {
    loop {
        tokio::select! {
            biased;
            () = sleep_until(due) => return,
            Some(seen) = open.join_next(), if !open.is_empty() => take(seen, record),
        }
    }
}

fn take(seen: Result<Observation, tokio::task::JoinError>, record: &mut Record) {
    match seen {
        Ok(seen) => record.add(seen),
        Err(error) => tracing::error!(%error, "a client task failed"),
    }
}

/// Sends open-loop load and checks every character of the answers.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Where to send, for example `http://127.0.0.1:8080`; repeat for several gateways behind one name.
    #[arg(long, required = true)]
    url: Vec<Uri>,
    /// The `model` field.
    #[arg(long, default_value = "tiny")]
    model: String,
    /// The name that the engine serves, if `--model` is a deployment.
    #[arg(long)]
    served_model: Option<String>,
    /// Requests for each second.
    #[arg(long, default_value_t = 10.0)]
    rate: f64,
    /// Seconds during which requests arrive.
    #[arg(long, default_value_t = 30.0)]
    duration: f64,
    /// Seed of the plan.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Shortest and longest prompt in words.
    #[arg(long, num_args = 2, default_values_t = [8, 60])]
    prompt_words: Vec<usize>,
    /// Smallest and largest `max_tokens`.
    #[arg(long, num_args = 2, default_values_t = [20, 200])]
    output_tokens: Vec<usize>,
    /// Share of streams in percent.
    #[arg(long, default_value_t = 80)]
    streamed: usize,
    /// Share of requests that are cancelled in percent.
    #[arg(long, default_value_t = 0)]
    cancelled: usize,
    /// Share of sampled requests (with a seed) in percent.
    #[arg(long, default_value_t = 0)]
    sampled: usize,
    /// Share of requests that are hard to carry on (penalties, stop strings, grammars, two choices) in percent.
    #[arg(long, default_value_t = 0)]
    variety: usize,
    /// HTTP/1.1 or HTTP/2.
    #[arg(long, value_enum, default_value = "h1")]
    protocol: Protocol,
    /// Sent as `Authorization: Bearer`.
    #[arg(long, env = "LOADTEST_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Do not compare texts: the servers are no simulated engines.
    #[arg(long)]
    no_check: bool,
    /// The engines' template.
    #[arg(long, value_enum, default_value = "plain")]
    template: Template,
    /// The engines' kind of text.
    #[arg(long, value_enum, default_value = "mixed")]
    text: Kind,
    /// Longest silence in seconds before a client gives up.
    #[arg(long, default_value_t = 1800.0)]
    patience: f64,
    /// Write the report as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Write the report as an HTML page.
    #[arg(long)]
    html: Option<PathBuf>,
    /// Bad requests that are allowed before the exit status is 1.
    #[arg(long, default_value_t = 0)]
    allow_bad: u64,
}

impl RunArgs {
    fn spec(&self) -> PlanSpec {
        let pair = |values: &[usize]| (values.first().copied().unwrap_or(1), values.last().copied().unwrap_or(1));
        PlanSpec {
            seed: self.seed,
            rate: self.rate,
            duration: Duration::try_from_secs_f64(self.duration).unwrap_or_default(),
            model: self.model.clone(),
            prompt_words: pair(&self.prompt_words),
            output_tokens: pair(&self.output_tokens),
            streamed: self.streamed,
            cancelled: self.cancelled,
            sampled: self.sampled,
            variety: self.variety,
            ..PlanSpec::default()
        }
    }

    fn target(&self) -> io::Result<Target> {
        let addresses = self.url.iter().map(resolve).collect::<io::Result<Vec<_>>>()?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.api_key {
            headers.insert(http::header::AUTHORIZATION, format!("Bearer {key}").parse().map_err(io::Error::other)?);
        }
        let authority = self.url.first().and_then(Uri::authority).map(ToString::to_string).unwrap_or_default();
        Ok(Target { addresses, authority, protocol: self.protocol, h2_connections: 8, headers })
    }

    fn expectation(&self) -> Option<Arc<Expectation>> {
        let served = self.served_model.as_ref().unwrap_or(&self.model);
        let persona = Persona { template: self.template, kind: self.text, ..Persona::named(served) };
        (!self.no_check).then(|| Arc::new(Expectation { persona, served_model: self.served_model.clone() }))
    }
}

/// Runs the command; true if the run was good enough.
///
/// # Errors
///
/// If a URL is of no use or a report cannot be written.
pub async fn command(args: RunArgs) -> io::Result<bool> {
    let spec = args.spec();
    let client = Arc::new(Client::new(args.target()?));
    let patience = Duration::try_from_secs_f64(args.patience).unwrap_or_default();
    let options = RunOptions { due: args.expectation(), patience, ..RunOptions::default() };
    let title = format!("{} requests/s of {} for {:?}, seed {}", spec.rate, spec.model, spec.duration, spec.seed);
    let setup = serde_json::to_value(&spec).map_err(io::Error::other)?;
    let record = run(client, Plan::new(spec), options).await;
    let report = Report { title, setup, record };
    print!("{}", report.text());
    if let Some(path) = &args.json {
        std::fs::write(path, report.json().to_string())?;
    }
    if let Some(path) = &args.html {
        std::fs::write(path, report.html())?;
    }
    Ok(report.record.bad() <= args.allow_bad && report.record.not_sent == 0)
}

pub(crate) fn resolve(url: &Uri) -> io::Result<SocketAddr> {
    let unusable = || io::Error::new(io::ErrorKind::InvalidInput, format!("{url} is no http:// URL with a host"));
    let host = url.host().filter(|_| url.scheme_str() == Some("http")).ok_or_else(unusable)?;
    let host = host.trim_matches(['[', ']']);
    (host, url.port_u16().unwrap_or(80)).to_socket_addrs()?.next().ok_or_else(unusable)
}
