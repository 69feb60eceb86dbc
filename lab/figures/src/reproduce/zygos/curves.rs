//! Curves that several figures draw: models behind what is simulated.

use queueing::{CurvePoint, Replications, TailCurve, tail_curve};
use reproduce::{ChartId, Measured, Recorder, Role};

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
