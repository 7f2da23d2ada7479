//! `loadtest`: the command line. Each command's flags and work live in its own module; this file only picks one.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loadtest::{bench, demo, engine, flood, operator, resume_check, run};
use tracing_subscriber::EnvFilter;

#[derive(Debug, Parser)]
#[command(name = "loadtest", version, about = "Load generator, simulated engine, simulated operator and demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A simulated vLLM leader.
    Engine(engine::cli::EngineArgs),
    /// Open-loop load whose answers are checked.
    Run(run::RunArgs),
    /// Cheap load for benchmarks, unchecked.
    Flood(flood::FloodArgs),
    /// What the gateway costs beside its peers.
    Bench(bench::BenchArgs),
    /// How exactly broken answers of an engine can be carried on.
    ResumeCheck(resume_check::ResumeCheckArgs),
    /// A simulated operator with kubelet on an API server.
    Operator(operator::cli::OperatorArgs),
    /// The gateway under load on a simulated cluster, on one machine.
    Demo(demo::cli::DemoArgs),
}

#[tokio::main]
async fn main() -> ExitCode {
    // An API server that is away is part of the demo, and told by its own line.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let result = match Cli::parse().command {
        Command::Engine(args) => engine::cli::run(args).await.map(|()| true).map_err(demo::Failure::from),
        Command::Run(args) => run::command(args).await.map_err(demo::Failure::from),
        Command::Flood(args) => flood::command(args).await.map_err(demo::Failure::from),
        Command::Bench(args) => bench::command(args).await.map_err(demo::Failure::from),
        Command::ResumeCheck(args) => resume_check::command(args).await.map_err(demo::Failure::from),
        Command::Operator(args) => operator::cli::run(args).await.map(|()| true),
        Command::Demo(args) => demo::cli::run(args).await,
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("loadtest: {error}");
            ExitCode::FAILURE
        }
    }
}
