//! The subcommands of `tailplane-lab`, one file each.
//!
//! To add `tailplane NAME`: write `NAME.rs` with `struct Args` (clap) and
//! `fn run(args: Args) -> anyhow::Result<ExitCode>`, then name it in [`Command`] and [`Command::run`].

pub mod calibrate;
pub mod demo;
pub mod load;
pub mod load_agent;
pub mod pareto;
pub mod raw_echo;
pub mod reproduce;
pub mod sdp_bench;
pub mod sdp_bench_tenant;
pub mod sim;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};

/// The laboratory of tailplane: what measures, reproduces, simulates and calibrates. `tailplane NAME` finds each of its
/// subcommands, and it has those of `tailplane`: what it measures it starts from its own program.
#[derive(Debug, Parser)]
#[command(name = "tailplane-lab", version, about, propagate_version = true)]
pub struct Laboratory {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
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
    /// The throughput of the many-tenant data plane: strategies, arrangements, queues, traffic shapes.
    SdpBench(sdp_bench::BenchArgs),
    /// A window of `sdp-bench`'s tenant.
    #[command(hide = true)]
    SdpBenchTenant(sdp_bench_tenant::BenchTenantArgs),
    /// Serve as the echo that `reproduce ix/protection` measures, on the dataplane that started this process.
    #[command(hide = true)]
    RawEcho(raw_echo::Args),
    /// A subcommand of `tailplane`.
    #[command(flatten)]
    Product(cli::commands::Command),
}

impl Laboratory {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Whatever the subcommand could not do; the chain says what was tried, found, and what to do.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Load(args) => load::run(*args),
            Command::LoadAgent(args) => load_agent::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Reproduce(args) => reproduce::run(args),
            Command::Pareto(args) => pareto::run(&args),
            Command::Sim(args) => sim::run_command(args),
            Command::Calibrate(args) => calibrate::run(args),
            Command::SdpBench(args) => sdp_bench::run(&args),
            Command::SdpBenchTenant(args) => sdp_bench_tenant::run(&args),
            Command::RawEcho(args) => raw_echo::run(&args),
            Command::Product(command) => command.run(),
        }
    }
}

/// Checks the value of an option.
fn allowed<T>(option: &str, value: T, range: RangeInclusive<T>) -> anyhow::Result<()>
where
    T: PartialOrd + Display,
{
    let (least, most) = (range.start(), range.end());
    ensure!(range.contains(&value), "`--{option}` is {value}; allowed: {least} to {most}");
    Ok(())
}

/// Whether a command's JSON (`--json -`) has the standard output.
fn is_stdout(path: Option<&PathBuf>) -> bool {
    path.is_some_and(|path| path == Path::new("-"))
}

/// Prints what a command found: to the standard error where its JSON has the standard output.
fn say(json: Option<&PathBuf>, text: &str) {
    if is_stdout(json) { eprint!("{text}") } else { print!("{text}") }
}

/// Writes a file that the arguments name; `-`: to the standard output.
fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_argument_definitions_are_consistent() {
        Laboratory::command().debug_assert();
    }
}
