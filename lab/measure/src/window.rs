//! A measured window: two threads, each alone on its processor for some milliseconds, and what
//! disturbed them.
//!
//! Both may run at real-time priority, so that nothing else of this machine can interrupt them; then
//! everything else on these two processors waits until the window is over. Hence windows are short
//! ([`WINDOW_MAX`]) and the caller sleeps between them. What remains shows in the window's [`Disturbance`]: processor
//! time that the host took, context switches, and stalls that the threads' own clocks show.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use crate::disturbance::Disturbance;
use crate::process::{stolen, switches};

/// Longest window: beyond it, real-time threads on all processors harm the machine.
pub const WINDOW_MAX: Duration = Duration::from_millis(50);
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

/// What a measuring thread notices of its window: how often it lost its processor, and how long it stood still.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    clock: Stopwatch,
    last_ns: u64,
    switches: u64,
    stall_ns: u64,
}

impl Watch {
    fn begin() -> Self {
        let (switches, clock) = (switches(), Stopwatch::start());
        Self { clock, last_ns: clock.now_ns(), switches, stall_ns: 0 }
    }

    /// The thread looked at a clock twice, so long apart, with nothing but its work between: a stall, if that is long.
    #[inline]
    pub fn gap(&mut self, gap_ns: u64) {
        self.stall_ns = self.stall_ns.max(gap_ns);
    }

    /// Nanoseconds since the last lap (or the beginning), which is a [`gap`](Self::gap).
    #[inline]
    pub fn lap_ns(&mut self) -> u64 {
        let now_ns = self.clock.now_ns();
        let took_ns = now_ns - self.last_ns;
        self.last_ns = now_ns;
        self.gap(took_ns);
        took_ns
    }

    fn end(self) -> Disturbance {
        let switches = switches().saturating_sub(self.switches);
        Disturbance { switches, stall_ns: self.stall_ns, ..Disturbance::default() }
    }
}

/// Sets a flag once it is dropped, also by a panic: a thread at real-time priority that waits for the flag would keep its
/// processor for ever.
#[derive(Debug)]
pub struct SetsAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetsAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
pub type Place<'a> = &'a (dyn Fn(Side) -> Result<(), WindowError> + Sync);

/// Pins the calling thread, and all that it starts, to a processor.
///
/// # Errors
/// [`WindowError::Place`]: the processor is not there, or not this process's.
pub fn pin(cpu: usize) -> Result<(), WindowError> {
    let mut cpus = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(WindowError::Place(format!("processor {cpu}: there are no such numbers")));
    }
    cpus.set(cpu);
    let refused = |errno| format!("pinning to processor {cpu} failed: {errno}; is it there?");
    sched_setaffinity(None, &cpus).map_err(|errno| WindowError::Place(refused(errno)))
}

/// Runs both at once and waits for them. Neither begins before both have taken their places, so that neither measures
/// the other's absence.
///
/// # Errors
/// A thread could not take its place, or panicked.
pub fn together<A: Send, B: Send>(
    place: Place<'_>,
    consumer: impl FnOnce(&mut Watch) -> A + Send,
    other: impl FnOnce(&mut Watch) -> B + Send,
) -> Result<(A, B, Disturbance), WindowError> {
    let arrived = AtomicU32::new(0);
    let stolen_before = stolen();
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| in_place(place, Side::Other, &arrived, other));
        let first = scope.spawn(|| in_place(place, Side::Consumer, &arrived, consumer));
        (first.join(), second.join())
    });
    let (first, second) =
        (first.map_err(|_| WindowError::Panicked)?, second.map_err(|_| WindowError::Panicked)?);
    // A thread that could not take its place left the other alone: the first reason is the one to report.
    let ((a, mine), (b, theirs)) = match (first, second) {
        (Err(WindowError::Alone), Err(reason)) | (Err(reason), _) | (_, Err(reason)) => {
            return Err(reason);
        }
        (Ok(first), Ok(second)) => (first, second),
    };
    Ok((a, b, mine.and(theirs).and(stolen_since(stolen_before))))
}

/// Runs a window of the calling thread alone.
pub fn alone<T>(run: impl FnOnce(&mut Watch) -> T) -> (T, Disturbance) {
    let stolen_before = stolen();
    let mut watch = Watch::begin();
    let found = run(&mut watch);
    (found, watch.end().and(stolen_since(stolen_before)))
}

fn stolen_since(before: Duration) -> Disturbance {
    let stolen_ms = stolen().saturating_sub(before).as_millis() as u64;
    Disturbance { stolen_ms, ..Disturbance::default() }
}

fn in_place<T>(
    place: Place<'_>,
    side: Side,
    arrived: &AtomicU32,
    run: impl FnOnce(&mut Watch) -> T,
) -> Result<(T, Disturbance), WindowError> {
    place(side)?;
    meet(arrived)?;
    let mut watch = Watch::begin();
    let value = run(&mut watch);
    Ok((value, watch.end()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn anywhere(_: Side) -> Result<(), WindowError> {
        Ok(())
    }

    #[test]
    fn both_run_and_their_stalls_show() {
        let (a, b, disturbance) =
            together(&anywhere, |watch| watch.gap(10), |watch| watch.gap(200_000))
                .expect("both ran");
        assert_eq!((a, b, disturbance.stall_ns), ((), (), 200_000));
        assert!(!disturbance.is_quiet());
        let (took_ns, disturbance) = alone(|watch| {
            thread::sleep(Duration::from_millis(2));
            watch.lap_ns()
        });
        assert!(took_ns >= 2_000_000 && disturbance.stall_ns == took_ns, "{disturbance}");
    }

    #[test]
    fn a_thread_without_a_place_ends_the_window_with_its_reason() {
        let refused = |side| match side {
            Side::Consumer => Err(WindowError::Place("processor 99 is not there".to_owned())),
            Side::Other => Ok(()),
        };
        let error = together(&refused, |_| (), |_| ()).map(drop).expect_err("refused");
        assert!(error.to_string().contains("processor 99"), "{error}");
        let panicked = together(&anywhere, |_| panic!("on purpose"), |_| ());
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
        let begin = |_: &mut Watch| began.fetch_add(1, Ordering::Relaxed);
        let found = together(&late, begin, begin);
        assert_eq!((found.map(drop), began.into_inner()), (Err(WindowError::Alone), 0));
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused_in_words() {
        assert!(pin(usize::MAX).is_err_and(|error| error.to_string().contains("no such")));
        assert!(
            pin(CpuSet::MAX_CPU - 1).is_err_and(|error| error.to_string().contains("is it there?"))
        );
    }
}
