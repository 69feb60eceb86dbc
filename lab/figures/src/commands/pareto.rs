//! `tailplane pareto`: all static configurations of a machine, their Pareto frontier, and what follows.
//!
//! ```text
//! tailplane pareto                                             the paper's machine, simulated
//! tailplane pareto --machine this --policy consolidation --sequence steps.toml
//! tailplane pareto --plots plots --json -                      Figures 8 and 9
//! tailplane pareto --measure --app spin --seconds 1            this machine, for real
//! ```
//!
//! The analysis is [`crate::pareto`]'s; here are the arguments and what is written where.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use clap::ValueEnum;
use control::sysfs::parse_cpus;
use load::WorkloadConfig;
use world::controlled::pareto::Objective;

use super::{allowed, save, say};
use crate::pareto::machine::Which;
use crate::pareto::measure::{self, Plan};
use crate::pareto::{Analysis, draw, report};
use service::cleanup;
use service::config::App;

/// What `--help` teaches beside the options.
const HELP: &str = "\
WHAT IT IS FOR
  A service needs few cores at low load and all of them at its peak. A static configuration is a
  number of cores, one thread on each or all, and a clock (IX §5.3). For each the highest load
  within the latency objective is found, and what it draws. The Pareto frontier names for every
  load the configuration that serves it and draws least (`--policy energy`), or leaves most to a
  background job (`--policy consolidation`). Walking along it gives the sequence of steps that a
  control plane takes as load grows (IX §5.4).

SIMULATED OR MEASURED
  Without --measure a queueing model answers, at once. Its numbers are the paper's; those of
  `--machine this` have this machine's cores, hyperthreads and clocks, and the paper's service and
  power. Change them in a file: --save-machine FILE writes one, --machine FILE reads it
  (docs/pareto.md explains each key, with its unit).
  With --measure the built-in service runs on this machine, in a lab of its own (root), on each
  number of cores and threads, and at each clock where cpufreq lets it be set. Half of the cores
  belong to the load generator. Power is read from RAPL; where there is none, the column is left
  out, and the frontier is the one of cores. What cannot be measured is listed with its reason.
  Ctrl-C keeps what was measured, marked partial.

THE SEQUENCE
  --sequence FILE writes it for the daemon's policy `file`:
    [control]
    policy = \"file\"
    sequence = \"steps.toml\"
  Its thresholds (`delay_us`, `idle_factor`) are the usual ones unless you add them.

EXIT STATUS
  0: whole. 1: partial, or an error that says what to do. 2: the arguments cannot be used.

EXAMPLES
  tailplane pareto
  tailplane pareto --policy consolidation --slo-us 200
  tailplane pareto --machine this --sequence steps.toml
  tailplane pareto --save-machine mine.toml; $EDITOR mine.toml; tailplane pareto --machine mine.toml
  tailplane pareto --plots plots --json frontier.json
  sudo tailplane pareto --measure --app kv --slo-us 500 --json measured.json";

/// The service that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AppArg {
    /// Requests say how long they take (ZygOS §3): exponential times of 20 us unless `--workload`
    /// says otherwise.
    Spin,
    /// Messages of 64 bytes that come back.
    Echo,
    /// The memcached protocol, under the USR workload.
    Kv,
}

impl AppArg {
    /// The service, and what it is asked where nothing is said.
    fn service(self) -> (App, &'static str) {
        match self {
            Self::Spin => (App::Spin, "spin:exponential:20"),
            Self::Echo => (App::Echo, "echo:64"),
            Self::Kv => (App::Kv, "usr"),
        }
    }
}

/// Arguments of `tailplane pareto`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The machine to simulate: `ix` (the paper's: eight cores of two threads, 14 clocks), `this`, or a
    /// TOML file [default: ix; with --measure: this].
    #[arg(long, value_name = "MACHINE")]
    pub machine: Option<String>,
    /// What is to be saved: the frontier and the sequence are for that.
    #[arg(long, value_enum, default_value_t = Objective::Energy)]
    pub policy: Objective,
    /// The objective: 99 % of the requests within this many microseconds [default: the machine's; 500
    /// with --measure].
    #[arg(long, value_name = "US")]
    pub slo_us: Option<f64>,
    /// Write the sequence to this file, for the policy `file`.
    #[arg(long, value_name = "FILE")]
    pub sequence: Option<PathBuf>,
    /// Draw Figures 8 and 9 into this directory, as SVG.
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
    /// Write the result as JSON; `-`: to standard output, and the tables to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the simulated machine as a file that `--machine` reads, to be changed.
    #[arg(long, value_name = "FILE", conflicts_with = "measure")]
    pub save_machine: Option<PathBuf>,
    /// Measure this machine instead of simulating one. Needs root and two processors.
    #[arg(long)]
    pub measure: bool,
    /// The service that is measured.
    #[arg(long, value_enum, default_value_t = AppArg::Spin, requires = "measure")]
    pub app: AppArg,
    /// What it is asked, as `tailplane load --help` lists it; by default the service's usual one.
    #[arg(long, value_name = "NAME", requires = "measure")]
    pub workload: Option<String>,
    /// Seconds of each step: one load on one configuration. A configuration takes a dozen.
    #[arg(long, default_value_t = 1.0, value_name = "S", requires = "measure")]
    pub seconds: f64,
    /// Connections that carry the load.
    #[arg(long, default_value_t = 64, value_name = "N", requires = "measure")]
    pub connections: u32,
    /// Processors of the load generator, as 4-7,12 [default: the last half of the cores].
    #[arg(long, value_name = "LIST", requires = "measure")]
    pub client_cpus: Option<String>,
    /// Seed of arrivals and choices.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "measure")]
    pub seed: u64,
    /// Where sysfs shows this machine: its processors, clocks and power.
    #[arg(long, default_value = "/sys", value_name = "DIR")]
    pub sys: PathBuf,
}

/// Runs `tailplane pareto`.
///
/// # Errors
/// A machine that cannot be read or measured; a file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut all = if args.measure { measured(args)? } else { simulated(args)? };
    let say = |text: &str| say(args.json.as_ref(), text);
    say(&report::text(&all));
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&report::json(&all))? + "\n"))?;
    }
    if let Some(directory) = &args.plots {
        for path in draw::write_svg(&mut all, directory)? {
            say(&format!("drawn: {}\n", path.display()));
        }
    }
    if let Some(path) = &args.sequence {
        save(path, &all.sequence_file()?)?;
        say(&format!("sequence written: {}\n", path.display()));
    }
    Ok(if all.partial.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn simulated(args: &Args) -> anyhow::Result<Analysis> {
    let which = Which::from(args.machine.as_deref().unwrap_or("ix"));
    let (mut model, notes) = which.model(&args.sys)?;
    if let Some(slo_us) = args.slo_us {
        model = model
            .with_slo_us(slo_us)
            .with_context(|| format!("`--slo-us {slo_us}` cannot be used with this machine"))?;
    }
    if let Some(path) = &args.save_machine {
        save(path, &model.to_toml())?;
    }
    let mut all = Analysis::simulated(&model, args.policy, ::measure::conditions::here());
    all.notes = notes;
    Ok(all)
}

fn measured(args: &Args) -> anyhow::Result<Analysis> {
    if let Some(machine) = args.machine.as_deref().filter(|machine| *machine != "this") {
        bail!(
            "`--machine` is '{machine}'; allowed with `--measure`: 'this', or nothing (only the machine that this \
             runs on can be measured)"
        );
    }
    let plan = plan(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    cleanup::first_signal_sets(Arc::clone(&stop)).context("cannot wait for Ctrl-C")?;
    measure::run(&plan, &mut |line| eprintln!("{line}"), &stop)
}

/// What is measured, checked as far as it can be without measuring.
fn plan(args: &Args) -> anyhow::Result<Plan> {
    let (app, usual) = args.app.service();
    let name = args.workload.as_deref().unwrap_or(usual);
    let workload = WorkloadConfig::named(name)?;
    let fits = match workload {
        WorkloadConfig::Spin { .. } => app == App::Spin,
        WorkloadConfig::Echo { .. } => app == App::Echo,
        _ => app == App::Kv,
    };
    if !fits {
        bail!(
            "`--workload` is '{name}', which the service '{app:?}' does not answer; '{usual}' is its usual one"
        );
    }
    allowed("seconds", args.seconds, 0.1..=60.0)?;
    allowed("connections", args.connections, 1..=100_000)?;
    let slo_us = args.slo_us.unwrap_or(500.0);
    allowed("slo-us", slo_us, 1.0..=1e6)?;
    let client_cpus = match &args.client_cpus {
        None => None,
        Some(list) => Some(parse_cpus(list).with_context(|| {
            format!("`--client-cpus` is '{list}'; write a list of processors, as 4-7,12")
        })?),
    };
    Ok(Plan {
        app,
        workload,
        slo_us,
        seconds: args.seconds,
        connections: args.connections,
        seed: args.seed,
        objective: args.policy,
        sys: args.sys.clone(),
        client_cpus,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Line::try_parse_from([&["pareto"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn what_is_for_measuring_asks_for_it() {
        for words in [["--app", "kv"], ["--seconds", "2"], ["--client-cpus", "1"]] {
            assert!(parse(&words).is_err(), "{words:?}");
            assert!(parse(&[&["--measure"], &words[..]].concat()).is_ok(), "{words:?}");
        }
        assert!(parse(&["--measure", "--save-machine", "x"]).is_err());
        let args = parse(&["--measure", "--machine", "ix"]).expect("parses");
        let error = run(&args).expect_err("not here").to_string();
        assert!(error.contains("`--machine` is 'ix'") && error.contains("'this'"), "{error}");
    }

    #[test]
    fn a_plan_is_checked_before_anything_is_measured() {
        let error = |words: &[&str]| {
            let args = parse(&[&["--measure"], words].concat()).expect("parses");
            plan(&args).expect_err("wrong").to_string()
        };
        assert!(error(&["--seconds", "0"]).contains("allowed: 0.1 to 60"));
        assert!(error(&["--slo-us", "0"]).contains("allowed: 1 to 1000000"));
        assert!(error(&["--connections", "0"]).contains("allowed: 1 to 100000"));
        assert!(error(&["--client-cpus", "a-b"]).contains("as 4-7,12"));
        assert!(
            error(&["--app", "kv", "--workload", "echo:64"]).contains("'usr' is its usual one")
        );
        let args = parse(&["--measure", "--app", "echo"]).expect("parses");
        let plan = plan(&args).expect("right");
        assert_eq!((plan.app, plan.slo_us, plan.client_cpus), (App::Echo, 500.0, None));
    }
}
