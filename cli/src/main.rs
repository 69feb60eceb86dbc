//! The `tailplane` command: parses the arguments and hands over to the subcommand.
//!
//! Everything else is in the library of this crate, where tests and the other subcommands reach it:
//! `tailplane lab up` is `src/commands/lab.rs`, and so on.

use std::process::ExitCode;

use clap::Parser;
use cli::commands::Cli;
use service::terminal::Output;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            // Whoever reads it may have stopped: this process ends all the same.
            Output::Error.print(&format!("tailplane: {}\n", in_one_line(&error)));
            ExitCode::FAILURE
        }
    }
}

/// The whole chain: the outermost message alone names the action, not what was found. A message that
/// already ends with its cause does not say it twice.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for message in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = message;
        } else if !line.contains(&message) {
            line = format!("{line}: {message}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let error = anyhow!("no such file").context("cannot read 'x': no such file; make one");
        assert_eq!(in_one_line(&error), "cannot read 'x': no such file; make one");
        let error = anyhow!("no such file").context("cannot read 'x'");
        assert_eq!(in_one_line(&error), "cannot read 'x': no such file");
    }
}
