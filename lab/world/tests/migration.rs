//! Virtual cores whose flow groups move under load (IX §4.5): every request has its answer, in the order of its
//! connection, and all memory comes back.

use dataplane::{Classes, MigrationStats, Phase, ServicePolicy};
use queueing::Law;
use world::cores::{
    Costs, Outcome, Run, RunToCompletion, Scheduler, Setup, WorkConserving, simulate,
};

fn run(scheduler: &impl Scheduler, cores: usize, seed: u64, load: f64) -> Outcome {
    let costs =
        Costs { cycle: 60.0, receive: 150.0, segment: 250.0, transmit: 150.0, ..Costs::zero() };
    let setup = Setup {
        cores,
        connections: 96,
        batch: 16,
        move_every_ns: Some(40_000),
        ..Setup::zygos(costs, Law::Exponential, 5.0)
    };
    let run = Run { seed, ..Run::new(load, 6_000) };
    simulate(scheduler, &setup, &run).expect("nothing is lost, twice, or out of order")
}

fn all_answered(scheduler: &impl Scheduler) -> MigrationStats {
    let mut total = MigrationStats::default();
    for seed in 0..8 {
        for cores in 2..=4 {
            let outcome = run(scheduler, cores, seed, 0.6);
            assert_eq!(outcome.latency_ns.count(), outcome.due, "{cores} cores, seed {seed}");
            let stats = outcome.migrations;
            assert!(stats.completed > 20, "{cores} cores, seed {seed}: {stats:?}");
            assert_eq!((stats.parked_drops, stats.given_up), (0, 0));
            total += stats;
        }
    }
    println!(
        "{}: {} migrations, {} packets deferred",
        scheduler.name(),
        total.completed,
        total.packets
    );
    for phase in Phase::ALL {
        let found = total.phases[phase as usize];
        println!(
            "  {:8} mean {:?}, longest {} us",
            phase.name(),
            found.mean(),
            found.max_ns / 1_000
        );
    }
    assert!(total.packets > 50, "{total:?}");
    total
}

#[test]
fn requests_are_answered_while_their_connections_move() {
    all_answered(&RunToCompletion);
    all_answered(&WorkConserving::default());
    all_answered(&WorkConserving::default().by_class(Classes::new(ServicePolicy::RoundRobin)));
}

/// The cores write the device's table and hear by a probe that what was on its way has come, under load and
/// without: no wait takes as long as the timer of a millisecond.
#[test]
fn a_probe_ends_the_wait() {
    for load in [0.6, 0.01] {
        let stats = run(&WorkConserving::default(), 4, 1, load).migrations;
        let wait = stats.phases[Phase::Wait as usize];
        assert!(wait.mean().as_micros() < 20 && wait.max_ns < 200_000, "{load}: {wait:?}");
        assert!(stats.completed > 20, "{stats:?}");
        assert_eq!(
            (stats.redirected, stats.probed, stats.not_redirected),
            (stats.begun, stats.completed, 0)
        );
    }
}

#[test]
fn one_seed_replays_the_migrations_too() {
    let of = |seed| {
        let outcome = run(&WorkConserving::default(), 3, seed, 0.5);
        (outcome.steps, outcome.migrations)
    };
    assert_eq!(of(5), of(5));
    assert_ne!(of(5), of(6));
}
