//! Right arrivals pass, and each kind of wrong ones fails.

use super::*;
use crate::arrival::Arrivals;
use crate::pattern::{Pattern, PatternShape};

const RPS: f64 = 50_000.0;
const ALL: [ArrivalProcess; 5] = [
    ArrivalProcess::Poisson,
    ArrivalProcess::Deterministic,
    ArrivalProcess::Uniform,
    ArrivalProcess::Bursty { burst: 8 },
    ArrivalProcess::Facebook,
];

/// Judges `count` arrivals of `made` as if `claimed` had been asked for, each sent after `delay`
/// of its intended time.
fn judge(
    claimed: ArrivalProcess,
    made: ArrivalProcess,
    seed: u64,
    mut delay_ns: impl FnMut(u64) -> u64,
    resolution_ns: f64,
) -> ArrivalCheck {
    let mut arrivals = Arrivals::new(made, RPS, 0, seed);
    let mut watch = GapWatch::new(claimed, RPS, seed);
    let mut actual_ns = 0;
    for _ in 0..200_000 {
        let intended_ns = arrivals.next_ns();
        if arrivals.begins_group() {
            actual_ns = actual_ns.max(intended_ns + delay_ns(intended_ns));
            watch.on_send(intended_ns, actual_ns);
        }
        arrivals.advance();
    }
    watch.into_sample().check(resolution_ns).expect("enough gaps")
}

#[test]
fn what_is_sent_as_asked_passes() {
    for process in ALL {
        for seed in 1..=5 {
            let check = judge(process, process, seed, |_| 0, 0.0);
            assert!(check.passed, "{check:?}");
            assert!(check.statistic_intended <= check.critical, "{check:?}");
            assert_eq!(check.statistic, check.statistic_strict);
        }
    }
}

#[test]
fn any_other_process_than_the_one_asked_for_fails() {
    for claimed in ALL {
        for made in ALL {
            if claimed == made {
                continue;
            }
            // Against Poisson, Facebook's tail is the nearest: it shows at this sample's size.
            let check = judge(claimed, made, 3, |_| 0, 0.0);
            assert!(!check.passed, "{made} taken for {claimed}: {check:?}");
        }
    }
}

#[test]
fn a_wrong_rate_fails() {
    let mut arrivals = Arrivals::new(ArrivalProcess::Poisson, RPS * 1.2, 0, 1);
    let mut watch = GapWatch::new(ArrivalProcess::Poisson, RPS, 1);
    for _ in 0..20_000 {
        watch.on_send(arrivals.next_ns(), arrivals.next_ns());
        arrivals.advance();
    }
    let check = watch.into_sample().check(0.0).expect("enough gaps");
    assert!(!check.passed, "{check:?}");
}

#[test]
fn requests_that_leave_in_clumps_fail_unless_the_resolution_explains_it() {
    // A loop that comes round only every 40 us: two mean gaps.
    let round = |intended_ns: u64| 40_000 - intended_ns % 40_000;
    for process in ALL {
        let strict = judge(process, process, 1, round, 0.0);
        assert!(!strict.passed, "{strict:?}");
        let aware = judge(process, process, 1, round, 40_000.0);
        assert!(aware.passed, "{aware:?}");
        assert_eq!(aware.statistic_strict, strict.statistic_strict);
        assert!(aware.statistic_intended < aware.critical, "{aware:?}");
    }
}

#[test]
fn requests_later_than_the_resolution_spoil_two_gaps_each() {
    // One in a hundred is late by half a mean gap, and the resolution is what 99 of them keep.
    let mut nth = 0;
    let rarely_late = |_| {
        nth += 1;
        if nth % 100 == 0 { 10_000 } else { 0 }
    };
    let equal = ArrivalProcess::Deterministic;
    let check = judge(equal, equal, 1, rarely_late, 0.0);
    assert!(check.statistic > 0.012 && check.passed, "{check:?}");
    let mut nth = 0;
    let often_late = |_| {
        nth += 1;
        if nth % 30 == 0 { 10_000 } else { 0 }
    };
    let check = judge(equal, equal, 1, often_late, 0.0);
    assert!(!check.passed, "{check:?}");
}

#[test]
fn the_gaps_along_a_pattern_are_judged_in_operational_time() {
    for shape in [PatternShape::Slope, PatternShape::Step, PatternShape::SineNoise] {
        let pattern = Pattern { shape, low_rps: 1_000.0, period_ms: 500, seed: 5 };
        for (made, passes) in [(ArrivalProcess::Poisson, true), (ArrivalProcess::Uniform, false)] {
            let mut arrivals = Arrivals::following(pattern, made, RPS, (0, 0), 9);
            let walk = RateWalk::new(pattern, RPS, 0, 0);
            let mut watch = GapWatch::following(ArrivalProcess::Poisson, walk, RPS, 9);
            while arrivals.next_ns() < 1_000_000_000 {
                watch.on_send(arrivals.next_ns(), arrivals.next_ns());
                arrivals.advance();
            }
            let check = watch.into_sample().check(0.0).expect("enough gaps");
            assert_eq!(check.passed, passes, "{shape} {made}: {check:?}");
        }
        // Taken for an even rate, the pattern is found out.
        let mut arrivals = Arrivals::following(pattern, ArrivalProcess::Poisson, RPS, (0, 0), 9);
        let mut watch = GapWatch::new(ArrivalProcess::Poisson, RPS, 9);
        while arrivals.next_ns() < 1_000_000_000 {
            watch.on_send(arrivals.next_ns(), arrivals.next_ns());
            arrivals.advance();
        }
        assert!(!watch.into_sample().check(0.0).expect("enough gaps").passed, "{shape}");
    }
}

#[test]
fn threads_add_up_and_few_gaps_are_not_judged() {
    let part = |seed, rps: f64| {
        let mut arrivals = Arrivals::new(ArrivalProcess::Poisson, rps, 0, seed);
        let mut watch = GapWatch::new(ArrivalProcess::Poisson, rps, seed);
        for _ in 0..3_000 {
            watch.on_send(arrivals.next_ns(), arrivals.next_ns());
            arrivals.advance();
        }
        watch.into_sample()
    };
    let mut both = part(1, 10_000.0);
    both.merge(&part(2, 30_000.0));
    let check = both.check(0.0).expect("enough gaps");
    assert!(check.passed && check.gaps == 2 * 2_999, "{check:?}");
    let mut few = GapWatch::new(ArrivalProcess::Poisson, RPS, 1);
    (0..40).for_each(|n| few.on_send(n * 20_000, n * 20_000));
    assert_eq!(few.into_sample().check(0.0), None);
}

#[test]
fn the_critical_value_is_the_published_one() {
    // 1.36 / sqrt(n) at 5 %, 1.63 at 1 %, 1.95 at 0.1 %.
    for (alpha, factor) in [(0.05, 1.358), (0.01, 1.628), (0.001, 1.949)] {
        assert!((critical_distance(100, alpha) - factor / 10.0).abs() < 1e-4);
    }
}

#[test]
fn the_sample_is_bounded_and_drawn_from_the_whole_window() {
    let mut watch = GapWatch::new(ArrivalProcess::Poisson, RPS, 1);
    let memory = watch.sample.gaps.kept.capacity();
    let mut at_ns = 0;
    for index in 0..100_000u64 {
        // The gap tells when it was recorded.
        at_ns += index;
        watch.on_send(at_ns, at_ns);
    }
    let sample = watch.into_sample();
    assert_eq!((sample.gaps.kept.len(), sample.gaps.kept.capacity()), (SAMPLE_MAX, memory));
    let late =
        sample.gaps.kept.iter().filter(|(gap, _)| f64::from(*gap) * 20_000.0 > 50_000.0).count();
    // Half of them, give or take six standard deviations.
    assert!(late.abs_diff(SAMPLE_MAX / 2) < 6 * 32, "{late}");
}
