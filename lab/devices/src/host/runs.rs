//! `run`: boots the machines, a few at a time, and collects what they report.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::contents::Programs;
use super::fetch::{self, Fetched};
use super::machine::{End, Machine};
use super::paths::Paths;
use crate::boots::Boot;
use crate::guest::CHECKS;
use crate::protocol::{Event, Outcome, Work};

/// Longest time for all checks of a boot.
const SUITE_LIMIT: Duration = Duration::from_secs(900);
/// Attempts of a boot: one more where the emulator hangs, never where a check fails.
const ATTEMPTS: u32 = 2;

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The boots, in their order.
    pub boots: Vec<Boot>,
    /// Names of checks; empty: all.
    pub checks: Vec<String>,
    /// Whether the short form.
    pub is_short: bool,
    /// The programs to try.
    pub programs: Programs,
    /// Machines that run at once. Each keeps one processor busy, most of the time.
    pub jobs: usize,
}

impl Wanted {
    /// The checks that a boot is to report, in their order.
    fn names(&self) -> Vec<&'static str> {
        let wanted = CHECKS.iter().filter(|check| check.is_wanted(self.is_short, &self.checks));
        wanted.map(|check| check.name).collect()
    }
}

/// What all boots reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// One for each boot.
    pub boots: Vec<BootResult>,
}

impl Results {
    /// Whether no check failed.
    pub fn is_clean(&self) -> bool {
        self.boots.iter().flat_map(|boot| &boot.checks).all(|check| !check.outcome.is_failure())
    }
}

/// What one boot reported.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BootResult {
    /// The boot's name.
    pub name: String,
    /// The driver's module.
    pub driver: String,
    /// How frames should travel.
    pub mode: String,
    /// The kernel's release; empty where it did not boot.
    pub kernel: String,
    /// From QEMU's start until both NICs were up, in seconds.
    pub ready_s: f64,
    /// From QEMU's start to its end, in seconds.
    pub took_s: f64,
    /// Boots that it took.
    pub attempts: u32,
    /// Every check that was wanted, in their order.
    pub checks: Vec<CheckResult>,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckResult {
    /// The check's name.
    pub name: &'static str,
    /// What it found.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub took_s: f64,
}

/// Boots each machine and runs its checks.
///
/// # Errors
/// Something could not be fetched, or QEMU not be started. What a guest does is a result.
pub fn run(paths: &Paths, wanted: &Wanted) -> anyhow::Result<Results> {
    let fetched = fetch::fetch(paths, &wanted.boots, false)?;
    // The last one, with systemd, takes longest: begun first, it is not waited for alone.
    let queue = Mutex::new(wanted.boots.iter().enumerate().rev());
    let work = || {
        let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let boots = std::iter::from_fn(next);
        boots.map(|(at, boot)| (at, attempts(paths, &fetched, boot, wanted))).collect::<Vec<_>>()
    };
    let mut found: Vec<_> = thread::scope(|scope| {
        let jobs = wanted.jobs.clamp(1, wanted.boots.len().max(1));
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join());
        results.flat_map(|result| result.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    found.sort_by_key(|(at, _)| *at);
    let boots: anyhow::Result<Vec<BootResult>> =
        found.into_iter().map(|(_, result)| result).collect();
    Ok(Results { boots: boots? })
}

/// Boots a machine and runs its checks, once more where the emulator is at fault.
fn attempts(
    paths: &Paths,
    fetched: &Fetched,
    boot: &Boot,
    wanted: &Wanted,
) -> anyhow::Result<BootResult> {
    let _lock = paths.lock(boot.name)?;
    let mut attempts = 1;
    loop {
        let (result, end) = attempt(paths, fetched, boot, wanted, attempts)?;
        let is_emulators = matches!(end, End::Hangs(_)) || result.kernel.is_empty();
        if !is_emulators || attempts == ATTEMPTS {
            return Ok(result);
        }
        eprintln!("devices: {}: {}; boots once more", boot.name, end);
        attempts += 1;
    }
}

fn attempt(
    paths: &Paths,
    fetched: &Fetched,
    boot: &Boot,
    wanted: &Wanted,
    attempts: u32,
) -> anyhow::Result<(BootResult, End)> {
    let work = Work::Suite { short: wanted.is_short, only: wanted.checks.clone() };
    let mut report = Report::default();
    let mut machine = Machine::start(paths, fetched, &wanted.programs, boot, work, b"")?;
    let began = machine.began;
    let end = machine.watch(SUITE_LIMIT, |event| report.take(boot, event, began));
    let last_words = machine.last_words();
    drop(machine);
    if end != End::Done {
        eprintln!("devices: {}: {}\n{last_words}", boot.name, end);
    }
    let (kernel, ready_s) = (std::mem::take(&mut report.kernel), report.ready_s);
    let checks = report.complete(&wanted.names(), &end);
    if checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_))) {
        keep_logs(paths, boot);
    }
    let result = BootResult {
        name: boot.name.to_owned(),
        driver: boot.driver.module().to_owned(),
        mode: boot.expected.to_string(),
        kernel,
        ready_s,
        took_s: began.elapsed().as_secs_f64(),
        attempts,
        checks,
    };
    Ok((result, end))
}

/// Keeps what the next boot of this name would write over.
fn keep_logs(paths: &Paths, boot: &Boot) {
    for ending in ["console.log", "qemu.log", "events"] {
        let kept = paths.of_boot(boot.name, &format!("failed.{ending}"));
        match std::fs::copy(paths.of_boot(boot.name, ending), &kept) {
            Ok(_) => eprintln!("devices: {}: kept '{}'", boot.name, kept.display()),
            Err(error) => eprintln!("devices: {}: cannot keep its {ending}: {error}", boot.name),
        }
    }
}

/// What a guest has reported until now.
#[derive(Clone, Debug, Default)]
struct Report {
    kernel: String,
    ready_s: f64,
    /// The check that runs.
    runs: Option<String>,
    broken: Option<String>,
    checks: Vec<(String, Outcome, f64)>,
}

impl Report {
    fn take(&mut self, boot: &Boot, event: Event, began: Instant) {
        match event {
            Event::Booted { kernel, .. } => self.kernel = kernel,
            Event::Rigged { .. } => {
                self.ready_s = began.elapsed().as_secs_f64();
                eprintln!(
                    "devices: {}: Linux {}, links up after {:.0} s",
                    boot.name, self.kernel, self.ready_s
                );
            }
            Event::Begins { name } => self.runs = Some(name),
            Event::Check { name, outcome, took_s } => {
                eprintln!("devices: {}: {name:<16} {took_s:>5.1} s  {outcome}", boot.name);
                self.runs = None;
                self.checks.push((name, outcome, took_s));
            }
            Event::Broken { reason } => self.broken = Some(reason),
            Event::Heartbeat | Event::Output { .. } | Event::Exit { .. } | Event::Done => {}
        }
    }

    /// A result for each check that was wanted: one that was cut off failed, those behind it were not tried.
    fn complete(self, wanted: &[&'static str], end: &End) -> Vec<CheckResult> {
        let why = self.broken.unwrap_or_else(|| end.to_string());
        let find = |name: &'static str| {
            let reported = self.checks.iter().find(|(found, ..)| found == name);
            let (outcome, took_s) = match reported {
                Some((_, outcome, took_s)) => (outcome.clone(), *took_s),
                None if self.runs.as_deref() == Some(name) => (Outcome::Failed(why.clone()), 0.0),
                None => (Outcome::NotTried(why.clone()), 0.0),
            };
            CheckResult { name, outcome, took_s }
        };
        wanted.iter().copied().map(find).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_was_cut_off_failed_and_those_behind_it_were_not_tried() {
        let boot = Boot::named("veth").expect("there is one");
        let mut report = Report::default();
        let passed = Outcome::Passed(String::new());
        for event in [
            Event::Begins { name: "start".into() },
            Event::Check { name: "start".into(), outcome: passed.clone(), took_s: 1.0 },
            Event::Begins { name: "ping".into() },
        ] {
            report.take(&boot, event, Instant::now());
        }
        let found = report.complete(&["start", "ping", "items"], &End::Ended);
        let why = End::Ended.to_string();
        let outcomes: Vec<Outcome> = found.into_iter().map(|check| check.outcome).collect();
        assert_eq!(outcomes, [passed, Outcome::Failed(why.clone()), Outcome::NotTried(why)]);
    }
}
