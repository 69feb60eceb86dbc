//! ZygOS Figures 3 and 7: the highest load at which requests keep an objective, over their service time.

use queueing::{Law, Replications};
use reproduce::{Axis, ChartId, Figure, Measured, Recorder, Role, Takes};
use world::cores::{Costs, Search};

use super::systems::{
    BOUND, CORES, LAWS, RTC, SHARE, System, WORK_CONSERVING, cost_models, linux, max_of, search_of,
    theory,
};
use crate::reproduce::Testbed;

/// See the module's comment.
pub const FIG3: Figure<Testbed> = Figure {
    id: "zygos/fig3",
    title: "Load at p99 <= 10 S over S, without stealing",
    section: "ZygOS (SOSP'17) §3.4, Figure 3",
    what: "For each mean service time the highest load at which 99 % of the requests take no longer than \
           ten of it, for what there was before ZygOS: run to completion with batching off, simulated as for \
           Figure 6, and the models of Linux with partitioned and with floating connections; behind them \
           theory without overhead.",
    claims: &[],
    takes: Takes { quick_s: 120, full_s: 1_500 },
    run: run_fig3,
};

fn run_fig3(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let means_us: &[f64] = match recorder.options().quick {
        true => &[5.0, 25.0, 100.0, 200.0],
        false => &[2.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0],
    };
    charts(recorder, &[RTC], means_us, [20_000, 100_000]).map(drop)
}

const CLAIM: &str = "zygos.fig7.task_us_for_90pct_exp";
/// The share of M/G/16/FCFS that the claim asks for.
const EFFICIENT: f64 = 0.9;

/// See the module's comment.
pub const FIG7: Figure<Testbed> = Figure {
    id: "zygos/fig7",
    title: "Load at p99 <= 10 S over S",
    section: "ZygOS (SOSP'17) §3.4 and §6.1, Figures 3 and 7",
    what: "For each mean service time the highest load at which 99 % of the requests take no longer than \
           ten of it, by bisection with the same requests at every load; simulated as for Figure 6, under \
           the same cost models. Behind it the same of theory without overhead and of the models of Linux.",
    claims: &[CLAIM],
    takes: Takes { quick_s: 240, full_s: 3_000 },
    run: run_fig7,
};

fn means_us(quick: bool) -> &'static [f64] {
    if quick {
        &[2.0, 5.0, 10.0, 25.0, 50.0]
    } else {
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0]
    }
}

fn run_fig7(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let (systems, means_us) = ([RTC, WORK_CONSERVING], means_us(recorder.options().quick));
    let (costs, search) = charts(recorder, &systems, means_us, [10_000, 100_000])?;
    claim(recorder, &costs, &search)
}

/// The smallest S that reaches the share, between two measured ones by a straight line.
fn claim(recorder: &mut Recorder<'_>, costs: &Costs, search: &Search) -> anyhow::Result<()> {
    let wanted = EFFICIENT * queueing::theory::mmn_max_load(CORES as u32, SHARE, BOUND);
    let mut loads = Vec::new();
    for &mean_us in means_us(recorder.options().quick) {
        let setup = WORK_CONSERVING.setup(costs, Law::Exponential, mean_us);
        loads.push((mean_us, WORK_CONSERVING.search(&setup, search)?.mean));
    }
    let found = match reached(&loads, wanted) {
        Some(mean_us) => Measured::single(mean_us),
        None => Measured::missing("no S up to 50 us reaches it"),
    };
    recorder.claim(CLAIM, found)
}

/// The least x at which the line through `points` is at `wanted` or above from then on.
fn reached(points: &[(f64, f64)], wanted: f64) -> Option<f64> {
    let first = points.iter().rposition(|(_, y)| *y < wanted).map_or(0, |below| below + 1);
    let &(x, y) = points.get(first)?;
    let Some(&(x0, y0)) = first.checked_sub(1).and_then(|below| points.get(below)) else {
        return Some(x);
    };
    Some(x0 + (x - x0) * (wanted - y0) / (y - y0))
}

/// Draws a chart for each law: `of` under each cost model over the means `means_us`, with so many requests a load in a
/// quick run and in a full one; theory and Linux's models behind them. Answers how it searched, under the costs that fill
/// claims.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
fn charts(
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
    let curves = |mean_us| [theory(law, mean_us), linux(costs, law, mean_us)].concat();
    for (index, (name, _)) in curves(1.0).into_iter().enumerate() {
        let series = recorder.series_as(chart, &name, Role::Theory);
        for &mean_us in means_us {
            let found = max_of(&curves(mean_us)[index].1, &runs)?;
            recorder.point(series, mean_us, Measured::mean(&found, 0.0..=f64::MAX));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossing_is_between_the_last_below_and_the_first_above() {
        let points = [(1.0, 0.2), (2.0, 0.9), (4.0, 0.6), (8.0, 1.0)];
        assert_eq!(reached(&points, 0.8), Some(6.0));
        assert_eq!(reached(&points, 0.1), Some(1.0));
        assert_eq!(reached(&points, 1.1), None);
        assert_eq!(reached(&[], 0.5), None);
    }
}
