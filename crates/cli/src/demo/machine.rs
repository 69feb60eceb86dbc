//! What the machine did during a window: its conditions, and whether somebody else used it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Scheduler ticks per second in `/proc/stat` (USER_HZ, the same on every Linux of this kind).
const TICKS_PER_S: f64 = 100.0;

/// Processor time at a moment, in seconds: of the whole machine, and of ours.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    machine_s: f64,
    ours_s: f64,
    at: std::time::Instant,
}

impl Usage {
    /// Now; `others` are processes that we started.
    pub fn now(others: &[u32]) -> Self {
        let mut ours_s = process_s("self").unwrap_or(0.0);
        for pid in others {
            ours_s += process_s(&pid.to_string()).unwrap_or(0.0);
        }
        Self { machine_s: machine_s().unwrap_or(0.0), ours_s, at: std::time::Instant::now() }
    }

    /// Processors that somebody else used since `self`, on average: 0.05 is 5 % of one.
    pub fn foreign_since(&self, others: &[u32]) -> f64 {
        let now = Self::now(others);
        let span = now.at.duration_since(self.at).as_secs_f64().max(0.001);
        let foreign = (now.machine_s - self.machine_s) - (now.ours_s - self.ours_s);
        // Interrupts that our own packets cause are charged to the machine, within our cores.
        foreign.max(0.0) / span
    }
}

fn machine_s() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&index| fields.get(index)).sum();
    Some(busy / TICKS_PER_S)
}

/// User and system time of a process, in seconds.
pub fn process_s(pid: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces; what follows its parenthesis does not.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
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
fn commit() -> String {
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
