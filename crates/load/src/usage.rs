//! What a thread took from the machine inside the window, and what the machine took from it.

use rustix::time::{ClockId, clock_gettime};

use crate::engine::Phase;
use crate::measurement::Measurement;

/// Processor time and involuntary context switches of this thread inside the window.
#[derive(Debug, Default)]
pub(crate) struct WindowUsage {
    before: Option<(u64, u64)>,
    taken: Option<(u64, u64)>,
}

impl WindowUsage {
    /// Told the phase after every step; looks at the counters when the window begins and ends.
    pub fn on_phase(&mut self, phase: Phase) {
        if phase >= Phase::Measuring && self.before.is_none() {
            self.before = Some(usage());
        }
        if phase > Phase::Measuring && self.taken.is_none() {
            let (cpu_ns, switches) = usage();
            let (cpu_before_ns, switches_before) = self.before.unwrap_or_default();
            let cpu_ns = cpu_ns.saturating_sub(cpu_before_ns);
            self.taken = Some((cpu_ns, switches.saturating_sub(switches_before)));
        }
    }

    /// Adds what was taken to the thread's counts. A `spinning` thread takes all the time there
    /// is, which says nothing about the cost of a request.
    pub fn add_to(&self, measured: &mut Measurement, spinning: bool) {
        let (cpu_ns, switches) = self.taken.unwrap_or_default();
        measured.cpu_ns += if spinning { 0 } else { cpu_ns };
        measured.involuntary_switches += switches;
    }
}

fn usage() -> (u64, u64) {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let cpu_ns = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    let switches = std::fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("nonvoluntary_ctxt_switches"))?;
            line.split_whitespace().nth(1)?.parse().ok()
        })
        .unwrap_or(0);
    (cpu_ns, switches)
}
