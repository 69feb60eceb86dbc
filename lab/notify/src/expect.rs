//! What spinning must cost: an item's own time, and one poll for each queue that is looked at.
//!
//! ```
//! use notify::{Shape, expected_rate, poll_cost};
//! // 1,000 queues, one of them busy, 2 ns a poll: 2 us of polling for 400 ns of work.
//! let rate = expected_rate(400.0, Shape::SingleQueue.polls_per_item(1_000), 2.0);
//! assert!((rate - 1.0 / 2_400.0).abs() < 1e-12);
//! let fit = poll_cost(&[(1.0, 402.0), (1_000.0, 2_400.0)]).unwrap();
//! assert!((fit.poll_ns - 2.0).abs() < 1e-9);
//! ```

/// Items per nanosecond of a consumer that needs `service_ns` for an item and looks at `polls` queues,
/// `poll_ns` each, to find it: 1 / (S + e c).
pub fn expected_rate(service_ns: f64, polls: f64, poll_ns: f64) -> f64 {
    1.0 / (service_ns + polls * poll_ns)
}

/// The straight line through measured times for an item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollCost {
    /// An item's own time, in nanoseconds.
    pub service_ns: f64,
    /// One poll's, in nanoseconds.
    pub poll_ns: f64,
}

/// Fits times for an item (in nanoseconds, second) over the polls that each took (first), by least
/// squares. Absent where fewer than two numbers of polls were measured.
pub fn poll_cost(points: &[(f64, f64)]) -> Option<PollCost> {
    let count = points.len() as f64;
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / count;
    let (polls, times) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - polls).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - polls) * (point.1 - times)).sum();
    let poll_ns = common / spread;
    // One number of polls, or none, divides by nothing.
    poll_ns.is_finite().then_some(PollCost { service_ns: times - poll_ns * polls, poll_ns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Layout;
    use crate::shape::{Shape, Traffic};
    use crate::strategy::{Ends, Strategy, set_up};

    /// The harness's own producer and consumers on a clock that is counted, not measured: each poll and
    /// each service costs what it is said to cost.
    fn simulated_rate(strategy: Strategy, shape: Shape, queues: u32, costs: PollCost) -> f64 {
        let Ends { mut pusher, mut finder } =
            set_up(strategy, queues, Layout::Packed).expect("made");
        let mut traffic = Traffic::new(shape, queues, 11);
        traffic.prime(&mut pusher);
        let (mut items, target) = (0u64, 40 * u64::from(queues).max(500));
        while items < target {
            let item = finder.take().expect("the producer is never behind");
            finder.settle(item.queue);
            items += 1;
            // A producer that is infinitely fast: it looks at every busy queue after every round.
            if items.is_multiple_of(u64::from(shape.hot(queues))) {
                for _ in 0..shape.hot(queues) {
                    traffic.step(&mut pusher);
                }
            }
        }
        items as f64 / (items as f64 * costs.service_ns + finder.polls() as f64 * costs.poll_ns)
    }

    #[test]
    fn the_formula_is_what_the_harness_does_in_simulated_time() {
        let costs = PollCost { service_ns: 400.0, poll_ns: 2.4 };
        for strategy in [Strategy::Spin, Strategy::Burst] {
            for shape in Shape::ALL {
                for queues in [1, 64, 1_000] {
                    let found = simulated_rate(strategy, shape, queues, costs);
                    let polls = shape.polls_per_item(queues);
                    let wanted = expected_rate(costs.service_ns, polls, costs.poll_ns);
                    let off = (found / wanted - 1.0).abs();
                    assert!(off < 0.01, "{strategy:?} {shape:?} {queues}: {found} for {wanted}");
                }
            }
        }
    }

    #[test]
    fn a_ready_set_polls_nothing() {
        let costs = PollCost { service_ns: 400.0, poll_ns: 1e9 };
        for strategy in [Strategy::Exclusive, Strategy::Shared, Strategy::Linear] {
            let found = simulated_rate(strategy, Shape::SingleQueue, 1_000, costs);
            assert_eq!(found, expected_rate(400.0, 0.0, costs.poll_ns), "{strategy:?}");
        }
    }

    #[test]
    fn a_fit_needs_two_places() {
        assert_eq!(poll_cost(&[]), None);
        assert_eq!(poll_cost(&[(5.0, 1.0), (5.0, 2.0)]), None);
        let fit = poll_cost(&[(1.0, 101.0), (8.0, 108.5), (64.0, 163.5)]).expect("three places");
        assert!(
            (fit.poll_ns - 0.99).abs() < 0.02 && (fit.service_ns - 100.0).abs() < 1.0,
            "{fit:?}"
        );
    }
}
