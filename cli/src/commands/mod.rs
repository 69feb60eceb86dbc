//! The subcommands, one file each.
//!
//! To add `tailplane NAME`: write `NAME.rs` with `struct Args` (clap) and
//! `fn run(args: Args) -> anyhow::Result<ExitCode>`, then name it in [`Command`] and [`Cli::run`].

pub mod application;
pub mod calibrate;
pub mod ctl;
pub mod dataplane;
pub mod demo;
pub mod doctor;
pub mod lab;
pub mod load;
pub mod load_agent;
pub mod pareto;
pub mod reproduce;
pub mod run;
pub mod sdp;
pub mod sim;
pub mod status;
pub mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A dataplane operating system for microsecond-scale services on stock Linux.
#[derive(Debug, Parser)]
#[command(name = "tailplane", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
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
    /// Load a server and measure its latency.
    Load(Box<load::Args>),
    /// Generate a share of a load, as a coordinator (`load --agents`) says.
    LoadAgent(load_agent::Args),
    /// The main job, measured: our key-value service beside memcached on the kernel's stack.
    Demo(demo::Args),
    /// The papers' figures and tables, measured on this machine.
    Reproduce(reproduce::Args),
    /// All static configurations of a machine, simulated or measured: their Pareto frontier, and a sequence for the
    /// control plane.
    Pareto(pareto::Args),
    /// Whole hosts on a virtual clock and a seeded lossy network: one seed replays one run.
    Sim(sim::Args),
    /// The cost model of this machine, for simulations of more cores than it has.
    Calibrate(calibrate::Args),
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
        match self.command {
            Command::Lab(args) => lab::run(args),
            Command::Application(args) => application::run(&args),
            Command::Dataplane => dataplane::run(),
            Command::Run(args) => run::run(args),
            Command::Status(args) => status::run(&args),
            Command::Ctl(args) => ctl::run(&args),
            Command::Top(args) => top::run(&args),
            Command::Load(args) => load::run(*args),
            Command::LoadAgent(args) => load_agent::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Reproduce(args) => reproduce::run(args),
            Command::Pareto(args) => pareto::run(&args),
            Command::Sim(args) => sim::run_command(args),
            Command::Calibrate(args) => calibrate::run(args),
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
        let Command::Lab(args) = cli.expect("parses").command else { panic!("not lab") };
        let lab::Action::Exec { command } = args.action else { panic!("not exec") };
        assert_eq!(command, ["ping", "-c", "1"]);
    }

    #[test]
    fn lab_exec_without_a_command_is_refused() {
        assert!(Cli::try_parse_from(["tailplane", "lab", "exec"]).is_err());
    }
}
