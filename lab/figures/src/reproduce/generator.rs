//! The load generator against a service whose latencies are known.

use anyhow::bail;
use load::{ArrivalProcess, LoadConfig, LoadReport, Mode, WorkloadConfig};
use queueing::Law;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::Testbed;
use super::local::ShmService;
use crate::demo::window::WINDOW_MAX_MS;

/// Where the service listens.
const PORT: u16 = 7_070;
/// Of each distribution, in microseconds: far above what the wire, the two dataplanes and the interruptions of a virtual
/// machine add, a timer's some 15 us a thousand times a second.
const MEAN_US: f64 = 2_000.0;
/// Enough that a request hardly ever finds its connection busy.
const CONNECTIONS: u32 = 8_192;
/// How far it may be off, at the median and at the 99th percentile.
const WITHIN: [f64; 2] = [0.02, 0.05];
/// What is looked at, of a hundred.
const PERCENTILES: [f64; 3] = [50.0, 99.0, 99.9];

/// See the module's comment.
pub const GENERATOR: Figure<Testbed> = Figure {
    id: "zygos/generator",
    title: "The load generator against known latencies",
    section: "ZygOS (SOSP'17) §2.3, its distributions",
    what: "A service that answers each request after exactly the time that it asks for, however many there are, \
           in a process of its own, joined to the generator by shared memory. The generator's capacity is the \
           highest rate of Poisson arrivals that it and the service keep; at half of that it must measure what the distribution of the times says, to 2 % at the median and 5 % at the 99th percentile. \
           What both dataplanes and the wire add is not taken off.",
    claims: &[],
    takes: Takes { quick_s: 20, full_s: 60 },
    run,
};

/// The distributions.
const LAWS: [Law; 3] = [Law::Deterministic, Law::Exponential, Law::Bimodal1];

/// Where its percentiles are, in microseconds.
fn known_us(law: Law) -> [f64; 3] {
    PERCENTILES.map(|percentile| MEAN_US * law.quantile(percentile / 100.0))
}

/// A load of service times of this law and mean, in windows as long as they may be.
fn load_of(law: Law, mean_us: f64, seed: u64) -> anyhow::Result<LoadConfig> {
    let workload = WorkloadConfig::named(&format!("spin:{}:{mean_us}", law.name()))?;
    let (warmup_ms, measure_ms) = (50, WINDOW_MAX_MS - 50);
    Ok(LoadConfig { warmup_ms, measure_ms, seed, ..LoadConfig::new(workload) })
}

fn open(law: Law, rps: f64, seed: u64) -> anyhow::Result<LoadConfig> {
    let mode = Mode::Open { rps, arrivals: ArrivalProcess::Poisson, depth: 1 };
    Ok(LoadConfig { mode, connections: CONNECTIONS, ..load_of(law, MEAN_US, seed)? })
}

/// The highest of some rates that the generator keeps and at which the service does not lag far behind either, each a fifth
/// below the one before: from what a closed loop reaches, which no open one does.
fn capacity(service: &ShmService, seed: u64) -> anyhow::Result<f64> {
    const STEP: f64 = 0.8;
    const STEPS: i32 = 16;
    let short = load_of(Law::Deterministic, 1.0, seed)?;
    let load = LoadConfig { mode: Mode::closed(1), connections: 64, ..short };
    let closed_rps = service.window(&load, PORT)?.0.achieved_rps;
    for step in 0..STEPS {
        let rps = closed_rps * STEP.powi(step);
        let (report, _) = service.window(&open(Law::Exponential, rps, seed)?, PORT)?;
        let is_kept = report.p50_us < 1.5 * known_us(Law::Exponential)[0];
        if report.valid && is_kept {
            return Ok(rps);
        }
    }
    bail!(
        "the generator kept none of {STEPS} rates from {closed_rps:.0} requests/s down to a thirtieth of that: is \
         something else running on its processor?"
    )
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    // Of so many the median: what disturbs some of them does not show.
    let windows = if options.quick { 9 } else { 25 };
    let service = ShmService::start_realtime("delay")?;
    recorder.condition("priority", "real-time for the service and the generator");
    recorder.plan(1 + LAWS.len() as u64);
    recorder.step("the generator's capacity")?;
    let capacity_rps = capacity(&service, options.seed)?;
    let rps = capacity_rps / 2.0;
    recorder.note(format!("Capacity {capacity_rps:.0} requests/s; asked for: {rps:.0}."));
    let (x, y) = (Axis::linear("percentile", ""), Axis::linear("measured over known", ""));
    let chart =
        recorder.chart("accuracy", "Measured latency over the known one", x, y.range(0.9, 1.1));
    recorder.mark(chart, Mark::horizontal(MarkOf::Goal, 1.0, "as it is known"));
    for law in LAWS {
        recorder.step(law.name())?;
        let load = open(law, rps, options.seed)?;
        let reports = (0..windows)
            .map(|_| Ok(service.window(&load, PORT)?.0))
            .collect::<anyhow::Result<Vec<LoadReport>>>()?;
        let known_us = known_us(law);
        let ratios: [Vec<f64>; 3] = std::array::from_fn(|index| {
            let of = |report: &LoadReport| {
                [report.p50_us, report.p99_us, report.p999_us][index] / known_us[index]
            };
            reports.iter().map(of).collect()
        });
        let measured = ratios.each_ref().map(|ratios| Measured::samples(ratios));
        recorder.curve(chart, law.name(), PERCENTILES.into_iter().zip(measured));
        recorder.note(verdict(law, &reports, &ratios));
    }
    Ok(())
}

/// What came of one distribution, in a sentence.
fn verdict(law: Law, reports: &[LoadReport], ratios: &[Vec<f64>; 3]) -> String {
    let off = |index: usize| {
        let median = measure::stats::median(&ratios[index]);
        median.map_or(f64::INFINITY, |ratio| ratio - 1.0)
    };
    let is_within = (0..2).all(|index| off(index).abs() <= WITHIN[index]);
    let invalid = reports.iter().find_map(|report| report.invalid_reason.as_deref());
    let known_us = known_us(law);
    format!(
        "{}, known p50 {:.0} us, p99 {:.0} us: off by {:+.1} % and {:+.1} % ({:+.0} and {:+.0} us), {} 2 % and 5 %; \
         p99.9 by {:+.1} %.{}",
        law.name(),
        known_us[0],
        known_us[1],
        100.0 * off(0),
        100.0 * off(1),
        known_us[0] * off(0),
        known_us[1] * off(1),
        if is_within { "within" } else { "beyond" },
        100.0 * off(2),
        invalid.map_or_else(String::new, |why| format!(" A window is invalid: {why}.")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distribution_is_a_workload_and_its_percentiles_are_known() {
        for law in LAWS {
            load_of(law, MEAN_US, 1).expect("a workload of that name");
        }
        let [deterministic, exponential, bimodal] = LAWS.map(known_us);
        assert_eq!(deterministic, [2_000.0; 3]);
        assert_eq!(exponential.map(|us| us.round()), [1_386.0, 9_210.0, 13_816.0]);
        // Nine of ten take half of the mean, the others 5.5 times as long.
        assert_eq!(bimodal, [1_000.0, 11_000.0, 11_000.0]);
    }
}
