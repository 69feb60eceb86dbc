//! From two readings of a board to what happened between them.

use super::{Counters, GroupId, ThreadId};

/// One elastic thread over one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Whose.
    pub thread: ThreadId,
    /// Length of the period, in nanoseconds.
    pub period_ns: u64,
    /// Packets that it took.
    pub packets: u64,
    /// Q: packets that waited when a busy cycle began, on average; 0 where there was none.
    pub queue_packets: f64,
    /// Connections that busy cycles left waiting for the application, on average: the rest of the queue, under
    /// schedulers that share work (ZygOS §4.4). Their packets are among those taken.
    pub ready: f64,
    /// What those take in the application, on average, in nanoseconds.
    pub ready_ns: f64,
    /// The iteration time, of busy cycles on average, in nanoseconds; 0 where there was none.
    pub iteration_ns: f64,
    /// Packets that a busy cycle took, on average.
    pub batch_packets: f64,
    /// The share of the period without packets, 0 to 1.
    pub idle: f64,
    /// How long the oldest one waits, in nanoseconds.
    pub oldest_waiting_ns: u64,
    /// B: packets that one cycle takes at most.
    pub batch_max: u32,
}

impl Sample {
    /// The queueing delay's upper bound, in nanoseconds: `ceil(Q / B) x iteration time` (IX §4.6), and what waits
    /// for the application by then.
    pub fn delay_ns(&self) -> f64 {
        estimated_delay_ns(self.queue_packets, self.batch_max, self.iteration_ns) + self.ready_ns
    }

    /// Whether it says nothing but that the thread was busy: no cycle has ended in the period.
    pub fn is_blind(&self) -> bool {
        self.packets == 0 && self.iteration_ns == 0.0 && self.idle == 0.0
    }

    /// All that waits: packets in the ring, and connections whose packets were taken from it.
    pub fn waiting(&self) -> f64 {
        self.queue_packets + self.ready
    }
}

/// `max(delay) ~ ceil(Q / B) x iteration time` (IX §4.6), in nanoseconds.
pub fn estimated_delay_ns(queue_packets: f64, batch_max: u32, iteration_ns: f64) -> f64 {
    (queue_packets / f64::from(batch_max.max(1))).ceil() * iteration_ns
}

/// One flow group over one period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSample {
    /// Which.
    pub group: GroupId,
    /// Length of the period, in nanoseconds.
    pub period_ns: u64,
    /// Packets that arrived for it.
    pub packets: u64,
}

/// Differences the readings of one thread's counters.
#[derive(Debug, Clone)]
pub struct Reader {
    thread: ThreadId,
    batch_max: u32,
    pub(super) last: Option<(u64, Counters)>,
}

impl Reader {
    /// Of `thread`, whose cycles take `batch_max` packets at most.
    pub fn new(thread: ThreadId, batch_max: u32) -> Self {
        Self { thread, batch_max, last: None }
    }

    /// What happened since the last reading. None at the first one, where no time has passed, and where the
    /// counters have gone backwards: the dataplane was started anew, and its next reading is a first one.
    pub fn read(&mut self, now_ns: u64, counters: &Counters) -> Option<Sample> {
        let last = self.last;
        if last.is_some_and(|(then_ns, _)| now_ns <= then_ns) {
            return None;
        }
        self.last = Some((now_ns, *counters));
        let (then_ns, before) = last?;
        let busy_cycles = counters.busy_cycles.checked_sub(before.busy_cycles)?;
        let packets = counters.packets.checked_sub(before.packets)?;
        let queue_packets = counters.queue_packets.checked_sub(before.queue_packets)?;
        let ready = counters.ready.checked_sub(before.ready)?;
        let ready_ns = counters.ready_ns.checked_sub(before.ready_ns)?;
        let busy_ns = counters.busy_ns.checked_sub(before.busy_ns)?;
        let idle_ns = counters.idle_ns.checked_sub(before.idle_ns)?;
        let per_cycle =
            |sum: u64| if busy_cycles == 0 { 0.0 } else { sum as f64 / busy_cycles as f64 };
        let counted_ns = busy_ns.saturating_add(idle_ns);
        Some(Sample {
            thread: self.thread,
            period_ns: now_ns - then_ns,
            packets,
            queue_packets: per_cycle(queue_packets),
            ready: per_cycle(ready),
            ready_ns: per_cycle(ready_ns),
            iteration_ns: per_cycle(busy_ns),
            batch_packets: per_cycle(packets),
            // A thread that counted nothing was parked, or sits in one long cycle: idle is what it said.
            idle: if counted_ns == 0 { 0.0 } else { idle_ns as f64 / counted_ns as f64 },
            oldest_waiting_ns: counters.oldest_waiting_ns,
            batch_max: self.batch_max,
        })
    }
}

/// Differences the packet counters of all flow groups.
#[derive(Debug, Clone, Default)]
pub struct GroupReader {
    last: Option<(u64, Vec<u64>)>,
}

impl GroupReader {
    /// What each group has received since the last reading; empty where [`Reader::read`] would give none.
    pub fn read(&mut self, now_ns: u64, packets: &[u64]) -> Vec<GroupSample> {
        if self.last.as_ref().is_some_and(|(then_ns, _)| now_ns <= *then_ns) {
            return Vec::new();
        }
        let Some((then_ns, before)) = self.last.replace((now_ns, packets.to_vec())) else {
            return Vec::new();
        };
        let period_ns = now_ns - then_ns;
        let pairs = packets.iter().zip(&before).enumerate();
        pairs
            .filter_map(|(index, (&now, &then))| {
                let group = GroupId(u16::try_from(index).ok()?);
                Some(GroupSample { group, period_ns, packets: now.checked_sub(then)? })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Board, Cycle};
    use proptest::prelude::*;

    #[test]
    fn the_estimate_counts_whole_batches() {
        assert_eq!(estimated_delay_ns(0.0, 64, 5_000.0), 0.0);
        assert_eq!(estimated_delay_ns(1.0, 64, 5_000.0), 5_000.0);
        assert_eq!(estimated_delay_ns(64.0, 64, 5_000.0), 5_000.0);
        assert_eq!(estimated_delay_ns(65.0, 64, 5_000.0), 10_000.0);
        assert_eq!(estimated_delay_ns(5.0, 0, 1.0), 5.0);
    }

    #[test]
    fn a_restarted_dataplane_is_read_anew_and_a_clock_that_stands_gives_nothing() {
        let mut reader = Reader::new(ThreadId(3), 64);
        let at = |packets| Counters { packets, busy_cycles: packets, ..Counters::default() };
        assert!(reader.read(10, &at(100)).is_none());
        assert!(reader.read(10, &at(101)).is_none());
        assert!(reader.read(5, &at(101)).is_none());
        assert_eq!(reader.read(20, &at(110)).map(|sample| sample.packets), Some(10));
        assert!(reader.read(30, &at(2)).is_none(), "the counters went back");
        assert_eq!(reader.read(40, &at(5)).map(|sample| sample.packets), Some(3));
        let mut groups = GroupReader::default();
        assert!(groups.read(0, &[1, 2]).is_empty());
        assert_eq!(groups.read(9, &[5, 1])[0].packets, 4);
        assert_eq!(groups.read(9, &[5, 1]).len(), 0);
    }

    #[test]
    fn what_is_ready_waits_beside_what_is_in_the_ring() {
        let words = statseg::words();
        let board = Board::over(&words);
        let mut reader = Reader::new(ThreadId(0), 64);
        reader.read(0, &board.snapshot().counters(0));
        let cycle =
            Cycle { queue_packets: 70, taken_packets: 64, busy_ns: 500, ..Cycle::default() };
        board.busy(&Cycle { ready: 30, ready_ns: 9_000, ..cycle });
        board.busy(&Cycle { ready: 10, ready_ns: 3_000, ..cycle });
        let sample =
            reader.read(1_000, &board.snapshot().counters(1_000)).expect("time has passed");
        assert_eq!((sample.ready, sample.waiting()), (20.0, 90.0));
        assert_eq!(sample.delay_ns(), 2.0 * 500.0 + 6_000.0);
        assert!(!sample.is_blind());
        // The thread is in one long cycle.
        let sample =
            reader.read(2_000, &board.snapshot().counters(2_000)).expect("time has passed");
        assert!(sample.is_blind(), "{sample:?}");
        board.idle(1_000);
        let sample =
            reader.read(3_000, &board.snapshot().counters(3_000)).expect("time has passed");
        assert!(!sample.is_blind(), "{sample:?}");
    }

    proptest! {
        /// However a run is cut into readings, nothing is lost and nothing is counted twice.
        #[test]
        fn readings_add_up(cycles in prop::collection::vec((1u64..200, 1u64..65, 0u64..9_999, any::<bool>()), 1..60)) {
            let words = statseg::words();
            let board = Board::over(&words);
            let mut reader = Reader::new(ThreadId(0), 64);
            reader.read(0, &board.snapshot().counters(0));
            let (mut now_ns, mut packets, mut seen) = (0, 0, 0);
            for &(queue_packets, taken_packets, busy_ns, read) in &cycles {
                board.busy(&Cycle { queue_packets, taken_packets, busy_ns, ..Cycle::default() });
                board.idle(busy_ns);
                now_ns += 2 * busy_ns + 1;
                packets += taken_packets;
                if read {
                    let sample = reader.read(now_ns, &board.snapshot().counters(now_ns)).expect("time has passed");
                    seen += sample.packets;
                    prop_assert!(busy_ns == 0 || (sample.idle - 0.5).abs() < 1e-9);
                }
            }
            let last = reader.read(now_ns + 1, &board.snapshot().counters(now_ns)).expect("time has passed");
            prop_assert_eq!(seen + last.packets, packets);
        }
    }
}
