//! The command line of Leadgate.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use config::ServeArgs;
use gateway::app::{self, AppError, Ended};
use gateway::cli::{self, ExplainArgs, TopologyArgs};

/// Thousands of streams begin and end in any order for weeks: glibc's heap keeps half as much again for each, and is slower for the many small
/// pieces of a request (docs/performance.md).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Bad configuration (sysexits' EX_CONFIG).
const EX_CONFIG: u8 = 78;

/// Leader-routing inference gateway for multi-host LLM replicas.
#[derive(Parser)]
#[command(name = "leadgate", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the gateway.
    Serve {
        #[command(flatten)]
        args: Box<ServeArgs>,
        /// Write the bound addresses to this file as JSON.
        #[arg(long, env = "LEADGATE_ADDR_FILE", value_name = "FILE")]
        addr_file: Option<PathBuf>,
    },
    /// Check a configuration file and print every problem.
    Check {
        /// The file.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Print pools, groups and what they do, from a running gateway.
    Topology(TopologyArgs),
    /// Say where a request would go now, and why not elsewhere.
    Explain(ExplainArgs),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Serve { args, addr_file } => ended(app::serve(*args, addr_file).await),
        Command::Check { config } => check(&config),
        Command::Topology(args) => done(cli::topology(&args, &mut std::io::stdout()).await),
        Command::Explain(args) => done(cli::explain(&args, &mut std::io::stdout()).await),
    }
}

fn ended(result: Result<Ended, AppError>) -> ExitCode {
    match result {
        Ok(Ended::Clean) => ExitCode::SUCCESS,
        Ok(Ended::Cut) => ExitCode::FAILURE,
        Err(AppError::Config(problems)) => {
            eprintln!("{problems}");
            ExitCode::from(EX_CONFIG)
        }
        Err(error) => fail(&error),
    }
}

fn check(file: &std::path::Path) -> ExitCode {
    let problems = config::check(file);
    if problems.is_empty() {
        println!("{}: no problems", file.display());
        return ExitCode::SUCCESS;
    }
    eprintln!("{problems}");
    ExitCode::from(EX_CONFIG)
}

fn done<T>(result: Result<T, cli::FetchError>) -> ExitCode {
    result.map_or_else(|error| fail(&error), |_| ExitCode::SUCCESS)
}

fn fail(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("leadgate: {error}");
    ExitCode::FAILURE
}
