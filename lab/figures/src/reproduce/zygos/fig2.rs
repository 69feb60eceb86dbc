//! ZygOS Figure 2: what queueing theory says of sixteen cores, and the two loads of §3.1.

use queueing::{
    Law, MeanInterval, Model, Replications, RunError, Service, TailCurve, max_load_at_slo,
    tail_curve, theory,
};
use reproduce::{Axis, ChartId, Figure, Mark, MarkOf, Measured, Recorder, Role, Takes};

use super::curves::latencies;
use crate::reproduce::Testbed;

const PARTITIONED: &str = "zygos.sec31.partitioned_fcfs_load_at_slo_exp";
const CENTRALIZED: &str = "zygos.sec31.centralized_fcfs_load_at_slo_exp";

/// See the module's comment.
pub const FIG2: Figure<Testbed> = Figure {
    id: "zygos/fig2",
    title: "p99 over load of four queueing models",
    section: "ZygOS (SOSP'17) §2.3, Figure 2, and §3.1",
    what: "Simulations of 16 servers with Poisson arrivals: one queue for all of them or one for each, \
           in the order of arrival or shared by all present (processor sharing), for the four laws of \
           service times, in units of their mean S. The closed forms stand beside them where there are \
           any. Then, by bisection, the highest load at which 99 % of the requests take no longer than \
           10 S. Each value is the mean of independent replications, with its interval of 95 %.",
    claims: &[PARTITIONED, CENTRALIZED],
    takes: Takes { quick_s: 60, full_s: 1_500 },
    run,
};

const SERVERS: u32 = 16;
/// ZygOS §3.1: 99 % of the requests within ten mean service times.
const SHARE: f64 = 0.99;
const BOUND: f64 = 10.0;

/// How much is simulated.
struct Effort {
    loads: Vec<f64>,
    curve: Replications,
    search: Replications,
    claims: Replications,
}

impl Effort {
    fn of(recorder: &Recorder<'_>) -> Self {
        let options = recorder.options();
        // The interval of two or three is so wide that it says nothing.
        let count = options.repeats.max(4);
        let runs = Replications { count, seed: options.seed, ..Replications::new() };
        let (loads, [curve, search, claims]): (Vec<u32>, [u64; 3]) = match options.quick {
            true => (vec![10, 30, 50, 60, 70, 80, 90, 95], [100_000, 200_000, 1_000_000]),
            false => {
                let last = [88, 91, 93, 95, 96, 97, 98];
                let loads = (5..=85).step_by(5).chain(last).collect();
                (loads, [1_000_000, 1_000_000, 10_000_000])
            }
        };
        Self {
            loads: loads.into_iter().map(|load| f64::from(load) / 100.0).collect(),
            curve: runs.of_jobs(curve),
            search: runs.of_jobs(search),
            claims: runs.of_jobs(claims),
        }
    }

    /// Of a law: one request in a thousand makes half of the load of bimodal-2, so that it takes many
    /// more of them to be told.
    fn for_law(replications: &Replications, law: Law) -> Replications {
        let more = if law == Law::Bimodal2 { 5 } else { 1 };
        replications.of_jobs(replications.jobs * more)
    }
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let effort = Effort::of(recorder);
    recorder.plan((2 * Law::ALL.len() * Model::zygos(SERVERS).len() + 2) as u64);
    recorder.condition("servers", SERVERS);
    let Effort { curve, search, claims: at_slo, .. } = &effort;
    for (name, runs) in [("p99 over load", curve), ("load at p99", search), ("§3.1", at_slo)] {
        let words = format!("{} replications of {} requests", runs.count, runs.jobs);
        recorder.condition(&format!("simulated, {name}"), words);
    }
    recorder.note("bimodal-2 was simulated with five times as many requests as the other laws");
    claims(recorder, &effort.claims)?;
    for law in Law::ALL {
        curves(recorder, law, &effort)?;
    }
    searches(recorder, &effort.search)
}

fn load_at_slo(model: &Model, law: Law, runs: &Replications) -> Result<MeanInterval, RunError> {
    max_load_at_slo(model, &Service::unit(law), SHARE, BOUND, runs)
}

fn claims(recorder: &mut Recorder<'_>, runs: &Replications) -> anyhow::Result<()> {
    let [partitioned, centralized, ..] = Model::zygos(SERVERS);
    let exactly = [
        (PARTITIONED, partitioned, theory::mm1_max_load(SHARE, BOUND)),
        (CENTRALIZED, centralized, theory::mmn_max_load(SERVERS, SHARE, BOUND)),
    ];
    for (claim, model, theory) in exactly {
        recorder.step(&format!("§3.1, {}", model.name()))?;
        let found = load_at_slo(&model, Law::Exponential, runs)?;
        let words = format!("simulated; the closed form gives {:.2} %", 100.0 * theory);
        recorder.claim(claim, Measured::mean(&found, 0.0..=1.0).note(words))?;
    }
    Ok(())
}

/// One panel of the figure.
fn curves(recorder: &mut Recorder<'_>, law: Law, effort: &Effort) -> anyhow::Result<()> {
    let x = Axis::linear("load", "").range(0.0, 1.0);
    let title = format!("p99, {}", law.name());
    let chart = recorder.chart(law.name(), &title, x, Axis::log("p99", "S"));
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, BOUND, "10 S"));
    let runs = Effort::for_law(&effort.curve, law);
    for model in Model::zygos(SERVERS) {
        recorder.step(&format!("{}, {}", law.name(), model.name()))?;
        let curve = TailCurve { model, law, mean: 1.0, overhead: 0.0, network: 0.0, share: SHARE };
        let points = tail_curve(&curve, &effort.loads, &runs)?;
        recorder.curve(chart, &model.name(), latencies(points, law.quantile(SHARE)));
    }
    closed_forms(recorder, chart, law, &effort.loads);
    Ok(())
}

/// What is known without simulation.
fn closed_forms(recorder: &mut Recorder<'_>, chart: ChartId, law: Law, loads: &[f64]) {
    type Form = fn(f64) -> f64;
    let forms: &[(&str, Form)] = match law {
        Law::Exponential => &[
            ("M/M/1", |load| theory::mm1_sojourn_quantile(load, SHARE)),
            ("M/M/16", |load| theory::mmn_sojourn_quantile(SERVERS, load, SHARE)),
        ],
        Law::Deterministic => &[("M/D/1", |load| theory::Md1::new(load).sojourn_quantile(SHARE))],
        Law::Bimodal1 | Law::Bimodal2 | Law::Trace(_) => &[],
    };
    for (name, form) in forms {
        let points = loads.iter().map(|&load| (load, form(load)));
        recorder.curve_as(chart, name, Role::Theory, points);
    }
}

/// The second metric of §3.1, for all models and laws.
fn searches(recorder: &mut Recorder<'_>, runs: &Replications) -> anyhow::Result<()> {
    let y = Axis::linear("load at p99 <= 10 S", "").range(0.0, 1.0);
    let chart =
        recorder.chart("slo", "Highest load with p99 <= 10 S", Axis::category("service times"), y);
    recorder.mark(chart, Mark::horizontal(MarkOf::Paper, 0.537, "16xM/M/1/FCFS: 53.7 %"));
    recorder.mark(chart, Mark::horizontal(MarkOf::Paper, 0.963, "M/M/16/FCFS: 96.3 %"));
    for law in Law::ALL {
        let runs = Effort::for_law(runs, law);
        for model in Model::zygos(SERVERS) {
            recorder.step(&format!("load at p99, {}, {}", law.name(), model.name()))?;
            let found = load_at_slo(&model, law, &runs)?;
            let mut load = Measured::mean(&found, 0.0..=1.0);
            if found.mean >= queueing::LOAD_MAX {
                load =
                    load.note("the search ends here; runs so short do not meet the longest queues");
            }
            let series = recorder.series(chart, &model.name());
            recorder.category(series, law.name(), load);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reproduce::{Claims, Options, Setup, Silent};

    /// The whole figure in short: what it claims is what theory says, and each panel is whole.
    #[test]
    fn the_figure_fills_its_claims_and_panels() {
        let claims = Claims::builtin().expect("claims.toml is right");
        let mut silent = Silent;
        let mut setup = Setup::new(&claims, Options::QUICK, &mut silent);
        // Runs the search for the claims alone: the panels take a minute.
        let short = Figure {
            run: |_, recorder| {
                let runs = Replications { count: 2, ..Replications::new().of_jobs(200_000) };
                super::claims(recorder, &runs)?;
                let effort = Effort {
                    loads: vec![0.5, 0.8],
                    curve: runs.of_jobs(20_000),
                    search: runs,
                    claims: runs,
                };
                curves(recorder, Law::Exponential, &effort)?;
                curves(recorder, Law::Deterministic, &effort)
            },
            ..FIG2
        };
        let result =
            short.reproduce(&mut Testbed::default(), &mut setup).expect("claims are known");
        assert!(result.partial.is_none(), "{:?}", result.partial);
        assert!(result.claims.iter().all(|claim| claim.met == Some(true)), "{:?}", result.claims);
        let names: Vec<&str> = result.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names.iter().filter(|&&name| name == "partitioned-PS").count(), 2);
        for theory in ["M/M/1", "M/M/16", "M/D/1"] {
            assert!(names.contains(&theory), "{names:?}");
        }
        let value = |chart: &str, name: &str, index: usize| {
            let mut all = result.series.iter();
            let series = all.find(|series| series.chart == chart && series.name == name);
            series.and_then(|series| series.points[index].y).expect("a number").get()
        };
        for (simulated, theory) in [("partitioned-FCFS", "M/M/1"), ("centralized-FCFS", "M/M/16")] {
            let ratio = value("exponential", simulated, 0) / value("exponential", theory, 0);
            assert!((ratio - 1.0).abs() < 0.1, "{simulated}: {ratio}");
        }
    }
}
