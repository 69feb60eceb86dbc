//! What `/proc` says of processes and threads. Where the kernel does not say it, a value is absent or zero.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Scheduler ticks per second in `/proc` (USER_HZ, the same on every Linux that we run on).
const TICKS_PER_S: f64 = 100.0;

/// Time that all processors of the machine together were busy since it started, and what the host stole of it, in
/// seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Busy: everything but idle and waiting for disks.
    pub busy_s: f64,
    /// Stolen.
    pub stolen_s: f64,
}

impl Machine {
    /// Until now.
    pub fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<f64> =
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal
        let busy: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&index| fields.get(index)).sum();
        let stolen = fields.get(7).copied().unwrap_or(0.0);
        let both = Self { busy_s: busy / TICKS_PER_S, stolen_s: stolen / TICKS_PER_S };
        (fields.len() >= 4).then_some(both)
    }
}

/// Time that the host took of all processors of this machine together, since it was started.
pub fn stolen() -> Duration {
    Duration::from_secs_f64(Machine::now().map_or(0.0, |machine| machine.stolen_s))
}

/// User and system time of a process (`self`, or a number) and of its children that have ended, in seconds.
pub fn process_s(pid: &str) -> Option<f64> {
    parse_process_s(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_process_s(stat: &str) -> Option<f64> {
    // The name may hold blanks and parentheses; what follows its last parenthesis does not.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc(5): utime, stime, cutime and cstime are the 14th to 17th field, the name is the second.
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)? + ticks(13)? + ticks(14)?) / TICKS_PER_S)
}

/// What the scheduler says of a thread (the kernel's `sched-stats.rst`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its path in `/proc`, which names it.
    pub name: String,
    /// How long it ran, in nanoseconds.
    pub ran_ns: u64,
    /// How long it was ready and did not run, in nanoseconds.
    pub waited_ns: u64,
}

impl Thread {
    fn at(name: String) -> Option<Self> {
        let text = fs::read_to_string(format!("{name}/schedstat")).ok()?;
        let mut nanos = text.split_whitespace().map(|word| word.parse().ok());
        Some(Self { name, ran_ns: nanos.next()??, waited_ns: nanos.next()?? })
    }

    /// The calling thread.
    pub fn own() -> Option<Self> {
        Self::at("/proc/thread-self".to_owned())
    }

    /// All threads of a process (`self`, or a number).
    pub fn all(pid: &str) -> Vec<Self> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks.filter_map(|task| Self::at(task.path().display().to_string())).collect()
    }
}

/// Processor time of the calling thread.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Times that the calling thread lost its processor without asking for it.
pub fn switches() -> u64 {
    switches_at("/proc/thread-self")
}

/// Times that a thread of this process lost its processor without asking for it.
pub fn switches_of(thread: u64) -> u64 {
    switches_at(&format!("/proc/self/task/{thread}"))
}

fn switches_at(place: &str) -> u64 {
    let count = status(place, "nonvoluntary_ctxt_switches");
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> Option<u64> {
    let kibibytes: u64 = status("/proc/self", "VmRSS")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// A line of a process's or a thread's status.
fn status(place: &str, name: &str) -> Option<String> {
    crate::conditions::field(&fs::read_to_string(format!("{place}/status")).ok()?, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let machine = Machine::parse("cpu  600 0 500 5500 10 50 50 20 0 0\ncpu0 1 2\n");
        assert_eq!(machine, Some(Machine { busy_s: 12.2, stolen_s: 0.2 }));
        assert_eq!((Machine::parse("cpu  1 2\n"), Machine::parse("")), (None, None));
        let stat = "77 (a) b (c) R 1 1 1 0 -1 0 0 0 0 0 310 305 30 5 20 0 1 0 0 0 0";
        assert_eq!((parse_process_s(stat), parse_process_s("77 (a) R")), (Some(6.5), None));
    }

    #[test]
    fn this_process_is_there() {
        assert!(Machine::now().is_some_and(|machine| machine.busy_s > 0.0));
        assert!(process_s("self").is_some() && process_s("none").is_none());
        assert!(resident_bytes().is_some_and(|bytes| bytes > 4_096));
        let before = thread_time();
        while thread_time() == before {}
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        assert!(switches_of(own) <= switches());
        let all = Thread::all("self");
        assert!(all.is_empty() == Thread::own().is_none(), "{all:?}");
    }
}
