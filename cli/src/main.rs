//! The `tailplane` command: parses the arguments and hands over to the subcommand.
//!
//! Everything else is in the library of this crate, where tests and the laboratory's programs reach it:
//! `tailplane lab up` is `src/commands/lab.rs`, and so on.

use std::process::ExitCode;

use clap::Parser;
use cli::commands::Cli;

fn main() -> ExitCode {
    cli::exit_code("tailplane", Cli::parse().run())
}
