//! `tailplane sim`: seeded simulation of hosts that run the real stack and dataplane.
//!
//! ```text
//! tailplane sim                                  200 seeds of every scenario, a table
//! tailplane sim --seed 7 --scenario kv           replays one run, and says what was special about it
//! tailplane sim --seed 7 --scenario kv --pcap k.pcap
//! tailplane sim --seeds 1000 --loss 0.1 --json
//! tailplane sim scheduler --law exponential --mean-us 10 --cores 16    see `scheduler`
//! ```
//!
//! The exit status is 1 where a run failed; each failure comes with the command that replays it.

pub mod scheduler;

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use reproduce::Grid;
use serde::Serialize;
use world::lossy::{
    Faults, Outcome, RunStats, Scenario, ScenarioConfig, SchedulerChoice, replay_command, run_many,
};

/// Runs where neither `--seed` nor `--seeds` says how many.
const DEFAULT_SEEDS: u64 = 200;
/// Failures that are printed; more are only counted.
const SHOWN_FAILURES: usize = 10;

/// Workloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Workload {
    /// Bytes in both directions at once.
    Bulk,
    /// Small messages with pauses.
    Echo,
    /// Short connections.
    Churn,
    /// Memcached requests against a model.
    Kv,
    /// Each of them.
    All,
}

/// What else is simulated than whole hosts on a lossy network.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Which scheduler and which batch bound suit a service: simulated cores, this machine's costs.
    Scheduler(Box<scheduler::Args>),
}

/// Arguments of `tailplane sim`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Without one: whole hosts, by the options below.
    #[command(subcommand)]
    pub action: Option<Action>,
    /// The first seed; alone: run just this one.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// How many seeds, counting up from the first.
    #[arg(long, value_name = "COUNT")]
    pub seeds: Option<u64>,
    /// What the hosts do.
    #[arg(long, value_enum, default_value_t = Workload::All)]
    pub scenario: Workload,
    /// Probability that a frame is lost [default: 0.01].
    #[arg(long, value_name = "P", value_parser = probability)]
    pub loss: Option<f64>,
    /// Probability that a frame comes twice [default: 0.01].
    #[arg(long, value_name = "P", value_parser = probability)]
    pub duplicate: Option<f64>,
    /// Probability that a frame is overtaken [default: 0.01].
    #[arg(long, value_name = "P", value_parser = probability)]
    pub reorder: Option<f64>,
    /// Probability that a bit of a frame is flipped [default: 0.01].
    #[arg(long, value_name = "P", value_parser = probability)]
    pub corrupt: Option<f64>,
    /// Probability that a packet is cut into fragments [default: 0].
    #[arg(long, value_name = "P", value_parser = probability)]
    pub fragments: Option<f64>,
    /// Ordinary hosts only: no tiny windows, segments, pools or rings, one core each.
    #[arg(long)]
    pub plain: bool,
    /// Who runs the server's application: by seed, or the same in all runs.
    #[arg(long, value_enum, default_value_t)]
    pub scheduler: SchedulerChoice,
    /// Turns that each queue of a server holds whose cores share their work: few let the queues fill. Such a server has
    /// several cores, and long crossings.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub turns: Option<u16>,
    /// The server has another number of queue pairs than cores, and several of these.
    #[arg(long)]
    pub queues: bool,
    /// Threads to run seeds on.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub threads: usize,
    /// Write the frames that the server sent and received (of a single run) to this file.
    #[arg(long, value_name = "FILE")]
    pub pcap: Option<PathBuf>,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
}

fn probability(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is no probability: give a number from 0 to 1")),
    }
}

/// A run that failed.
#[derive(Debug, Serialize)]
struct Failure {
    seed: u64,
    failure: String,
    replay: String,
}

/// The runs of one scenario.
#[derive(Debug, Serialize)]
struct Summary {
    scenario: Scenario,
    runs: u64,
    passed: u64,
    seconds: f64,
    connections: u64,
    bytes: u64,
    frames: u64,
    retransmissions: u64,
    longest_virtual_ms: u64,
    failures: Vec<Failure>,
}

impl Args {
    fn config(&self, scenario: Scenario) -> ScenarioConfig {
        let usual = Faults::usual();
        let faults = Faults {
            loss: self.loss.unwrap_or(usual.loss),
            duplicate: self.duplicate.unwrap_or(usual.duplicate),
            reorder: self.reorder.unwrap_or(usual.reorder),
            corrupt: self.corrupt.unwrap_or(usual.corrupt),
            ..usual
        };
        ScenarioConfig {
            faults,
            vary: !self.plain,
            scheduler: self.scheduler,
            turns: self.turns.map(usize::from),
            queues: self.queues,
            capture: self.pcap.is_some(),
            fragments: self.fragments.unwrap_or(0.0),
            ..ScenarioConfig::new(scenario)
        }
    }

    /// The command that replays a run, with all options that change it.
    fn replay(&self, seed: u64, scenario: Scenario) -> String {
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let flag = |is_given: bool| is_given.then(String::new);
        let scheduler = self.scheduler.to_possible_value();
        let scheduler = scheduler.filter(|_| self.scheduler != SchedulerChoice::BySeed);
        let options = [
            ("loss", number(self.loss)),
            ("duplicate", number(self.duplicate)),
            ("reorder", number(self.reorder)),
            ("corrupt", number(self.corrupt)),
            ("fragments", number(self.fragments)),
            ("plain", flag(self.plain)),
            ("turns", self.turns.map(|turns| turns.to_string())),
            ("queues", flag(self.queues)),
            ("scheduler", scheduler.map(|value| value.get_name().to_owned())),
        ];
        let mut command = replay_command(seed, scenario);
        for (name, value) in options {
            if let Some(value) = value {
                command += format!(" --{name} {value}").trim_end();
            }
        }
        command
    }
}

/// Runs `tailplane sim`. The exit status is 1 where a run failed.
///
/// # Errors
/// The capture cannot be written, or is asked for of several runs; what [`scheduler::run`] says.
pub fn run_command(mut args: Args) -> anyhow::Result<ExitCode> {
    if let Some(Action::Scheduler(args)) = args.action.take() {
        return scheduler::run(*args);
    }
    let scenarios: Vec<Scenario> = match args.scenario {
        Workload::Bulk => vec![Scenario::Bulk],
        Workload::Echo => vec![Scenario::Echo],
        Workload::Churn => vec![Scenario::Churn],
        Workload::Kv => vec![Scenario::Kv],
        Workload::All => Scenario::ALL.to_vec(),
    };
    let first = args.seed.unwrap_or(0);
    let count = args.seeds.unwrap_or(if args.seed.is_some() { 1 } else { DEFAULT_SEEDS });
    if args.pcap.is_some() && (count != 1 || scenarios.len() != 1) {
        bail!("--pcap is for one run: give --seed N and --scenario X with it");
    }
    if let (1, &[scenario]) = (count, &scenarios[..]) {
        return one(&args, first, scenario);
    }
    let bar = progress(count * scenarios.len() as u64, args.json)?;
    let mut summaries = Vec::new();
    for scenario in scenarios {
        bar.set_message(scenario.to_string());
        let started = Instant::now();
        let config = args.config(scenario);
        let outcomes = run_many(first, count, &config, args.threads, |_, _| bar.inc(1));
        summaries.push(summarize(&args, scenario, &outcomes, started.elapsed()));
    }
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summaries)?);
    } else {
        print(&summaries, first, count);
    }
    let passed = summaries.iter().all(|summary| summary.failures.is_empty());
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn progress(runs: u64, hidden: bool) -> anyhow::Result<ProgressBar> {
    if hidden {
        return Ok(ProgressBar::hidden());
    }
    let style = ProgressStyle::with_template("{msg:5} {wide_bar} {pos}/{len} {eta}")?;
    Ok(ProgressBar::new(runs).with_style(style))
}

fn summarize(
    args: &Args,
    scenario: Scenario,
    outcomes: &[(u64, Outcome)],
    took: Duration,
) -> Summary {
    let total = |value: fn(&RunStats) -> u64| -> u64 {
        outcomes.iter().map(|(_, outcome)| value(&outcome.stats)).sum()
    };
    let failures: Vec<Failure> = outcomes
        .iter()
        .filter_map(|(seed, outcome)| {
            let (failure, replay) = (outcome.failure.clone()?, args.replay(*seed, scenario));
            Some(Failure { seed: *seed, failure, replay })
        })
        .collect();
    let longest_us = outcomes.iter().map(|(_, outcome)| outcome.stats.took_us);
    Summary {
        scenario,
        runs: outcomes.len() as u64,
        passed: (outcomes.len() - failures.len()) as u64,
        seconds: took.as_secs_f64(),
        connections: total(|stats| stats.connections),
        bytes: total(|stats| stats.bytes),
        frames: total(|stats| stats.network.sent),
        retransmissions: total(|stats| stats.retransmissions),
        longest_virtual_ms: longest_us.max().unwrap_or(0) / 1000,
        failures,
    }
}

fn print(summaries: &[Summary], first: u64, count: u64) {
    let mut table = Grid::new([
        "scenario",
        "passed",
        "connections",
        "MB checked",
        "frames",
        "sent again",
        "longest run",
        "took",
    ]);
    for summary in summaries {
        table.row([
            summary.scenario.to_string(),
            format!("{} of {}", summary.passed, summary.runs),
            summary.connections.to_string(),
            format!("{:.1}", summary.bytes as f64 / 1e6),
            summary.frames.to_string(),
            summary.retransmissions.to_string(),
            format!("{} ms", summary.longest_virtual_ms),
            format!("{:.1} s", summary.seconds),
        ]);
    }
    println!("seeds {first} to {}, all on a virtual clock", first + count.saturating_sub(1));
    println!("{table}");
    let failures: Vec<&Failure> = summaries.iter().flat_map(|summary| &summary.failures).collect();
    for failure in failures.iter().take(SHOWN_FAILURES) {
        println!("failed: {}\n  {}", failure.replay, failure.failure);
    }
    if failures.len() > SHOWN_FAILURES {
        println!("and {} more failed", failures.len() - SHOWN_FAILURES);
    }
}

/// One run, looked at closely.
fn one(args: &Args, seed: u64, scenario: Scenario) -> anyhow::Result<ExitCode> {
    let config = args.config(scenario);
    let started = Instant::now();
    let outcome = world::lossy::run(seed, &config);
    if let Some(path) = &args.pcap {
        let file = File::create(path).with_context(|| format!("cannot make {}", path.display()))?;
        world::pcap::write(&mut BufWriter::new(file), &outcome.capture)
            .with_context(|| format!("cannot write the capture to {}", path.display()))?;
    }
    if args.json {
        let summary = summarize(args, scenario, &[(seed, outcome.clone())], started.elapsed());
        println!("{}", serde_json::to_string_pretty(&[summary])?);
    } else {
        if config.vary {
            let mut variation = world::lossy::variation::Variation::draw(seed);
            if config.turns.is_some() || config.queues {
                variation.spread_out(seed);
            }
            variation.schedule(seed, config.scheduler);
            variation.deal_queues(seed, config.queues);
            println!("{}", variation.summary());
        }
        println!("digest {:016x}", outcome.digest);
        println!("{}", serde_json::to_string_pretty(&outcome.stats)?);
        match &outcome.failure {
            None => println!("passed"),
            Some(failure) => {
                println!("failed: {}\n  {failure}", args.replay(seed, scenario));
            }
        }
    }
    Ok(if outcome.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
        Line::try_parse_from([&["sim"], words].concat()).map(|line| line.args)
    }

    #[test]
    fn a_failure_names_every_option_that_changes_the_run() {
        let args = parse(&["--seeds", "5", "--loss", "0.2", "--plain"]).expect("parses");
        assert_eq!(
            args.replay(3, Scenario::Kv),
            "tailplane sim --seed 3 --scenario kv --loss 0.2 --plain"
        );
        let shared = parse(&["--scheduler", "ready-set"]).expect("parses");
        assert_eq!(
            shared.replay(3, Scenario::Kv),
            "tailplane sim --seed 3 --scenario kv --scheduler ready-set"
        );
        assert_eq!(shared.config(Scenario::Kv).scheduler, SchedulerChoice::ReadySet);
        let config = args.config(Scenario::Kv);
        assert_eq!((config.faults.loss, config.faults.corrupt, config.vary), (0.2, 0.01, false));
    }

    #[test]
    fn probabilities_are_checked_and_a_capture_is_of_one_run() {
        assert!(parse(&["--loss", "1.5"]).is_err());
        assert!(parse(&["--loss", "x"]).is_err());
        let args = parse(&["--seeds", "2", "--pcap", "unused.pcap"]).expect("parses");
        let error = run_command(args).expect_err("of many runs").to_string();
        assert!(error.contains("--seed N and --scenario X"), "{error}");
    }
}
