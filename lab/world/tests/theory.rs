//! Where nothing costs anything, N elastic threads that run to completion are N queues in the order of
//! arrival, and N that are work-conserving are one queue with N servers: the simulator against the closed
//! forms and the queueing models (ZygOS §2.3).

use clock::Duration;
use dataplane::{ConservingConfig, WhileAway};
use queueing::{Law, MeanInterval, Model, Replications, Service, estimate, theory};
use world::cores::{
    Costs, Outcome, Run, RunToCompletion, Scheduler, Setup, WorkConserving, simulate,
};

/// Requests spread evenly over the cores, as the models have it, and connections that never hold one back.
fn ideal(cores: usize, law: Law) -> Setup {
    let setup = Setup::zygos(Costs::zero(), law, 10.0);
    Setup { cores, connections: 64 * cores, balanced: true, pipeline: 256, wire_ns: 0, ..setup }
}

fn outcomes(setup: &Setup, load: f64, requests: u64, count: u32) -> Vec<Outcome> {
    outcomes_of(&RunToCompletion, setup, load, requests, count)
}

fn outcomes_of<S: Scheduler>(
    scheduler: &S,
    setup: &Setup,
    load: f64,
    requests: u64,
    count: u32,
) -> Vec<Outcome> {
    let one = |index| {
        let run = Run { seed: queueing::replication_seed(7, index), ..Run::new(load, requests) };
        simulate(scheduler, setup, &run).expect("a valid run")
    };
    (0..count).map(one).collect()
}

fn interval(outcomes: &[Outcome], value: impl Fn(&Outcome) -> f64) -> MeanInterval {
    let values: Vec<f64> = outcomes.iter().map(value).collect();
    MeanInterval::of(&values, 0.99).expect("several finite values")
}

#[test]
fn without_costs_it_is_m_m_1() {
    for load in [0.3, 0.7] {
        let outcomes = outcomes(&ideal(4, Law::Exponential), load, 60_000, 10);
        let found = interval(&outcomes, |outcome| outcome.latency_us(0.99) / 10.0);
        let expected = theory::mm1_sojourn_quantile(load, 0.99);
        assert!(found.holds(expected), "p99 at {load}: {found:?}, theory {expected}");
        assert!(found.half_width() < 0.15 * expected, "{found:?}");
        let mean = interval(&outcomes, |outcome| outcome.latency_ns.mean() / 1e4);
        let expected = 1.0 / (1.0 - load);
        assert!(mean.holds(expected), "mean at {load}: {mean:?}, theory {expected}");
        let busy = interval(&outcomes, Outcome::busy);
        assert!(busy.holds(load) && busy.half_width() < 0.02, "{busy:?}");
    }
}

#[test]
fn without_costs_it_is_m_d_1() {
    let outcomes = outcomes(&ideal(2, Law::Deterministic), 0.6, 60_000, 10);
    let found = interval(&outcomes, |outcome| outcome.latency_us(0.99) / 10.0);
    let expected = theory::Md1::new(0.6).sojourn_quantile(0.99);
    assert!(found.holds(expected), "{found:?}, theory {expected}");
    assert!(found.half_width() < 0.1 * expected, "{found:?}");
}

#[test]
fn without_costs_it_is_the_simulated_model_for_two_modes() {
    let (cores, load) = (4, 0.5);
    let found = interval(&outcomes(&ideal(cores, Law::Bimodal1), load, 60_000, 10), |outcome| {
        outcome.latency_us(0.99) / 10.0
    });
    let runs = Replications { level: 0.99, ..Replications::new().of_jobs(300_000) };
    let service = Service::unit(Law::Bimodal1);
    let model = Model::zygos(cores as u32)[0];
    let theory = estimate(&model, &service, load, &runs, |tally| tally.sojourn.quantile(0.99))
        .expect("a valid run");
    let apart = found.low.max(theory.low) - found.high.min(theory.high);
    assert!(apart <= 0.0, "{found:?} and {theory:?} have nothing in common");
    assert!(found.half_width() < 0.15 * theory.mean, "{found:?}");
}

#[test]
fn a_batch_holds_its_first_replies_back() {
    let one = ideal(4, Law::Exponential);
    let many = Setup { batch: 64, ..one.clone() };
    let p99 = |setup: &Setup| {
        let runs = outcomes(setup, 0.7, 60_000, 8);
        interval(&runs, |outcome| outcome.latency_us(0.99))
    };
    let (one, many) = (p99(&one), p99(&many));
    assert!(many.low > 1.1 * one.high, "B = 64: {many:?}; B = 1: {one:?}");
}

#[test]
fn without_balance_a_core_gets_what_its_connections_ask_for() {
    let setup = Setup { balanced: false, connections: 400, ..ideal(16, Law::Deterministic) };
    let outcomes = outcomes(&setup, 0.5, 60_000, 4);
    assert!(outcomes.iter().all(|outcome| outcome.homes.iter().sum::<usize>() == 400));
    // Ports that follow one another may happen to be dealt out evenly.
    let is_uneven = |outcome: &&Outcome| outcome.homes.iter().max() > outcome.homes.iter().min();
    let outcome = outcomes.iter().find(is_uneven).expect("some cores have more connections");
    for (counts, homes) in outcome.counts.iter().zip(&outcome.homes) {
        let share = counts.requests as f64 / 60_000.0;
        let expected = *homes as f64 / 400.0;
        assert!((share / expected - 1.0).abs() < 0.1, "{share} {expected}");
    }
}

/// Nobody waits before looking after others.
fn eager() -> WorkConserving {
    let config = ConservingConfig {
        crossing: Duration::ZERO,
        idle_after: Duration::ZERO,
        borrow_after: Duration::from_nanos(1),
        borrow_pause: Duration::from_nanos(500),
        ..ConservingConfig::default()
    };
    WorkConserving { config }
}

/// No core idles while a request waits: the mean is that of M/M/n, in whatever order requests are served. The
/// tail is a little longer, as requests of different cores are not served in the order of their arrival.
#[test]
fn without_costs_work_conserving_is_one_queue_with_many_servers() {
    for (cores, load, requests) in [(4, 0.7, 20_000), (16, 0.9, 20_000)] {
        let setup = ideal(cores, Law::Exponential);
        let outcomes = outcomes_of(&eager(), &setup, load, requests, 10);
        let mean = interval(&outcomes, |outcome| outcome.latency_ns.mean() / 1e4);
        let expected = 1.0 + theory::erlang_c(cores as u32, load) / (cores as f64 * (1.0 - load));
        // Up to half a microsecond passes until a request at a busy core is seen.
        let off = mean.mean / expected - 1.0;
        assert!((-0.03..0.05).contains(&off), "mean at {load}: {mean:?}, theory {expected}");
        let p99 = interval(&outcomes, |outcome| outcome.latency_us(0.99) / 10.0);
        let expected = theory::mmn_sojourn_quantile(cores as u32, load, 0.99);
        assert!(p99.mean < 1.15 * expected, "p99 at {load}: {p99:?}, theory {expected}");
        let stolen = interval(&outcomes, Outcome::steal_rate);
        assert!(stolen.low > 0.3, "{stolen:?}");
    }
}

#[test]
fn every_way_to_a_busy_core_keeps_what_was_promised() {
    let setup = Setup {
        cores: 4,
        connections: 200,
        ..Setup::zygos(Costs::sandy_bridge_dune(), Law::Exponential, 25.0)
    };
    let p99 = [WhileAway::Wait, WhileAway::Kick, WhileAway::Borrow].map(|while_away| {
        let config = ConservingConfig { while_away, ..ConservingConfig::default() };
        let outcomes = outcomes_of(&WorkConserving { config }, &setup, 0.7, 20_000, 2);
        let counts = outcomes[0].counts();
        assert_eq!(counts.kicks > 0, while_away == WhileAway::Kick, "{counts:?}");
        assert_eq!(counts.borrows > 0, while_away == WhileAway::Borrow, "{counts:?}");
        interval(&outcomes, |outcome| outcome.latency_us(0.99)).mean
    });
    let completing =
        interval(&outcomes(&setup, 0.7, 20_000, 2), |outcome| outcome.latency_us(0.99));
    let [wait, kick, borrow] = p99.map(|p99| p99 / completing.mean);
    assert!(wait < 1.1 && kick < 0.8 && borrow < 0.8, "{p99:?}, {completing:?}");
}

#[test]
fn a_quantum_lets_short_requests_by_the_long_ones() {
    let setup = Setup {
        cores: 4,
        connections: 200,
        ..Setup::zygos(Costs::sandy_bridge_dune(), Law::Bimodal2, 20.0)
    };
    let p99 = |quantum| {
        let config = ConservingConfig { quantum, ..ConservingConfig::default() };
        let outcomes = outcomes_of(&WorkConserving { config }, &setup, 0.5, 50_000, 2);
        interval(&outcomes, |outcome| outcome.latency_us(0.99)).mean
    };
    let (without, with) = (p99(None), p99(Some(Duration::from_micros(40))));
    assert!(5.0 * with < without, "{without} without, {with} with a quantum");
}
