//! Two stacks with a path between them: how much of its rate a connection gets, whatever the path does to packets.
//!
//! The path has a rate, a queue and a delay in each direction, and faults from a seed. Time is virtual, and a run with a
//! seed is always the same.

mod transfer;

use clock::Duration;
use stack::CongestionAlgorithm;

use world::path::Path;

use crate::transfer::{Outcome, answers, transfer};

const MB: u64 = 1_000_000;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The median of several runs, by goodput.
fn median(bytes: u64, algorithm: CongestionAlgorithm, path: impl Fn(u64) -> Path) -> Outcome {
    let mut runs: Vec<_> = (1..=5).map(|seed| transfer(bytes, algorithm, path(seed))).collect();
    runs.sort_by(|one, other| one.share.total_cmp(&other.share));
    runs[2]
}

/// Without faults nothing is sent twice but what the queue drops, and the path is full.
#[test]
fn a_path_without_faults_is_full() {
    for algorithm in [CongestionAlgorithm::Cubic, CongestionAlgorithm::NewReno] {
        for delay in [ms(1) / 20, ms(1), ms(20), ms(100)] {
            let path = Path::new(1, delay);
            let bytes = if delay > ms(50) { 200 * MB } else { 50 * MB };
            let outcome = transfer(bytes, algorithm, path);
            // The slow start of a long path takes its time, and overflows the queue once.
            let least = if delay > ms(10) { 0.8 } else { 0.93 };
            assert!(outcome.share > least, "{algorithm:?}, {delay:?}: {outcome:?}");
            assert_eq!(outcome.timeouts, 0, "{algorithm:?}, {delay:?}: {outcome:?}");
            assert!(outcome.again <= outcome.dropped + 12, "{algorithm:?}, {delay:?}: {outcome:?}");
        }
    }
}

/// Losses are repaired within a round trip or two, without time-outs: what is left is what the algorithm makes of the loss
/// rate, 1.2 segments over the root of it where NewReno's window is the larger one (RFC 5681, Mathis 1997).
#[test]
fn random_losses_cost_what_the_algorithm_makes_of_them() {
    for (loss, delay) in [(0.001, ms(1)), (0.01, ms(1)), (0.001, ms(20)), (0.01, ms(20))] {
        let path = |seed| Path { loss, ..Path::new(seed, delay) };
        let outcome = median(20 * MB, CongestionAlgorithm::Cubic, path);
        let round_s = 2.0 * delay.as_secs_f64() + 0.0005;
        let window = 1.2 * 1448.0 / f64::sqrt(loss);
        let expected = (window / round_s / (path(1).rate as f64 / 8.0)).min(1.0);
        assert!(
            outcome.share > 0.8 * expected,
            "{loss}, {delay:?}: {outcome:?}, {expected:.3} expected"
        );
        let needless = outcome.again.saturating_sub(outcome.lost + outcome.dropped);
        assert!(needless <= 10 + outcome.again / 10, "{loss}, {delay:?}: {outcome:?}");
        assert!(outcome.timeouts <= 2, "{loss}, {delay:?}: {outcome:?}");
    }
}

/// A hop that marks instead of dropping: nothing is lost, and CUBIC shrinks as often as it would for losses.
#[test]
fn marks_take_the_place_of_losses() {
    for delay in [ms(1), ms(20)] {
        let plain = Path::new(1, delay);
        let path = Path { queue: 1 << 30, mark: Some(plain.queue / 2), ..plain };
        let outcome = transfer(50 * MB, CongestionAlgorithm::Cubic, path);
        assert!(outcome.share > 0.8, "{delay:?}: {outcome:?}");
        assert!(outcome.marked > 1 && outcome.again == 0, "{delay:?}: {outcome:?}");
    }
}

/// What the window lets go at once is spread over the round trip: the queue of a path that is not full stays short, also in
/// slow start, which doubles the window.
#[test]
fn slow_start_fills_no_queue_before_the_path_is_full() {
    for delay in [ms(5), ms(20)] {
        let path = Path::new(1, delay);
        let window = (path.queue / 2) as u32;
        let outcome = transfer(20 * MB, CongestionAlgorithm::Cubic, Path { window, ..path });
        assert!(outcome.queue_most < 40_000, "{delay:?}: {outcome:?}");
        assert!(outcome.share > 0.35, "{delay:?}: {outcome:?}");
    }
}

/// DCTCP keeps the queue at the threshold at which the hop marks, and the path full (RFC 8257 §1).
#[test]
fn dctcp_keeps_queues_short_and_paths_full() {
    for (delay, threshold) in [(ms(1) / 20, 30_000), (ms(1), 30_000), (ms(5), 60_000)] {
        let path = Path { mark: Some(threshold), queue: 1 << 30, ..Path::new(1, delay) };
        let outcome = transfer(100 * MB, CongestionAlgorithm::Dctcp, path);
        assert!(outcome.share > 0.98, "{delay:?}: {outcome:?}");
        assert!(outcome.queue_p99 < 2 * threshold, "{delay:?}: {outcome:?}");
        assert_eq!(outcome.again, 0, "{delay:?}: {outcome:?}");
    }
}

/// Packets that others overtake are not taken for lost: the path is as full as without.
#[test]
fn reordering_costs_little() {
    for delay in [ms(1), ms(20)] {
        let path = |seed| Path { reorder: 0.05, ..Path::new(seed, delay) };
        let outcome = median(50 * MB, CongestionAlgorithm::Cubic, path);
        assert!(outcome.share > 0.85, "{delay:?}: {outcome:?}");
    }
}

/// Many packets in a row are lost, now and then.
#[test]
fn bursts_of_losses_cost_no_time_outs() {
    for delay in [ms(1), ms(20)] {
        let path = |seed| Path { burst: 0.0005, ..Path::new(seed, delay) };
        let outcome = median(20 * MB, CongestionAlgorithm::Cubic, path);
        assert!(outcome.timeouts <= 3, "{delay:?}: {outcome:?}");
        assert!(outcome.share > 0.1, "{delay:?}: {outcome:?}");
    }
}

/// The end of an answer is lost: a probe finds it, and the answer is late by some round trips. Of a single segment the peer
/// may delay the acknowledgment, so that its probe goes when a time-out would be due (RFC 8985 §7.2).
#[test]
fn a_lost_tail_costs_round_trips() {
    let delay = ms(2);
    let plain = transfer(64_000, CongestionAlgorithm::Cubic, Path::new(1, delay));
    for last in 1..=8 {
        let path = Path { lose_last: last, ..Path::new(1, delay) };
        let outcome = transfer(64_000, CongestionAlgorithm::Cubic, path);
        let late = outcome.took.saturating_sub(plain.took);
        // The last segment is a short one: two are less than two full ones.
        let most = [ms(260), ms(80), ms(30)][(last as usize - 1).min(2)];
        assert!(late < most, "the last {last}: {late:?} late: {outcome:?}");
        assert_eq!(outcome.timeouts, 0, "the last {last}: {outcome:?}");
    }
}

/// Answers that lose their ends now and then: the window shrinks by its share for each loss, not to what was left in
/// flight, and the answers behind it need few round trips.
#[test]
fn answers_behind_lost_tails_keep_their_window() {
    for algorithm in [CongestionAlgorithm::Cubic, CongestionAlgorithm::NewReno] {
        let mut took = answers(300, 65_536, algorithm, Path::new(1, ms(10)));
        took.sort();
        let [p50, p99] = [150, 297].map(|rank| took[rank]);
        assert!(p50 < ms(90) && p99 < ms(330), "{algorithm:?}: {p50:?}, {p99:?}");
    }
}

/// The MTU of the path is less than both ends take, or shrinks, or grows, and the hop reports what is too big: that costs
/// round trips, and no congestion is seen in it.
#[test]
fn a_path_that_reports_its_mtu_costs_round_trips() {
    for (mtu, times) in [([1_400; 2], 1), ([1_500, 1_280], 1), ([1_000, 600], 2), ([600, 1_500], 1)]
    {
        for delay in [ms(1), ms(20)] {
            let path = Path { mtu, mtu_at: ms(300), ..Path::new(1, delay) };
            let outcome = transfer(20 * MB, CongestionAlgorithm::Cubic, path);
            let case = format!("{mtu:?}, {delay:?}: {outcome:?}");
            let plain =
                transfer(20 * MB, CongestionAlgorithm::Cubic, Path { mtu: [1_500; 2], ..path });
            let payload = |mtu: u16| f64::from(mtu - 52) / f64::from(mtu + 14);
            let least = payload(mtu[0].min(mtu[1])) / payload(1_500);
            let most = plain.took.mul_f64(1.05 / least) + delay * 2 * 16 * times;
            assert!(outcome.took < most, "{case}: {most:?}, {plain:?} without");
            assert_eq!((outcome.lowered, outcome.timeouts), (times.into(), 0), "{case}");
            // The slow start that follows may overflow the queue once. What was sent twice then is reported late, and each
            // time takes a recovery back, which has cost nothing.
            let stands = outcome.fast - outcome.spurious;
            assert!(stands <= plain.fast + u64::from(times), "{case}, {plain:?} without");
        }
    }
}

/// Without reports time-outs find it, and probes measure it.
#[test]
fn a_path_that_drops_large_packets_silently_is_measured() {
    for mtu in [[1_400; 2], [1_500, 1_280], [1_500, 576]] {
        for delay in [ms(1), ms(20)] {
            let path = Path { mtu, mtu_at: ms(300), reports: false, ..Path::new(1, delay) };
            let outcome = transfer(50 * MB, CongestionAlgorithm::Cubic, path);
            let case = format!("{mtu:?}, {delay:?}: {outcome:?}");
            assert!(outcome.share > 0.25, "{case}");
            assert!(outcome.timeouts <= 4 && outcome.lowered <= 2, "{case}");
            assert!(outcome.fast <= outcome.dropped, "{case}");
        }
    }
}

/// With losses and reordering beside it.
#[test]
fn an_mtu_that_changes_among_losses_is_found() {
    for reports in [true, false] {
        for seed in 1..=5 {
            let (mtu, mtu_at) = ([1_500, 1_000], ms(300));
            let path = Path { mtu, mtu_at, reports, ..Path::new(seed, ms(5)) };
            let path = Path { loss: 0.002, reorder: 0.02, ..path };
            let outcome = transfer(20 * MB, CongestionAlgorithm::Cubic, path);
            let case = format!("{reports}, {seed}: {outcome:?}");
            assert!(outcome.share > if reports { 0.15 } else { 0.1 }, "{case}");
            assert!((1..=3).contains(&outcome.lowered), "{case}");
        }
    }
}
