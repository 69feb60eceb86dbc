//! Flow groups of a server move from core to core all the time, under load and all faults (IX §4.5): no
//! connection is lost, no byte is wrong, the counters add up, and all memory comes back.

use dataplane::Mistake;
use world::lossy::{
    Faults, Migrations, Outcome, RunStats, Scenario, ScenarioConfig, SchedulerChoice, Steering,
    run, run_interrupted, run_many,
};

const SEEDS: u64 = 20;
const SCHEDULERS: [SchedulerChoice; 3] =
    [SchedulerChoice::RunToCompletion, SchedulerChoice::WorkConserving, SchedulerChoice::ReadySet];

fn config(scenario: Scenario, scheduler: SchedulerChoice) -> ScenarioConfig {
    let migrations = Some(Migrations::default());
    ScenarioConfig { scheduler, migrations, ..ScenarioConfig::new(scenario) }
}

fn add(total: &mut RunStats, one: &RunStats) {
    total.migrations += one.migrations;
    total.moved_connections += one.moved_connections;
    total.deferred += one.deferred;
    total.stolen += one.stolen;
    total.retransmissions += one.retransmissions;
    total.out_of_order += one.out_of_order;
    total.bytes += one.bytes;
}

fn all_pass(scheduler: SchedulerChoice, first: u64) {
    let mut total = RunStats::default();
    for scenario in Scenario::ALL {
        let config = config(scenario, scheduler);
        for (seed, outcome) in run_many(first, SEEDS, &config, 2, |_, _| {}) {
            assert_eq!(outcome.failure, None, "{scenario:?}, {scheduler:?}, seed {seed}");
            add(&mut total, &outcome.stats);
        }
    }
    println!("{scheduler:?}: {total:?}");
    assert!(total.migrations > 500 && total.moved_connections > 300, "{total:?}");
    assert!(total.deferred > 100, "{total:?}");
}

#[test]
fn run_to_completion() {
    all_pass(SchedulerChoice::RunToCompletion, 0);
}

#[test]
fn work_conserving() {
    all_pass(SchedulerChoice::WorkConserving, 1_000);
}

#[test]
fn ready_set() {
    all_pass(SchedulerChoice::ReadySet, 2_000);
}

/// A network that loses nothing and keeps order, with room for all.
fn perfect(scenario: Scenario, scheduler: SchedulerChoice, steering: Steering) -> ScenarioConfig {
    ScenarioConfig {
        faults: Faults { delay_max: Faults::none().delay_min, ..Faults::none() },
        vary: false,
        migrations: Some(Migrations { steering: Some(steering), room: true, mistake: None }),
        ..config(scenario, scheduler)
    }
}

/// What would have arrived in order does, and nothing is sent twice: whatever the device does with frames of
/// a flow group that moves, a migration drops and reorders nothing.
#[test]
fn nothing_is_dropped_or_reordered() {
    for steering in [Steering::Fixed, Steering::Home, Steering::Table { probes: true }] {
        for scheduler in SCHEDULERS {
            let mut total = RunStats::default();
            for scenario in Scenario::ALL {
                let config = perfect(scenario, scheduler, steering);
                for seed in 0..10 {
                    let Outcome { failure, stats, .. } = run(seed, &config);
                    let what = format!("{scenario:?} seed {seed} {steering:?} {scheduler:?}");
                    assert_eq!(failure, None, "{what}");
                    let (again, ahead) = (stats.retransmissions, stats.out_of_order);
                    assert_eq!((again, ahead), (0, 0), "{what}: {stats:?}");
                    add(&mut total, &stats);
                }
            }
            println!("{steering:?}, {scheduler:?}: {total:?}");
            assert!(total.migrations > 100 && total.deferred > 20, "{total:?}");
        }
    }
}

/// Where something lies between the device's table and the rings, that the first packet comes to the new home says
/// nothing of the others: it takes a probe to know that they have come.
#[test]
fn without_probes_a_lagging_queue_is_overtaken() {
    let overtaken = |seed| {
        let steering = Steering::Table { probes: false };
        let config = perfect(Scenario::Bulk, SchedulerChoice::RunToCompletion, steering);
        let Outcome { failure, stats, .. } = run(seed, &config);
        assert_eq!(failure, None, "seed {seed}: TCP repairs it");
        stats.out_of_order > 0
    };
    assert!((0..40).any(overtaken));
}

#[test]
fn whoever_leaves_in_the_middle_of_migrations_gets_all_memory_back() {
    for scheduler in SCHEDULERS {
        let mut reset = 0;
        for scenario in Scenario::ALL {
            let config = config(scenario, scheduler);
            for seed in 3_000..3_010 {
                let left = run_interrupted(seed, &config);
                reset += left.unwrap_or_else(|what| panic!("{scenario:?} seed {seed}: {what}"));
            }
        }
        assert!(reset > 25, "{reset} connections were reset");
    }
}

#[test]
fn a_run_with_migrations_is_replayed_by_its_seed() {
    for scheduler in SCHEDULERS {
        let config = config(Scenario::Echo, scheduler);
        assert_eq!(run(7, &config).digest, run(7, &config).digest);
    }
}

/// Whether some seed fails where a step of the protocol is taken out.
fn is_found(mistake: Mistake, scheduler: SchedulerChoice) -> bool {
    for seed in 0..40 {
        for steering in [Steering::Fixed, Steering::Home] {
            for scenario in [Scenario::Bulk, Scenario::Echo, Scenario::Kv] {
                let mut config = perfect(scenario, scheduler, steering);
                let mistake = Some(mistake);
                let migrations = Migrations { steering: Some(steering), room: true, mistake };
                config.migrations = Some(migrations);
                let Outcome { failure, stats, .. } = run(seed, &config);
                if failure.is_some() || stats.retransmissions + stats.out_of_order > 0 {
                    println!("{mistake:?}: {scenario:?} seed {seed}, {steering:?}: {failure:?}");
                    return true;
                }
            }
        }
    }
    false
}

#[test]
fn mistakes_are_found() {
    use SchedulerChoice::{RunToCompletion, WorkConserving};
    let mistakes = [
        (Mistake::ForgetParked, RunToCompletion),
        (Mistake::NoFence, RunToCompletion),
        (Mistake::ParkedLast, RunToCompletion),
        (Mistake::LeaveEvents, WorkConserving),
        (Mistake::IgnoreTurns, WorkConserving),
    ];
    for (mistake, scheduler) in mistakes {
        assert!(is_found(mistake, scheduler), "{mistake:?} is not found");
    }
}
