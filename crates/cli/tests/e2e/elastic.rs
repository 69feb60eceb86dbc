//! A service under the real daemon, whose load steps up and down: it gets a second processor and gives it back.

use tailplane_cli::reproduce::elastic::{self, AHEAD, Found, Plan};

use crate::harness::{possible, take_turn};

/// Tries: somebody else may have the processors for seconds.
const TRIES: u64 = 3;

/// Why this is not what it should be.
fn fault(found: &Found) -> Option<String> {
    let swings = &found.swings;
    let [low, high] = elastic::job_shares(found);
    let fault = |what: &str| Some(format!("{what}: {swings:?}, the job got {low:?} and {high:?}"));
    if swings.len() != 2 || found.report.errors > 0 || found.report.requests < 500 {
        return fault("the load was not carried");
    }
    if swings.iter().any(|swing| swing.granted_ns.is_none()) {
        return fault("the second thread was not granted");
    }
    if swings[0].parked_ns.is_none() {
        return fault("it was not parked again");
    }
    match (low, high) {
        (Some(low), Some(high)) if low > 0.05 && low > 2.0 * high => None,
        _ => fault("the job did not get what was left"),
    }
}

#[test]
fn a_second_processor_is_granted_while_the_load_needs_it_and_a_job_has_it_else() {
    if !possible() {
        return;
    }
    let _turn = take_turn();
    let mut faults = Vec::new();
    for seed in 1..=TRIES {
        let plan = Plan { policy: AHEAD, swings: 2, period_ms: 6_000, seed };
        match elastic::run(&plan) {
            Ok(found) => match fault(&found) {
                None => return,
                Some(fault) => faults.push(format!("{fault}; {}", found.disturbance)),
            },
            Err(error) => faults.push(format!("{error:#}")),
        }
    }
    panic!("{faults:#?}");
}
