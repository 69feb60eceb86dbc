//! What the machine's own operations take: a cache line between two cores, an exchange, a wake-up, a
//! signal.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use measure::stats::median_of;
use measure::{Disturbance, Place, Stopwatch, Watch, WindowError, contest, together};
use rustix::event::{EventfdFlags, eventfd};

use super::found::{CalibrateError, Measuring};
use super::{TURN_ATOMICS, unsafe_signal};

/// On a cache line of its own, and away from what the prefetcher would bring along.
#[repr(align(128))]
struct Alone<T>(T);

/// Turns between two looks at the clock.
const LOT: u64 = 64;
/// Before a sleeper is woken: time to fall asleep.
const FALL_ASLEEP: Duration = Duration::from_micros(60);
/// A wake-up that takes longer was not waited for.
const LATE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy)]
enum Which {
    Line,
    Exchange,
    Wake,
    Kick,
    Interrupt,
}

/// Measures all of them, in turn.
pub(super) fn measure(into: &mut Measuring<'_>) -> Result<(), CalibrateError> {
    unsafe_signal::install()
        .map_err(|source| CalibrateError::Os { tried: "installing a signal handler", source })?;
    let sleepers = eventfd(0, EventfdFlags::empty())
        .map_err(|error| CalibrateError::Os { tried: "making an eventfd", source: error.into() })?;
    let mut all = [Which::Line, Which::Exchange, Which::Wake, Which::Kick, Which::Interrupt];
    let (window, place) = (into.effort.window, into.place);
    let kept = contest(&mut all, into.effort.plan(), |which| match which {
        Which::Line => ping_pong(window, place),
        Which::Exchange => exchange(window, place),
        Which::Wake => wake(window, place, &sleepers),
        Which::Kick => kick(window, place, false),
        Which::Interrupt => kick(window, place, true),
    })?;
    into.costs.cache_line = into.add("a cache line, one way", &kept[0])?;
    into.costs.atomic = into.add("an atomic exchange, uncontended", &kept[1])?;
    into.costs.turn = TURN_ATOMICS * into.costs.atomic;
    into.costs.wake = into.add("an eventfd wake-up", &kept[2])?;
    into.costs.kick = into.add("a signal to a thread that spins", &kept[3])?;
    let interrupt = "what a signal takes of the thread that it interrupts";
    into.costs.interrupt = into.add(interrupt, &kept[4])?;
    Ok(())
}

type Window = Result<(f64, Disturbance), WindowError>;

/// The median time of a turn, of which `lot` makes so many each time, for as long as the window.
fn turns(watch: &mut Watch, window: Duration, turns: u64, mut lot: impl FnMut()) -> f64 {
    let (clock, mut samples) = (Stopwatch::start(), Vec::new());
    watch.lap_ns();
    while clock.now_ns() < window.as_nanos() as u64 {
        lot();
        samples.push(watch.lap_ns() as f64 / turns as f64);
    }
    median_of(samples)
}

/// Half of a round trip of one line, written by both in turn.
fn ping_pong(window: Duration, place: Place<'_>) -> Window {
    let line = Alone(AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let consumer = |watch: &mut Watch| {
        let mut turn = 0;
        let found = turns(watch, window, 2 * LOT, || {
            for _ in 0..LOT {
                line.0.store(turn + 1, Ordering::Release);
                while line.0.load(Ordering::Acquire) != turn + 2 && !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                turn += 2;
            }
        });
        over.store(true, Ordering::Release);
        found
    };
    let other = |_: &mut Watch| {
        while !over.load(Ordering::Relaxed) {
            let turn = line.0.load(Ordering::Acquire);
            if turn % 2 == 1 {
                line.0.store(turn + 1, Ordering::Release);
            }
            std::hint::spin_loop();
        }
    };
    together(place, consumer, other).map(|(ns, (), disturbance)| (ns, disturbance))
}

/// An exchange on a line that nothing else looks at.
fn exchange(window: Duration, place: Place<'_>) -> Window {
    let consumer = |watch: &mut Watch| {
        let line = Alone(AtomicU64::new(0));
        turns(watch, window / 4, 16 * LOT, || {
            for turn in 0..16 * LOT {
                std::hint::black_box(line.0.swap(turn, Ordering::AcqRel));
            }
        })
    };
    together(place, consumer, |_| ()).map(|(ns, (), disturbance)| (ns, disturbance))
}

/// Has `trigger` make the other thread react, again and again for as long as the window, `pause` apart. `trigger`
/// returns when it did so, the other thread writes into `reacted_ns` when it reacted, and `sample` makes a number of the
/// nanoseconds between. Returns the median of these numbers.
fn reactions(
    clock: Stopwatch,
    (window, pause): (Duration, Duration),
    reacted_ns: &AtomicI64,
    trigger: impl Fn() -> Option<i64>,
    sample: impl Fn(i64) -> i64,
) -> f64 {
    let mut samples = Vec::new();
    let end = clock.now_ns() + window.as_nanos() as u64;
    while clock.now_ns() < end {
        spin_for(clock, pause);
        reacted_ns.store(-1, Ordering::Release);
        let Some(triggered) = trigger() else { continue };
        while reacted_ns.load(Ordering::Acquire) < 0
            && clock.now_ns() as i64 - triggered < LATE.as_nanos() as i64
        {
            std::hint::spin_loop();
        }
        let reacted = reacted_ns.load(Ordering::Acquire);
        if reacted >= triggered {
            samples.push(sample(reacted - triggered) as f64);
        }
    }
    median_of(samples)
}

/// From the `write` that wakes a thread to its first instruction.
fn wake(window: Duration, place: Place<'_>, bell: &rustix::fd::OwnedFd) -> Window {
    let woken_ns = Alone(AtomicI64::new(-1));
    let over = AtomicBool::new(false);
    let clock = Stopwatch::start();
    let ring = || {
        let rung = clock.now_ns() as i64;
        // An eventfd of a process that has it open takes eight bytes; were it refused, nobody would wake,
        // and the window would have no sample.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        Some(rung)
    };
    let consumer = |_: &mut Watch| {
        let found = reactions(clock, (window, FALL_ASLEEP), &woken_ns.0, ring, |ns| ns);
        over.store(true, Ordering::Release);
        ring();
        found
    };
    let other = |_: &mut Watch| {
        let mut word = [0u8; 8];
        loop {
            let read = rustix::io::read(bell, &mut word);
            woken_ns.0.store(clock.now_ns() as i64, Ordering::Release);
            if over.load(Ordering::Acquire) || read.is_err() {
                return;
            }
        }
    };
    together(place, consumer, other).map(|(ns, (), disturbance)| (ns, disturbance))
}

/// From sending a signal to its handler having run or, `of_target`, how long the thread that was interrupted
/// did nothing else.
fn kick(window: Duration, place: Place<'_>, of_target: bool) -> Window {
    let target = Alone(std::sync::OnceLock::new());
    let kicked_ns = Alone(AtomicI64::new(-1));
    let gap_ns = Alone(AtomicI64::new(0));
    let over = AtomicBool::new(false);
    let clock = Stopwatch::start();
    let consumer = |_: &mut Watch| {
        let send = || {
            let thread = target.0.get()?;
            let sent = clock.now_ns() as i64;
            unsafe_signal::Target::kick(*thread);
            Some(sent)
        };
        let sample = |ns| if of_target { gap_ns.0.load(Ordering::Relaxed) } else { ns };
        let found = reactions(clock, (window, FALL_ASLEEP / 4), &kicked_ns.0, send, sample);
        over.store(true, Ordering::Release);
        found
    };
    let other = |_: &mut Watch| {
        let _ = unsafe_signal::take();
        let _ = target.0.set(unsafe_signal::this_thread());
        let mut before = clock.now_ns();
        while !over.load(Ordering::Relaxed) {
            let now = clock.now_ns();
            if unsafe_signal::take() {
                // Wherever in this turn of the loop it came.
                let after = clock.now_ns();
                gap_ns.0.store(after as i64 - before as i64, Ordering::Relaxed);
                kicked_ns.0.store(after as i64, Ordering::Release);
            }
            before = now;
        }
    };
    together(place, consumer, other).map(|(ns, (), disturbance)| (ns, disturbance))
}

fn spin_for(clock: Stopwatch, time: Duration) {
    let end = clock.now_ns() + time.as_nanos() as u64;
    while clock.now_ns() < end {
        std::hint::spin_loop();
    }
}
