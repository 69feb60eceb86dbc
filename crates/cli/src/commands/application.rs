//! `tailplane application`: a built-in service in the `process` domain. `tailplane run` starts it.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::service::application::serve_builtin;
use crate::service::config::RunConfig;

/// Arguments of `tailplane application`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration of the dataplane that started it.
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
}

/// Runs `tailplane application`.
///
/// # Errors
/// No dataplane started it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    serve_builtin(&RunConfig::load(&args.config)?)?;
    Ok(ExitCode::SUCCESS)
}
