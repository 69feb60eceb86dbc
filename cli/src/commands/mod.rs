//! The subcommands, one file each.
//!
//! To add `tailplane NAME`: write `NAME.rs` with `struct Args` (clap) and
//! `fn run(args: Args) -> anyhow::Result<ExitCode>`, then name it in [`Command`] and [`Cli::run`].

pub mod application;
pub mod ctl;
pub mod dataplane;
pub mod doctor;
pub mod lab;
pub mod other;
pub mod run;
pub mod sdp;
pub mod status;
pub mod top;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What `--help` says of the subcommands that are programs of their own.
const HELP: &str = "\
Measuring is another program, tailplane-lab, whose subcommands are found from here too:
  demo        our key-value service beside memcached on the kernel's stack
  load        load a server and measure its latency
  reproduce   the papers' figures and tables, measured on this machine
  pareto, sim, calibrate, sdp-bench
And `tailplane attack` is tailplane-attack: hostile applications, dataplanes, tenants and clients.";

/// A dataplane operating system for microsecond-scale services on stock Linux.
#[derive(Debug, Parser)]
#[command(name = "tailplane", version, about, propagate_version = true, after_help = HELP)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub subcommand: Subcommands,
}

/// The subcommands, and those that are other programs.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "a command line is parsed once")]
pub enum Subcommands {
    /// One of this program.
    #[command(flatten)]
    Own(Command),
    /// Any other: its name, and its arguments.
    #[command(external_subcommand)]
    Other(Vec<OsString>),
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// A playground without a NIC: two network namespaces joined by a veth pair.
    Lab(lab::Args),
    /// Serve as a built-in service on the dataplane that started this process.
    #[command(hide = true)]
    Application(application::Args),
    /// Be the dataplane of the process that started this one.
    #[command(hide = true)]
    Dataplane,
    /// Run a service on the dataplane, as a configuration file describes it.
    Run(run::Args),
    /// Which services run, and how they do.
    Status(status::Args),
    /// Grant, park and place elastic threads of a running service, and move its flow groups, by hand.
    Ctl(ctl::Args),
    /// A running service, live: threads, flow groups, events.
    Top(top::Args),
    /// The many-tenant software data plane: serve queue pairs of untrusted processes, or be one.
    Sdp(sdp::Args),
    /// What this machine can and cannot do, and what each missing piece costs.
    Doctor(doctor::Args),
}

impl Cli {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Whatever the subcommand could not do; the chain says what was tried, found, and what to do.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.subcommand {
            Subcommands::Own(command) => command.run(),
            Subcommands::Other(words) => other::run(&words),
        }
    }
}

impl Command {
    /// Runs it.
    ///
    /// # Errors
    /// As [`Cli::run`].
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Lab(args) => lab::run(args),
            Command::Application(args) => application::run(&args),
            Command::Dataplane => dataplane::run(),
            Command::Run(args) => run::run(args),
            Command::Status(args) => status::run(&args),
            Command::Ctl(args) => ctl::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Sdp(args) => sdp::run(args),
            Command::Doctor(args) => doctor::run(args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lab_exec_leaves_the_options_of_the_command_alone() {
        let cli = Cli::try_parse_from(["tailplane", "lab", "exec", "--", "ping", "-c", "1"]);
        let Subcommands::Own(Command::Lab(args)) = cli.expect("parses").subcommand else {
            panic!("not lab")
        };
        let lab::Action::Exec { command } = args.action else { panic!("not exec") };
        assert_eq!(command, ["ping", "-c", "1"]);
    }

    #[test]
    fn lab_exec_without_a_command_is_refused() {
        assert!(Cli::try_parse_from(["tailplane", "lab", "exec"]).is_err());
    }
}
