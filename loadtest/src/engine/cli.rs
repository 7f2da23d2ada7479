//! `loadtest engine`: an engine as a process of its own, with vLLM's flag names where vLLM has the flag.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::config::{Death, Ending, EngineConfig, EngineLimits, Pace};
use super::handle::Engine;
use super::persona::{ModelName, Persona, Template, Unseeded};
use crate::text::Kind;

/// Simulates a vLLM leader.
#[derive(Debug, clap::Args)]
pub struct EngineArgs {
    /// Where to listen once the start-up time is over.
    #[arg(long, default_value = "127.0.0.1:8000")]
    listen: SocketAddr,
    /// Where to take commands (`POST /control/...`).
    #[arg(long)]
    control: Option<SocketAddr>,
    /// Served names; the first is the model.
    #[arg(long = "model", alias = "served-model-name", default_value = "tiny", num_args = 1..)]
    models: Vec<String>,
    /// LoRA adapters: further names whose parent is the model.
    #[arg(long = "lora")]
    loras: Vec<String>,
    /// What the text looks like when the prompt has no `#kind=` marker.
    #[arg(long, value_enum, default_value = "mixed")]
    text: Kind,
    /// What the chat template does.
    #[arg(long, value_enum, default_value = "plain")]
    template: Template,
    /// Longest prompt and answer together, in tokens.
    #[arg(long, default_value_t = 131_072)]
    max_model_len: usize,
    /// The model thinks in `<think>` marks first.
    #[arg(long)]
    thinking: bool,
    /// Thoughts become `reasoning` deltas; implies `--thinking`.
    #[arg(long)]
    reasoning_parser: Option<String>,
    /// Tool calls become `tool_calls` deltas.
    #[arg(long)]
    tool_call_parser: Option<String>,
    /// What a sampled request without a seed gets.
    #[arg(long, value_enum, default_value = "same")]
    unseeded: Unseeded,
    /// Engines with other weights write other texts.
    #[arg(long, default_value_t = 0)]
    weights: u64,
    /// Seconds until the port accepts.
    #[arg(long, default_value_t = 0.0)]
    startup: f64,
    /// Milliseconds to the first token.
    #[arg(long, default_value_t = 80.0)]
    ttft_ms: f64,
    /// Milliseconds from token to token.
    #[arg(long, default_value_t = 20.0)]
    itl_ms: f64,
    /// Jitter of both, in percent.
    #[arg(long, default_value_t = 20)]
    jitter: u32,
    /// Rounds of tokens in one write.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Requests that generate at the same time.
    #[arg(long, default_value_t = 256)]
    max_num_seqs: usize,
    /// Requests that may wait before the next one gets 503.
    #[arg(long)]
    max_num_queued_reqs: Option<usize>,
    /// Guards `/v1`.
    #[arg(long)]
    api_key: Option<String>,
    /// Echo or make `x-request-id`.
    #[arg(long)]
    enable_request_id_headers: bool,
    /// Seconds of silence before a comment in a stream.
    #[arg(long)]
    sse_keep_alive_interval: Option<f64>,
    /// Seconds that running requests may go on after a SIGTERM.
    #[arg(long, default_value_t = 0.0)]
    shutdown_timeout: f64,
    /// How a default SIGTERM ends running requests; drawn from the seed without it.
    #[arg(long, value_enum)]
    ending: Option<Ending>,
    /// For benchmarks: the same words over and over, rendered once; implies `--requests-log 0`.
    #[arg(long)]
    canned: bool,
    /// Be a follower: count any request as a fault.
    #[arg(long)]
    follower: bool,
    /// How many requests are remembered for `GET /control/requests`; 0 keeps none.
    #[arg(long, default_value_t = 4096)]
    requests_log: usize,
    /// Seed of jitter and endings.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl EngineArgs {
    /// The set-up that the flags ask for.
    pub fn config(&self) -> EngineConfig {
        EngineConfig {
            listen: self.listen,
            control: self.control,
            persona: self.persona(),
            pace: Pace {
                startup: seconds(self.startup),
                first_token: seconds(self.ttft_ms / 1e3),
                token: seconds(self.itl_ms / 1e3),
                jitter: self.jitter,
                batch: self.batch,
            },
            limits: EngineLimits { running: self.max_num_seqs, queued: self.max_num_queued_reqs, ..EngineLimits::default() },
            death: Death { shutdown_timeout: seconds(self.shutdown_timeout), ending: self.ending, ..Death::default() },
            api_key: self.api_key.clone(),
            request_id_headers: self.enable_request_id_headers,
            sse_keep_alive: self.sse_keep_alive_interval.map(seconds),
            canned: self.canned,
            follower: self.follower,
            requests_log: if self.canned { 0 } else { self.requests_log },
            seed: self.seed,
        }
    }

    fn persona(&self) -> Persona {
        let base = self.models.first().cloned();
        let plain = self.models.iter().map(|id| ModelName { id: id.clone(), parent: None });
        let loras = self.loras.iter().map(|id| ModelName { id: id.clone(), parent: base.clone() });
        Persona {
            models: plain.chain(loras).collect(),
            kind: self.text,
            template: self.template,
            max_model_len: self.max_model_len,
            thinking: self.thinking || self.reasoning_parser.is_some(),
            reasoning_parser: self.reasoning_parser.is_some(),
            tool_parser: self.tool_call_parser.is_some(),
            unseeded: self.unseeded,
            weights: self.weights,
        }
    }
}

/// Runs the engine until it has died, by SIGTERM or on command.
///
/// # Errors
///
/// If an address cannot be bound.
pub async fn run(args: EngineArgs) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let engine = Engine::start(args.config()).await?;
    eprintln!("engine {} will listen on {}", engine.persona().base(), engine.url());
    if let Some(control) = engine.control_addr() {
        eprintln!("commands: http://{control}/control/");
    }
    loop {
        tokio::select! {
            _ = terminate.recv() => engine.sigterm(),
            _ = interrupt.recv() => engine.kill(),
            () = engine.exited() => return Ok(()),
        }
    }
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value).unwrap_or_default()
}
