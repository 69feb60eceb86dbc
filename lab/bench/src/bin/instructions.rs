//! Counts the server's instructions per request, case by case, and fails above the limit.
//!
//! `scripts/bench-instructions.sh` builds this and `cost` and runs it. The profiles stay beside the
//! JSON: `callgrind_annotate target/bench/callgrind.echo.b64.out` shows lines.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use bench::instructions::{
    CASES, ECHO_LIMIT, GATED, GATED_IPV6, GATED_SHOWN, IPV6_LIMIT, Measured, SHOWING_LIMIT, measure,
};
use bench::profile::Profile;
use clap::Parser;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::Serialize;

/// Functions and files that a profile's summary shows.
const SHOWN: usize = 20;

/// Counts instructions per request with callgrind.
#[derive(Parser)]
struct Arguments {
    /// The binary to observe; by default `cost` beside this one.
    #[arg(long)]
    cost: Option<PathBuf>,
    /// Where the profiles and the result go.
    #[arg(long, default_value = "target/bench")]
    directory: PathBuf,
    /// Established connections.
    #[arg(long, default_value_t = 64)]
    connections: u32,
    /// Only the case that the limit is on.
    #[arg(long)]
    gate: bool,
    /// Also show where the instructions of the gated case were spent.
    #[arg(long)]
    profile: bool,
}

/// What a number is worth nothing without.
#[derive(Serialize)]
struct Conditions {
    driver: &'static str,
    checksums: &'static str,
    scheduler: &'static str,
    domain: &'static str,
    cores: u32,
    target: &'static str,
    valgrind: String,
    commit: String,
}

/// The file `instructions.json`.
#[derive(Serialize)]
struct Report<'a> {
    conditions: &'a Conditions,
    limit_echo_b64: f64,
    results: &'a [Measured],
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let cost = match &arguments.cost {
        Some(cost) => cost.clone(),
        None => std::env::current_exe()?.with_file_name("cost"),
    };
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .with_context(|| format!("making the directory {}", directory.display()))?;
    let is_asked = |case: &_| !arguments.gate || [GATED, GATED_SHOWN, GATED_IPV6].contains(case);
    let (mut results, mut profiles) = (Vec::new(), Vec::new());
    for (workload, batch, shown) in CASES.into_iter().filter(is_asked) {
        let found = measure(&cost, directory, workload, batch, shown, arguments.connections)?;
        results.push(found.0);
        profiles.push(found.1);
    }
    let place = |case| results.iter().position(|of| (of.workload, of.batch, of.shown) == case);
    let conditions = conditions();
    let mut out = std::io::stdout().lock();
    write_table(&mut out, &conditions, &results)?;
    let echo = place(GATED).context("the case with the limit is not among those measured")?;
    if arguments.profile {
        write_profile(&mut out, &profiles[echo], results[echo].requests)?;
    }
    write_json(&directory.join("instructions.json"), &conditions, &results)?;
    let cost = results[echo].instructions_per_request;
    writeln!(
        out,
        "one 64-byte echo at B = 64: {cost:.0} instructions; limit {ECHO_LIMIT}: {}",
        if cost <= ECHO_LIMIT { "met" } else { "EXCEEDED" },
    )?;
    let mut is_met = cost <= ECHO_LIMIT;
    let more = [
        ("showing what it does", GATED_SHOWN, SHOWING_LIMIT),
        ("over IPv6", GATED_IPV6, IPV6_LIMIT),
    ];
    for (what, case, limit) in more {
        let at = place(case).with_context(|| format!("{what}: the case was not measured"))?;
        let share = results[at].instructions_per_request / cost - 1.0;
        is_met &= share <= limit;
        writeln!(
            out,
            "{what}: {:.2} % more; limit {:.0} %: {}",
            100.0 * share,
            100.0 * limit,
            if share <= limit { "met" } else { "EXCEEDED" },
        )?;
    }
    Ok(if is_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The first line that a command prints, or why there is none.
fn first_line(command: &str, arguments: &[&str]) -> String {
    let output = Command::new(command).args(arguments).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or("unknown".into())
}

fn conditions() -> Conditions {
    Conditions {
        driver: "loopback",
        checksums: "verified and made in software, but for echo-offloads",
        scheduler: "run-to-completion",
        domain: "inline",
        cores: 1,
        target: std::env::consts::ARCH,
        valgrind: first_line("valgrind", &["--version"]),
        commit: measure::conditions::commit(),
    }
}

fn write_table(
    out: &mut impl Write,
    conditions: &Conditions,
    results: &[Measured],
) -> std::io::Result<()> {
    writeln!(
        out,
        "Server instructions per request, driver to driver; driver {}, checksums {}, scheduler {}, \
         domain {}, {} core, {}, {}, commit {}",
        conditions.driver,
        conditions.checksums,
        conditions.scheduler,
        conditions.domain,
        conditions.cores,
        conditions.target,
        conditions.valgrind,
        conditions.commit,
    )?;
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["workload", "B", "connections", "instructions", "by crate"]);
    for one in results {
        let shares = one.by_crate.iter().filter(|(_, cost)| *cost >= 0.5);
        let shares: Vec<String> = shares.map(|(name, cost)| format!("{name} {cost:.0}")).collect();
        table.add_row([
            format!("{}{}", one.workload.name(), if one.shown { ", shown" } else { "" }),
            one.batch.to_string(),
            one.connections.to_string(),
            format!("{:.1}", one.instructions_per_request),
            shares.join(", "),
        ]);
    }
    writeln!(out, "{table}")
}

fn write_profile(out: &mut impl Write, profile: &Profile, requests: u64) -> std::io::Result<()> {
    for (title, costs) in [("function", &profile.functions), ("file", &profile.files)] {
        writeln!(out, "\ninstructions per echo by {title}:")?;
        for (name, cost) in costs.iter().take(SHOWN) {
            writeln!(out, "{:9.1}  {name}", *cost as f64 / requests as f64)?;
        }
    }
    writeln!(out)
}

fn write_json(path: &Path, conditions: &Conditions, results: &[Measured]) -> anyhow::Result<()> {
    let report = Report { conditions, limit_echo_b64: ECHO_LIMIT, results };
    let text = serde_json::to_string_pretty(&report)?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}
