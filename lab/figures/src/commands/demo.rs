//! `tailplane demo`: the main job, measured.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::bail;

use reproduce::{Bar, Claims, Options, Progress, Setup, Silent, render};

use super::{allowed, save};
use crate::demo::measure::STEPS;
use crate::demo::{self, DemoConfig, figure};

/// Arguments of `tailplane demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Seconds of load that each server is measured with, roughly.
    #[arg(long, default_value_t = 10.0, value_name = "N")]
    pub seconds: f64,
    /// Seconds of connect-request-close for each echo server.
    #[arg(long, default_value_t = 5.0, value_name = "N")]
    pub churn_seconds: f64,
    /// Write the result as JSON.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the result as a page, with a plot.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Seed of arrivals and keys.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// Runs `tailplane demo`.
///
/// # Errors
/// What could not be set up or measured, or a file that could not be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    allowed("seconds", args.seconds, 1.0..=600.0)?;
    allowed("churn-seconds", args.churn_seconds, 0.5..=600.0)?;
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the demo needs two processors, one for the server and one for the client");
    }
    let config =
        DemoConfig { seconds: args.seconds, churn_seconds: args.churn_seconds, seed: args.seed };
    let mut bar = Bar::default();
    bar.begin("demo");
    bar.plan(STEPS);
    let began = Instant::now();
    let result = demo::run(&config, &mut bar);
    bar.end(if result.is_ok() { "measured" } else { "not measured" });
    let mut demo = result?;
    let (claims, mut silent) = (Claims::builtin()?, Silent);
    let options = Options { repeats: 1, seed: args.seed, ..Options::FULL };
    let mut setup = Setup::new(&claims, options, &mut silent);
    let mut found = figure::MEASURED.reproduce(&mut demo, &mut setup)?;
    found.seconds = began.elapsed().as_secs_f64().try_into().ok();
    print!("{}", render::text(&found));
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&demo)? + "\n"))?;
    }
    if let Some(path) = &args.html {
        save(path, &render::page("tailplane demo", &[found], None))?;
        println!("the report: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
