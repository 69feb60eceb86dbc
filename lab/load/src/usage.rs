//! What a thread took from the machine inside the window, and what the machine took from it.

use rustix::time::{ClockId, clock_gettime};

use crate::engine::Phase;
use crate::measurement::Measurement;

/// Processor time, involuntary context switches and waits of this thread inside the window.
#[derive(Debug, Default)]
pub(crate) struct WindowUsage {
    before: Option<Taken>,
    after: Option<Taken>,
}

/// Of one thread since it began.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    cpu_ns: u64,
    involuntary_switches: u64,
    /// Time in which it was ready and did not run.
    waited_ns: u64,
}

impl WindowUsage {
    /// Told the phase after every step; looks at the counters when the window begins and ends.
    pub fn on_phase(&mut self, phase: Phase) {
        if phase >= Phase::Measuring && self.before.is_none() {
            self.before = Some(Taken::so_far());
        }
        if phase > Phase::Measuring && self.after.is_none() {
            self.after = Some(Taken::so_far());
        }
    }

    /// Adds what was taken to the thread's counts. A `spinning` thread takes all the time there
    /// is, which says nothing about the cost of a request.
    pub fn add_to(&self, measured: &mut Measurement, spinning: bool) {
        let (Some(before), Some(after)) = (self.before, self.after) else { return };
        let since = |count: fn(&Taken) -> u64| count(&after).saturating_sub(count(&before));
        measured.cpu_ns += if spinning { 0 } else { since(|taken| taken.cpu_ns) };
        measured.involuntary_switches += since(|taken| taken.involuntary_switches);
        measured.waited_ns += since(|taken| taken.waited_ns);
    }
}

impl Taken {
    fn so_far() -> Self {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        let read = |file: &str| {
            std::fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap_or_default()
        };
        let involuntary_switches = read("status")
            .lines()
            .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")?.trim().parse().ok())
            .unwrap_or(0);
        // Time on the processor, time waiting for it, slices: the kernel's sched-stats.rst.
        let waited_ns = read("schedstat").split_whitespace().nth(1).and_then(|ns| ns.parse().ok());
        Self { cpu_ns, involuntary_switches, waited_ns: waited_ns.unwrap_or(0) }
    }
}
