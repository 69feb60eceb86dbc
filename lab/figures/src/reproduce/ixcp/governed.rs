//! The patterns of IX §5.4 on real elastic threads, on virtual cores, beside the model of queues that Figures 8 to 12 and
//! Table IV are computed with.

use queueing::Law;
use reproduce::{Axis, ChartId, Figure, Mark, MarkOf, Measured, Recorder, Role, Takes};
use world::controlled::pareto::Objective;
use world::controlled::reproduce::{Load, Plane, Run, run_on};
use world::controlled::server::{Pattern, ServerModel};
use world::cores::{Costs, Governance, RunToCompletion, Setup, govern};

use super::patterns::{DURATION_S, timed, word};
use crate::reproduce::Testbed;

/// See the module's comment.
pub const GOVERNED: Figure<Testbed> = Figure {
    id: "ix/governed",
    title: "Control plane over real elastic threads",
    section: "IX (TOCS'16) §5.4, Figures 10 to 12",
    what: "The load patterns on 16 elastic threads with the real TCP/IP stack and migration of flow groups, on virtual \
           cores and one virtual clock; beside them the model of queues with the same load, control loop and seed. \
           What clocks and hyperthreads are worth, what changes take and what is drawn is the model's for both. With \
           a service of 20 us and as many fewer requests: the model is made for more of them, and is worse there. The \
           full form also has the paper's rates. The quick form is latency-target's workload consolidation, and its \
           patterns are ten times as fast as the paper's.",
    claims: &[],
    takes: Takes { quick_s: 90, full_s: 3_600 },
    run,
};

/// Mean service time of the longer service, in microseconds: minutes of its load can be simulated packet by packet.
const LONG_US: f64 = 20.0;
/// How much faster patterns are where the paper's four minutes would take hours.
const FAST: u64 = 10;

/// A service on IX's server, and how it is looked at.
struct Part {
    name: &'static str,
    model: ServerModel,
    setup: Setup,
    speed: u64,
    planes: &'static [Plane],
    objectives: &'static [Objective],
}

impl Part {
    fn new(name: &'static str, model: ServerModel, service_us: f64) -> Self {
        let setup = Setup {
            batch: model.batch_max as usize,
            connections: model.connections as usize,
            ..Setup::zygos(Costs::sandy_bridge_dune(), Law::Exponential, service_us)
        };
        let (planes, objectives) = (&[Plane::LatencyTarget], &[Objective::Consolidation]);
        Self { name, model, setup, speed: FAST, planes, objectives }
    }

    /// The service of 20 us.
    fn long() -> Self {
        let model = ServerModel { service_scv: 1.0, ..ServerModel::ix() };
        // What a request costs beside, where nothing is shared: the closed forms are then on the safe side.
        let request_ns = LONG_US * 1e3 + Costs::sandy_bridge_dune().per_request(1.0);
        Self::new("20 us", model.with_unit_rps(1e9 / request_ns), LONG_US)
    }

    /// The paper's: what is left of its requests' time where a full batch shares a cycle.
    fn paper() -> Self {
        let model = ServerModel::ix();
        let per_request_ns = Costs::sandy_bridge_dune().per_request(model.batch_max.into());
        let service_us = (1e6 / model.unit_rps() - per_request_ns / 1e3).max(0.01);
        Self::new("the paper's rates", model, service_us)
    }

    fn all(quick: bool) -> Vec<Self> {
        if quick {
            return vec![Self::long()];
        }
        let (planes, objectives): (&[Plane], &[Objective]) =
            (&[Plane::Ix, Plane::LatencyTarget], &[Objective::Consolidation, Objective::Energy]);
        vec![Self { speed: 1, planes, objectives, ..Self::long() }, Self::paper()]
    }
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let parts = Part::all(recorder.options().quick);
    recorder.condition("server", format!("simulated: {}", ServerModel::ix().name));
    recorder.condition("costs", Costs::sandy_bridge_dune().to_string());
    recorder.condition("objective", format!("p99 < {} us", ServerModel::ix().slo_us));
    let runs = |part: &Part| Pattern::ALL.len() * part.planes.len() * part.objectives.len();
    recorder.plan(parts.iter().map(runs).sum::<usize>() as u64);
    for part in &parts {
        for &objective in part.objectives {
            for &plane in part.planes {
                let of = Of { part, objective, plane };
                of.run(recorder)?;
            }
        }
    }
    Ok(())
}

/// One of the parts, under one controller.
struct Of<'a> {
    part: &'a Part,
    objective: Objective,
    plane: Plane,
}

const NAMES: [&str; 2] = ["model of queues", "real elastic threads"];

impl Of<'_> {
    /// In words.
    fn title(&self) -> String {
        format!("{}, {}, {}", word(self.objective), self.plane.name(), self.part.name)
    }

    /// In a file's name.
    fn name(&self, what: &str) -> String {
        let objective = <&str>::from(self.objective);
        let plain = |text: &str| text.replace([' ', '+'], "-").replace('\'', "");
        format!("{objective}-{}-{}-{}", self.plane.hz(), plain(self.part.name), plain(what))
    }

    fn run(&self, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let y = match self.objective {
            Objective::Energy => Axis::linear("mean power", "W"),
            Objective::Consolidation => {
                Axis::linear("of a dedicated processor", "").range(0.0, 1.0)
            }
        };
        let x = Axis::category("pattern");
        let gains = recorder.chart(&self.name("gain"), &self.title(), x, y);
        let Part { model, setup, speed, .. } = self.part;
        let (objective, plane, seconds) = (self.objective, self.plane, DURATION_S / speed);
        for pattern in Pattern::ALL {
            recorder.step(&format!("{}, {}", self.title(), pattern.name()))?;
            let seed = recorder.options().seed;
            let load = Load { speed: *speed, ..Load::new(pattern, seed).for_server(model) };
            let modelled = run_on(model, &load, objective, plane, seconds, |load, who, run| {
                world::controlled::server::simulate(model, load, who, run)
            })?;
            let real = run_on(model, &load, objective, plane, seconds, |load, who, run| {
                let governance = Governance { model, load, controller: who, run: *run };
                let governed = govern(&RunToCompletion, setup, governance);
                governed.map(|(record, _)| record)
            });
            self.draw(recorder, gains, [&modelled, &real?]);
        }
        Ok(())
    }

    fn draw(&self, recorder: &mut Recorder<'_>, gains: ChartId, runs: [&Run; 2]) {
        let name = runs[0].pattern.name();
        let bound = recorder.series_as(gains, "Pareto bound", Role::Theory);
        recorder.category(bound, name, Measured::single(runs[0].score.pareto));
        let mut chart = |what: &str, y: Axis| {
            let title = format!("{what}, {name}, {}", self.title());
            let name = self.name(&format!("{name}-{what}"));
            recorder.chart(&name, &title, Axis::linear("time", "s"), y)
        };
        let steps = chart("step", Axis::linear("step of the sequence", ""));
        let latency = chart("latency", Axis::log("p99", "us"));
        let slo_us = self.part.model.slo_us;
        let mark = Mark::horizontal(MarkOf::Objective, slo_us, format!("{slo_us} us"));
        recorder.mark(latency, mark);
        for (server, run) in NAMES.into_iter().zip(runs) {
            let gained = recorder.series(gains, server);
            recorder.category(gained, name, Measured::single(run.score.measured));
            let seconds = || run.record.seconds.iter();
            recorder.curve(steps, server, timed(seconds().map(|second| second.step as f64)));
            recorder.curve(latency, server, timed(seconds().map(|second| second.p99_us)));
            let Run { score, record, .. } = run;
            recorder.note(format!(
                "{}, {name}, {server}: {:.1} % of what is possible, {} of {} seconds over the objective, {} \
                 migrations",
                self.title(),
                100.0 * score.share_of_possible(),
                score.violations.len(),
                record.seconds.len(),
                record.migrations.len()
            ));
        }
    }
}
