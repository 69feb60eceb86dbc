//! `tailplane doctor`: what this machine can and cannot do, and what each missing piece costs.
//!
//! ```text
//! tailplane doctor            a table
//! tailplane doctor --json     the same for scripts: {"checks": [...], "summary": {...}}
//! ```

use std::process::ExitCode;

use crate::doctor::{Report, examine, render};

/// Arguments of `tailplane doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs `tailplane doctor`. The exit status is 0 whatever was found: it is a report, not a gate.
///
/// # Errors
/// The report could not be written as JSON.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let report: Report = examine();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", render::table(&report));
    }
    Ok(ExitCode::SUCCESS)
}
