//! From what a service shows to what the control loop takes: samples of threads and of flow groups.
//!
//! A thread counts a stretch of time when it is over. One whose application does not return counts nothing
//! meanwhile, and a lot at once afterwards; so may one that waits. Here a period is idle as far as it was not busy,
//! and busy time is what was counted, and what has passed since the application was entered. So a thread that waits
//! is idle and one in its application is not, in every period.

use statseg::ThreadCounters;

use super::{GroupReader, GroupSample, Reader, Sample, ThreadId};

/// Reads all threads of a service, period after period.
#[derive(Debug)]
pub struct Sampler {
    threads: Vec<Reader>,
    groups: GroupReader,
}

impl Sampler {
    /// Of a service with so many threads, whose cycles take `batch_max` packets at most.
    pub fn new(threads: u16, batch_max: u32) -> Self {
        let reader = |thread| Reader::new(ThreadId(thread), batch_max);
        Self { threads: (0..threads).map(reader).collect(), groups: GroupReader::default() }
    }

    /// What happened since the last call, of each thread; without those of which that cannot be said. `shown` answers
    /// what a thread shows now.
    pub fn threads(
        &mut self,
        now_ns: u64,
        shown: impl Fn(u16) -> Option<ThreadCounters>,
    ) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.threads.len());
        for (thread, reader) in (0u16..).zip(&mut self.threads) {
            let Some(shown) = shown(thread) else { continue };
            let (counters, entered_ns) = (shown.counters(now_ns), shown.in_application_since_ns);
            let last = reader.last;
            let sample = reader.read(now_ns, &counters);
            if let (Some(mut sample), Some((then_ns, before))) = (sample, last) {
                let counted_ns = counters.busy_ns.saturating_sub(before.busy_ns);
                sample.idle = idle_share(then_ns, now_ns, counted_ns, entered_ns);
                samples.push(sample);
            }
        }
        samples
    }

    /// What each flow group has received since the last call, given what it has received in all.
    pub fn groups(&mut self, now_ns: u64, packets: &[u64]) -> Vec<GroupSample> {
        self.groups.read(now_ns, packets)
    }
}

/// The share of the time from `then_ns` to `now_ns` that a thread was idle.
fn idle_share(then_ns: u64, now_ns: u64, counted_ns: u64, entered_ns: u64) -> f64 {
    let period_ns = now_ns.saturating_sub(then_ns).max(1);
    let inside_ns = match entered_ns {
        0 => 0,
        _ => now_ns.saturating_sub(entered_ns.max(then_ns)),
    };
    // What was counted in this period may have begun before it.
    let busy_ns = counted_ns.saturating_add(inside_ns).min(period_ns);
    1.0 - busy_ns as f64 / period_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Board, Cycle};

    const MS: u64 = 1_000_000;

    #[test]
    fn who_sleeps_is_idle_and_who_is_in_the_application_is_not() {
        assert_eq!(idle_share(0, 100, 0, 0), 1.0);
        assert_eq!(idle_share(0, 100, 25, 0), 0.75);
        assert_eq!(idle_share(1_000, 1_100, 0, 7), 0.0, "entered long ago");
        assert_eq!(idle_share(1_000, 1_100, 20, 1_070), 0.5);
        assert_eq!(idle_share(1_000, 1_100, 5_000, 0), 0.0, "a cycle that began before");
        assert_eq!(idle_share(5, 5, 0, 0), 1.0);
    }

    #[test]
    fn a_long_sleep_that_ends_is_not_counted_twice() {
        let words = statseg::words();
        let board = Board::over(&words);
        let mut sampler = Sampler::new(1, 64);
        let mut read = |now_ns| {
            let samples = sampler.threads(now_ns, |_| Some(board.snapshot()));
            samples.first().map(|sample| sample.idle)
        };
        assert_eq!(read(MS), None);
        assert_eq!(read(101 * MS), Some(1.0), "asleep: nothing is counted");
        board.busy(&Cycle { taken_packets: 10, busy_ns: 10 * MS, ..Cycle::default() });
        board.idle(190 * MS);
        // Counted: 190 ms idle of two periods, and 10 ms busy. The period itself was busy for a tenth.
        assert!((read(201 * MS).expect("a period") - 0.9).abs() < 1e-9);
        board.enter_application(210 * MS);
        assert!((read(301 * MS).expect("a period") - 0.09).abs() < 1e-9);
        assert_eq!(read(401 * MS), Some(0.0), "the application does not return");
        board.leave_application();
        assert_eq!(read(501 * MS), Some(1.0));
    }
}
