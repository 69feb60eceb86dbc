//! What the machine did during a window: its conditions, and whether somebody else used it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;
use std::time::Instant;

/// Scheduler ticks per second in `/proc/stat` (USER_HZ, the same on every Linux of this kind).
const TICKS_PER_S: f64 = 100.0;
/// Processors that others may use during a window, on average, before it counts as disturbed.
const FOREIGN_LIMIT: f64 = 0.05;
/// How long one of our busy threads may have been kept from its processor: an objective on p99 allows
/// one request in a hundred to be late.
const WAITED_LIMIT_S: f64 = 0.001;
/// A thread is busy where it ran for this share of the window.
const BUSY_SHARE: f64 = 0.2;

/// Processor time at a moment, in seconds: of the whole machine, and of ours.
#[derive(Clone, Debug)]
pub struct Usage {
    machine_s: f64,
    /// What the hypervisor kept from us.
    stolen_s: f64,
    ours_s: f64,
    /// Of each of our threads: how long it ran, and how long it was ready and did not run.
    threads: HashMap<String, (f64, f64)>,
    at: Instant,
}

/// What others did to a window.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    /// Processors that somebody else used, on average: 0.05 is 5 % of one.
    pub foreign: f64,
    /// Seconds that the hypervisor kept from us, on all processors together (in ticks of 10 ms).
    pub stolen_s: f64,
    /// Seconds that the busy one of our threads that had to wait longest was ready and did not run.
    pub waited_s: f64,
}

impl Disturbance {
    /// Whether the window is worth what a quiet one is.
    pub fn is_quiet(&self) -> bool {
        self.foreign <= FOREIGN_LIMIT && self.stolen_s == 0.0 && self.waited_s <= WAITED_LIMIT_S
    }
}

impl std::fmt::Display for Disturbance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { foreign, stolen_s, waited_s } = self;
        let (percent, stolen_ms, waited_us) = (foreign * 100.0, stolen_s * 1e3, waited_s * 1e6);
        write!(
            f,
            "{percent:.1} % of one core used by others, {stolen_ms:.0} ms stolen, busy threads \
             kept waiting {waited_us:.0} us"
        )
    }
}

impl Usage {
    /// Now; `others` are processes that we started.
    pub fn now(others: &[u32]) -> Self {
        let ours: Vec<String> =
            std::iter::once("self".to_owned()).chain(others.iter().map(u32::to_string)).collect();
        let (machine_s, stolen_s) = machine_s().unwrap_or_default();
        Self {
            machine_s,
            stolen_s,
            ours_s: ours.iter().filter_map(|pid| process_s(pid)).sum(),
            threads: ours.iter().flat_map(|pid| threads_s(pid)).collect(),
            at: Instant::now(),
        }
    }

    /// What others did since `self`. Threads that began since are judged by all of their life.
    pub fn disturbance_since(&self, others: &[u32]) -> Disturbance {
        let now = Self::now(others);
        let span = now.at.duration_since(self.at).as_secs_f64().max(0.001);
        // Interrupts that our own packets cause are charged to the machine, within our cores.
        let foreign = (now.machine_s - self.machine_s) - (now.ours_s - self.ours_s);
        let waits = now.threads.iter().filter_map(|(thread, (ran, waited))| {
            let (ran_before, waited_before) = self.threads.get(thread).copied().unwrap_or_default();
            (ran - ran_before > BUSY_SHARE * span).then_some(waited - waited_before)
        });
        Disturbance {
            foreign: foreign.max(0.0) / span,
            stolen_s: (now.stolen_s - self.stolen_s).max(0.0),
            waited_s: waits.fold(0.0, f64::max),
        }
    }
}

/// Further tries of a measurement that somebody else disturbed.
const RETRIES: u32 = 2;

/// Measures, again where somebody else used the machine, a few times; the last try stands. `others` are
/// processes of ours whose time is not foreign.
///
/// # Errors
/// Those of the measurement.
pub fn until_quiet<T>(
    others: &[u32],
    mut measure: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut tries = 0;
    loop {
        let before = Usage::now(others);
        let measured = measure()?;
        if before.disturbance_since(others).is_quiet() || tries == RETRIES {
            return Ok(measured);
        }
        tries += 1;
    }
}

/// How long each thread of a process ran, and was ready without running, in seconds.
fn threads_s(pid: &str) -> Vec<(String, (f64, f64))> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let times = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut nanos = text.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
        Some((task.path().display().to_string(), (nanos.next()? / 1e9, nanos.next()? / 1e9)))
    };
    tasks.flatten().filter_map(times).collect()
}

/// Time that all processors were busy, and what was stolen of it, in seconds.
fn machine_s() -> Option<(f64, f64)> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&index| fields.get(index)).sum();
    Some((busy / TICKS_PER_S, fields.get(7).copied().unwrap_or(0.0) / TICKS_PER_S))
}

/// User and system time of a process and of its children that have ended, in seconds.
pub fn process_s(pid: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces; what follows its parenthesis does not.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?) / TICKS_PER_S)
}

/// What every result is stamped with.
pub fn conditions() -> BTreeMap<String, String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name))
        .unwrap_or("unknown")
        .trim()
        .to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    BTreeMap::from([
        ("kernel".to_owned(), read("/proc/sys/kernel/osrelease")),
        ("processor".to_owned(), processor),
        ("cores".to_owned(), cores.to_string()),
        ("commit".to_owned(), commit()),
    ])
}

/// The commit of the tree that the command runs in, with `+` where it has changes.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown (not in a git checkout)".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit}+"),
        _ => commit,
    }
}
