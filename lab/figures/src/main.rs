//! The `tailplane-lab` command: what measures, reproduces, simulates and calibrates.

use std::process::ExitCode;

use clap::Parser;
use figures::commands::Laboratory;

fn main() -> ExitCode {
    cli::exit_code("tailplane-lab", Laboratory::parse().run())
}
