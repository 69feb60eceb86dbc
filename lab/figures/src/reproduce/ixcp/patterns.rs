//! IX Figures 10 to 12: throughput, latency, and power or background throughput over the four minutes of a
//! load pattern.

use control::Event;
use reproduce::{Axis, Figure, Mark, MarkOf, Recorder, Role, Takes};
use world::controlled::pareto::Objective;
use world::controlled::reproduce::{Plane, Run, run};
use world::controlled::server::Pattern;

use super::server::server;
use crate::pareto::draw::millions;
use crate::reproduce::Testbed;

/// Length of the patterns, in seconds.
pub(super) const DURATION_S: u64 = 240;

const WHAT: &str = "Four minutes of the load pattern on the simulated server, under energy proportionality and \
                    workload consolidation: the load and the step in force, the 99th percentile of every \
                    second, and power or background throughput beside the Pareto bound of the same load and \
                    the maximum configuration. Two controllers: IX's policies at 10 Hz with the pace of the \
                    authors' IXCP, and latency-target at 1 kHz.";

const fn figure(
    id: &'static str,
    title: &'static str,
    section: &'static str,
    run: fn(&mut Testbed, &mut Recorder<'_>) -> anyhow::Result<()>,
) -> Figure<Testbed> {
    let takes = Takes { quick_s: 60, full_s: 60 };
    Figure { id, title, section, what: WHAT, claims: &[], takes, run }
}

/// The slope pattern.
pub const FIG10: Figure<Testbed> = figure(
    "ix/fig10",
    "Control plane under the slope pattern",
    "IX (TOCS'16) §5.4, Figure 10",
    |_, recorder| panels(recorder, Pattern::Slope),
);

/// The step pattern.
pub const FIG11: Figure<Testbed> = figure(
    "ix/fig11",
    "Control plane under the step pattern",
    "IX (TOCS'16) §5.4, Figure 11",
    |_, recorder| panels(recorder, Pattern::Step),
);

/// The sine+noise pattern.
pub const FIG12: Figure<Testbed> = figure(
    "ix/fig12",
    "Control plane under the sine+noise pattern",
    "IX (TOCS'16) §5.4, Figure 12",
    |_, recorder| panels(recorder, Pattern::SineNoise),
);

fn panels(recorder: &mut Recorder<'_>, pattern: Pattern) -> anyhow::Result<()> {
    let model = server(recorder);
    let seed = recorder.options().seed;
    recorder.plan(4);
    for objective in [Objective::Energy, Objective::Consolidation] {
        let charts = Charts::new(recorder, objective, model.slo_us);
        for plane in [Plane::Ix, Plane::LatencyTarget] {
            recorder.step(&format!("{}, {}", word(objective), plane.name()))?;
            let run = run(&model, pattern, objective, plane, DURATION_S, seed)?;
            charts.draw(recorder, &run);
        }
    }
    Ok(())
}

pub(super) fn word(objective: Objective) -> &'static str {
    match objective {
        Objective::Energy => "energy proportionality",
        Objective::Consolidation => "workload consolidation",
    }
}

/// Values of seconds in a row, each at the middle of its second.
pub(super) fn timed(values: impl Iterator<Item = f64>) -> impl Iterator<Item = (f64, f64)> {
    values.enumerate().map(|(index, value)| (index as f64 + 0.5, value))
}

struct Charts {
    load: reproduce::ChartId,
    steps: reproduce::ChartId,
    latency: reproduce::ChartId,
    value: reproduce::ChartId,
}

impl Charts {
    fn new(recorder: &mut Recorder<'_>, objective: Objective, slo_us: f64) -> Self {
        let short = <&str>::from(objective);
        let mut chart = |what: &str, y: Axis| {
            let title = format!("{what}, {}", word(objective));
            let name = format!("{short}-{}", what.replace(' ', "-"));
            recorder.chart(&name, &title, Axis::linear("time", "s"), y)
        };
        let load = chart("throughput", Axis::linear("requests", "M/s"));
        let steps = chart("step", Axis::linear("step of the sequence", ""));
        let latency = chart("latency", Axis::log("p99", "us"));
        let value = match objective {
            Objective::Energy => chart("power", Axis::linear("power", "W")),
            Objective::Consolidation => {
                chart("background throughput", Axis::linear("of a dedicated processor", ""))
            }
        };
        let mark = Mark::horizontal(MarkOf::Objective, slo_us, format!("{slo_us} us"));
        recorder.mark(latency, mark);
        Self { load, steps, latency, value }
    }

    fn draw(&self, recorder: &mut Recorder<'_>, run: &Run) {
        let name = run.plane.name();
        let seconds = || run.record.seconds.iter();
        // The pattern and the bounds are the same for both controllers: drawn once.
        let first = run.plane == Plane::Ix;
        if first {
            let pattern = seconds().zip(&run.load_rps).map(|(_, &rps)| millions(rps));
            recorder.curve_as(self.load, "pattern", Role::Theory, timed(pattern));
        }
        recorder.curve(self.load, name, timed(seconds().map(|second| millions(second.rps))));
        recorder.curve(self.steps, name, timed(seconds().map(|second| second.step as f64)));
        recorder.curve(self.latency, name, timed(seconds().map(|second| second.p99_us)));
        let drawn = seconds().map(|second| match run.objective {
            Objective::Energy => second.watts,
            Objective::Consolidation => second.background,
        });
        recorder.curve(self.value, name, timed(drawn));
        if first {
            let bound = seconds().zip(&run.pareto).map(|(_, &value)| value);
            recorder.curve_as(self.value, "Pareto bound", Role::Theory, timed(bound));
        }
        if first && !run.maximum.is_empty() {
            let most = run.maximum.iter().copied();
            recorder.curve(self.value, "maximum configuration", timed(most));
        }
        let changes = run.record.events.iter().filter(|e| matches!(e.1, Event::Step { .. }));
        recorder.note(format!(
            "{}, {name}: {} changes of configuration, {} migrations, {} seconds over the objective",
            word(run.objective),
            changes.count(),
            run.record.migrations.len(),
            run.score.violations.len()
        ));
        for violation in &run.score.violations {
            let second = violation.second;
            let said = &violation.explanation;
            recorder.note(format!("{}, {name}, second {second}: {said}", word(run.objective)));
        }
    }
}
