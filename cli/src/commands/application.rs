//! `tailplane application`: a built-in service in the `process` domain. `tailplane run` starts it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use service::application::serve_builtin;
use service::config::RunConfig;

/// Arguments of `tailplane application`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration of the dataplane that started it.
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
    /// The configuration's text comes by standard input: its file may be out of reach.
    #[arg(long)]
    pub from_input: bool,
}

/// Runs `tailplane application`.
///
/// # Errors
/// No dataplane started it.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    serve_builtin(&read(&args.config, args.from_input)?)?;
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path, from_input: bool) -> anyhow::Result<RunConfig> {
    if !from_input {
        return RunConfig::load(path);
    }
    let text = std::io::read_to_string(std::io::stdin()).context("reading the configuration")?;
    RunConfig::parse(&text)
}
