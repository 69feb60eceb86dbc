//! `tailplane-lab raw-echo`: the application of `reproduce ix/protection`, which starts it.

use std::process::ExitCode;

use crate::reproduce::protection;

/// Arguments of `tailplane-lab raw-echo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write each answer to memory of its own.
    #[arg(long)]
    pub own_answers: bool,
    /// Run on this processor.
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Run with this real-time priority.
    #[arg(long, value_name = "N")]
    pub realtime: Option<u8>,
}

/// Runs `tailplane-lab raw-echo`.
///
/// # Errors
/// No dataplane started it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    protection::application(args.own_answers, args.cpu, args.realtime)?;
    Ok(ExitCode::SUCCESS)
}
