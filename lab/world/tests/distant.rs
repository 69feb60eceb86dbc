//! The server's application is elsewhere: it has each batch for up to some milliseconds, while its elastic thread goes
//! on. Under all faults no byte is wrong, no room that was promised is missing, the counters add up, and all
//! memory comes back; also where flow groups move meanwhile, and where all leave in the middle.

use world::lossy::{
    Migrations, Scenario, ScenarioConfig, SchedulerChoice, run_interrupted, run_many,
};

const SEEDS: u64 = 40;

fn config(scenario: Scenario) -> ScenarioConfig {
    let scheduler = SchedulerChoice::RunToCompletion;
    ScenarioConfig { distant: true, scheduler, ..ScenarioConfig::new(scenario) }
}

#[test]
fn an_application_elsewhere_is_served_as_one_that_is_linked_in() {
    let mut bytes = 0;
    for scenario in Scenario::ALL {
        for (seed, outcome) in run_many(0, SEEDS, &config(scenario), 2, |_, _| {}) {
            assert_eq!(outcome.failure, None, "{scenario:?}, seed {seed}");
            bytes += outcome.stats.bytes;
        }
    }
    assert!(bytes > 1_000_000, "{bytes} bytes");
}

#[test]
fn flow_groups_move_between_its_batches() {
    let (mut moved, mut connections) = (0, 0);
    for scenario in Scenario::ALL {
        let migrations = Some(Migrations::default());
        let config = ScenarioConfig { migrations, ..config(scenario) };
        for (seed, outcome) in run_many(1_000, SEEDS, &config, 2, |_, _| {}) {
            assert_eq!(outcome.failure, None, "{scenario:?}, seed {seed}");
            moved += outcome.stats.migrations;
            connections += outcome.stats.moved_connections;
        }
    }
    assert!(moved > 500 && connections > 300, "{moved} migrations of {connections} connections");
}

#[test]
fn whoever_leaves_in_the_middle_of_a_batch_gets_all_memory_back() {
    let mut reset = 0;
    for scenario in Scenario::ALL {
        for seed in 0..20 {
            let left = run_interrupted(seed, &config(scenario));
            reset += left.unwrap_or_else(|what| panic!("{scenario:?} seed {seed}: {what}"));
        }
    }
    assert!(reset > 100, "{reset} connections were reset");
}
