//! `tailplane application`: a built-in service in the `process` domain. `tailplane run` starts it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::reproduce::protection;
use service::application::serve_builtin;
use service::config::RunConfig;

/// Arguments of `tailplane application`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration of the dataplane that started it.
    #[arg(value_name = "CONFIG.toml", required_unless_present = "raw_echo")]
    pub config: Option<PathBuf>,
    /// The configuration's text comes by standard input: its file may be out of reach.
    #[arg(long)]
    pub from_input: bool,
    /// Serve as the echo that `tailplane reproduce ix/protection` measures.
    #[arg(long)]
    pub raw_echo: bool,
    /// Serve so, but write each answer to memory of its own.
    #[arg(long, requires = "raw_echo")]
    pub own_answers: bool,
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
        Some(config) if !args.raw_echo => serve_builtin(&read(config, args.from_input)?)?,
        _ => protection::application(args.own_answers, args.cpu, args.realtime)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path, from_input: bool) -> anyhow::Result<RunConfig> {
    if !from_input {
        return RunConfig::load(path);
    }
    let text = std::io::read_to_string(std::io::stdin()).context("reading the configuration")?;
    RunConfig::parse(&text)
}
