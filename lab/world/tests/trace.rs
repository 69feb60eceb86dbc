//! A law that draws from a list: the simulated cores against the queueing model, and the clients' draws.

use queueing::{Law, MeanInterval, Model, Replications, Service, Trace, estimate};
use world::cores::{Costs, Run, RunToCompletion, Setup, simulate};

const CORES: usize = 4;

#[test]
fn without_costs_it_is_the_simulated_model_for_a_list() {
    let (trace, mean_us) = Trace::of(&[3.0, 4.0, 5.0, 8.0, 30.0]).expect("times");
    let law = Law::Trace(trace);
    let setup = Setup {
        cores: CORES,
        connections: 64 * CORES,
        balanced: true,
        pipeline: 256,
        wire_ns: 0,
        ..Setup::zygos(Costs::zero(), law, mean_us)
    };
    let one = |index| {
        let run = Run { seed: queueing::replication_seed(7, index), ..Run::new(0.5, 40_000) };
        simulate(&RunToCompletion, &setup, &run).expect("a valid run")
    };
    let outcomes: Vec<_> = (0..10).map(one).collect();
    let interval = |values: Vec<f64>| MeanInterval::of(&values, 0.99).expect("finite values");
    let service = interval(outcomes.iter().map(|outcome| outcome.service_ns / 1e3).collect());
    assert!(service.holds(mean_us) && service.half_width() < 0.2, "{service:?}");
    let found = interval(outcomes.iter().map(|outcome| outcome.latency_us(0.99)).collect());
    let runs = Replications { level: 0.99, ..Replications::new().of_jobs(300_000) };
    let service = Service { law, mean: mean_us, overhead: 0.0 };
    let model = Model::zygos(CORES as u32)[0];
    let theory = estimate(&model, &service, 0.5, &runs, |tally| tally.sojourn.quantile(0.99))
        .expect("a valid run");
    let apart = found.low.max(theory.low) - found.high.min(theory.high);
    assert!(apart <= 0.0, "{found:?} and {theory:?} have nothing in common");
    assert!(found.half_width() < 0.15 * theory.mean, "{found:?}");
}
