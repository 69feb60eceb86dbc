//! The paper's traffic shapes (HyperPlane §II, Figure 3), and a producer's plan that keeps queues as
//! full as a shape says, whoever consumes and however fast.
//!
//! ```
//! use notify::Shape;
//! // Four empty queues for each that has work, as the paper says of PC.
//! assert!((Shape::Proportional.polls_per_item(1_000) - 4.17).abs() < 0.01);
//! assert_eq!(Shape::SingleQueue.polls_per_item(1_000), 1_000.0);
//! ```

use rand::{RngExt, SeedableRng};
use rand_distr::Exp1;
use rand_xoshiro::Xoshiro256PlusPlus;

/// How likely a queue that is not always busy is to have work in a round (PC and NC).
pub const COLD_PROBABILITY: f64 = 0.05;
/// Share of the queues that are always busy (PC).
const HOT_SHARE: f64 = 0.2;
/// Queues that are always busy (NC).
const HOT_COUNT: u32 = 100;

/// Which queues have work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// FB: all of them, always.
    FullyBalanced,
    /// PC: 20 % always, the rest with a probability of 5 %.
    Proportional,
    /// NC: 100 queues always (all, where there are fewer), the rest with a probability of 5 %.
    NonProportional,
    /// SQ: one always, the rest never.
    SingleQueue,
}

impl Shape {
    /// In the paper's order.
    pub const ALL: [Self; 4] =
        [Self::FullyBalanced, Self::Proportional, Self::NonProportional, Self::SingleQueue];

    /// As the paper calls it.
    pub fn short(self) -> &'static str {
        match self {
            Self::FullyBalanced => "FB",
            Self::Proportional => "PC",
            Self::NonProportional => "NC",
            Self::SingleQueue => "SQ",
        }
    }

    /// How many of `queues` always have work; one at least.
    pub fn hot(self, queues: u32) -> u32 {
        let hot = match self {
            Self::FullyBalanced => queues,
            Self::Proportional => (f64::from(queues) * HOT_SHARE).round() as u32,
            Self::NonProportional => queues.min(HOT_COUNT),
            Self::SingleQueue => 1,
        };
        hot.clamp(1, queues.max(1))
    }

    /// How likely one of the others is to have work in a round.
    pub fn cold_probability(self) -> f64 {
        match self {
            Self::Proportional | Self::NonProportional => COLD_PROBABILITY,
            Self::FullyBalanced | Self::SingleQueue => 0.0,
        }
    }

    /// The share of the queues that have work when a round robin comes by.
    pub fn ready_fraction(self, queues: u32) -> f64 {
        let hot = f64::from(self.hot(queues));
        let cold = f64::from(queues) - hot;
        (hot + self.cold_probability() * cold) / f64::from(queues.max(1))
    }

    /// Looks that a round of polling takes for each item that it finds, the successful one included.
    pub fn polls_per_item(self, queues: u32) -> f64 {
        1.0 / self.ready_fraction(queues)
    }
}

/// Which queue gets work next, in a closed loop: what the busy queues consume is replaced, and for each
/// round of them the others are rung for with their probability.
#[derive(Clone, Debug)]
pub struct Traffic {
    hot: Vec<u32>,
    cold: Vec<u32>,
    probability: f64,
    /// The busy queue that is looked at next.
    at: usize,
    /// Trials of cold queues that are due, and the one that succeeds next: the queue's number in `cold`
    /// is the trial's, modulo their count. So each queue has one trial a round.
    due: f64,
    next: f64,
    random: Xoshiro256PlusPlus,
}

/// What a producer can do to queues.
pub trait Fill {
    /// Fills a busy queue up, if it is worth while; with how many items.
    fn fill(&mut self, queue: u32) -> u32;
    /// Puts one item into a queue, if there is room.
    fn one(&mut self, queue: u32);
}

impl Traffic {
    /// The traffic of a shape over `queues`. Busy queues are spread over all of them.
    pub fn new(shape: Shape, queues: u32, seed: u64) -> Self {
        let count = shape.hot(queues);
        let hot: Vec<u32> = (0..u64::from(count))
            .map(|index| (index * u64::from(queues) / u64::from(count)) as u32)
            .collect();
        let cold = (0..queues).filter(|queue| hot.binary_search(queue).is_err()).collect();
        let probability = shape.cold_probability();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let next = failures(&mut random, probability);
        Self { hot, cold, probability, at: 0, due: 0.0, next, random }
    }

    /// Fills the busy queues for the first time. That is no consumption, so the others get nothing.
    pub fn prime(&mut self, queues: &mut impl Fill) {
        for &queue in &self.hot {
            queues.fill(queue);
        }
    }

    /// Looks at one busy queue, and replaces what was consumed; how many items.
    pub fn step(&mut self, queues: &mut impl Fill) -> u32 {
        let items = queues.fill(self.hot[self.at]);
        self.at = if self.at + 1 == self.hot.len() { 0 } else { self.at + 1 };
        if items > 0 && !self.cold.is_empty() && self.probability > 0.0 {
            // A round takes one item from each busy queue.
            self.due += f64::from(items) * self.cold.len() as f64 / self.hot.len() as f64;
            while self.next < self.due {
                queues.one(self.cold[self.next as usize % self.cold.len()]);
                self.next += 1.0 + failures(&mut self.random, self.probability);
            }
            self.wrap();
        }
        items
    }

    /// Keeps trial numbers small, so that they stay exact.
    fn wrap(&mut self) {
        let rounds = (self.due / self.cold.len() as f64).floor() * self.cold.len() as f64;
        self.due -= rounds;
        self.next -= rounds;
    }

    /// A queue for a single arrival at light load, each with the weight that the shape gives it.
    pub fn draw(&mut self) -> u32 {
        let hot = self.hot.len() as f64;
        let all = hot + self.probability * self.cold.len() as f64;
        let of = if self.random.random::<f64>() * all < hot { &self.hot } else { &self.cold };
        of[self.random.random_range(..of.len())]
    }

    /// The gap to the next arrival of a Poisson process, in nanoseconds.
    pub fn gap_ns(&mut self, mean_ns: f64) -> f64 {
        exponential(&mut self.random, mean_ns)
    }
}

/// A gap of a Poisson process with this mean.
pub(crate) fn exponential(random: &mut Xoshiro256PlusPlus, mean: f64) -> f64 {
    random.sample::<f64, _>(Exp1) * mean
}

/// How many trials fail before the first success of probability `p`: geometric. Without end where `p` is 0.
fn failures(random: &mut Xoshiro256PlusPlus, p: f64) -> f64 {
    if p > 0.0 { (exponential(random, 1.0) / -(1.0 - p).ln()).floor() } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues without a capacity, which a round robin empties by one item each.
    struct Counts(Vec<u32>);

    impl Fill for Counts {
        fn fill(&mut self, queue: u32) -> u32 {
            let room = 32 - self.0[queue as usize];
            if room < 16 {
                return 0;
            }
            self.0[queue as usize] += room;
            room
        }
        fn one(&mut self, queue: u32) {
            self.0[queue as usize] += 1;
        }
    }

    #[test]
    fn shapes_have_the_papers_proportions() {
        let fraction = |shape: Shape, queues| shape.ready_fraction(queues);
        assert_eq!(fraction(Shape::FullyBalanced, 1_000), 1.0);
        assert!((fraction(Shape::Proportional, 1_000) - 0.24).abs() < 1e-9);
        assert!((fraction(Shape::NonProportional, 1_000) - 0.145).abs() < 1e-9);
        assert_eq!(fraction(Shape::SingleQueue, 1_000), 0.001);
        for shape in Shape::ALL {
            assert_eq!(shape.polls_per_item(1), 1.0, "{shape:?}");
            assert_eq!(Traffic::new(shape, 1, 1).draw(), 0);
        }
        assert_eq!((Shape::NonProportional.hot(64), Shape::Proportional.hot(8)), (64, 2));
    }

    #[test]
    fn a_round_finds_as_many_queues_ready_as_the_shape_says() {
        for shape in Shape::ALL {
            for queues in [1, 8, 64, 256, 1_000] {
                let mut counts = Counts(vec![0; queues as usize]);
                let mut traffic = Traffic::new(shape, queues, 7);
                traffic.prime(&mut counts);
                let (mut ready, rounds) = (0u64, 4_000);
                for _ in 0..rounds {
                    for count in &mut counts.0 {
                        ready += u64::from(*count > 0);
                        *count = count.saturating_sub(1);
                    }
                    for _ in 0..traffic.hot.len() {
                        traffic.step(&mut counts);
                    }
                }
                let found = ready as f64 / f64::from(rounds) / f64::from(queues);
                let wanted = shape.ready_fraction(queues);
                // Cold queues are rung for in lots, so that a few of them get a second item early.
                let off = (found - wanted).abs() / wanted;
                assert!(off < 0.03, "{shape:?}, {queues} queues: {found} for {wanted}");
            }
        }
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let n = 200_000;
        let gaps = (0..n).map(|_| exponential(&mut random, 20.0)).sum::<f64>() / f64::from(n);
        assert!((gaps - 20.0).abs() < 0.3, "{gaps}");
        let mean = (0..n).map(|_| failures(&mut random, 0.05)).sum::<f64>() / f64::from(n);
        assert!((mean - 19.0).abs() < 0.3, "{mean}");
        assert_eq!((failures(&mut random, 1.0), failures(&mut random, 0.0)), (0.0, f64::INFINITY));
    }

    #[test]
    fn single_arrivals_fall_where_the_shape_has_its_weight() {
        let mut traffic = Traffic::new(Shape::NonProportional, 1_000, 3);
        let hot = traffic.hot.clone();
        let n = 50_000;
        let share = (0..n).filter(|_| hot.binary_search(&traffic.draw()).is_ok()).count();
        let share = share as f64 / f64::from(n);
        assert!((share - 100.0 / 145.0).abs() < 0.01, "{share}");
    }
}
