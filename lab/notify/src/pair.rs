//! Two consumers, each with queues of its own or both with all of them: scale-out against scale-up
//! (HyperPlane §V-C, Figure 10), on two processors and no third for a producer.
//!
//! Arrivals are a schedule, drawn before the window, in which one half of the queues gets more than the
//! other. Whichever consumer looks next enqueues what has become due, for all queues, in each form
//! alike: an arrival is visible from the first moment at which anybody could serve it, and an idle
//! consumer makes it visible at once. An item's time runs from when it was due until it was served, so a
//! late release is in it. What releasing costs, both forms pay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use measure::{Place, Stopwatch, WINDOW_MAX, Watch, WindowError, together};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::finder::Finder;
use crate::lots::Lots;
use crate::measure::{Latency, in_order};
use crate::polling::Spin;
use crate::queue::{Bell, Layout, Pusher, Rings, doorbells};
use crate::shape::exponential;
use crate::strategy::{SetUpError, refused};
use crate::watching::{Exclusive, Shared};
use crate::work::Work;

/// Who serves which queue, and how it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// Each consumer spins over its half.
    SpinningHalves,
    /// Each consumer has a ready set for its half.
    Halves,
    /// Both consumers share one ready set.
    Shared,
}

impl Division {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SpinningHalves, Self::Halves, Self::Shared];

    /// As it is called in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::SpinningHalves => "spinning, partitioned",
            Self::Halves => "QWAIT, partitioned",
            Self::Shared => "QWAIT, shared",
        }
    }
}

/// A load for both consumers together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Mean gap between two arrivals, in nanoseconds.
    pub gap_ns: f64,
    /// Share of the arrivals that goes to the first half of the queues: 0.55 where it gets 10 % more
    /// than the mean of both.
    pub first_half: f64,
}

/// Two consumers and their queues.
pub struct Pair {
    queues: u32,
    pusher: Pusher,
    /// Items that have come out since the beginning.
    taken: u64,
    finders: [Box<dyn Finder>; 2],
    random: Xoshiro256PlusPlus,
}

/// What one arrival is: when, and for which queue.
type Arrival = (u64, u32);

/// Arrivals that are not enqueued yet. The lock is only tried: whoever does not get it has nothing to
/// release, as another does it at that moment.
struct Release<'a> {
    /// When the next is due; read without the lock. Only a hint, hence relaxed throughout.
    due_ns: AtomicU64,
    rest: Mutex<Rest<'a>>,
}

struct Rest<'a> {
    pusher: &'a mut Pusher,
    arrivals: std::vec::IntoIter<Arrival>,
    next: Option<Arrival>,
    refused: u64,
}

impl Release<'_> {
    #[inline]
    fn release(&self, now_ns: u64) {
        if self.due_ns.load(Ordering::Relaxed) > now_ns {
            return;
        }
        let Ok(mut rest) = self.rest.try_lock() else { return };
        while let Some((due_ns, queue)) = rest.next {
            if due_ns > now_ns {
                break;
            }
            rest.refused += u64::from(!rest.pusher.push(queue, due_ns));
            rest.next = rest.arrivals.next();
        }
        let due_ns = rest.next.map_or(u64::MAX, |(due_ns, _)| due_ns);
        self.due_ns.store(due_ns, Ordering::Relaxed);
    }
}

/// What a window of two consumers found.
#[derive(Clone, Debug, PartialEq)]
pub struct PairFound {
    /// From when each item was due until it was served.
    pub latency: Latency,
    /// Arrivals that found their queue full: above zero, the load was more than could be served.
    pub refused: u64,
}

impl Pair {
    /// `queues` queues, the first half of them the first consumer's where they are divided.
    ///
    /// # Errors
    /// No memory, or fewer than two queues, or too many.
    pub fn new(division: Division, queues: u32, seed: u64) -> Result<Self, SetUpError> {
        let layout = Layout::Packed;
        if !(2..=qwait::MAX_QUEUES).contains(&queues) {
            let reason = format!("allowed are 2 to {}", qwait::MAX_QUEUES);
            return Err(SetUpError { queues, layout, reason });
        }
        let rings = Rings::new(queues);
        let mut first = doorbells(queues, layout).map_err(refused(queues, layout))?;
        let refused = refused(queues, layout);
        let half = queues / 2;
        let (bells, finders): (Vec<Bell>, [Box<dyn Finder>; 2]) = match division {
            Division::SpinningHalves => {
                let bells = first.iter().cloned().map(Bell::Polled).collect();
                let second = first.split_off(half as usize);
                let spin = |from, bells| Box::new(Spin::new(&rings, from, bells));
                (bells, [spin(0, first), spin(half, second)])
            }
            Division::Halves => {
                let second = first.split_off(half as usize);
                let (one, mut bells) = Exclusive::new(&rings, 0, first).map_err(&refused)?;
                let (two, more) = Exclusive::new(&rings, half, second).map_err(&refused)?;
                bells.extend(more);
                (bells, [Box::new(one), Box::new(two)])
            }
            Division::Shared => {
                let (one, set, bells) = Shared::new(&rings, first).map_err(&refused)?;
                let two = Shared::of(&rings, &set).map_err(&refused)?;
                (bells, [Box::new(one), Box::new(two)])
            }
        };
        let pusher = Pusher::new(&rings, bells);
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Self { queues, pusher, taken: 0, finders, random })
    }

    /// Offers `load` for `length`; `works` are the two consumers'.
    ///
    /// # Errors
    /// A thread could not take its place; items were lost or came twice.
    pub fn run(
        &mut self,
        place: Place<'_>,
        length: Duration,
        load: Load,
        works: [&mut dyn Work; 2],
    ) -> Result<PairFound, WindowError> {
        let length_ns = length.min(WINDOW_MAX).as_nanos() as u64;
        let arrivals = self.draw(length_ns, load);
        let expected = arrivals.len();
        let mut arrivals = arrivals.into_iter();
        let next = arrivals.next();
        let rest = Rest { pusher: &mut self.pusher, arrivals, next, refused: 0 };
        let release = Release {
            due_ns: AtomicU64::new(next.map_or(u64::MAX, |(due_ns, _)| due_ns)),
            rest: Mutex::new(rest),
        };
        // Started by whoever comes first once both have begun: threads may take long to get a processor.
        let (clock, queues) = (OnceLock::new(), self.queues);
        let [one, two] = &mut self.finders;
        let [first_work, second_work] = works;
        // Ends when all that was due must be out, whatever that needs, but not for ever.
        let end_ns = START_NS + length_ns;
        let serve = |finder: &mut dyn Finder, work: &mut dyn Work, watch: &mut Watch| {
            let clock = *clock.get_or_init(Stopwatch::start);
            serve(finder, work, &release, (clock, end_ns, watch), (queues, expected))
        };
        let (first, second, disturbance) = together(
            place,
            |watch| serve(&mut **one, first_work, watch),
            |watch| serve(&mut **two, second_work, watch),
        )?;
        let refused = release.rest.into_inner().map_or(0, |rest| rest.refused);
        let mut wrong = first.wrong + second.wrong;
        let mut sorted_ns = first.latencies;
        sorted_ns.extend(second.latencies);
        let mut left = 0;
        for finder in &mut self.finders {
            while let Some(item) = finder.take() {
                finder.settle(item.queue);
                left += 1;
            }
        }
        // What went in has come out: as many, and in each queue in the order of its numbers.
        self.taken += sorted_ns.len() as u64 + left;
        wrong += self.pusher.pushed().abs_diff(self.taken);
        in_order(wrong)?;
        sorted_ns.sort_unstable();
        Ok(PairFound { latency: Latency { sorted_ns, disturbance }, refused: refused + left })
    }

    /// Arrivals of a window, in order.
    fn draw(&mut self, length_ns: u64, load: Load) -> Vec<Arrival> {
        let half = self.queues / 2;
        let (mut at_ns, mut arrivals) = (START_NS as f64, Vec::new());
        loop {
            at_ns += exponential(&mut self.random, load.gap_ns.max(1.0));
            // Before the end, so that the last can still be served.
            if at_ns >= (START_NS + length_ns) as f64 * LAST_SHARE {
                return arrivals;
            }
            let queue = match self.random.random_bool(load.first_half) {
                true => self.random.random_range(..half),
                false => self.random.random_range(half..self.queues),
            };
            arrivals.push((at_ns as u64, queue));
        }
    }
}

/// No arrival before this: what a thread needs at first.
const START_NS: u64 = 500_000;
/// Turns between two looks for stalls: idle ones are short, and so many busy ones after them must not be
/// taken for a stall.
const LOT_MAX: u32 = 16;
/// Arrivals end so early in a window.
const LAST_SHARE: f64 = 0.98;

struct Served {
    latencies: Vec<u64>,
    wrong: u64,
}

/// One consumer, until the window ends.
fn serve(
    finder: &mut dyn Finder,
    work: &mut dyn Work,
    release: &Release<'_>,
    (clock, end_ns, watch): (Stopwatch, u64, &mut Watch),
    (queues, expected): (u32, usize),
) -> Served {
    let mut last: Vec<Option<u32>> = vec![None; queues as usize];
    let mut served = Served { latencies: Vec::with_capacity(expected), wrong: 0 };
    let mut lots = Lots::begin(clock);
    loop {
        for _ in 0..lots.size.min(LOT_MAX) {
            release.release(clock.now_ns());
            let Some(item) = finder.take() else { continue };
            // The other consumer may have taken those between; never one that comes before.
            let before = last[item.queue as usize].replace(item.number);
            served.wrong += u64::from(before.is_some_and(|before| before >= item.number));
            finder.settle(item.queue);
            work.serve(&item);
            // There is room for all of them, whoever serves them.
            served.latencies.push(clock.now_ns().saturating_sub(item.sent_ns));
        }
        let (now_ns, took_ns) = lots.done();
        watch.gap(took_ns);
        if now_ns >= end_ns {
            return served;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Nothing;

    #[test]
    fn two_consumers_serve_every_arrival_once() {
        let load = Load { gap_ns: 50_000.0, first_half: 0.55 };
        for division in Division::ALL {
            let mut pair = Pair::new(division, 40, 3).expect("made");
            let length = Duration::from_millis(20);
            // A thread that gets no processor for a whole window has seen nothing: once more.
            let served = (0..100).any(|_| {
                let works: [&mut dyn Work; 2] = [&mut Nothing, &mut Nothing];
                let found = pair.run(&|_| Ok(()), length, load, works).expect("none lost");
                !found.latency.sorted_ns.is_empty()
            });
            assert!(served, "{division:?}");
        }
        assert!(Pair::new(Division::Shared, 1, 3).is_err());
    }

    #[test]
    fn arrivals_are_in_order_and_as_unequal_as_asked_for() {
        let mut pair = Pair::new(Division::Halves, 10, 3).expect("made");
        let load = Load { gap_ns: 500.0, first_half: 0.55 };
        let arrivals = pair.draw(50_000_000, load);
        assert!(arrivals.is_sorted_by_key(|&(due_ns, _)| due_ns));
        let share = arrivals.iter().filter(|(_, queue)| *queue < 5).count() as f64;
        let share = share / arrivals.len() as f64;
        assert!((share - 0.55).abs() < 0.01, "{share}");
    }
}
