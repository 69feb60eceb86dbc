//! A measured window: two threads, each alone on its processor for some milliseconds, and what
//! disturbed them.
//!
//! Both may run at real-time priority, so that nothing else of this machine can interrupt them; then
//! everything else on these two processors waits until the window is over. Hence windows are short
//! ([`WINDOW_MAX`]) and the caller sleeps between them. What remains is told, never hidden: processor
//! time that the host took, context switches, and stalls that the threads' own clocks show.

use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

/// Longest window: beyond it, real-time threads on all processors harm the machine.
pub const WINDOW_MAX: Duration = Duration::from_millis(50);
/// A thread that was stalled for longer than this, in nanoseconds, was not undisturbed: many times what
/// the threads do between two looks at the clock.
pub const STALL_MAX_NS: u64 = 150_000;
/// How long a thread waits for the other to be ready.
const MEETING_MAX: Duration = Duration::from_secs(2);

/// The two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The thread that is measured.
    Consumer,
    /// The other: a producer, or a second consumer.
    Other,
}

/// A clock that both threads share.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since it was started.
    #[inline]
    pub fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }
}

/// What happened to a window from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disturbance {
    /// Times that a thread lost its processor without asking for it.
    pub switches: u64,
    /// Ticks of 10 ms that the host took from this machine.
    pub stolen_ticks: u64,
    /// The longest stall of either thread that its clock showed, in nanoseconds.
    pub stall_ns: u64,
}

impl Disturbance {
    /// Whether the window counts, where a stall of up to `stall_max_ns` ([`STALL_MAX_NS`] or less) does
    /// not matter.
    pub fn is_quiet(&self, stall_max_ns: u64) -> bool {
        self.switches == 0 && self.stolen_ticks == 0 && self.stall_ns <= stall_max_ns
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            stolen_ticks: self.stolen_ticks + other.stolen_ticks,
            stall_ns: self.stall_ns.max(other.stall_ns),
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, stolen_ticks, stall_ns } = self;
        let (stolen_ms, stall_us) = (stolen_ticks * TICK_MS, stall_ns / 1_000);
        write!(f, "{switches} context switches, {stolen_ms} ms stolen, longest stall {stall_us} us")
    }
}

/// Why a window could not be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// A thread could not take its place.
    #[error("a thread of the measurement cannot take its processor: {0}")]
    Place(String),
    /// One thread waited in vain for the other.
    #[error(
        "the measurement's threads did not both start within {MEETING_MAX:?}; is a processor blocked?"
    )]
    Alone,
    /// A thread panicked.
    #[error("a thread of the measurement panicked")]
    Panicked,
    /// Items were lost or came twice.
    #[error("{0} items came out of a queue in the wrong order: lost, or taken twice")]
    WrongItems(u64),
}

/// Puts the calling thread in its place: pins it, and gives it its priority.
pub type Place<'a> = &'a (dyn Fn(Side) -> Result<(), String> + Sync);

/// Pins the calling thread to a processor.
///
/// # Errors
/// In words: the processor is not there, or not this process's.
pub fn pin(cpu: usize) -> Result<(), String> {
    let mut cpus = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(format!("processor {cpu}: there are no such numbers"));
    }
    cpus.set(cpu);
    let refused = |errno| format!("pinning to processor {cpu} failed: {errno}; is it there?");
    sched_setaffinity(None, &cpus).map_err(refused)
}

/// Runs both at once and waits for them. Each is told when both have begun, so that neither measures the
/// other's absence, and answers with the longest stall that it noticed, in nanoseconds.
///
/// # Errors
/// A thread could not take its place, or panicked.
pub fn together<A: Send, B: Send>(
    place: Place<'_>,
    consumer: impl FnOnce() -> (A, u64) + Send,
    other: impl FnOnce() -> (B, u64) + Send,
) -> Result<(A, B, Disturbance), WindowError> {
    let arrived = AtomicU32::new(0);
    let stolen = stolen_ticks();
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| in_place(place, Side::Other, &arrived, other));
        let first = scope.spawn(|| in_place(place, Side::Consumer, &arrived, consumer));
        (first.join(), second.join())
    });
    let (first, second) =
        (first.map_err(|_| WindowError::Panicked)?, second.map_err(|_| WindowError::Panicked)?);
    // A thread that could not take its place left the other alone: the first reason is the one to tell.
    let ((a, mine), (b, theirs)) = match (first, second) {
        (Err(WindowError::Alone), Err(reason)) | (Err(reason), _) | (_, Err(reason)) => {
            return Err(reason);
        }
        (Ok(first), Ok(second)) => (first, second),
    };
    let stolen_ticks = stolen_ticks().saturating_sub(stolen);
    Ok((a, b, mine.and(theirs).and(Disturbance { stolen_ticks, ..Disturbance::default() })))
}

fn in_place<T>(
    place: Place<'_>,
    side: Side,
    arrived: &AtomicU32,
    run: impl FnOnce() -> (T, u64),
) -> Result<(T, Disturbance), WindowError> {
    place(side).map_err(WindowError::Place)?;
    meet(arrived)?;
    let before = switches();
    let (value, stall_ns) = run();
    let switches = switches().saturating_sub(before);
    Ok((value, Disturbance { switches, stall_ns, ..Disturbance::default() }))
}

/// Set by who has waited too long: the other must not begin either.
const GONE: u32 = 1 << 31;

/// Waits until both have come here. Both begin, or neither does.
fn meet(arrived: &AtomicU32) -> Result<(), WindowError> {
    if arrived.fetch_add(1, Ordering::AcqRel) & GONE != 0 {
        return Err(WindowError::Alone);
    }
    let begun = Instant::now();
    while arrived.load(Ordering::Acquire) < 2 {
        // At ordinary priority, and on one processor, the other needs a turn to arrive.
        thread::yield_now();
        if begun.elapsed() > MEETING_MAX {
            let left = arrived.compare_exchange(1, GONE, Ordering::AcqRel, Ordering::Acquire);
            if left.is_ok() {
                return Err(WindowError::Alone);
            }
        }
    }
    Ok(())
}

/// Times that the calling thread lost its processor. Zero where the kernel does not tell: a stall still
/// shows in the clock.
fn switches() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Time that the host took of all processors of this machine together, since it was started. Zero where that is
/// not told: then nothing is put down to the host.
pub fn stolen() -> Duration {
    Duration::from_millis(stolen_ticks() * TICK_MS)
}

/// As `/proc/stat` counts.
const TICK_MS: u64 = 10;

/// Ticks that the host took from this machine until now.
fn stolen_ticks() -> u64 {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = text.lines().next().and_then(|line| line.strip_prefix("cpu "));
    // user nice system idle iowait irq softirq steal
    fields.and_then(|line| line.split_whitespace().nth(7)?.parse().ok()).unwrap_or(0)
}

/// Lots of work between two looks at the clock, each of about as long as is said: a clock is dear, a stall must
/// be noticed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lots {
    clock: Stopwatch,
    last_ns: u64,
    size: u32,
    lot_ns: u64,
    stall_ns: u64,
}

/// How long a lot is meant to be.
const LOT_NS: u64 = 20_000;
/// The same, where each stall is to be told from the queues' own time.
const FINE_LOT_NS: u64 = 2_000;
/// Largest lot.
const LOT_MAX: u32 = 4_096;

impl Lots {
    pub(crate) fn begin(clock: Stopwatch) -> Self {
        Self { clock, last_ns: clock.now_ns(), size: 1, lot_ns: LOT_NS, stall_ns: 0 }
    }

    /// Lots of some microseconds.
    pub(crate) fn begin_fine(clock: Stopwatch) -> Self {
        Self { lot_ns: FINE_LOT_NS, ..Self::begin(clock) }
    }

    /// Turns until the next look.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// A lot is done: the time. What is `watched` counts as a stall if it took too long.
    pub(crate) fn done(&mut self, watched: bool) -> u64 {
        let now_ns = self.clock.now_ns();
        let took_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if watched {
            self.stall_ns = self.stall_ns.max(took_ns);
        }
        if took_ns < self.lot_ns / 2 && self.size < LOT_MAX {
            self.size *= 2;
        } else if took_ns > self.lot_ns * 2 && self.size > 1 {
            self.size /= 2;
        }
        now_ns
    }

    pub(crate) fn stall_ns(&self) -> u64 {
        self.stall_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere(_: Side) -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn both_run_and_their_stalls_are_told() {
        let (a, b, disturbance) =
            together(&anywhere, || ("a", 10), || (2, STALL_MAX_NS + 1)).expect("both ran");
        assert_eq!((a, b, disturbance.stall_ns), ("a", 2, STALL_MAX_NS + 1));
        assert!(!disturbance.is_quiet(STALL_MAX_NS));
        assert!(Disturbance::default().is_quiet(0));
        let told = Disturbance { switches: 2, stolen_ticks: 1, stall_ns: 5_000 }.to_string();
        assert_eq!(told, "2 context switches, 10 ms stolen, longest stall 5 us");
    }

    #[test]
    fn a_thread_without_a_place_ends_the_window_with_its_reason() {
        let refused = |side| match side {
            Side::Consumer => Err("processor 99 is not there".to_owned()),
            Side::Other => Ok(()),
        };
        let error = together(&refused, || ((), 0), || ((), 0)).map(drop).expect_err("refused");
        assert!(error.to_string().contains("processor 99"), "{error}");
        let panicked = together(&anywhere, || -> ((), u64) { panic!("on purpose") }, || ((), 0));
        assert_eq!(panicked.map(drop), Err(WindowError::Panicked));
    }

    #[test]
    fn who_comes_after_the_other_has_gone_does_not_begin() {
        let late = |side| {
            if side == Side::Other {
                thread::sleep(MEETING_MAX + Duration::from_millis(300));
            }
            Ok(())
        };
        let began = AtomicU32::new(0);
        let begin = || (began.fetch_add(1, Ordering::Relaxed), 0);
        let found = together(&late, begin, begin);
        assert_eq!((found.map(drop), began.into_inner()), (Err(WindowError::Alone), 0));
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused_in_words() {
        assert!(pin(usize::MAX).is_err_and(|error| error.contains("no such")));
        assert!(pin(CpuSet::MAX_CPU - 1).is_err_and(|error| error.contains("is it there?")));
    }

    #[test]
    fn lots_grow_to_what_a_look_at_the_clock_may_cost() {
        let mut lots = Lots::begin(Stopwatch::start());
        for _ in 0..64 {
            lots.done(true);
        }
        assert_eq!(lots.size(), LOT_MAX);
        std::thread::sleep(Duration::from_nanos(2 * STALL_MAX_NS));
        lots.done(false);
        let unseen = lots.stall_ns();
        std::thread::sleep(Duration::from_nanos(2 * STALL_MAX_NS));
        lots.done(true);
        assert!(lots.stall_ns() > unseen.max(STALL_MAX_NS));
        assert!(lots.size() < LOT_MAX);
    }
}
