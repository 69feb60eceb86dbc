//! A service under the real daemon, with a job beside it, whose load steps up and down: what is measured of it is there,
//! nothing is lost, and nothing is left behind. How well the daemon decides is a matter of the figure.

use std::process::Command;

use figures::reproduce::elastic::{self, AHEAD, PAPER, Plan};

use crate::harness::{Turn, possible, wait_until};

/// Runs that may be disturbed.
const RUNS_MORE: usize = 2;

/// Processes that loop as the rig's job does.
fn jobs() -> usize {
    let own = format!("while kill -0 {}", std::process::id());
    let listed = Command::new("ps").args(["-eo", "args"]).output().expect("procps");
    String::from_utf8_lossy(&listed.stdout).matches(&own).count()
}

#[test]
fn a_load_that_steps_up_and_down_is_carried_and_the_job_goes_on() {
    if !possible() {
        return;
    }
    let _turn = Turn::alone();
    for policy in [AHEAD, PAPER] {
        let plan = Plan { policy, swings: 1, period_ms: 4_000, seed: 1 };
        let run = || {
            let found = elastic::run(&plan).expect("it runs");
            let lost = (found.report.errors, found.report.connections_lost);
            assert_eq!(lost, (0, 0), "{found:?}");
            found
        };
        let mut found = run();
        // Where the host takes the processors for seconds, nothing that was answered shows a step: once more then.
        for _ in 0..RUNS_MORE {
            if found.swings.len() == 1 {
                break;
            }
            found = run();
        }
        assert!(found.report.requests > 200 && found.report.series.len() == 40, "{found:?}");
        assert_eq!(found.swings.len(), 1, "{:?}", found.swings);
        let told: Vec<f64> = found.progress.iter().map(|told| told.cpu_s).collect();
        assert!(told.len() > 5 && told.is_sorted(), "{told:?}");
        assert!(told[told.len() - 1] > 0.0, "the job never ran: {told:?}");
        // It may have served before, as connections were opened.
        let swing = found.swings[0];
        let is_high = |&(from, to): &(u64, u64)| {
            to > swing.up_ns && swing.down_ns.is_none_or(|down_ns| from < down_ns)
        };
        let served = &found.granted;
        assert!(served.iter().any(is_high), "{}: {swing:?}, {served:?}", policy.name);
        wait_until("the job has ended", || jobs() == 0);
    }
}
