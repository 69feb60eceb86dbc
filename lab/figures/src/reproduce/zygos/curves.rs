//! Curves that several figures draw: p99 over throughput, and models behind what is simulated.

use queueing::{CurvePoint, Law, Replications, TailCurve, tail_curve};
use reproduce::{Axis, ChartId, Mark, MarkOf, Measured, Recorder, Role};
use world::cores::Costs;

use super::systems::{System, loads, p99_us};

/// A chart of the 99th percentile of each of `systems` over its throughput, at loads up to the first that cannot be
/// served, with so many requests a load in a quick run and in a full one; and the objectives, in microseconds. A step of
/// the recorder's plan for each system.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
pub fn over_throughput(
    recorder: &mut Recorder<'_>,
    (name, title): (&str, &str),
    objectives_us: &[f64],
    systems: &[System],
    (costs, law, mean_us): (&Costs, Law, f64),
    [quick, full]: [u64; 2],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let (step, requests) = if options.quick { (10, quick) } else { (4, full) };
    let (x, y) = (Axis::linear("throughput", "MRPS"), Axis::log("p99", "us"));
    let chart = recorder.chart(name, title, x, y);
    for &bound_us in objectives_us {
        let words = format!("{bound_us} us");
        recorder.mark(chart, Mark::horizontal(MarkOf::Objective, bound_us, words));
    }
    for system in systems {
        recorder.step(&format!("{title}, {}", system.name))?;
        let setup = system.setup(costs, law, mean_us);
        let series = recorder.series(chart, system.name);
        system.run_up(&setup, &loads(step), (requests, options.seed), |_, outcome| {
            recorder.point(series, outcome.throughput() / 1e6, p99_us(outcome));
        })?;
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
        let points = tail_curve(&curve, loads, &runs)?;
        recorder.curve_as(chart, &name, Role::Theory, latencies(points, 0.0));
    }
    Ok(())
}

/// Points of a curve: the load, and its latency, of which no less than `least` is possible.
pub fn latencies(points: Vec<CurvePoint>, least: f64) -> impl Iterator<Item = (f64, Measured)> {
    points.into_iter().map(move |point| match point.latency {
        Some(latency) => (point.load, Measured::mean(&latency, least..=f64::MAX)),
        None => (point.load, Measured::missing("more than can be served")),
    })
}
