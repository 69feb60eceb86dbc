//! `tailplane status`: which services run, and how they do.
//!
//! ```text
//! tailplane status          all services
//! tailplane status kv       one: threads, processors, load, batches, queueing delay, homes of flow groups
//! tailplane status --json   the same for scripts
//! ```

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use service::watch::{self, Service, ServiceView, render};

/// Arguments of `tailplane status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A service that `tailplane run` started is found by its name (`control.name`, or its file's \
name) in the run directory, $TAILPLANE_RUN_DIR or /run/tailplane. Load, batch and delay are of the time of --over-ms: \
load is the share of time in cycles that did something; delay is IX's estimate of the queueing delay, ceil(Q / B) x \
iteration time, on average, and what 99 of 100 cycles were under."
)]
pub struct Args {
    /// A service's name, or its control socket's path; all services where nothing is said.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    /// Look for so many milliseconds.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub over_ms: u64,
}

/// What is said of one service.
#[derive(Serialize)]
#[serde(untagged)]
enum Told {
    Seen(Box<ServiceView>),
    NotSeen { name: String, error: String },
}

/// Runs `tailplane status`.
///
/// # Errors
/// The named service cannot be reached; the run directory cannot be read.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut seen, mut told) = (Vec::new(), Vec::new());
    match &args.name {
        Some(name) => seen.push(Service::named(name)?),
        None => {
            for (name, service) in watch::all()? {
                match service {
                    Ok(service) => seen.push(service),
                    Err(error) => {
                        told.push(Told::NotSeen { name, error: format!("{error:#}") });
                    }
                }
            }
        }
    }
    let before: Vec<_> = seen.iter().map(Service::snapshot).collect();
    if !seen.is_empty() {
        std::thread::sleep(Duration::from_millis(args.over_ms));
    }
    for (service, before) in seen.iter().zip(&before) {
        let view = ServiceView::between(&service.description, before, &service.snapshot());
        told.push(Told::Seen(Box::new(view)));
    }
    print(args, &told)?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args, told: &[Told]) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "services": told }))?);
        return Ok(());
    }
    if told.is_empty() {
        println!("no service runs (looked in '{}')", endpoint::run_dir().display());
    }
    for one in told {
        match one {
            Told::Seen(view) => println!("{}", render::service(view)),
            Told::NotSeen { name, error } => println!("{name}: {error}\n"),
        }
    }
    Ok(())
}
