//! `tailplane demo`: the main job, measured.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

use crate::demo::{self, DemoConfig, html};

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
    if !(args.seconds >= 1.0 && args.seconds <= 600.0) {
        bail!("`--seconds` is {}; allowed: 1 to 600", args.seconds);
    }
    if !(args.churn_seconds >= 0.5 && args.churn_seconds <= 600.0) {
        bail!("`--churn-seconds` is {}; allowed: 0.5 to 600", args.churn_seconds);
    }
    if std::thread::available_parallelism()?.get() < 2 {
        bail!("the demo needs two processors, one for the server and one for the client");
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} {msg}")?);
    bar.enable_steady_tick(Duration::from_millis(500));
    let config =
        DemoConfig { seconds: args.seconds, churn_seconds: args.churn_seconds, seed: args.seed };
    let result = demo::run(&config, &mut |message| {
        // Off a terminal the bar is silent: say it in lines.
        if bar.is_hidden() {
            eprintln!("{message}");
        }
        bar.set_message(message.to_owned());
    });
    bar.finish_and_clear();
    let demo = result?;
    print!("{}", demo.to_table());
    if let Some(path) = &args.json {
        write(path, &(serde_json::to_string_pretty(&demo)? + "\n"))?;
    }
    if let Some(path) = &args.html {
        write(path, &html::page(&demo)?)?;
        println!("the report: {}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}
