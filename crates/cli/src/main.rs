//! The `tailplane` command: parses the arguments and hands over to the subcommand.
//!
//! Everything else is in the library of this crate, where tests and the other subcommands reach it:
//! `tailplane lab up` is `src/commands/lab.rs`, and so on.

use std::process::ExitCode;

use clap::Parser;
use tailplane_cli::commands::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // The whole chain: the outermost line alone names the action, not what was found.
            eprintln!("tailplane: {error:#}");
            ExitCode::FAILURE
        }
    }
}
