//! The simulated server against its own closed forms, and against controllers that do odd things.

use super::*;
use control::metrics::{GroupSample, Sample, ThreadId};
use control::{Clock, Configuration};
use control::{Decision, Found, Outcome, RequestId};

/// Every connection as busy as the next, and every flow group: what the closed forms are of.
fn even() -> ServerModel {
    ServerModel { connections: 2_000_000, ..ServerModel::ix() }
}

/// Seconds over the objective, of ten, at a share of what a static configuration serves by the closed form.
fn over(configuration: Configuration, share: f64) -> usize {
    let model = even();
    let load = share * model.capacity_rps(&configuration);
    let loads = group_weights(&model, 1);
    let mut fixed = Fixed::balanced(&model, configuration, &loads);
    let run = RunConfig { duration_s: 10, ..RunConfig::at_hz(10, 1) };
    let record = simulate(&model, &|_| load, &mut fixed, &run).unwrap();
    record.seconds.iter().filter(|second| second.p99_us > model.slo_us).count()
}

#[test]
fn static_configurations_serve_what_the_closed_form_says() {
    let one = Configuration { cores: 1, hyperthreads: false, clock: Clock::Khz(1_200_000) };
    let all = Configuration { cores: 8, hyperthreads: true, clock: Clock::Khz(2_400_000) };
    let some = Configuration { cores: 5, hyperthreads: true, clock: Clock::Khz(1_800_000) };
    for configuration in [one, some, all] {
        assert_eq!(over(configuration, 0.97), 0, "{configuration}: it serves less");
        assert!(over(configuration, 1.012) >= 8, "{configuration}: it serves more");
    }
}

#[test]
fn connections_that_hash_unevenly_cost_capacity_unless_groups_are_balanced() {
    let model = ServerModel::ix();
    let all = Configuration { cores: 8, hyperthreads: true, clock: Clock::Khz(2_400_000) };
    let load = 0.95 * model.capacity_rps(&all);
    let run = RunConfig { duration_s: 5, ..RunConfig::at_hz(10, 1) };
    let late = |mut fixed: Fixed| {
        let seconds = simulate(&model, &|_| load, &mut fixed, &run).unwrap().seconds;
        let late = seconds.iter().map(|second| second.late.of(Cause::Imbalance)).sum::<f64>();
        (seconds.iter().filter(|second| second.p99_us > model.slo_us).count(), late)
    };
    let weights = group_weights(&model, 1);
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(late(Fixed::balanced(&model, all, &weights)).0, 0);
    let (seconds, of_imbalance) = late(Fixed::new(&model, all));
    assert!(seconds == 5 && of_imbalance > 0.0, "{seconds} seconds, {of_imbalance}");
}

#[test]
fn power_is_that_of_the_closed_form() {
    let model = even();
    let configuration =
        Configuration { cores: 3, hyperthreads: true, clock: Clock::Khz(2_000_000) };
    let load = 0.5 * model.capacity_rps(&configuration);
    let mut fixed = Fixed::new(&model, configuration);
    let run = RunConfig { duration_s: 2, ..RunConfig::at_hz(10, 1) };
    let record = simulate(&model, &|_| load, &mut fixed, &run).unwrap();
    let expected = model.watts(&configuration, load, 0.0);
    assert!((record.seconds[1].watts / expected - 1.0).abs() < 0.002);
    // Turbo warms the processor by 4 W over minutes.
    let mut turbo = Fixed::new(&model, model.machine().maximum());
    let run = RunConfig { duration_s: 120, ..RunConfig::at_hz(1, 1) };
    let watts = simulate(&model, &|_| 0.0, &mut turbo, &run).unwrap().seconds;
    let risen = watts[119].watts - watts[0].watts;
    assert!((3.0..=4.0).contains(&risen), "{risen} W");
}

/// Carries out a list of decisions, each at its time.
struct Script {
    found: Found,
    script: Vec<(u64, Vec<Decision>)>,
    outcomes: Vec<Outcome>,
}

impl Controller for Script {
    fn found(&self) -> Found {
        self.found.clone()
    }
    fn step(&mut self, now_ns: u64, _: &[Sample], _: &[GroupSample]) -> Vec<Decision> {
        let due = self.script.iter().position(|(at_ns, _)| *at_ns <= now_ns);
        due.map(|index| self.script.remove(index).1).unwrap_or_default()
    }
    fn outcome(&mut self, outcome: &Outcome) {
        self.outcomes.push(outcome.clone());
    }
}

#[test]
fn changes_take_their_time_and_migrations_wait_for_each_other() {
    let model = even();
    let clock = Clock::Khz(2_400_000);
    let found = Found::first_thread(model.flow_groups, Clock::Khz(1_200_000));
    let group =
        |range: std::ops::Range<u16>| range.map(control::metrics::GroupId).collect::<Vec<_>>();
    let (first, second) = (ThreadId(0), ThreadId(1));
    let migrate = |request, range| {
        let request = RequestId(request);
        Decision::Migrate { request, from: first, to: second, groups: group(range) }
    };
    let script = vec![
        (1_000_000_000, vec![Decision::SetClock(clock), Decision::Grant(second)]),
        (1_500_000_000, vec![migrate(1, 0..32), migrate(2, 32..64)]),
    ];
    let mut script = Script { found, script, outcomes: Vec::new() };
    let run = RunConfig { duration_s: 4, ..RunConfig::at_hz(100, 5) };
    let record = simulate(&model, &|_| 250_000.0, &mut script, &run).unwrap();
    let kinds: Vec<&str> = script
        .outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Granted(_) => "granted",
            Outcome::Migrated { .. } => "migrated",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["granted", "migrated", "migrated"]);
    assert_eq!(record.migrations.len(), 2);
    assert!(record.migrations.iter().all(|(took_us, adding)| *took_us > 10.0 && *adding));
    let moved: Vec<u32> = record.seconds.iter().map(|second| second.groups_moved).collect();
    assert_eq!(moved, [0, 64, 0, 0]);
    // Twice the clock in the second second, twice the threads from the third on.
    let capacity: Vec<f64> = record.seconds.iter().map(|second| second.capacity_rps).collect();
    assert!((capacity[2] / capacity[0] - 4.0).abs() < 0.01, "{capacity:?}");
    // Nothing is lost by all that.
    let served: f64 = record.seconds.iter().map(|second| second.rps).sum();
    assert!((served / 1_000_000.0 - 1.0).abs() < 0.01, "{served}");
}

#[test]
fn more_than_the_machine_serves_is_said_to_be_overload() {
    let model = ServerModel::ix();
    let mut all = Fixed::new(&model, model.machine().maximum());
    let run = RunConfig { duration_s: 2, ..RunConfig::at_hz(10, 1) };
    let record = simulate(&model, &|_| 9_000_000.0, &mut all, &run).unwrap();
    assert_eq!(record.seconds[1].late.main(), Some(Cause::Overload));
    // Clients have so many requests under way and no more, which bounds what is measured.
    let bound_us = 2_752.0 * 4.0 / model.capacity_rps(&model.machine().maximum()) * 1e6;
    assert!(record.seconds[1].p99_us < 1.5 * bound_us, "{}", record.seconds[1].p99_us);
    let wrong = RunConfig { duration_s: 0, ..run };
    let refused = simulate(&model, &|_| 0.0, &mut all, &wrong).unwrap_err().to_string();
    assert!(refused.contains("duration_s is 0"), "{refused}");
    let wrong = RunConfig { period_ns: 1, ..run };
    assert!(simulate(&model, &|_| 0.0, &mut all, &wrong).is_err());
}
