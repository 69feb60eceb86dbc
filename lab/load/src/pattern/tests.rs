//! The patterns' closed forms, and arrivals along them.

use super::*;
use crate::arrival::{ArrivalProcess, Arrivals};

const PEAK_RPS: f64 = 100_000.0;
const SECOND_NS: u64 = 1_000_000_000;

fn pattern(shape: PatternShape) -> Pattern {
    Pattern { shape, low_rps: 10_000.0, period_ms: 1_000, seed: 7 }
}

#[test]
fn the_mean_rates_are_those_of_the_closed_forms() {
    // A triangle, a symmetric staircase and a cosine all have their mean in the middle; the noise
    // adds 48 uniform draws of standard deviation 4,032 / sqrt(3): 336 for their mean.
    for (shape, slack) in [
        (PatternShape::Slope, 1.0),
        (PatternShape::Step, 150.0),
        (PatternShape::SineNoise, 1_400.0),
    ] {
        let mean = pattern(shape).mean_rps(PEAK_RPS, 1_000);
        assert!((mean - 55_000.0).abs() <= slack, "{shape}: {mean}");
    }
}

#[test]
fn each_pattern_goes_from_the_low_rate_to_the_peak() {
    for shape in [PatternShape::Slope, PatternShape::Step, PatternShape::SineNoise] {
        let rates: Vec<f64> =
            (0..1_000).map(|ms| pattern(shape).rate_at(PEAK_RPS, ms * TICK_NS)).collect();
        let noise = if shape == PatternShape::SineNoise { NOISE_SHARE * PEAK_RPS } else { 100.0 };
        assert!((rates[0] - 10_000.0).abs() <= noise, "{shape}: {}", rates[0]);
        assert!((rates[500] - PEAK_RPS).abs() <= noise, "{shape}: {}", rates[500]);
        assert!((rates[999] - 10_000.0).abs() <= noise, "{shape}: {}", rates[999]);
        // What comes after the period is its beginning, but for the noise, which does not repeat.
        let again = pattern(shape).rate_at(PEAK_RPS, SECOND_NS + 3 * TICK_NS);
        assert_eq!(again == rates[3], shape != PatternShape::SineNoise, "{shape}: {again}");
    }
    let mut steps: Vec<u64> = (0..1_000)
        .map(|ms| pattern(PatternShape::Step).rate_at(PEAK_RPS, ms * TICK_NS) as u64)
        .collect();
    steps.dedup();
    assert_eq!(steps.len(), 23, "twelve heights up, eleven down: {steps:?}");
    let noise = |seed| Pattern { seed, ..pattern(PatternShape::SineNoise) }.rate_at(PEAK_RPS, 0);
    assert_eq!(noise(1), noise(1));
    assert_ne!(noise(1), noise(2));
}

#[test]
fn time_and_requests_are_inverse_of_each_other() {
    for shape in [PatternShape::Slope, PatternShape::Step, PatternShape::SineNoise] {
        let mut to_time = RateWalk::new(pattern(shape), PEAK_RPS, 5_000_000, 1_000);
        let mut back = to_time.clone();
        for step in 0..2_000 {
            let requests = 0.1 + f64::from(step % 50);
            let moment_ns = to_time.after(requests);
            let counted = back.until(moment_ns);
            // A nanosecond of rounding at 100,000 requests a second is a ten-thousandth.
            assert!((counted - requests).abs() < 3e-4, "{shape}: {counted} of {requests}");
        }
    }
}

#[test]
fn the_count_is_the_integral_of_the_rate_in_every_part_of_the_period() {
    for process in [ArrivalProcess::Poisson, ArrivalProcess::Uniform, ArrivalProcess::Deterministic]
    {
        for shape in [PatternShape::Slope, PatternShape::Step, PatternShape::SineNoise] {
            let (start_ns, origin_ns) = (3_000, 103_000);
            let mut arrivals =
                Arrivals::following(pattern(shape), process, PEAK_RPS, (start_ns, origin_ns), 11);
            let mut walk = RateWalk::new(pattern(shape), PEAK_RPS, origin_ns, start_ns);
            let (mut total, mut total_expected) = (0u32, 0.0);
            for part in 1..=10 {
                let until_ns = origin_ns + part * SECOND_NS / 10;
                let expected = walk.until(until_ns);
                let mut count = 0u32;
                while arrivals.next_ns() < until_ns {
                    count += 1;
                    arrivals.advance();
                }
                let off = (f64::from(count) - expected).abs();
                assert!(off < 5.0 * expected.sqrt(), "{shape} {process}: {count} of {expected}");
                total += count;
                total_expected += expected;
            }
            let off = (f64::from(total) - total_expected).abs();
            let slack = if process == ArrivalProcess::Deterministic {
                2.0
            } else {
                4.0 * total_expected.sqrt()
            };
            assert!(off < slack, "{shape} {process}: {total} of {total_expected}");
        }
    }
}

#[test]
fn a_rate_of_zero_is_passed_over_and_the_end_of_time_is_reached() {
    let step = Pattern { low_rps: 0.0, ..pattern(PatternShape::Step) };
    let mut arrivals = Arrivals::following(step, ArrivalProcess::Poisson, PEAK_RPS, (0, 0), 1);
    // The first step of zero lasts 1/24 s, up to the end of the tick that it ends in.
    assert!((41_000_000..50_000_000).contains(&arrivals.next_ns()), "{}", arrivals.next_ns());
    arrivals.advance();
    let mut walk = RateWalk::new(step, PEAK_RPS, 0, u64::MAX - 5);
    assert_eq!(walk.after(1e30), u64::MAX);
    assert_eq!(walk.after(1.0), u64::MAX);
    assert_eq!(walk.until(u64::MAX), 0.0);
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let good = pattern(PatternShape::Slope);
    good.validate(PEAK_RPS).expect("is fine");
    let error = Pattern { low_rps: 2e5, ..good }.validate(PEAK_RPS).expect_err("above the peak");
    assert_eq!(error.to_string(), "`low` is `200000`; allowed: 0 to 100000");
    let error = Pattern { period_ms: 9, ..good }.validate(PEAK_RPS).expect_err("too short");
    assert_eq!(error.key, "period_ms");
    let error = "saw".parse::<PatternShape>().expect_err("unknown");
    assert_eq!(error.to_string(), "`pattern` is `saw`; allowed: slope, step, square, sine+noise");
    assert_eq!("sine+noise".parse(), Ok(PatternShape::SineNoise));
}
