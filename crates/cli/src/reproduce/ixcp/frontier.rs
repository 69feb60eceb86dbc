//! IX Figures 8 and 9: the Pareto frontier of static configurations.

use control::reproduce::{Panel, figure8, figure9};
use reproduce::{Axis, Figure, Measured, Recorder, Role, Takes};

use super::{millions, server};
use crate::reproduce::Testbed;

/// Points of each curve.
const POINTS: usize = 120;

/// Pareto efficiency, with the configurations that are part of the frontier.
pub const FIG8: Figure<Testbed> = Figure {
    id: "ix/fig8",
    title: "Pareto efficiency of static configurations",
    section: "IX (TOCS'16) §5.3, Figure 8",
    what: "All static configurations of the simulated server (cores, hyperthreads, clocks): for every load the \
           one that draws least, or leaves the background job most, while the 99th percentile keeps the \
           objective. Computed from the model's closed forms; the curves are those that are part of the frontier.",
    claims: &[],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: run_fig8,
};

/// The frontier against one of clocks alone.
pub const FIG9: Figure<Testbed> = Figure {
    id: "ix/fig9",
    title: "Clocks alone against the Pareto frontier",
    section: "IX (TOCS'16) §5.3, Figure 9",
    what: "The frontier of Figure 8 (energy), and the same where only the clock changes while all cores and \
           hyperthreads run. The paper's curves of Linux are not computed: the model is of a dataplane that polls.",
    claims: &[],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: run_fig9,
};

fn run_fig8(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let model = server(recorder);
    recorder.plan(1);
    recorder.step("all static configurations")?;
    let figure = figure8(&model, POINTS);
    panel(recorder, "energy", "Energy proportionality", ("power", "W"), &figure.energy);
    let y = ("background throughput", "of a dedicated processor");
    panel(recorder, "consolidation", "Workload consolidation", y, &figure.consolidation);
    Ok(())
}

fn panel(
    recorder: &mut Recorder<'_>,
    name: &str,
    title: &str,
    (label, unit): (&str, &str),
    panel: &Panel,
) {
    let x = Axis::linear("throughput within the objective", "M requests/s");
    let chart = recorder.chart(name, title, x, Axis::linear(label, unit));
    let frontier = recorder.series_as(chart, "Pareto frontier", Role::Theory);
    for &(rps, value) in &panel.frontier {
        recorder.point(frontier, millions(rps), Measured::single(value));
    }
    for member in &panel.members {
        let series = recorder.series_as(chart, &member.configuration.to_string(), Role::Theory);
        for &(rps, value) in member.points.iter().step_by(POINTS / 4) {
            recorder.point(series, millions(rps), Measured::single(value));
        }
    }
    recorder.note(format!(
        "{title}: {} of {} configurations are part of the frontier",
        panel.members.len(),
        panel.considered
    ));
}

fn run_fig9(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let model = server(recorder);
    recorder.plan(1);
    recorder.step("all static configurations")?;
    let figure = figure9(&model, POINTS);
    let x = Axis::linear("throughput within the objective", "M requests/s");
    let y = Axis::linear("power", "W");
    let chart = recorder.chart("clocks", "Energy proportionality", x, y);
    for (name, curve) in [("Pareto frontier", figure.all), ("clock only", figure.clock_only)] {
        let series = recorder.series_as(chart, name, Role::Theory);
        for (rps, watts) in curve {
            recorder.point(series, millions(rps), Measured::single(watts));
        }
    }
    Ok(())
}
