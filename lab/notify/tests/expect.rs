//! What spinning must cost: an item's own time, and one poll for each queue that is looked at.

use notify::{Ends, Layout, Shape, Strategy, Traffic, set_up};

/// Items per nanosecond of a consumer that needs `service_ns` for an item and looks at `polls` queues,
/// `poll_ns` each, to find it: 1 / (S + e c).
fn expected_rate(service_ns: f64, polls: f64, poll_ns: f64) -> f64 {
    1.0 / (service_ns + polls * poll_ns)
}

/// The harness's own producer and consumers on a clock that is counted, not measured: each poll and
/// each service costs what it is said to cost.
fn simulated_rate(
    strategy: Strategy,
    shape: Shape,
    queues: u32,
    (service_ns, poll_ns): (f64, f64),
) -> f64 {
    let Ends { mut pusher, mut finder } = set_up(strategy, queues, Layout::Packed).expect("made");
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
    items as f64 / (items as f64 * service_ns + finder.polls() as f64 * poll_ns)
}

#[test]
fn the_formula_is_what_the_harness_does_in_simulated_time() {
    let (service_ns, poll_ns) = (400.0, 2.4);
    for strategy in [Strategy::Spin, Strategy::Burst] {
        for shape in Shape::ALL {
            for queues in [1, 64, 1_000] {
                let found = simulated_rate(strategy, shape, queues, (service_ns, poll_ns));
                let polls = shape.polls_per_item(queues);
                let wanted = expected_rate(service_ns, polls, poll_ns);
                let off = (found / wanted - 1.0).abs();
                assert!(off < 0.01, "{strategy:?} {shape:?} {queues}: {found} for {wanted}");
            }
        }
    }
}

#[test]
fn a_ready_set_polls_nothing() {
    let costs = (400.0, 1e9);
    for strategy in [Strategy::Exclusive, Strategy::Shared, Strategy::Linear] {
        let found = simulated_rate(strategy, Shape::SingleQueue, 1_000, costs);
        assert_eq!(found, expected_rate(400.0, 0.0, 1e9), "{strategy:?}");
    }
}

#[test]
fn polling_a_thousand_queues_takes_longer_than_the_work() {
    // One of them busy, 2 ns a poll: 2 us of polling for 400 ns of work.
    let rate = expected_rate(400.0, Shape::SingleQueue.polls_per_item(1_000), 2.0);
    assert!((rate - 1.0 / 2_400.0).abs() < 1e-12);
}
