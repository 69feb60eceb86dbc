//! What an elastic thread shows of itself while it runs (IX §4.6), on its board in the statistics segment.
//!
//! Per cycle it is some stores to lines of its own, from moments that the loop reads anyway. What is counted
//! elsewhere is copied once a millisecond, and before the thread sleeps.
//!
//! ```
//! use clock::Instant;
//! use dataplane::Progress;
//! use shown::Shown;
//! let words = statseg::words();
//! let board = statseg::Board::over(&words);
//! let at = Instant::from_nanos;
//! let mut shown = Shown::new(board, None, 0, 0, 64, at(0));
//! shown.begin(at(100)); // a cycle, which takes three packets
//! shown.end(&Progress { worked: true, received: 3, ..Progress::default() });
//! shown.begin(at(900)); // the next one: that one took 800 ns
//! assert_eq!((board.snapshot().packets, board.snapshot().busy_ns), (3, 800));
//! ```

use clock::{Duration, Instant};
use dataplane::{Elastic, MigrationStats, PhaseStats, Progress};
use domain::{Calls, Events, Service};
use stack::StackStats;
use statseg::{Board, Cycle, MigrationTotals, PhaseTotals, Reading, Segment, State, Totals};

/// Between two copies of what is counted elsewhere.
const COPIES_EVERY: Duration = Duration::from_millis(1);

const _: () = assert!(statseg::layout::PHASE_BUCKETS == dataplane::HISTOGRAM_BUCKETS);
const _: () = {
    let names = StackStats::NAMES;
    assert!(names.len() <= statseg::layout::STACK_COUNTERS_MAX);
    let mut at = 0;
    while at < names.len() {
        assert!(names[at].len() < 8 * statseg::layout::NAME_WORDS);
        at += 1;
    }
};

/// What the time since a moment was spent on.
#[derive(Clone, Copy, Debug)]
enum Spent {
    /// A cycle that did something, with the packets that it took, Q, and what it left ready for the application.
    Working { taken: u64, queue: u64, ready: u64, ready_ns: u64 },
    /// A cycle that found nothing.
    Looking,
    /// A cycle that found nothing, or none, while the application, in a process of its own, had a batch.
    Lent,
    /// No cycle: the thread leaves its ring alone, or has just woken.
    Waiting,
}

/// What an elastic thread shows of itself, kept by whoever drives it: a runtime's loop, a simulator, or a loop of one's
/// own.
///
/// ```text
/// begin(now)  cycle  end(progress)  [copy, about once a millisecond]  begin(now) ...
///                                   [wait, or fall_asleep ... awake]
/// ```
#[derive(Debug)]
pub struct Shown<'a> {
    board: Board<'a>,
    segment: Option<&'a Segment>,
    thread: u16,
    /// What `CLOCK_MONOTONIC` said when the run's clock began.
    epoch_ns: u64,
    /// B.
    batch: u64,
    since: Instant,
    spent: Spent,
    /// From the last look at the receive ring to the present one: what this one took had come since, or where more
    /// waits than a cycle takes, some such gaps before.
    gap_ns: u64,
    looked_at: Instant,
    next_copy: Instant,
    /// Whether anything was done since the last copy.
    is_stale: bool,
    /// What the board shows of migrations, of connections and of the stack: a timer may change them in a cycle that did
    /// nothing else.
    moves: MigrationTotals,
    connections: u32,
    stack: StackStats,
    /// The application, in a process of its own, has a batch.
    is_lent: bool,
    sleeps: u64,
    /// Before this run.
    busy_ns: u64,
}

impl<'a> Shown<'a> {
    /// Of thread `thread`, which begins at `now` and takes `batch` packets in a cycle at most. `epoch_ns`: what
    /// `CLOCK_MONOTONIC` says when the clock of these moments says 0. What is counted by flow group goes to the
    /// segment, if there is one.
    pub fn new(
        board: Board<'a>,
        segment: Option<&'a Segment>,
        thread: u16,
        epoch_ns: u64,
        batch: usize,
        now: Instant,
    ) -> Self {
        if let Some(segment) = segment {
            segment.name_stack(StackStats::NAMES);
        }
        Self {
            board,
            segment,
            thread,
            epoch_ns,
            batch: batch.max(1) as u64,
            since: now,
            spent: Spent::Waiting,
            gap_ns: 0,
            looked_at: now,
            next_copy: now,
            is_stale: true,
            moves: MigrationTotals::default(),
            connections: 0,
            stack: StackStats::default(),
            is_lent: false,
            sleeps: 0,
            busy_ns: board.snapshot().busy_ns,
        }
    }

    /// The service, which is seen to be entered and to return.
    pub fn watch<S>(&self, service: S) -> Watched<'a, S> {
        Watched { service, board: self.board, epoch_ns: self.epoch_ns }
    }

    /// A cycle begins: the one before has ended.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.settle(now);
        self.gap_ns = nanos(now, self.looked_at);
        self.looked_at = now;
        self.board.begin(self.epoch_ns + now.as_nanos());
    }

    /// Its steps are done.
    #[inline]
    pub fn end(&mut self, progress: &Progress) {
        self.is_lent = progress.is_lent;
        self.spent = match progress.worked {
            false if progress.is_lent => Spent::Lent,
            false => Spent::Looking,
            true => {
                let taken = progress.received as u64;
                let queue = taken + progress.waiting as u64;
                self.is_stale = true;
                let (ready, ready_ns) = (progress.ready as u64, progress.ready_ns);
                Spent::Working { taken, queue, ready, ready_ns }
            }
        };
    }

    /// From here on no cycle runs for a while.
    pub fn wait(&mut self, now: Instant) {
        self.settle(now);
        self.spent = if self.is_lent { Spent::Lent } else { Spent::Waiting };
    }

    /// The thread is about to sleep.
    pub fn fall_asleep(&mut self, now: Instant) {
        self.wait(now);
        if !self.is_lent {
            self.board.asleep(self.epoch_ns + now.as_nanos());
        }
    }

    /// It has woken, or did not sleep after all.
    pub fn awake(&mut self, now: Instant, slept: bool) {
        match self.is_lent {
            true => self.settle(now),
            false => self.board.awake(self.epoch_ns + now.as_nanos()),
        }
        self.board.slept(slept);
        self.sleeps += u64::from(slept);
        // What comes from here on waits from here on: nobody knows when what woke the thread came.
        (self.since, self.looked_at) = (now, now);
    }

    /// Counts the time since the last moment that was counted.
    #[inline]
    fn settle(&mut self, now: Instant) {
        let spent_ns = nanos(now, self.since);
        self.since = now;
        match self.spent {
            Spent::Working { taken, queue, ready, ready_ns } => {
                let (mut oldest_waiting_ns, mut delay_ns) = (self.gap_ns, spent_ns);
                if queue > self.batch {
                    // `ceil(Q / B)` is 1 nearly always: then nothing is divided.
                    let batches = queue.div_ceil(self.batch);
                    oldest_waiting_ns *= batches;
                    delay_ns *= batches;
                } else if taken == 0 {
                    oldest_waiting_ns = 0;
                }
                self.board.busy(&Cycle {
                    queue_packets: queue,
                    taken_packets: taken,
                    ready,
                    ready_ns,
                    busy_ns: spent_ns,
                    // The ones that are ready came one after the other while those before them were served.
                    oldest_waiting_ns: oldest_waiting_ns.max(ready_ns),
                    delay_ns: delay_ns.saturating_add(ready_ns),
                });
            }
            Spent::Looking => self.board.idle(spent_ns),
            Spent::Lent => self.board.lent(spent_ns),
            Spent::Waiting => self.board.wait(spent_ns),
        }
    }

    /// Whether it is time to [copy](Self::copy).
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.next_copy
    }

    /// Copies what is counted elsewhere, if there is anything new.
    #[cold]
    pub fn copy(&mut self, now: Instant, thread: &impl Elastic) {
        self.next_copy = now + COPIES_EVERY;
        let moves = migrations(&thread.migrations());
        let (connections, stack) = thread.inspect(|stack, _| (stack.connections(), stack.stats()));
        let is_same = !std::mem::take(&mut self.is_stale)
            && (moves, connections, stack) == (self.moves, self.connections, self.stack);
        if is_same {
            return;
        }
        (self.moves, self.connections, self.stack) = (moves, connections, stack);
        if let Some(segment) = self.segment {
            thread.inspect(|stack, _| segment.tell_groups(self.thread, &stack.group_packets()));
        }
        let cycle = thread.stats();
        self.board.tell(&Totals {
            steals: cycle.stolen,
            kicks: cycle.kicks,
            forwarded: stack.forwarded,
            forward_drops: cycle.forward_drops,
            connections: connections.into(),
            events: cycle.events,
            calls: cycle.calls,
            crossings: cycle.crossings,
            borrowed: cycle.borrowed,
        });
        self.board.tell_migrations(&moves);
        self.board.tell_stack(stack.entries().map(|(_, count)| count));
    }

    /// What the thread is doing.
    pub fn set_state(&self, state: State) {
        self.board.set_state(state);
    }

    /// Where it runs.
    pub fn set_processor(&self, cpu: Option<usize>) {
        self.board.set_processor(cpu);
    }

    /// Times that it slept, and the time of cycles that did something, in nanoseconds.
    pub fn result(&self) -> (u64, u64) {
        (self.sleeps, self.board.snapshot().busy_ns.wrapping_sub(self.busy_ns))
    }
}

/// The counters of a thread's stack that a segment says and this version knows: the place of each in
/// [`ThreadCounters::stack`](statseg::ThreadCounters::stack), and its name. A segment may say a name twice, or others.
pub fn stack_counters(reading: &Reading) -> Vec<(usize, &'static str)> {
    let said = reading.stack_names();
    let place = |name: &str| said.iter().find(|(_, said)| said == name).map(|(place, _)| *place);
    StackStats::NAMES.iter().filter_map(|name| Some((place(name)?, *name))).collect()
}

/// The clock never goes back.
#[inline]
fn nanos(now: Instant, since: Instant) -> u64 {
    now.as_nanos().wrapping_sub(since.as_nanos())
}

fn migrations(stats: &MigrationStats) -> MigrationTotals {
    let phase = |of: PhaseStats| PhaseTotals {
        count: of.count,
        sum_ns: of.sum_ns,
        max_ns: of.max_ns,
        histogram: of.histogram,
    };
    MigrationTotals {
        begun: stats.begun,
        completed: stats.completed,
        given_up: stats.given_up,
        refused: stats.refused,
        groups: stats.groups,
        connections: stats.connections,
        packets: stats.packets,
        parked_drops: stats.parked_drops,
        phases: stats.phases.map(phase),
        total: phase(stats.total),
    }
}

/// A service that is seen to be entered and to return: [`Shown::watch`].
#[derive(Debug)]
pub struct Watched<'a, S> {
    /// The service itself.
    pub service: S,
    board: Board<'a>,
    epoch_ns: u64,
}

impl<S: Service> Service for Watched<'_, S> {
    #[inline]
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.board.enter_application(self.epoch_ns + now.as_nanos());
        self.service.on_batch(now, events, calls);
        if !self.service.has_batch() {
            self.board.leave_application();
        }
    }
    #[inline]
    fn is_away(&mut self, now: Instant) -> bool {
        self.service.is_away(now)
    }
    #[inline]
    fn has_batch(&self) -> bool {
        self.service.has_batch()
    }
    fn collect(&mut self, now: Instant, calls: &mut Calls<'_>) {
        self.service.collect(now, calls);
        self.board.leave_application();
    }
    #[inline]
    fn wake_at(&self) -> Option<Instant> {
        self.service.wake_at()
    }
    fn runs_anywhere(&self) -> bool {
        self.service.runs_anywhere()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    fn worked(received: usize, waiting: usize) -> Progress {
        Progress { worked: true, received, waiting, ..Progress::default() }
    }

    #[test]
    fn time_is_counted_once_and_for_what_it_was_spent_on() {
        let words = statseg::words();
        let board = Board::over(&words);
        let mut shown = Shown::new(board, None, 0, 1_000_000, 64, at(0));
        shown.begin(at(100)); // 100 before the first cycle: nothing was done.
        shown.end(&Progress::default());
        shown.begin(at(150)); // 50 looking.
        shown.end(&worked(64, 100));
        shown.begin(at(1_150)); // 1,000 working; a packet had come in the 50 before, others earlier.
        let seen = board.snapshot();
        assert_eq!((seen.busy_ns, seen.counters(0).idle_ns, seen.idle_cycles), (1_000, 150, 1));
        assert_eq!((seen.packets, seen.queue_packets, seen.oldest_waiting_ns), (64, 164, 150));
        assert_eq!((seen.last_cycle_ns, seen.delays[2]), (1_001_150, 1), "3 x 1,000 ns");
        shown.end(&worked(3, 0));
        shown.wait(at(1_350)); // 200 working,
        shown.begin(at(1_400)); // 50 waiting on purpose.
        let seen = board.snapshot();
        assert_eq!((seen.busy_ns, seen.counters(0).idle_ns, seen.busy_cycles), (1_200, 200, 2));
        assert_eq!(seen.oldest_waiting_ns, 1_000);
        shown.end(&worked(0, 0));
        shown.fall_asleep(at(1_500));
        let asleep = board.snapshot();
        assert_eq!(asleep.counters(1_000_000 + 9_500).idle_ns, 200 + 8_000);
        shown.awake(at(10_500), true);
        shown.begin(at(10_600));
        let seen = board.snapshot();
        assert_eq!((seen.busy_ns, seen.counters(0).idle_ns), (1_300, 200 + 9_000 + 100));
        assert_eq!(seen.busy_ns + seen.counters(0).idle_ns, 10_600, "all of it");
        assert_eq!(shown.result(), (1, 1_300));
        shown.end(&worked(1, 0));
        shown.begin(at(10_700));
        assert_eq!(board.snapshot().oldest_waiting_ns, 100, "since it woke, at most");
    }

    #[test]
    fn what_waits_for_the_application_is_part_of_the_delay() {
        let words = statseg::words();
        let board = Board::over(&words);
        let mut shown = Shown::new(board, None, 0, 0, 64, at(0));
        // Of four packets one was served, the others are ready, and take 500 us each.
        shown.begin(at(100));
        shown.end(&Progress { ready: 3, ready_ns: 1_500_000, ..worked(4, 0) });
        shown.begin(at(500_100));
        let seen = board.snapshot();
        assert_eq!((seen.packets, seen.queue_packets), (4, 4), "none was left in the ring");
        assert_eq!((seen.ready, seen.ready_ns, seen.oldest_waiting_ns), (3, 1_500_000, 1_500_000));
        assert_eq!(seen.delays[11], 1, "2,000 us: the cycle, and what is ready");
        // The next one takes none, and serves one.
        shown.end(&Progress { ready: 2, ready_ns: 1_000_000, ..worked(0, 0) });
        shown.begin(at(1_000_100));
        let seen = board.snapshot();
        assert_eq!((seen.ready, seen.ready_ns, seen.oldest_waiting_ns), (5, 2_500_000, 1_000_000));
        shown.end(&worked(0, 0));
        shown.begin(at(1_500_100));
        assert_eq!((board.snapshot().ready, board.snapshot().oldest_waiting_ns), (5, 0));
    }

    #[test]
    fn an_application_that_has_a_batch_keeps_its_thread_from_being_idle() {
        let words = statseg::words();
        let board = Board::over(&words);
        let mut shown = Shown::new(board, None, 0, 0, 64, at(0));
        let lent = Progress { is_lent: true, ..Progress::default() };
        shown.begin(at(0));
        shown.end(&Progress { ready: 2, ready_ns: 900, is_lent: true, ..worked(2, 0) });
        shown.begin(at(100));
        shown.end(&lent);
        shown.begin(at(400));
        let seen = board.snapshot();
        assert_eq!((seen.busy_ns, seen.busy_cycles, seen.ready), (400, 1, 2));
        assert_eq!((seen.idle_cycles, seen.counters(400).idle_ns), (0, 0));
        // Nor does it idle where it sleeps meanwhile, or leaves its ring alone.
        shown.end(&lent);
        shown.fall_asleep(at(500));
        assert_eq!(board.snapshot().counters(1_000).idle_ns, 0);
        shown.awake(at(1_500), true);
        shown.wait(at(1_600));
        shown.begin(at(2_000));
        assert_eq!((board.snapshot().busy_ns, board.snapshot().sleeps), (2_000, 1));
        // The batch has come back.
        shown.end(&Progress::default());
        shown.fall_asleep(at(2_300));
        assert_eq!(board.snapshot().counters(2_700).idle_ns, 700);
        shown.awake(at(2_800), false);
        let seen = board.snapshot();
        assert_eq!((seen.busy_ns, seen.counters(2_800).idle_ns, seen.sleeps), (2_000, 800, 1));
    }

    #[test]
    fn the_application_is_seen_to_be_entered() {
        struct Looks<'a>(Board<'a>, u64);
        impl Service for Looks<'_> {
            fn on_batch(&mut self, _: Instant, _: Events<'_>, _: &mut Calls<'_>) {
                self.1 = self.0.snapshot().in_application_since_ns;
            }
            fn wake_at(&self) -> Option<Instant> {
                Some(Instant::from_nanos(9))
            }
            fn runs_anywhere(&self) -> bool {
                true
            }
        }
        let words = statseg::words();
        let board = Board::over(&words);
        let shown = Shown::new(board, None, 0, 500, 64, at(0));
        let mut watched = shown.watch(Looks(board, 0));
        assert_eq!((watched.wake_at(), watched.runs_anywhere()), (Some(at(9)), true));
        let mut events = domain::EventArray::new(1);
        let region = mem::Region::heap(64);
        let mut pool = mem::Pool::new(&region, 32);
        let mut calls = domain::CallArray::new(1, 64);
        watched.on_batch(at(70), events.view(&()), &mut Calls::new(&mut calls, &mut pool));
        assert_eq!((watched.service.1, board.snapshot().in_application_since_ns), (570, 0));
    }
}
