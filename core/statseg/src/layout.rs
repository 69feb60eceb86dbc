//! Where what stands. Every word has 64 bits; offsets are in bytes from the segment's begin.
//!
//! ```text
//! 0        header: magic, version, bytes, threads, groups, batch_max; from 128 on names of the stack's counters
//! 2176     homes: by flow group, the thread's number and one more; 0: not known
//! then     for each thread a block of its own lines: THREAD_WORDS words, and packets by flow group
//! ```

/// "tailplan" in bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"tailplan");
/// Of this layout. A change of any constant of this file is another version.
pub const VERSION: u64 = 3;

/// Most elastic threads of a segment.
pub const THREADS_MAX: u16 = 128;
/// Most flow groups.
pub const GROUPS_MAX: u16 = 4_096;

/// Lines come in pairs: processors fetch the neighbour, too.
const PAIR_BYTES: usize = 128;
/// Most counters of a stack.
pub const STACK_COUNTERS_MAX: usize = 64;
/// Words of such a counter's name: its bytes, and then zeroes, one at least.
pub const NAME_WORDS: usize = 4;
/// Bytes of the header.
pub const HEADER_BYTES: usize = PAIR_BYTES + STACK_COUNTERS_MAX * NAME_WORDS * 8;
const PAGE_BYTES: usize = 4_096;

/// Words of the header, by number.
pub const HEADER_MAGIC: usize = 0;
/// See [`VERSION`].
pub const HEADER_VERSION: usize = 1;
/// Bytes of the whole segment.
pub const HEADER_BYTES_TOTAL: usize = 2;
/// Elastic threads.
pub const HEADER_THREADS: usize = 3;
/// Flow groups.
pub const HEADER_GROUPS: usize = 4;
/// B.
pub const HEADER_BATCH_MAX: usize = 5;
/// The first name: [`NAME_WORDS`] each, in the order of the counters; an empty one: there is no such counter.
pub const HEADER_NAMES: usize = PAIR_BYTES / 8;
/// Words of the whole header.
pub const HEADER_WORDS: usize = HEADER_BYTES / 8;

/// Words of a thread, by number. The first line is written in every cycle.
pub const PACKETS: usize = 0;
/// The sum of what busy cycles left in the receive ring, beside what they took: 0 in nearly all of them.
pub const LEFT_PACKETS: usize = 1;
/// Time in busy cycles.
pub const BUSY_NS: usize = 2;
/// Time in others; runs by itself while the thread sleeps: see [`RUNS`].
pub const IDLE: usize = 3;
/// The sum of the connections that busy cycles left waiting for the application: 0 where threads run to completion.
pub const READY: usize = 4;
/// Cycles that found nothing.
pub const IDLE_CYCLES: usize = 5;
/// How long the oldest one had waited.
pub const OLDEST_WAITING_NS: usize = 6;
/// When the latest cycle began, by `CLOCK_MONOTONIC`.
pub const LAST_CYCLE_NS: usize = 7;
/// When the application was entered and has not returned; 0: it is not in it.
pub const IN_APPLICATION_SINCE_NS: usize = 8;
/// Times that the thread slept.
pub const SLEEPS: usize = 9;
/// [`State`](crate::State) by number.
pub const STATE: usize = 10;
/// The processor's number and one more; 0: any.
pub const PROCESSOR: usize = 11;
/// The sum of the time that those take there.
pub const READY_NS: usize = 12;
/// From here on words are written about once a millisecond.
pub const STEALS: usize = 16;
/// Kicks that it sent.
pub const KICKS: usize = 17;
/// Packets that it handed on to their homes.
pub const FORWARDED: usize = 18;
/// Packets that it dropped as the ring towards their home was full.
pub const FORWARD_DROPS: usize = 19;
/// Connections at home there.
pub const CONNECTIONS: usize = 20;
/// Events handed to the application.
pub const EVENTS: usize = 21;
/// Calls executed.
pub const CALLS: usize = 22;
/// Crossings to the application.
pub const CROSSINGS: usize = 23;
/// Times that it ran another thread's network layer.
pub const BORROWED: usize = 24;
/// Batch sizes: see [`bucket_floor`](crate::bucket_floor).
pub const BATCHES: usize = 32;
/// Buckets of it; B is 1,024 at most.
pub const BATCH_BUCKETS: usize = 16;
/// Estimated queueing delays in microseconds.
pub const DELAYS: usize = 48;
/// Buckets of it: up to eight seconds and more.
pub const DELAY_BUCKETS: usize = 24;
/// Totals of migrations: eight words, then five phases (the last: all together).
pub const MIGRATIONS: usize = 72;
/// Words before the phases.
pub const MIGRATION_COUNTS: usize = 8;
/// Phases, and all of them together.
pub const PHASES: usize = 5;
/// Words of a phase: count, sum, longest, histogram.
pub const PHASE_WORDS: usize = 3 + PHASE_BUCKETS;
/// Buckets of a phase's histogram: the n-th counts what took less than `2^(n+1)` microseconds.
pub const PHASE_BUCKETS: usize = 16;
/// What its TCP/IP stack has counted, in the order of [the names](HEADER_NAMES).
pub const STACK: usize = 176;
/// Words of a thread, a whole number of line pairs.
pub const THREAD_WORDS: usize = 240;

/// In the word [`IDLE`]: the thread sleeps, and the rest of the word is its idle time minus the moment at which
/// it fell asleep. So idle time at any moment is one word, whether it sleeps or not.
pub const RUNS: u64 = 1 << 63;

const _: () = assert!(STACK + STACK_COUNTERS_MAX <= THREAD_WORDS);
const _: () = assert!(MIGRATIONS + MIGRATION_COUNTS + PHASES * PHASE_WORDS <= STACK);
const _: () = assert!(DELAYS + DELAY_BUCKETS <= MIGRATIONS);
const _: () = assert!(BATCHES + BATCH_BUCKETS <= DELAYS);
const _: () = assert!((THREAD_WORDS * 8).is_multiple_of(PAIR_BYTES));

/// What a segment is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Elastic threads, 1 to [`THREADS_MAX`].
    pub threads: u16,
    /// Flow groups, 1 to [`GROUPS_MAX`].
    pub groups: u16,
    /// B: packets that one cycle takes at most, for readers to estimate queueing delays by.
    pub batch_max: u32,
}

impl Layout {
    /// Whether there is such a segment.
    pub fn is_allowed(&self) -> bool {
        (1..=THREADS_MAX).contains(&self.threads)
            && (1..=GROUPS_MAX).contains(&self.groups)
            && self.batch_max > 0
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> usize {
        self.thread_at(self.threads).next_multiple_of(PAGE_BYTES)
    }

    /// Where a flow group's home stands.
    pub fn home_at(&self, group: u16) -> usize {
        HEADER_BYTES + 8 * usize::from(group)
    }

    /// Where a thread's words begin.
    pub fn thread_at(&self, thread: u16) -> usize {
        let block = 8 * THREAD_WORDS + self.groups_bytes();
        HEADER_BYTES + self.groups_bytes() + usize::from(thread) * block
    }

    /// Where a thread's packets of a flow group stand.
    pub fn packets_at(&self, thread: u16, group: u16) -> usize {
        self.thread_at(thread) + 8 * THREAD_WORDS + 8 * usize::from(group)
    }

    /// A word for each flow group, in lines that nothing else is in.
    fn groups_bytes(&self) -> usize {
        (8 * usize::from(self.groups)).next_multiple_of(PAIR_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other programs may read a segment by these numbers: a change is a new version.
    #[test]
    fn the_layout_is_that_of_its_version() {
        assert_eq!((VERSION, MAGIC.to_le_bytes()), (3, *b"tailplan"));
        let layout = Layout { threads: 2, groups: 128, batch_max: 64 };
        assert_eq!((layout.home_at(0), layout.home_at(127)), (2_176, 3_192));
        assert_eq!((layout.thread_at(0), layout.thread_at(1)), (3_200, 6_144));
        assert_eq!((layout.packets_at(0, 0), layout.packets_at(1, 127)), (5_120, 9_080));
        assert_eq!(layout.bytes(), 12_288);
        let words = [
            PACKETS,
            LEFT_PACKETS,
            BUSY_NS,
            IDLE,
            READY,
            IDLE_CYCLES,
            OLDEST_WAITING_NS,
            LAST_CYCLE_NS,
            IN_APPLICATION_SINCE_NS,
            SLEEPS,
            STATE,
            PROCESSOR,
            READY_NS,
        ];
        assert_eq!(words, std::array::from_fn(|at| at));
        let slow = [
            STEALS,
            KICKS,
            FORWARDED,
            FORWARD_DROPS,
            CONNECTIONS,
            EVENTS,
            CALLS,
            CROSSINGS,
            BORROWED,
        ];
        assert_eq!(slow, std::array::from_fn(|at| 16 + at));
        assert_eq!((BATCHES, DELAYS, MIGRATIONS, STACK, THREAD_WORDS), (32, 48, 72, 176, 240));
        assert_eq!((HEADER_NAMES, NAME_WORDS, STACK_COUNTERS_MAX), (16, 4, 64));
        assert_eq!((BATCH_BUCKETS, DELAY_BUCKETS, PHASE_BUCKETS, PHASES), (16, 24, 16, 5));
    }

    #[test]
    fn threads_share_no_pair_of_lines() {
        for groups in [1, 15, 16, 17, 128, GROUPS_MAX] {
            let layout = Layout { threads: THREADS_MAX, groups, batch_max: 1 };
            for thread in 0..layout.threads {
                assert!(layout.thread_at(thread).is_multiple_of(PAIR_BYTES));
                assert!(layout.packets_at(thread, groups - 1) + 8 <= layout.thread_at(thread + 1));
            }
            assert!(layout.home_at(groups - 1) + 8 <= layout.thread_at(0));
            assert!(layout.thread_at(layout.threads) <= layout.bytes());
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_layout() {
        let good = Layout { threads: 1, groups: 1, batch_max: 1 };
        assert!(good.is_allowed());
        for bad in [
            Layout { threads: 0, ..good },
            Layout { threads: THREADS_MAX + 1, ..good },
            Layout { groups: 0, ..good },
            Layout { groups: GROUPS_MAX + 1, ..good },
            Layout { batch_max: 0, ..good },
        ] {
            assert!(!bad.is_allowed(), "{bad:?}");
        }
    }
}
