//! `tailplaned`, the daemon of the control plane.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use daemon::{CONFIG_PATH, Config};

/// The daemon of tailplane's control plane.
///
/// It watches the queueing delay and the idle time of every service that `tailplane run` serves on this machine, and
/// grants or takes elastic threads, hyperthreads and clock steps by a policy; cores that are left go to a background
/// job. It starts and ends the services of its directory, and takes over those that run already. It may be killed and
/// started again at any time: services go on.
#[derive(Debug, Parser)]
#[command(name = "tailplaned", version, after_long_help = TEACHING)]
struct Args {
    /// The configuration; without it `/etc/tailplane/tailplaned.toml`, or all defaults where that is not there.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read everything, say what is wrong and what the machine lacks, and end: 0 nothing is missing, 3 it does without
    /// something, 1 something is wrong.
    #[arg(long)]
    check: bool,
}

const TEACHING: &str = "\
A first service:
  cat > /etc/tailplane/services/kv.toml <<END
  [service]
  app = \"kv\"
  [dataplane]
  threads = 4
  cpus = [0, 1, 2, 3]
  [control]
  policy = \"energy\"      # or consolidation, file, latency-target; none: it is only watched
  autostart = true
  END
  tailplaned --check      what is wrong, and what the machine lacks
  tailplaned              in a terminal, or: systemctl enable --now tailplaned

To talk to it (root, and the group of `control.group`):
  varlinkctl call /run/tailplane/control.sock io.tailplane.Control.Status '{\"name\": \"kv\"}'
  varlinkctl call --more /run/tailplane/control.sock io.tailplane.Control.Events '{}'
  varlinkctl introspect /run/tailplane/control.sock io.tailplane.Control
  curl http://127.0.0.1:9477/metrics

Signals: SIGHUP reads the services' files again; SIGTERM and SIGINT end the daemon, services go on.
More: docs/daemon.md, docs/metrics.md.";

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(status) => status,
        Err(error) => {
            // Standard error may be closed; the exit status says it as well.
            let _ = writeln!(std::io::stderr(), "tailplaned: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = match &args.config {
        Some(path) => Config::load(path)?,
        None if Path::new(CONFIG_PATH).exists() => Config::load(Path::new(CONFIG_PATH))?,
        None => Config::parse("")?,
    };
    if args.check {
        let found = daemon::check(&config, &mut std::io::stdout())?;
        return Ok(ExitCode::from(found.status()));
    }
    daemon::run(config)?;
    Ok(ExitCode::SUCCESS)
}
