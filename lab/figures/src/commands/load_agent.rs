//! `tailplane load-agent`: one of the machines that generate a load together.
//!
//! ```text
//! tailplane load 10.0.0.9:11211 --rate 1000000 --connections 256 --agents 4 --listen 0.0.0.0:7700
//! tailplane load-agent 10.0.0.1:7700 --cpus 2        on each of the four
//! ```

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use load::remote::{AgentConfig, Secret, serve};

/// What `--help` teaches beside the options.
const HELP: &str = "\
An agent needs to know nothing but where its coordinator is, so that a launcher starts all of them
alike: `ssh` in a loop, `srun tailplane load-agent …`, a Kubernetes Job with as many completions as
agents. It waits for the coordinator (--wait-s), takes its share of the load, connects to the target,
starts when all others do, sends back what it measured, and ends with status 0. Where the coordinator
is lost it stops its load at once and ends with status 1.

Workload, rate, threads and all else come from the coordinator; a `spin:trace:FILE` must be at the same
place on every machine. The clocks of the machines need not agree: the coordinator reads them just
before the start, and reports the bound of what is left.

EXAMPLES
  tailplane load-agent 127.0.0.1:7700
  tailplane load-agent coordinator.lan:7700 --cpus 2,3 --name rack4 --secret-file /etc/tailplane.secret";

/// Arguments of `tailplane load-agent`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The coordinator: HOST:PORT, as in its `--listen`.
    #[arg(value_name = "COORDINATOR")]
    pub coordinator: String,
    /// The processor of each of the generator's threads, comma separated, as many as the coordinator
    /// asks for with `--threads`; none: not pinned.
    #[arg(long, value_delimiter = ',', value_name = "CPU,…")]
    pub cpus: Vec<usize>,
    /// What the agent is called in reports; by default as its machine.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// How long to wait for the coordinator to be there, in seconds.
    #[arg(long, default_value_t = 60, value_name = "S")]
    pub wait_s: u64,
    /// A file with the secret that the coordinator has, too: needed where the coordinator runs on another machine.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
}

/// Runs `tailplane load-agent`.
///
/// # Errors
/// A secret that cannot be read, a coordinator that is not there, refuses the agent, or is lost.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = AgentConfig {
        coordinator: args.coordinator,
        name: args.name,
        cores: args.cpus,
        wait: Duration::from_secs(args.wait_s),
        secret: args.secret_file.as_deref().map(Secret::read).transpose()?,
    };
    serve(&config, &mut |note| eprintln!("tailplane: {note}"))?;
    Ok(ExitCode::SUCCESS)
}
