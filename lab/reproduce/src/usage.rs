//! Whether somebody else used the machine while a window was measured.
//!
//! ```
//! use std::{path::Path, time::Instant};
//! use reproduce::{Measured, usage::{FOREIGN_MAX, Usage}};
//! let root = Path::new("/");
//! let before = Usage::read(root, &[], Instant::now());
//! let measured = Measured::single(7.0); // the window
//! let after = Usage::read(root, &[], Instant::now());
//! let measured = match after.disturbance(&before, FOREIGN_MAX) {
//!     Some(reason) => measured.disturbed(reason),
//!     None => measured,
//! };
//! # let _ = measured;
//! ```
//!
//! The kernel counts processor time in ticks of 10 ms, of which it may see one too many or too few
//! for each process: windows shorter than about half a second cannot be judged by it.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

/// Share of one processor that others may use before a window counts as disturbed.
pub const FOREIGN_MAX: f64 = 0.05;

/// Ticks per second of `/proc` (USER_HZ, which is 100 on every architecture that we run on).
const TICKS_PER_S: f64 = 100.0;
/// Most that is read of one file; the first line of `/proc/stat` is what matters.
const READ_MAX: u64 = 64 << 10;
/// Windows are not taken for shorter than this, so that one tick is no disturbance.
const SPAN_MIN: Duration = Duration::from_millis(200);

/// Processor time used until a moment: by all of the machine, and by ourselves.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    machine_s: Option<f64>,
    ours_s: f64,
    at: Instant,
}

impl Usage {
    /// What `/proc` under `root` says `now`; `others` are processes that belong to the measurement,
    /// apart from this one.
    pub fn read(root: &Path, others: &[u32], now: Instant) -> Self {
        let mine = process_s(root, "self").unwrap_or(0.0);
        let theirs = others.iter().filter_map(|pid| process_s(root, &pid.to_string()));
        Self { machine_s: machine_s(root), ours_s: mine + theirs.sum::<f64>(), at: now }
    }

    /// Processors that others used since `before`, on average: 0.05 is 5 % of one. Absent where
    /// the machine does not tell.
    pub fn foreign_since(&self, before: &Self) -> Option<f64> {
        let span = self.at.saturating_duration_since(before.at).max(SPAN_MIN).as_secs_f64();
        let all = self.machine_s? - before.machine_s?;
        // A process that ended in between takes its time along; what is left must not go below.
        Some((all - (self.ours_s - before.ours_s)).max(0.0) / span)
    }

    /// Why the window since `before` is disturbed, where others used more than `limit` processors;
    /// also where the machine does not tell.
    pub fn disturbance(&self, before: &Self, limit: f64) -> Option<String> {
        match self.foreign_since(before) {
            Some(foreign) if foreign <= limit => None,
            Some(foreign) => Some(format!(
                "other processes used {:.0} % of a processor (at most {:.0} % is allowed)",
                foreign * 100.0,
                limit * 100.0
            )),
            None => Some("/proc/stat cannot be read: nobody can tell who used the machine".into()),
        }
    }
}

fn text(root: &Path, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(root.join(path)).ok()?.take(READ_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Busy time of all processors, in seconds.
fn machine_s(root: &Path) -> Option<f64> {
    let text = text(root, "proc/stat")?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: the idle ones are left out.
    let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&index| fields.get(index)).sum();
    (fields.len() >= 4).then_some(busy / TICKS_PER_S)
}

/// User and system time of a process, in seconds.
fn process_s(root: &Path, pid: &str) -> Option<f64> {
    let text = text(root, &format!("proc/{pid}/stat"))?;
    // The name may hold blanks and parentheses; what follows its last parenthesis does not.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc(5): utime and stime are the 14th and 15th field, the name is the second.
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn process(user: u64, system: u64) -> String {
        format!("77 (a) b (c) R 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 0 0 0")
    }

    #[test]
    fn others_are_what_is_left_of_the_machine() {
        let root = std::env::temp_dir().join(format!("tailplane-usage-{}", std::process::id()));
        let write = |stat: &str, mine: &str, theirs: &str| {
            for (path, text) in [("stat", stat), ("self/stat", mine), ("77/stat", theirs)] {
                let path = root.join("proc").join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        };
        let start = Instant::now();
        let read = |at| Usage::read(&root, &[77], start + Duration::from_secs(at));
        write("cpu  100 0 100 5000 10 0 0 0 0 0\ncpu0 1 2", &process(10, 10), &process(5, 0));
        let before = read(0);
        // Ten seconds in which the machine worked 10 s, we 6 s, our server 3 s: 1 s is foreign.
        write("cpu  600 0 500 5500 10 50 50 0 0 0\n", &process(310, 310), &process(205, 100));
        let after = read(10);
        let foreign = after.foreign_since(&before).unwrap();
        assert!((foreign - 0.1).abs() < 1e-9, "{foreign}");
        let reason = after.disturbance(&before, FOREIGN_MAX).unwrap();
        assert_eq!(reason, "other processes used 10 % of a processor (at most 5 % is allowed)");
        assert_eq!(after.disturbance(&before, 0.2), None);
        // A server that is gone leaves no negative time behind, nor a division by nothing.
        fs::remove_dir_all(root.join("proc/77")).unwrap();
        assert_eq!(before.foreign_since(&before), Some(0.0));
        assert!(read(10).foreign_since(&after).unwrap().is_finite());
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(read(20).foreign_since(&before), None);
        assert!(read(20).disturbance(&before, 0.5).unwrap().contains("/proc/stat"));
    }

    #[test]
    fn nonsense_is_no_time() {
        assert_eq!(machine_s(Path::new("/nowhere-at-all")), None);
        let own = process_s(Path::new("/"), "self");
        assert!(own.is_none_or(|seconds| seconds >= 0.0));
    }
}
