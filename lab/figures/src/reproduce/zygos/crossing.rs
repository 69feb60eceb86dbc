//! How many events enter a crossing: as somebody waits, or as pure schedulers have it.

use queueing::Law;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};
use world::cores::Search;

use super::systems::{BOUND, RTC, RTC_64, SINGLE, WORK_CONSERVING, cost_models, search_of};
use crate::reproduce::Testbed;

/// For tiny tasks ten service times are less than the network takes: the objective is no less than this.
const OBJECTIVE_MIN_US: f64 = 100.0;

/// See the module's comment.
pub const CROSSING: Figure<Testbed> = Figure {
    id: "zygos/crossing",
    title: "Adaptive crossings against the pure schedulers",
    section: "IX (TOCS'16) §4.2 and ZygOS (SOSP'17) §4.4, which each have one of the two",
    what: "The highest load at which 99 % of the requests take no longer than ten mean service times, or 100 us \
           if that is more, simulated as for ZygOS Figure 6 with this machine's costs: run to completion with \
           B = 1 and B = 64, stealing with one event in each crossing, and the work-conserving scheduler, whose \
           crossings hold one event where a core waits and as many as fit 10 us where none does.",
    claims: &[],
    takes: Takes { quick_s: 180, full_s: 1_500 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let costs = cost_models(recorder)?.swap_remove(0);
    let options = recorder.options();
    let means_us: &[f64] = match options.quick {
        true => &[1.0, 5.0, 25.0],
        false => &[0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0],
    };
    let laws = [Law::Deterministic, Law::Exponential];
    recorder.plan((laws.len() * means_us.len()) as u64);
    // The pure ones, and ours.
    let all = [RTC, RTC_64, SINGLE, WORK_CONSERVING];
    let mut least: Option<(f64, String)> = None;
    for law in laws {
        let (x, y) =
            (Axis::log("S", "us"), Axis::linear("load at the objective", "").range(0.0, 1.0));
        let title = format!("Highest load at the objective, {}", law.name());
        let chart = recorder.chart(law.name(), &title, x, y);
        let series = all.map(|system| recorder.series(chart, system.name));
        for &mean_us in means_us {
            recorder.step(&format!("{title}, S = {mean_us} us"))?;
            let bound = BOUND.max(OBJECTIVE_MIN_US / mean_us);
            let search = Search { bound, ..search_of(options, [20_000, 100_000]) };
            let mut found = [0.0; 4];
            for ((system, series), mean) in all.iter().zip(series).zip(&mut found) {
                let one = system.search(&system.setup(&costs, law, mean_us), &search)?;
                recorder.point(series, mean_us, Measured::mean(&one, 0.0..=f64::MAX));
                *mean = one.mean;
            }
            let [others @ .., ours] = found;
            let best = others.into_iter().fold(0.0, f64::max);
            let ratio = ours / best;
            if least.as_ref().is_none_or(|(least, _)| ratio < *least) {
                let words = format!("{ours:.3} of {best:.3}, {}, S = {mean_us} us", law.name());
                least = Some((ratio, words));
            }
        }
    }
    if let Some((ratio, words)) = least {
        recorder.note(format!(
            "against the best of the three others everywhere, the work-conserving scheduler serves {:.1} % \
             where it is worst ({words}; the search steps by 0.02 in --quick, 0.005 else)",
            100.0 * ratio
        ));
    }
    Ok(())
}
