//! The curves of models that are drawn behind what is simulated.

use queueing::{Replications, TailCurve, tail_curve};
use reproduce::{ChartId, Measured, Recorder, Role};

use super::systems::measured;

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
            let latency = point.latency.map(|latency| measured(&latency, 0.0));
            let latency = latency.unwrap_or_else(|| Measured::missing("more than can be served"));
            recorder.point(series, point.load, latency);
        }
    }
    Ok(())
}
