//! `tailplane application`: a built-in service in the `process` domain. `tailplane run` starts it.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::reproduce::protection;
use crate::service::application::serve_builtin;
use crate::service::config::RunConfig;

/// Arguments of `tailplane application`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration of the dataplane that started it.
    #[arg(value_name = "CONFIG.toml", required_unless_present = "raw_echo")]
    pub config: Option<PathBuf>,
    /// Serve as the echo that `tailplane reproduce ix/protection` measures.
    #[arg(long)]
    pub raw_echo: bool,
    /// Run on this processor.
    #[arg(long, value_name = "N", requires = "raw_echo")]
    pub cpu: Option<usize>,
    /// Run with this real-time priority.
    #[arg(long, value_name = "N", requires = "raw_echo")]
    pub realtime: Option<u8>,
}

/// Runs `tailplane application`.
///
/// # Errors
/// No dataplane started it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.config {
        Some(config) if !args.raw_echo => serve_builtin(&RunConfig::load(config)?)?,
        _ => protection::application(args.cpu, args.realtime)?,
    }
    Ok(ExitCode::SUCCESS)
}
