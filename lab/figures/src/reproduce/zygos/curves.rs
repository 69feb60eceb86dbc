//! Curves that several figures draw: p99 over throughput, and models behind what is simulated.

use queueing::{Law, Replications, TailCurve, tail_curve};
use reproduce::{ChartId, Measured, Recorder, Role};
use world::cores::{Costs, Run};

use super::systems::{System, p99_us};

/// Draws the 99th percentile of each of `systems` over its throughput, at loads of `step` hundredths and its
/// multiples, up to the first that cannot be served; a step of the recorder's plan for each system.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
pub fn over_throughput(
    recorder: &mut Recorder<'_>,
    (chart, title): (ChartId, &str),
    systems: &[System],
    (costs, law, mean_us): (&Costs, Law, f64),
    (step, requests): (usize, u64),
) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    for system in systems {
        recorder.step(&format!("{title}, {}", system.name))?;
        let setup = system.setup(costs, law, mean_us);
        let series = recorder.series(chart, system.name);
        for load in (step..100).step_by(step).map(|load| load as f64 / 100.0) {
            let outcome = system.run(&setup, &Run { seed, ..Run::new(load, requests) })?;
            recorder.point(series, outcome.throughput() / 1e6, p99_us(&outcome));
            if outcome.given_up {
                break;
            }
        }
    }
    Ok(())
}

/// Draws the 99th percentile of each model over `loads`.
///
/// # Errors
/// A setting out of its range.
pub fn behind(
    recorder: &mut Recorder<'_>,
    chart: ChartId,
    models: impl IntoIterator<Item = (String, TailCurve)>,
    loads: &[f64],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let runs = Replications { count: 2, seed: options.seed, ..Replications::new() };
    let runs = runs.of_jobs(if options.quick { 50_000 } else { 500_000 });
    for (name, curve) in models {
        let series = recorder.series_as(chart, &name, Role::Theory);
        for point in tail_curve(&curve, loads, &runs)? {
            let latency = point.latency.map(|latency| Measured::mean(&latency, 0.0..=f64::MAX));
            let latency = latency.unwrap_or_else(|| Measured::missing("more than can be served"));
            recorder.point(series, point.load, latency);
        }
    }
    Ok(())
}
