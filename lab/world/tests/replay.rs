//! A replay: the requests that are given, at their moments, on cores that are taken away at given times.

use std::sync::Arc;

use queueing::Law;
use world::cores::{
    Costs, Interruption, Outcome, Planned, Replay, Run, RunToCompletion, Setup, WorldError,
    simulate,
};

fn request(after_ns: u64, home: f64, service_ns: u64) -> Planned {
    Planned { after_ns, home, among: 0.5, service_ns }
}

fn replayed(replay: Replay) -> Result<Outcome, WorldError> {
    let setup = Setup {
        cores: 2,
        connections: 16,
        wire_ns: 0,
        batch: 1,
        replay: Some(Arc::new(replay)),
        // Drawn requests would be far longer.
        ..Setup::zygos(Costs::zero(), Law::Exponential, 1_000.0)
    };
    simulate(&RunToCompletion, &setup, &Run::new(0.5, 1_000))
}

/// The latencies are these, shortest first, as closely as they are kept.
fn assert_latencies(outcome: &Outcome, expected: &[f64]) {
    let count = outcome.latency_ns.count();
    assert_eq!(count, expected.len() as u64);
    for (rank, expected) in (1..=count).zip(expected) {
        let found = outcome.latency_ns.quantile(rank as f64 / count as f64);
        assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
    }
}

#[test]
fn requests_are_those_that_are_given() {
    // Two at one core, of which the second waits for the first; one at the other core meanwhile.
    let requests =
        vec![request(0, 0.0, 5_000), request(1_000, 0.0, 3_000), request(1_500, 0.9, 2_000)];
    let outcome = replayed(Replay { requests, interruptions: Vec::new() }).expect("a valid run");
    assert_latencies(&outcome, &[2_000.0, 5_000.0, 7_000.0]);
    assert_eq!((outcome.due, outcome.answered), (3, 3));
}

#[test]
fn a_core_that_is_taken_away_serves_nothing() {
    let requests = vec![
        request(10_000, 0.0, 5_000),
        request(30_000, 0.0, 5_000),
        request(50_000, 0.0, 5_000),
        request(50_000, 0.9, 5_000),
    ];
    let at = |after_ns, took_ns| Interruption { after_ns, core: 0, took_ns };
    // The first comes while its core is away; the second spins by the clock, past an interruption that ends
    // before it; the third is held up by one that does not. The other core is not concerned.
    let interruptions = vec![at(9_000, 4_000), at(31_000, 2_000), at(54_000, 3_500)];
    let outcome = replayed(Replay { requests, interruptions }).expect("a valid run");
    assert_latencies(&outcome, &[5_000.0, 5_000.0, 7_500.0, 8_000.0]);
}

#[test]
fn nonsense_is_refused() {
    let good = Replay { requests: vec![request(5, 0.0, 10)], interruptions: Vec::new() };
    assert!(replayed(good.clone()).is_ok());
    let taken = |after_ns, core| Interruption { after_ns, core, took_ns: 10 };
    for bad in [
        Replay::default(),
        Replay { requests: vec![request(5, 0.0, 10), request(4, 0.0, 10)], ..good.clone() },
        Replay { requests: vec![request(5, 1.0, 10)], ..good.clone() },
        Replay { requests: vec![request(5, f64::NAN, 10)], ..good.clone() },
        Replay { interruptions: vec![taken(0, 2)], ..good.clone() },
        Replay { interruptions: vec![taken(2, 0), taken(1, 0)], ..good.clone() },
    ] {
        let error = replayed(bad).expect_err("refused");
        assert!(matches!(error, WorldError::Invalid { .. }), "{error}");
    }
}
