//! Figures 8 and 9 (IX §5.3), for a simulated server or a measured one: into the record of a figure, or as SVG
//! files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use reproduce::{Axis, Claims, Figure, Mode, Options, Recorder, Role, Setup, Silent, Takes, plot};
use world::controlled::pareto::{Frontier, Member, Objective};

use super::analysis::Analysis;
use super::measure::{self, Plan};
use super::report;
use crate::reproduce::testbed::Testbed;

/// Points of each curve.
const POINTS: usize = 120;
/// Points of the curve of one configuration.
const MEMBER_POINTS: usize = 4;

/// Axes count millions.
pub fn millions(rps: f64) -> f64 {
    rps / 1e6
}

fn throughput() -> Axis {
    Axis::linear("throughput within the objective", "M requests/s")
}

/// One panel of Figure 8: the frontier, and the configurations that are part of it. A `role` of curves: computed,
/// or measured.
pub fn figure8(recorder: &mut Recorder<'_>, frontier: &Frontier, role: Role) {
    let members = frontier.members();
    let (name, title, (label, unit)) = match frontier.objective() {
        Objective::Energy => ("energy", "Energy proportionality", ("power", "W")),
        Objective::Consolidation => (
            "consolidation",
            "Workload consolidation",
            ("background throughput", "of a dedicated processor"),
        ),
    };
    let chart = recorder.chart(name, title, throughput(), Axis::linear(label, unit));
    let in_millions = |&(rps, value): &(f64, f64)| (millions(rps), value);
    recorder.curve_as(
        chart,
        "Pareto frontier",
        role,
        frontier.curve(POINTS).iter().map(in_millions),
    );
    for Member { candidate, .. } in &members {
        let curve = frontier.curve_of(candidate, POINTS);
        let points = curve.iter().step_by(POINTS / MEMBER_POINTS).map(in_millions);
        recorder.curve_as(chart, &candidate.configuration.to_string(), role, points);
    }
    recorder.note(format!(
        "{title}: {} of {} configurations are part of the frontier",
        members.len(),
        frontier.candidates().len()
    ));
}

/// Figure 9: a frontier of energy against one of clocks alone.
pub fn figure9(recorder: &mut Recorder<'_>, energy: &Frontier, role: Role) {
    let y = Axis::linear("power", "W");
    let chart = recorder.chart("clocks", "Energy proportionality", throughput(), y);
    for (name, frontier) in [("Pareto frontier", energy), ("clock only", &energy.clock_only())] {
        let points = frontier.curve(POINTS).into_iter().map(|(rps, watts)| (millions(rps), watts));
        recorder.curve_as(chart, name, role, points);
    }
}

/// Both figures of this machine, measured: `ix/fig8` and `ix/fig9` have those of the simulated one.
pub const MEASURED: Figure<Testbed> = both("ix/pareto", 600, |_, recorder| {
    let Options { quick, seed, .. } = recorder.options();
    let plan = Plan { seconds: if quick { 0.2 } else { 1.0 }, seed, ..Plan::usual()? };
    let stop = AtomicBool::new(false);
    let mut progress = |line: &str| stop.store(recorder.step(line).is_err(), Ordering::Relaxed);
    let all = measure::run(&plan, &mut progress, &stop)?;
    record(&all, recorder);
    all.partial.map_or(Ok(()), |reason| bail!(reason))
});

/// Both figures of an analysis.
const BOTH: Figure<Analysis> = both("ix/fig8and9", 1, |all, recorder| {
    record(all, recorder);
    Ok(())
});

const fn both<C>(
    id: &'static str,
    full_s: u32,
    run: fn(&mut C, &mut Recorder<'_>) -> anyhow::Result<()>,
) -> Figure<C> {
    Figure {
        id,
        title: "Pareto efficiency of static configurations",
        section: "IX (TOCS'16) §5.3, Figures 8 and 9",
        what: "The Pareto frontier of the machine's static configurations, and one of clocks alone.",
        claims: &[],
        takes: Takes { quick_s: full_s.div_ceil(4), full_s },
        run,
    }
}

/// Draws both figures, as far as the analysis has what they show, and what it says beside them.
fn record(all: &Analysis, recorder: &mut Recorder<'_>) {
    let role = if all.mode == Mode::Real { Role::Measured } else { Role::Theory };
    for objective in [Objective::Energy, Objective::Consolidation] {
        if let Some(frontier) = all.frontier_for(objective) {
            figure8(recorder, &frontier, role);
        }
    }
    // One clock makes no figure of clocks.
    if let Some(energy) = all.frontier_for(Objective::Energy)
        && energy.clock_only().candidates().len() > 1
    {
        figure9(recorder, &energy, role);
    }
    for (name, value) in &all.conditions {
        recorder.condition(name, value);
    }
    let not_known = report::not_measured(all);
    for note in all.notes.iter().map(String::as_str).chain(not_known.lines()) {
        recorder.note(note);
    }
}

/// The figures of an analysis as files: their names and contents.
///
/// # Errors
/// The plotter's.
pub fn svg_files(all: &mut Analysis) -> anyhow::Result<Vec<(String, String)>> {
    let (claims, mut silent) = (Claims::builtin()?, Silent);
    let mut setup = Setup::new(&claims, Options::QUICK, &mut silent);
    let result = BOTH.reproduce(all, &mut setup)?;
    let file = |chart: &reproduce::Chart| {
        let series: Vec<_> = result.series_of(chart).collect();
        let figure = if chart.name == "clocks" { "fig9" } else { "fig8" };
        (format!("{figure}-{}.svg", chart.name), plot::standalone(chart, &series, None))
    };
    Ok(result.charts.iter().map(file).collect())
}

/// Writes them into a directory, which is made where it is not there. Answers what was written.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn write_svg(all: &mut Analysis, directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let files = svg_files(all)?;
    std::fs::create_dir_all(directory).with_context(|| {
        format!("cannot make '{}' for the plots; `--plots` takes a directory", directory.display())
    })?;
    let mut written = Vec::new();
    for (name, text) in files {
        let path = directory.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("cannot write the plot '{}'", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use world::controlled::server::ServerModel;

    use super::*;

    #[test]
    fn each_figure_is_drawn_as_far_as_there_is_something_to_draw() {
        let mut all = Analysis::simulated(&ServerModel::ix(), Objective::Energy, BTreeMap::new());
        let files = svg_files(&mut all).expect("drawn");
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["fig8-energy.svg", "fig8-consolidation.svg", "fig9-clocks.svg"]);
        for (name, text) in &files {
            assert!(text.starts_with("<svg") && text.contains("Pareto frontier"), "{name}");
        }
        // Without power there is nothing of energy to be drawn.
        for entry in &mut all.entries {
            if let Ok(candidate) = &mut entry.found {
                candidate.watts = None;
            }
        }
        let files = svg_files(&mut all).expect("drawn");
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].0, "fig8-consolidation.svg");
    }
}
