//! One elastic thread's words: it alone writes, others read whenever they like.
//!
//! Words only grow, but for those that say what is now; nobody ever resets them. The writer stores and never
//! exchanges: on the usual processors each of these is a plain store to a line of its own.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::counters::{Cycle, MigrationTotals, PhaseTotals, State, ThreadCounters, Totals};
use crate::layout::{self as at, RUNS, THREAD_WORDS};

/// The memory of a board.
pub type Words = [AtomicU64; THREAD_WORDS];

/// Memory for a board that is in no segment: of a thread that shows itself to nobody, or of a test.
pub fn words() -> Box<Words> {
    Box::new([const { AtomicU64::new(0) }; THREAD_WORDS])
}

/// See the module's comment. All methods that write are for the elastic thread alone.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    words: &'a Words,
}

impl<'a> Board<'a> {
    /// A board in this memory.
    pub fn over(words: &'a Words) -> Self {
        Self { words }
    }

    /// Counts a cycle that did something, when it has ended.
    #[inline]
    pub fn busy(&self, cycle: &Cycle) {
        let taken = cycle.taken_packets;
        // That it is counted here is how many busy cycles there were.
        self.add(at::BATCHES + bucket(taken, at::BATCH_BUCKETS), 1);
        self.add(at::BUSY_NS, cycle.busy_ns);
        self.set(at::OLDEST_WAITING_NS, cycle.oldest_waiting_ns);
        if taken > 0 {
            self.add(at::PACKETS, taken);
            self.add(at::DELAYS + bucket(cycle.delay_ns / 1_000, at::DELAY_BUCKETS), 1);
        }
        if cycle.queue_packets > taken {
            self.add(at::LEFT_PACKETS, cycle.queue_packets - taken);
        }
        if cycle.ready > 0 {
            self.add(at::READY, cycle.ready);
            self.add(at::READY_NS, cycle.ready_ns);
        }
    }

    /// Counts a cycle that found nothing, and for how long.
    #[inline]
    pub fn idle(&self, idle_ns: u64) {
        self.add(at::IDLE_CYCLES, 1);
        self.add(at::IDLE, idle_ns);
        if self.get(at::OLDEST_WAITING_NS) != 0 {
            self.set(at::OLDEST_WAITING_NS, 0);
        }
    }

    /// Time passes without work, though no cycle is counted: the thread waits on purpose.
    #[inline]
    pub fn wait(&self, idle_ns: u64) {
        self.add(at::IDLE, idle_ns);
    }

    /// A cycle begins, at a moment of `CLOCK_MONOTONIC`.
    #[inline]
    pub fn begin(&self, now_ns: u64) {
        self.set(at::LAST_CYCLE_NS, now_ns);
    }

    /// The thread falls asleep: idle time runs by itself until [`awake`](Self::awake).
    pub fn asleep(&self, now_ns: u64) {
        self.set(at::IDLE, RUNS | self.get(at::IDLE).wrapping_sub(now_ns));
    }

    /// The thread was asleep until now.
    pub fn awake(&self, now_ns: u64) {
        self.set(at::IDLE, self.get(at::IDLE).wrapping_add(now_ns) & !RUNS);
    }

    /// Counts a sleep, if it was more than an attempt.
    pub fn slept(&self, slept: bool) {
        self.add(at::SLEEPS, slept.into());
    }

    /// Time passes with the work of an application in a process of its own, though no cycle is counted.
    #[inline]
    pub fn lent(&self, busy_ns: u64) {
        self.add(at::BUSY_NS, busy_ns);
    }

    /// The application is entered, at a moment of `CLOCK_MONOTONIC` that is not 0.
    #[inline]
    pub fn enter_application(&self, now_ns: u64) {
        self.set(at::IN_APPLICATION_SINCE_NS, now_ns);
    }

    /// The application has returned.
    #[inline]
    pub fn leave_application(&self) {
        self.set(at::IN_APPLICATION_SINCE_NS, 0);
    }

    /// What the thread is doing.
    pub fn set_state(&self, state: State) {
        self.set(at::STATE, state as u64);
    }

    /// Where it runs; none: where the kernel puts it.
    pub fn set_processor(&self, cpu: Option<usize>) {
        self.set(at::PROCESSOR, cpu.map_or(0, |cpu| cpu as u64 + 1));
    }

    /// Copies what is counted elsewhere.
    pub fn tell(&self, totals: &Totals) {
        self.set(at::STEALS, totals.steals);
        self.set(at::KICKS, totals.kicks);
        self.set(at::FORWARDED, totals.forwarded);
        self.set(at::FORWARD_DROPS, totals.forward_drops);
        self.set(at::CONNECTIONS, totals.connections);
        self.set(at::EVENTS, totals.events);
        self.set(at::CALLS, totals.calls);
        self.set(at::CROSSINGS, totals.crossings);
        self.set(at::BORROWED, totals.borrowed);
    }

    /// Copies what the stack has counted: as many numbers as have a place.
    pub fn tell_stack(&self, counters: impl Iterator<Item = u64>) {
        let places = at::STACK..at::STACK + at::STACK_COUNTERS_MAX;
        places.zip(counters).for_each(|(word, count)| self.set(word, count));
    }

    /// Copies what is counted of migrations.
    pub fn tell_migrations(&self, totals: &MigrationTotals) {
        let counts = totals.counts();
        counts.into_iter().enumerate().for_each(|(n, count)| self.set(at::MIGRATIONS + n, count));
        for (phase, of) in totals.phases.iter().chain([&totals.total]).enumerate() {
            let from = at::MIGRATIONS + at::MIGRATION_COUNTS + phase * at::PHASE_WORDS;
            for (n, word) in
                [of.count, of.sum_ns, of.max_ns].iter().chain(&of.histogram).enumerate()
            {
                self.set(from + n, *word);
            }
        }
    }

    /// Reads all words, one after the other. Anybody may.
    pub fn snapshot(&self) -> ThreadCounters {
        let totals = Totals {
            steals: self.get(at::STEALS),
            kicks: self.get(at::KICKS),
            forwarded: self.get(at::FORWARDED),
            forward_drops: self.get(at::FORWARD_DROPS),
            connections: self.get(at::CONNECTIONS),
            events: self.get(at::EVENTS),
            calls: self.get(at::CALLS),
            crossings: self.get(at::CROSSINGS),
            borrowed: self.get(at::BORROWED),
        };
        let batches: [u64; at::BATCH_BUCKETS] = std::array::from_fn(|n| self.get(at::BATCHES + n));
        let packets = self.get(at::PACKETS);
        ThreadCounters {
            state: State::of(self.get(at::STATE)),
            processor: self.get(at::PROCESSOR).checked_sub(1).and_then(|cpu| cpu.try_into().ok()),
            packets,
            queue_packets: packets.wrapping_add(self.get(at::LEFT_PACKETS)),
            ready: self.get(at::READY),
            ready_ns: self.get(at::READY_NS),
            busy_cycles: batches.iter().copied().fold(0, u64::wrapping_add),
            idle_cycles: self.get(at::IDLE_CYCLES),
            busy_ns: self.get(at::BUSY_NS),
            idle: self.get(at::IDLE),
            oldest_waiting_ns: self.get(at::OLDEST_WAITING_NS),
            last_cycle_ns: self.get(at::LAST_CYCLE_NS),
            in_application_since_ns: self.get(at::IN_APPLICATION_SINCE_NS),
            sleeps: self.get(at::SLEEPS),
            totals,
            batches,
            delays: std::array::from_fn(|n| self.get(at::DELAYS + n)),
            migrations: self.migrations(),
            stack: std::array::from_fn(|n| self.get(at::STACK + n)),
        }
    }

    fn migrations(&self) -> MigrationTotals {
        let phase = |phase: usize| {
            let from = at::MIGRATIONS + at::MIGRATION_COUNTS + phase * at::PHASE_WORDS;
            PhaseTotals {
                count: self.get(from),
                sum_ns: self.get(from + 1),
                max_ns: self.get(from + 2),
                histogram: std::array::from_fn(|n| self.get(from + 3 + n)),
            }
        };
        let counts = std::array::from_fn(|n| self.get(at::MIGRATIONS + n));
        MigrationTotals::new(counts, std::array::from_fn(phase), phase(at::PHASES - 1))
    }

    #[inline(always)]
    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }

    /// There is one writer, so reading and storing is enough: no locked instruction on the elastic thread's way.
    #[inline(always)]
    fn add(&self, word: usize, more: u64) {
        self.set(word, self.get(word).wrapping_add(more));
    }
}

/// In which of so many buckets a number is counted: 0 in the first, those of n bits in the n-th, all that are
/// larger in the last.
#[inline(always)]
fn bucket(number: u64, buckets: usize) -> usize {
    // As many bits as the number has: twice the number is asked, and one more, which is never 0.
    (((number << 1) | 1).ilog2() as usize).min(buckets - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::bucket_floor;

    #[test]
    fn numbers_are_counted_by_their_bits() {
        let found = [0, 1, 2, 3, 4, 64, 1_024, u64::MAX >> 1].map(|number| bucket(number, 16));
        assert_eq!(found, [0, 1, 2, 2, 3, 7, 11, 15]);
        for bucket_of in 0..16 {
            assert_eq!(bucket(bucket_floor(bucket_of), 16), bucket_of);
        }
    }

    #[test]
    fn a_cycle_is_counted_where_it_belongs() {
        let words = words();
        let board = Board::over(&words);
        board.busy(&Cycle {
            queue_packets: 100,
            taken_packets: 64,
            ready: 3,
            ready_ns: 4_500,
            busy_ns: 130_000,
            oldest_waiting_ns: 90_000,
            delay_ns: 260_000,
        });
        board.busy(&Cycle { busy_ns: 1_000, ..Cycle::default() });
        let seen = board.snapshot();
        assert_eq!((seen.busy_cycles, seen.packets, seen.queue_packets), (2, 64, 100));
        assert_eq!((seen.busy_ns, seen.oldest_waiting_ns), (131_000, 0));
        assert_eq!((seen.ready, seen.ready_ns), (3, 4_500));
        // 64 packets: bucket 7; none: bucket 0. 260 us: 256 to 511; a cycle without packets has no delay.
        assert_eq!((seen.batches[7], seen.batches[0]), (1, 1));
        assert_eq!((seen.delays[9], seen.delays.iter().sum::<u64>()), (1, 1));
        board.idle(5);
        assert_eq!(board.snapshot().counters(0).idle_ns, 5);
    }

    #[test]
    fn idle_time_runs_while_the_thread_sleeps() {
        let words = words();
        let board = Board::over(&words);
        board.idle(700);
        board.asleep(10_000);
        let asleep = board.snapshot();
        assert_eq!([10_000, 10_300].map(|now| asleep.counters(now).idle_ns), [700, 1_000]);
        assert!(asleep.is_asleep());
        board.awake(10_500);
        board.slept(true);
        let awake = board.snapshot();
        assert_eq!((awake.counters(99_999).idle_ns, awake.sleeps), (1_200, 1));
        // Longer asleep than it was ever idle before, and a clock that stands before that.
        board.asleep(1);
        assert_eq!(board.snapshot().counters(0).idle_ns, 1_199);
    }

    #[test]
    fn migrations_come_back_as_they_were_told() {
        let words = words();
        let board = Board::over(&words);
        let phase = |n: u64| PhaseTotals {
            count: n,
            sum_ns: 10 * n,
            max_ns: 5 * n,
            histogram: std::array::from_fn(|at| n + at as u64),
        };
        let told = MigrationTotals::new(
            std::array::from_fn(|n| n as u64 + 1),
            [1, 2, 3, 4].map(phase),
            phase(5),
        );
        board.tell_migrations(&told);
        assert_eq!(board.snapshot().migrations, told);
        assert_eq!(board.snapshot().totals, Totals::default(), "nothing else was touched");
    }
}
