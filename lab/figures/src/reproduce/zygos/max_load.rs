//! The highest load that keeps 10 S at the 99th percentile, over the mean service time S: what ZygOS Figures
//! 3 and 7 draw, each for its own systems and over its own range.

use queueing::{Law, Replications};
use reproduce::{Axis, ChartId, Measured, Recorder, Role};
use world::cores::{Costs, Search};

use super::systems::{self, LAWS, System, max_of};

/// Draws a chart for each law: `of` under each cost model over the means `means_us`, theory and Linux's
/// models behind them.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
pub fn charts(
    recorder: &mut Recorder<'_>,
    models: &[Costs],
    of: &[System],
    means_us: &[f64],
    search: &Search,
) -> anyhow::Result<()> {
    let y = Axis::linear("load at p99 <= 10 S", "").range(0.0, 1.0);
    let most = means_us.iter().copied().fold(0.0, f64::max);
    for law in LAWS {
        let x = Axis::linear("S", "us").range(0.0, most);
        let title = format!("Highest load with p99 <= 10 S, {}", law.name());
        let chart = recorder.chart(law.name(), &title, x, y.clone());
        for costs in models {
            recorder.step(&format!("{title}, {}", costs.name))?;
            for system in of {
                let series = recorder.series(chart, &format!("{}, {}", system.name, costs.name));
                for &mean_us in means_us {
                    let found = system.search(&system.setup(costs, law, mean_us), search)?;
                    recorder.point(series, mean_us, Measured::mean(&found, 0.0..=f64::MAX));
                }
            }
        }
        recorder.step(&format!("{title}, theory"))?;
        behind(recorder, chart, law, &models[0], means_us)?;
    }
    Ok(())
}

/// Steps that [`charts`] takes of the recorder's plan.
pub fn steps(models: &[Costs]) -> u64 {
    (LAWS.len() * (models.len() + 1)) as u64
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
    let names = systems::theory(law, 1.0).map(|(name, _)| name);
    let linux = systems::linux(costs, law, 1.0).map(|(name, _)| name);
    for (index, name) in names.into_iter().chain(linux).enumerate() {
        let series = recorder.series_as(chart, &name, Role::Theory);
        for &mean_us in means_us {
            let curves = systems::theory(law, mean_us)
                .into_iter()
                .chain(systems::linux(costs, law, mean_us))
                .nth(index);
            let found = curves.map(|(_, curve)| max_of(&curve, &runs)).transpose()?;
            let found = found.map_or_else(
                || Measured::missing("no model"),
                |load| Measured::mean(&load, 0.0..=f64::MAX),
            );
            recorder.point(series, mean_us, found);
        }
    }
    Ok(())
}
