//! ZygOS Figure 7: the highest load that keeps 10 S at the 99th percentile, over the mean service time S.

use queueing::Law;
use reproduce::{Figure, Measured, Recorder, Takes};
use world::cores::{Costs, Search};

use super::max_load;
use super::systems::{BOUND, CORES, RTC, SHARE, WORK_CONSERVING};
use crate::reproduce::Testbed;

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
    run,
};

fn means_us(quick: bool) -> &'static [f64] {
    if quick {
        &[2.0, 5.0, 10.0, 25.0, 50.0]
    } else {
        &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0]
    }
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let (systems, means_us) = ([RTC, WORK_CONSERVING], means_us(recorder.options().quick));
    let (costs, search) = max_load::charts(recorder, &systems, means_us, [10_000, 100_000])?;
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
