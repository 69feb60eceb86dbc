//! What a thread took from the machine inside the window, and what the machine took from it.

use measure::process::{Thread, switches, thread_time};

use crate::course::Phase;
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
        measured.counts.cpu_ns += if spinning { 0 } else { since(|taken| taken.cpu_ns) };
        measured.counts.involuntary_switches += since(|taken| taken.involuntary_switches);
        measured.counts.waited_ns += since(|taken| taken.waited_ns);
    }
}

impl Taken {
    fn so_far() -> Self {
        Self {
            cpu_ns: thread_time().as_nanos() as u64,
            involuntary_switches: switches(),
            waited_ns: Thread::own().map_or(0, |thread| thread.waited_ns),
        }
    }
}
