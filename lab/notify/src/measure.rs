//! The two experiments between a producer and a consumer: throughput in a closed loop with backlog
//! (Figures 3a and 8), and latency at light load (Figures 3b, 3c and 9).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::stats::nearest;
use measure::{Disturbance, Place, SetsAtEnd, Stopwatch, WINDOW_MAX, Watch, WindowError, together};

use crate::finder::Finder;
use crate::lots::Lots;
use crate::queue::Pusher;
use crate::shape::Traffic;
use crate::strategy::Ends;
use crate::work::{Item, Work};

/// Share of a window before anything is counted: caches and branch predictors.
const WARM_UP: f64 = 0.1;
/// And at least so much, in nanoseconds: a visit and more to each of a thousand queues.
const WARM_UP_MIN_NS: u64 = 1_000_000;
/// At light load a queue is visited rarely: a thousand of them once in 20 ms and more. What the pause
/// before a window and the other contenders' windows took out of the caches would so be missing for all
/// of a window, which no data plane on cores of its own sees. So each window begins with traffic that
/// goes once around the slots of a thousand queues, and is not counted.
const WARM_LIGHT_NS: u64 = 18_000_000;
/// The gap between two items meanwhile.
const WARM_GAP_NS: u64 = 400;
/// Time to serve what is then left.
const WARM_REST_NS: u64 = 2_000_000;
/// The last arrival comes so long before the end of a window, in nanoseconds: a sweep over 1,000 cold
/// pages takes a tenth of it.
const LAST_NS: u64 = 500_000;

/// How much longer than asked for a window of single arrivals is.
pub const WARM_LIGHT: Duration = Duration::from_nanos(WARM_LIGHT_NS + WARM_REST_NS);

/// What a window of backlog found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throughput {
    /// Nanoseconds for each item.
    pub ns_per_item: f64,
    /// Items that count.
    pub items: u64,
    /// Looks at queues for each item, where queues are polled.
    pub polls_per_item: f64,
    /// Looks that found nothing at all, for each item: above zero, the producer was what limited it.
    pub idle_looks_per_item: f64,
    /// What disturbed it.
    pub disturbance: Disturbance,
}

/// What a window of single arrivals found.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// From before each item was enqueued until it was dequeued, in nanoseconds, in order of size.
    pub sorted_ns: Vec<u64>,
    /// What disturbed it.
    pub disturbance: Disturbance,
}

impl Latency {
    /// The latency that the share `share` does not exceed; 0 where nothing arrived.
    pub fn quantile_ns(&self, share: f64) -> f64 {
        nearest(&self.sorted_ns, share) as f64
    }

    /// The mean; 0 where nothing arrived.
    pub fn mean_ns(&self) -> f64 {
        let count = self.sorted_ns.len().max(1);
        self.sorted_ns.iter().map(|&ns| ns as f64).sum::<f64>() / count as f64
    }
}

/// Queues, what fills them, and the numbers that come next: a consumer that gets another has lost an
/// item or has taken one twice.
pub struct Bench {
    ends: Ends,
    traffic: Traffic,
    next: Vec<u32>,
    /// From sending each item to taking it.
    latencies_ns: Vec<u64>,
}

/// Arrivals that one window can take down.
const ARRIVALS_MAX: usize = 1 << 20;

impl Bench {
    /// Of `queues` queues, empty at first.
    pub fn new(ends: Ends, traffic: Traffic, queues: u32) -> Self {
        Self { ends, traffic, next: vec![0; queues as usize], latencies_ns: Vec::new() }
    }

    /// Keeps the queues filled for `length` and counts what the consumer gets done.
    ///
    /// # Errors
    /// A thread could not take its place; items were lost.
    pub fn backlog(
        &mut self,
        place: Place<'_>,
        length: Duration,
        work: &mut dyn Work,
    ) -> Result<Throughput, WindowError> {
        let length_ns = length.min(WINDOW_MAX).as_nanos() as u64;
        let clock = Stopwatch::start();
        let Self { ends: Ends { pusher, finder }, traffic, next, .. } = self;
        traffic.prime(pusher);
        // The producer goes on until the consumer has stopped: its end must not show.
        let over = AtomicBool::new(false);
        let ends = SetsAtEnd(&over);
        let (counted, (), disturbance) = together(
            place,
            move |watch| {
                // Whatever becomes of the consumer, even where it never comes to run.
                let _ends = ends;
                let consumer = Consumer { finder: &mut **finder, work, next, latencies_ns: None };
                consumer.run(clock, length_ns, watch)
            },
            |watch| keep_filled(pusher, traffic, clock, &over, watch),
        )?;
        let Counted { begin, end, wrong } = counted;
        in_order(wrong)?;
        let items = end.items - begin.items;
        let each = |count: u64| count as f64 / items.max(1) as f64;
        Ok(Throughput {
            ns_per_item: each(end.at_ns - begin.at_ns),
            items,
            polls_per_item: each(end.polls - begin.polls),
            idle_looks_per_item: each(end.idle - begin.idle),
            disturbance,
        })
    }

    /// Single arrivals of a Poisson process for `length`, `gap_ns` apart on average. Before them,
    /// [`WARM_LIGHT`] of traffic that brings all queues into the caches.
    ///
    /// # Errors
    /// As [`backlog`](Self::backlog).
    pub fn light(
        &mut self,
        place: Place<'_>,
        length: Duration,
        gap_ns: f64,
        work: &mut dyn Work,
    ) -> Result<Latency, WindowError> {
        let length_ns = length.min(WINDOW_MAX - WARM_LIGHT).as_nanos() as u64;
        self.drain()?;
        let Self { ends: Ends { pusher, finder }, traffic, next, latencies_ns } = self;
        let queues = next.len() as u32;
        latencies_ns.clear();
        // Room for all, so that taking one down never allocates: Poisson counts hardly vary by so much.
        let expected = length_ns as f64 / gap_ns.max(1.0);
        latencies_ns.reserve(((expected * 1.5) as usize + 1_000).min(ARRIVALS_MAX));
        let clock = Stopwatch::start();
        let noted = Some(&mut *latencies_ns);
        let (counted, (), disturbance) = together(
            place,
            |watch| {
                let consumer = Consumer { finder: &mut **finder, work, next, latencies_ns: noted };
                consumer.run(clock, length_ns, watch)
            },
            |watch| {
                warm(pusher, clock, queues);
                arrive(pusher, traffic, clock, length_ns, gap_ns, watch);
            },
        )?;
        in_order(counted.wrong)?;
        let mut sorted_ns = latencies_ns.clone();
        sorted_ns.sort_unstable();
        Ok(Latency { sorted_ns, disturbance })
    }

    /// Takes what is left in the queues.
    fn drain(&mut self) -> Result<(), WindowError> {
        let mut wrong = 0;
        while let Some(item) = self.ends.finder.take() {
            self.ends.finder.settle(item.queue);
            wrong += u64::from(!follows(&mut self.next, &item));
        }
        in_order(wrong)
    }
}

/// Fails where items came out of their order, were lost or came twice.
pub(crate) fn in_order(wrong: u64) -> Result<(), WindowError> {
    if wrong == 0 { Ok(()) } else { Err(WindowError::WrongItems(wrong)) }
}

/// Whether an item is the one that its queue should give next.
#[inline]
fn follows(next: &mut [u32], item: &Item) -> bool {
    let expected = &mut next[item.queue as usize];
    let right = *expected == item.number;
    *expected = item.number.wrapping_add(1);
    right
}

/// What a consumer had done at a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    items: u64,
    idle: u64,
    polls: u64,
    at_ns: u64,
}

/// What a consumer did in a window.
#[derive(Clone, Copy, Debug)]
struct Counted {
    begin: Count,
    end: Count,
    wrong: u64,
}

/// A consumer for one window.
struct Consumer<'a> {
    finder: &'a mut dyn Finder,
    work: &'a mut dyn Work,
    next: &'a mut [u32],
    /// Where it goes how long each item took, if that is asked for.
    latencies_ns: Option<&'a mut Vec<u64>>,
}

impl Consumer<'_> {
    /// Serves until `length_ns` have been counted.
    fn run(mut self, clock: Stopwatch, length_ns: u64, watch: &mut Watch) -> Counted {
        let warm_ns = match self.latencies_ns {
            None => ((length_ns as f64 * WARM_UP) as u64).max(WARM_UP_MIN_NS),
            Some(_) => WARM_LIGHT_NS + WARM_REST_NS,
        };
        let from_ns = clock.now_ns() + warm_ns;
        let (mut count, mut begin, mut wrong) = (Count::default(), None, 0);
        let mut lots = Lots::begin(clock);
        loop {
            for _ in 0..lots.size {
                let Some(item) = self.finder.take() else {
                    count.idle += 1;
                    continue;
                };
                if let Some(latencies_ns) = &mut self.latencies_ns
                    && item.sent_ns > 0
                    && latencies_ns.len() < latencies_ns.capacity()
                {
                    latencies_ns.push(clock.now_ns().saturating_sub(item.sent_ns));
                }
                self.finder.settle(item.queue);
                wrong += u64::from(!follows(self.next, &item));
                self.work.serve(&item);
                count.items += 1;
            }
            let (at_ns, took_ns) = lots.done();
            if begin.is_some() {
                watch.gap(took_ns);
            }
            if at_ns < from_ns {
                continue;
            }
            let now = Count { polls: self.finder.polls(), at_ns, ..count };
            let begin = *begin.get_or_insert(now);
            if at_ns >= begin.at_ns + length_ns {
                return Counted { begin, end: now, wrong };
            }
        }
    }
}

/// Keeps queues filled until it is over.
fn keep_filled(
    pusher: &mut Pusher,
    traffic: &mut Traffic,
    clock: Stopwatch,
    over: &AtomicBool,
    watch: &mut Watch,
) {
    let mut lots = Lots::begin(clock);
    while !over.load(Ordering::Relaxed) {
        for _ in 0..lots.size.min(256) {
            traffic.step(pusher);
        }
        watch.gap(lots.done().1);
    }
}

/// Goes round all queues, so that they are in the caches when the arrivals begin, and leaves time to
/// serve them.
fn warm(pusher: &mut Pusher, clock: Stopwatch, queues: u32) {
    let begun_ns = clock.now_ns();
    let (mut queue, mut next_ns) = (0, begun_ns);
    loop {
        let now_ns = clock.now_ns();
        if now_ns >= begun_ns + WARM_LIGHT_NS + WARM_REST_NS {
            return;
        }
        if now_ns >= next_ns && now_ns < begun_ns + WARM_LIGHT_NS {
            next_ns = now_ns + WARM_GAP_NS;
            // Not timed: it was not sent at any time. At most one of each queue is left in the end.
            pusher.push_if_empty(queue);
            queue = if queue + 1 == queues { 0 } else { queue + 1 };
        }
    }
}

/// Sends one item at a time, until shortly before the consumer's end.
fn arrive(
    pusher: &mut Pusher,
    traffic: &mut Traffic,
    clock: Stopwatch,
    length_ns: u64,
    gap_ns: f64,
    watch: &mut Watch,
) {
    let mut now_ns = clock.now_ns();
    let from_ns = now_ns;
    let end_ns = from_ns + length_ns.saturating_sub(LAST_NS);
    let mut at_ns = from_ns as f64;
    while at_ns < end_ns as f64 {
        let queue = traffic.draw();
        while (now_ns as f64) < at_ns {
            let before_ns = std::mem::replace(&mut now_ns, clock.now_ns());
            watch.gap(now_ns - before_ns);
        }
        // The producer's own memory of the queue is fetched before: it is not what is measured.
        pusher.ready_for(queue);
        pusher.push(queue, clock.now_ns());
        at_ns += traffic.gap_ns(gap_ns);
    }
}

#[cfg(test)]
mod tests {
    use measure::Side;

    use super::*;
    use crate::queue::Layout;
    use crate::shape::Shape;
    use crate::strategy::{Strategy, set_up};
    use crate::work::{Chain, Nothing};

    const TRIES: u32 = 100;

    fn anywhere(_: Side) -> Result<(), WindowError> {
        Ok(())
    }

    fn bench(strategy: Strategy, shape: Shape, queues: u32) -> Bench {
        let ends = set_up(strategy, queues, Layout::Packed).expect("made");
        Bench::new(ends, Traffic::new(shape, queues, 1), queues)
    }

    // Two threads on whatever processors there are: nothing is said of times here, only that every
    // item came out exactly once (which `backlog` and `light` check), and that they did come.

    #[test]
    fn backlog_and_light_load_lose_nothing() {
        let length = Duration::from_millis(10);
        for strategy in Strategy::ALL {
            for shape in Shape::ALL {
                let mut bench = bench(strategy, shape, 130);
                // A thread that gets no processor for a whole window has seen nothing: once more.
                let backlog = (0..TRIES)
                    .map(|_| bench.backlog(&anywhere, length, &mut Chain::new(50)).expect("ran"));
                let found = backlog.into_iter().find(|found| found.items > 0);
                assert!(found.is_some(), "{strategy:?} {shape:?}");
                let light = (0..TRIES)
                    .map(|_| bench.light(&anywhere, length, 20_000.0, &mut Nothing).expect("ran"));
                let found = light.into_iter().find(|found| !found.sorted_ns.is_empty());
                let found = found.expect("something arrived in one of them");
                assert!(found.sorted_ns.is_sorted() && found.mean_ns() > 0.0);
                assert!(found.quantile_ns(0.5) <= found.quantile_ns(0.99));
            }
        }
    }

    #[test]
    fn a_consumer_that_never_runs_ends_its_producer() {
        let mut bench = bench(Strategy::Exclusive, Shape::FullyBalanced, 2);
        let refused = |side| match side {
            Side::Consumer => Err(WindowError::Place("no place".to_owned())),
            Side::Other => Ok(()),
        };
        let found = bench.backlog(&refused, Duration::from_millis(1), &mut Nothing);
        assert_eq!(found.map(drop), Err(WindowError::Place("no place".to_owned())));
        let mut panics = Panics;
        let found = bench.backlog(&anywhere, Duration::from_millis(1), &mut panics);
        assert_eq!(found.map(drop), Err(WindowError::Panicked));
    }

    struct Panics;

    impl Work for Panics {
        fn serve(&mut self, _: &Item) {
            panic!("on purpose");
        }
    }

    #[test]
    fn a_wrong_number_is_told() {
        let mut bench = bench(Strategy::Spin, Shape::FullyBalanced, 2);
        bench.next[1] = 3;
        let found = bench.backlog(&anywhere, Duration::from_millis(1), &mut Nothing);
        assert_eq!(found.map(drop), Err(WindowError::WrongItems(1)));
    }
}
