//! IX Figure 5a: message rate over cores, on as many virtual ones as the figure has.

use queueing::Law;
use reproduce::{Axis, Figure, Measured, Recorder, Takes};
use world::cores::{Costs, Search, Setup};

use super::Testbed;
use super::zygos::systems::{RTC_64, cost_models};

const CLAIM: &str = "ix.fig5a.core_scaling_efficiency";
/// Elastic threads: IX's figure ends at eight.
const CORES: [usize; 4] = [1, 2, 4, 8];
/// An echo takes next to nothing beside the network layer.
const ECHO_US: f64 = 0.05;
/// Within this time 99 % are answered. Small beside what a core falls behind in a run when it is asked for a few percent
/// more than it can do ([`REQUESTS`]): a larger one would be kept at any rate.
const OBJECTIVE_US: f64 = 100.0;
/// Requests for each core.
const REQUESTS: u64 = 40_000;
/// Connections for each core.
const CONNECTIONS: usize = 128;

/// See the module's comment.
pub const FIG5A: Figure<Testbed> = Figure {
    id: "ix/fig5a",
    title: "Messages per second over cores",
    section: "IX (TOCS'16) §5.2, Figure 5a",
    what: "Echoes of 16 bytes on 128 connections for each core, simulated: the real elastic threads, run to completion, \
           B = 64, each with its own queue pair, pool and flow groups, on virtual cores with measured costs. The highest \
           rate at which 99 % are answered within 100 us, by cores. As with clients that wait for their answers, each core is \
           asked as often as any other; what hashing costs beside that is told.",
    claims: &[CLAIM],
    takes: Takes { quick_s: 60, full_s: 600 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let models = cost_models(recorder)?;
    recorder.plan((models.len() * CORES.len() + 1) as u64);
    let (x, y) = (Axis::linear("cores", ""), Axis::linear("rate", "million/s"));
    let chart = recorder.chart("rate", "Messages per second", x, y);
    for (place, costs) in models.iter().enumerate() {
        let series = recorder.series(chart, &costs.name);
        let mut rates = Vec::new();
        for cores in CORES {
            recorder.step(&format!("{}, {cores} cores", costs.name))?;
            let found = highest(recorder, costs, cores, true)?;
            recorder.point(series, cores as f64, Measured::mean(&found, 0.0..=f64::MAX));
            rates.push(found);
        }
        let [one, .., most] = &rates[..] else { continue };
        // This machine's costs fill the claim.
        if place == 0 {
            let linear = one.mean * CORES[CORES.len() - 1] as f64;
            let share = most.map(|rate| rate / linear);
            recorder.claim(CLAIM, Measured::mean(&share, 0.0..=f64::MAX))?;
            recorder.step("hashed connections")?;
            let hashed = highest(recorder, costs, CORES[CORES.len() - 1], false)?;
            recorder.note(format!(
                "where connections are spread by hashing and asked alike, the fullest core bounds the rate: {:.2} of \
                 linear",
                hashed.mean / linear
            ));
        }
    }
    Ok(())
}

/// The highest rate, in millions a second.
fn highest(
    recorder: &Recorder<'_>,
    costs: &Costs,
    cores: usize,
    balanced: bool,
) -> anyhow::Result<queueing::MeanInterval> {
    let options = recorder.options();
    let setup = Setup {
        cores,
        balanced,
        connections: CONNECTIONS * cores,
        ..RTC_64.setup(costs, Law::Deterministic, ECHO_US)
    };
    let search = Search {
        bound: OBJECTIVE_US / ECHO_US,
        requests: if options.quick { REQUESTS } else { 5 * REQUESTS } * cores as u64,
        step: if options.quick { 0.001 } else { 0.000_5 },
        count: options.repeats.max(2),
        seed: options.seed,
        ..Search::zygos()
    };
    Ok(RTC_64.search(&setup, &search)?.map(|load| setup.rate(load) / 1e6))
}
