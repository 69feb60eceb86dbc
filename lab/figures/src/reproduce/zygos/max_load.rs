//! The highest load that keeps 10 S at the 99th percentile, over the mean service time S: what ZygOS Figures
//! 3 and 7 draw, each for its own systems and over its own range.

use queueing::{Law, Replications};
use reproduce::{Axis, ChartId, Measured, Recorder, Role};
use world::cores::{Costs, Search};

use super::systems::{self, LAWS, System, cost_models, max_of, search_of};

/// Draws a chart for each law: `of` under each cost model over the means `means_us`, with so many requests a load in a
/// quick run and in a full one; theory and Linux's models behind them. Answers how it searched, under the costs that fill
/// claims.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
pub fn charts(
    recorder: &mut Recorder<'_>,
    of: &[System],
    means_us: &[f64],
    requests: [u64; 2],
) -> anyhow::Result<(Costs, Search)> {
    let models = cost_models(recorder)?;
    recorder.plan((LAWS.len() * (models.len() + 1)) as u64);
    let search = search_of(recorder.options(), requests);
    let y = Axis::linear("load at p99 <= 10 S", "").range(0.0, 1.0);
    let most = means_us.iter().copied().fold(0.0, f64::max);
    for law in LAWS {
        let x = Axis::linear("S", "us").range(0.0, most);
        let title = format!("Highest load with p99 <= 10 S, {}", law.name());
        let chart = recorder.chart(law.name(), &title, x, y.clone());
        for costs in &models {
            recorder.step(&format!("{title}, {}", costs.name))?;
            for system in of {
                let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
                for &mean_us in means_us {
                    let found = system.search(&system.setup(costs, law, mean_us), &search)?;
                    recorder.point(series, mean_us, Measured::mean(&found, 0.0..=f64::MAX));
                }
            }
        }
        recorder.step(&format!("{title}, theory"))?;
        behind(recorder, chart, law, &models[0], means_us)?;
    }
    Ok((models[0].clone(), search))
}

fn behind(
    recorder: &mut Recorder<'_>,
    chart: ChartId,
    law: Law,
    costs: &Costs,
    means_us: &[f64],
) -> anyhow::Result<()> {
    let options = recorder.options();
    let runs = Replications { count: 2, seed: options.seed, ..Replications::new() };
    let runs = runs.of_jobs(if options.quick { 50_000 } else { 300_000 });
    let curves =
        |mean_us| [systems::theory(law, mean_us), systems::linux(costs, law, mean_us)].concat();
    for (index, (name, _)) in curves(1.0).into_iter().enumerate() {
        let series = recorder.series_as(chart, &name, Role::Theory);
        for &mean_us in means_us {
            let found = max_of(&curves(mean_us)[index].1, &runs)?;
            recorder.point(series, mean_us, Measured::mean(&found, 0.0..=f64::MAX));
        }
    }
    Ok(())
}
