//! Real elastic threads on virtual cores under the real control loop, beside the model of queues that the figures are
//! computed with.

use control::{Clock, Configuration, Event};
use queueing::Law;
use world::controlled::pareto::Objective;
use world::controlled::reproduce::{Plane, control_loop};
use world::controlled::server::{Fixed, Record, RunConfig, ServerModel};
use world::cores::{
    Costs, Governance, Outcome, RunToCompletion, Scheduler, Setup, WorkConserving, WorldError,
    govern,
};

/// Half of IX's server, with a service of 20 us, and connections that hash evenly enough.
fn server() -> (ServerModel, Setup) {
    let service = Setup::zygos(Costs::sandy_bridge_dune(), Law::Exponential, 20.0);
    let setup = Setup { cores: 8, batch: 64, connections: 1_000, ..service };
    let request_ns = setup.mean_us * 1e3 + setup.costs.per_request(1.0);
    let model = ServerModel { cores: 4, connections: 1_000, service_scv: 1.0, ..ServerModel::ix() };
    (model.with_unit_rps(1e9 / request_ns), setup)
}

/// A tenth of what the server serves for two seconds, then six tenths for two, then a tenth again.
fn step(model: &ServerModel) -> impl Fn(u64) -> f64 + use<> {
    let most = model.capacity_rps(&model.machine().maximum());
    move |at_ns| if (2..4).contains(&(at_ns / 1_000_000_000)) { 0.6 * most } else { 0.1 * most }
}

fn governed(
    scheduler: &impl Scheduler,
    objective: Objective,
    plane: Plane,
    seed: u64,
) -> (Record, Outcome) {
    let (model, setup) = server();
    let load = step(&model);
    let run = RunConfig { duration_s: 6, ..RunConfig::at_hz(plane.hz(), seed) };
    let mut controller = control_loop(&model, objective, plane).expect("a valid model");
    let governance = Governance { model: &model, load: &load, controller: &mut controller, run };
    govern(scheduler, &setup, governance).expect("nothing is lost, wrong or out of order")
}

/// When steps were taken from a moment on, in milliseconds after it, and what they were.
fn steps_after(record: &Record, second: u64) -> Vec<(f64, usize)> {
    let of = |(at_ns, event): &(u64, Event)| match event {
        Event::Step { to, .. } if *at_ns >= second * 1_000_000_000 => {
            Some(((at_ns - second * 1_000_000_000) as f64 / 1e6, *to))
        }
        _ => None,
    };
    record.events.iter().filter_map(of).collect()
}

fn governs(scheduler: &impl Scheduler) {
    let (model, _) = server();
    let load = step(&model);
    let (record, outcome) = governed(scheduler, Objective::Consolidation, Plane::LatencyTarget, 1);
    let served: f64 = record.seconds.iter().map(|second| second.rps).sum();
    let expected: f64 = (0..6).map(|second| load(second * 1_000_000_000)).sum();
    assert!((served / expected - 1.0).abs() < 0.01, "{served} of {expected}");
    // More of it within milliseconds, and again less.
    let added = steps_after(&record, 2);
    assert!(added.iter().any(|(ms, to)| *ms <= 10.0 && *to > 0), "{added:?}");
    let (low, high) = (&record.seconds[1], &record.seconds[3]);
    assert!(low.background > 0.6 && high.background < 0.45, "{record:?}");
    assert!(record.seconds[5].background > 0.6, "{record:?}");
    // Six times the load costs one second some milliseconds; all others keep the objective.
    for (index, second) in record.seconds.iter().enumerate().filter(|(index, _)| *index != 2) {
        assert!(second.p99_us < model.slo_us, "second {index}: {second:?}");
    }
    assert!(record.seconds[2].p99_us < 10_000.0, "{:?}", record.seconds[2]);
    // Flow groups went there and back, with their connections, and none of their packets was lost.
    let moved = outcome.migrations;
    assert!(
        moved.completed > 20 && moved.connections > 1_000 && moved.parked_drops == 0,
        "{moved:?}"
    );
    assert_eq!(moved.completed as usize, record.migrations.len());
}

#[test]
fn the_control_loop_governs_threads_that_run_to_completion() {
    governs(&RunToCompletion);
}

#[test]
fn the_control_loop_governs_threads_that_share_their_work() {
    governs(&WorkConserving::default());
}

#[test]
fn one_seed_replays_one_run_and_another_is_another() {
    let run = |seed| governed(&RunToCompletion, Objective::Energy, Plane::Ix, seed).0;
    let (first, again, other) = (run(7), run(7), run(8));
    assert_eq!(first, again);
    assert_ne!(first.seconds, other.seconds);
}

/// With the clock among the steps: less is drawn at the low load, and the high one is served.
#[test]
fn clocks_are_set_and_what_they_are_worth_is_served() {
    let (model, _) = server();
    let (record, _) = governed(&RunToCompletion, Objective::Energy, Plane::LatencyTarget, 1);
    let seconds = &record.seconds;
    assert!(seconds[1].watts < 0.8 * seconds[3].watts, "{record:?}");
    assert!(seconds[5].watts < 0.8 * seconds[3].watts, "{record:?}");
    // It begins with one core at the lowest clock, whose capacity it does not know, and the step comes in the third.
    for (index, second) in seconds.iter().enumerate().filter(|(index, _)| ![0, 2].contains(index)) {
        assert!(second.p99_us < model.slo_us, "second {index}: {second:?}");
    }
}

/// The closed form of the model of queues, which the Pareto bound is made of, is what real threads serve.
#[test]
fn static_configurations_serve_what_the_model_says() {
    let (model, setup) = server();
    let over = |configuration: Configuration, share: f64| {
        let load = share * model.capacity_rps(&configuration);
        let mut fixed = Fixed::new(&model, configuration);
        let run = RunConfig { duration_s: 2, ..RunConfig::at_hz(10, 3) };
        let load = move |_: u64| load;
        let governance = Governance { model: &model, load: &load, controller: &mut fixed, run };
        let (record, _) = govern(&RunToCompletion, &setup, governance).expect("valid");
        record.seconds[1].p99_us / model.slo_us
    };
    let slow = Configuration { cores: 2, hyperthreads: false, clock: Clock::Khz(1_200_000) };
    let twins = Configuration { cores: 2, hyperthreads: true, clock: Clock::Khz(2_400_000) };
    for configuration in [slow, twins] {
        let (under, beyond) = (over(configuration, 0.85), over(configuration, 1.6));
        assert!(under < 1.0 && beyond > 1.0, "{configuration}: {under}, {beyond}");
    }
}

#[test]
fn a_controller_of_another_server_is_refused() {
    let (model, setup) = server();
    let run = RunConfig { duration_s: 1, ..RunConfig::at_hz(10, 1) };
    let refused = |setup: &Setup, model: &ServerModel, run: RunConfig| {
        let mut fixed = Fixed::new(model, model.machine().maximum());
        let governance = Governance { model, load: &|_| 1e3, controller: &mut fixed, run };
        match govern(&RunToCompletion, setup, governance) {
            Err(error @ (WorldError::Invalid { .. } | WorldError::Model(_))) => error.to_string(),
            other => panic!("{:?}", other.map(|(record, _)| record)),
        }
    };
    let told = refused(&Setup { cores: 4, ..setup.clone() }, &model, run);
    assert!(told.contains("number of cores is 4; allowed: 8"), "{told}");
    let fewer = ServerModel { flow_groups: 64, ..model.clone() };
    let told = refused(&setup, &fewer, run);
    assert!(told.contains("number of flow groups is 64; allowed: 128"), "{told}");
    let told = refused(&setup, &model, RunConfig { duration_s: 0, ..run });
    assert!(told.contains("duration_s is 0"), "{told}");
}
