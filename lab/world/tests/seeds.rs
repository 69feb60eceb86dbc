//! Seeds of every scenario with all faults. A failure prints the command that replays it.

use std::sync::atomic::{AtomicU64, Ordering};

use world::lossy::{
    Faults, Scenario, ScenarioConfig, SchedulerChoice, replay_command, run, run_interrupted,
    run_many,
};

const SEEDS: u64 = 60;

fn all_pass(config: &ScenarioConfig, first: u64) -> u64 {
    let outcomes = run_many(first, SEEDS, config, 2, |_, _| {});
    assert_eq!(outcomes.len() as u64, SEEDS);
    let failed: Vec<String> = outcomes
        .iter()
        .filter_map(|(seed, outcome)| {
            let failure = outcome.failure.as_ref()?;
            Some(format!("{}\n  {failure}", replay_command(*seed, config.scenario)))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {SEEDS} failed:\n{}", failed.len(), failed.join("\n"));
    assert!(outcomes.iter().all(|(_, outcome)| outcome.stats.connections > 0));
    outcomes.iter().map(|(_, outcome)| outcome.stats.network.lost).sum()
}

#[test]
fn bulk() {
    assert!(all_pass(&ScenarioConfig::new(Scenario::Bulk), 0) > 0);
}

/// Some seeds have paths, which drop what their queues have no room for, and report what is too big.
#[test]
fn paths_are_among_them() {
    let outcomes = run_many(0, SEEDS, &ScenarioConfig::new(Scenario::Bulk), 2, |_, _| {});
    let stats = outcomes.iter().map(|(_, outcome)| outcome.stats.network);
    let (dropped, reported) = stats
        .map(|stats| (stats.dropped, stats.reported))
        .fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert!(dropped > reported && reported > 0, "{dropped} dropped, {reported} reported");
}

/// Segments of several chunks, of which some are lost, held back and damaged, over paths that carry less after a while.
#[test]
fn jumbo_frames() {
    for scenario in [Scenario::Bulk, Scenario::Echo, Scenario::Kv] {
        let config = ScenarioConfig { jumbo: true, ..ScenarioConfig::new(scenario) };
        all_pass(&config, 0);
        let outcomes = run_many(0, 10, &config, 2, |_, _| {});
        let long: u64 = outcomes.iter().map(|(_, outcome)| outcome.stats.network.long).sum();
        assert!(long > 0, "{scenario:?}");
    }
}

#[test]
fn echo() {
    assert!(all_pass(&ScenarioConfig::new(Scenario::Echo), 0) > 0);
}

#[test]
fn churn() {
    assert!(all_pass(&ScenarioConfig::new(Scenario::Churn), 0) > 0);
}

#[test]
fn kv() {
    assert!(all_pass(&ScenarioConfig::new(Scenario::Kv), 0) > 0);
}

/// Each under the schedulers in which any core runs any connection.
#[test]
fn work_is_shared_and_order_kept() {
    share_work(SchedulerChoice::WorkConserving, 500);
    share_work(SchedulerChoice::ReadySet, 600);
}

fn share_work(scheduler: SchedulerChoice, first: u64) {
    let (mut stolen, mut borrowed, mut kicked) = (0, 0, 0);
    for scenario in Scenario::ALL {
        let config = ScenarioConfig { scheduler, ..ScenarioConfig::new(scenario) };
        let outcomes = run_many(first, SEEDS, &config, 2, |_, _| {});
        for (seed, outcome) in outcomes {
            let replay = replay_command(seed, scenario);
            assert_eq!(outcome.failure, None, "{replay}, {scheduler:?}");
            stolen += outcome.stats.stolen;
            borrowed += outcome.stats.borrowed;
            kicked += outcome.stats.kicked;
        }
    }
    let shared = format!("{scheduler:?}: {stolen} stolen, {borrowed} borrowed, {kicked} kicked");
    println!("{shared}");
    assert!(stolen > 50 && borrowed > 300 && kicked > 100, "{shared}");
}

/// Requests on their way by the handful, long crossings, and queues of eight turns, which are full most of the time:
/// no order is broken, and no event dropped.
#[test]
fn order_is_kept_where_queues_are_full() {
    let seeds = seeds_of("TAILPLANE_SIM_SEEDS", SEEDS / 2);
    let scenario = Scenario::Kv;
    for scheduler in [SchedulerChoice::WorkConserving, SchedulerChoice::ReadySet] {
        let config = ScenarioConfig { scheduler, turns: Some(8), ..ScenarioConfig::new(scenario) };
        let failed = AtomicU64::new(0);
        let outcomes = run_many(0, seeds, &config, 2, |seed, outcome| {
            if let Some(failure) = &outcome.failure
                && failed.fetch_add(1, Ordering::Relaxed) < 3
            {
                let replay = replay_command(seed, scenario);
                println!("{replay} --turns 8, {scheduler:?}: {failure}");
            }
        });
        assert_eq!(failed.into_inner(), 0, "of {seeds} failed, {scheduler:?}");
        assert!(outcomes.iter().map(|(_, outcome)| outcome.stats.stolen).sum::<u64>() > seeds);
    }
}

/// Many connections open at a time, and rings of a few frames lose most of the SYNs, each time that they are repeated.
#[test]
fn connections_open_where_most_syns_are_lost() {
    let scheduler = SchedulerChoice::WorkConserving;
    let config = ScenarioConfig { scheduler, turns: Some(8), ..ScenarioConfig::new(Scenario::Kv) };
    for seed in [1_095, 1_387, 2_298] {
        assert_eq!(run(seed, &config).failure, None, "seed {seed}");
    }
}

/// Threads without a queue pair, whose frames others send, and threads with several.
#[test]
fn any_number_of_queues_serves_any_number_of_threads() {
    for scheduler in [
        SchedulerChoice::RunToCompletion,
        SchedulerChoice::WorkConserving,
        SchedulerChoice::ReadySet,
    ] {
        let mut forwarded = 0;
        for scenario in Scenario::ALL {
            let new = ScenarioConfig::new(scenario);
            let config = ScenarioConfig { scheduler, queues: true, ..new };
            for (seed, outcome) in run_many(0, SEEDS / 2, &config, 2, |_, _| {}) {
                let replay = replay_command(seed, scenario);
                assert_eq!(outcome.failure, None, "{replay} --queues, {scheduler:?}");
                forwarded += outcome.stats.forwarded;
            }
            for seed in 0..SEEDS / 4 {
                let left = run_interrupted(seed, &config);
                left.unwrap_or_else(|what| panic!("{scenario:?} seed {seed} --queues: {what}"));
            }
        }
        assert!(forwarded > 1_000, "{forwarded} packets were forwarded");
    }
}

/// A quarter of all packets comes in fragments, each lost, doubled and late for itself, and at any core: what they make is
/// at home at another one most of the time.
#[test]
fn fragments_are_packets_again() {
    let mut reassembled = 0;
    for scenario in Scenario::ALL {
        let new = ScenarioConfig::new(scenario);
        let config = ScenarioConfig { queues: true, fragments: 0.25, ..new };
        for (seed, outcome) in run_many(0, SEEDS / 2, &config, 2, |_, _| {}) {
            let replay = replay_command(seed, scenario);
            assert_eq!(outcome.failure, None, "{replay} --queues --fragments");
            reassembled += outcome.stats.reassembled;
        }
        for seed in 0..SEEDS / 4 {
            let left = run_interrupted(seed, &config);
            left.unwrap_or_else(|what| panic!("{scenario:?} seed {seed} --fragments: {what}"));
        }
    }
    assert!(reassembled > 10_000, "{reassembled} packets were reassembled");
}

/// How many seeds a test runs: as many as the environment says, or so many.
fn seeds_of(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).map_or(usual, |text| text.parse().expect("a number of seeds"))
}

/// Connections are open, turns and frames under way, cores in the application: no chunk is lost for that.
#[test]
fn whoever_leaves_in_the_middle_gets_all_memory_back() {
    for scheduler in [
        SchedulerChoice::RunToCompletion,
        SchedulerChoice::WorkConserving,
        SchedulerChoice::ReadySet,
    ] {
        let mut reset = 0;
        for scenario in Scenario::ALL {
            let config = ScenarioConfig { scheduler, ..ScenarioConfig::new(scenario) };
            for seed in 0..30 {
                let left = run_interrupted(seed, &config);
                reset += left.unwrap_or_else(|what| panic!("{scenario:?} seed {seed}: {what}"));
            }
        }
        assert!(reset > 100, "{reset} connections were reset");
    }
}

#[test]
fn one_seed_replays_everything_and_another_does_not() {
    for scenario in Scenario::ALL {
        let config = ScenarioConfig { capture: true, ..ScenarioConfig::new(scenario) };
        let (first, again, other) = (run(11, &config), run(11, &config), run(12, &config));
        assert_eq!(first.digest, again.digest);
        assert_eq!(first.capture, again.capture);
        assert_ne!(first.digest, other.digest);
        assert!(!first.capture.is_empty());
    }
}

#[test]
fn a_perfect_network_needs_no_retransmission() {
    let config = ScenarioConfig {
        faults: Faults { delay_max: Faults::none().delay_min, ..Faults::none() },
        vary: false,
        ..ScenarioConfig::new(Scenario::Bulk)
    };
    for seed in 0..10 {
        let outcome = run(seed, &config);
        assert_eq!(outcome.failure, None, "seed {seed}");
        assert_eq!(outcome.stats.retransmissions, 0, "seed {seed}");
    }
}

#[test]
fn a_dead_network_is_reported_and_not_waited_for() {
    let config = ScenarioConfig {
        faults: Faults { loss: 1.0, ..Faults::usual() },
        ..ScenarioConfig::new(Scenario::Echo)
    };
    let outcome = run(1, &config);
    assert!(!outcome.ok);
    let failure = outcome.failure.unwrap_or_default();
    assert!(failure.contains("cannot connect"), "{failure}");
}

/// Seeds that found something: each fails again where the mechanism named above it is taken out.
#[test]
fn seeds_that_found_something() {
    let found = [
        // A closed window is probed although the application keeps its bytes back.
        (Scenario::Bulk, 36),
        (Scenario::Bulk, 39),
        (Scenario::Echo, 0),
        (Scenario::Echo, 31),
        // Frames that wait for a link address are looked at: the answer may come to another core.
        (Scenario::Bulk, 3),
        (Scenario::Bulk, 56),
        // A SYN that found the device's queue full is sent, although the window is not known yet.
        (Scenario::Churn, 189),
        (Scenario::Churn, 260),
        // Sending and receiving leave memory to each other, and long buffers are cut when they are
        // sent (pools of some fifty chunks).
        (Scenario::Bulk, 245),
        (Scenario::Churn, 212),
    ];
    for (scenario, seed) in found {
        // They were found before there was another scheduler.
        let scheduler = SchedulerChoice::RunToCompletion;
        let outcome = run(seed, &ScenarioConfig { scheduler, ..ScenarioConfig::new(scenario) });
        assert_eq!(outcome.failure, None, "{}", replay_command(seed, scenario));
    }
    // A client with a pool of 48 chunks sends a message of more than those hold: in smaller pieces.
    let scheduler = SchedulerChoice::WorkConserving;
    let config = ScenarioConfig { scheduler, ..ScenarioConfig::new(Scenario::Kv) };
    assert_eq!(run(2438, &config).failure, None, "seed 2438");
}
