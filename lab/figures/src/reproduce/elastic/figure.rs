//! The figure: load, latency, threads and the job's progress over time, with the daemon's and the paper's policies.

use measure::stats::median;
use reproduce::{Axis, Figure, Recorder, Takes};

use super::found::Found;
use super::plan::{AHEAD, PAPER, Plan, Policy, REQUEST_US, SHARES};
use super::run::run as carry_out;
use super::timeline::Swing;
use crate::reproduce::Testbed;

/// Within so long of the violation the second thread serves, in ms.
const REACTS_MS: f64 = 100.0;
const PERIOD_MS: u64 = 14_000;

/// See the module's comment.
pub const ELASTIC: Figure<Testbed> = Figure {
    id: "ix/elastic",
    title: "A second processor while the load needs one, and a job on it while not",
    section: "IX (TOCS'16) §4.6 and §5.4",
    what: "Not in the paper: its control plane for real, on two processors. tailplaned starts a service of two elastic \
           threads, whose requests take 500 us each, and a background job. The load steps from 10 % of what both threads \
           carry to 90 % and back. The second thread must serve within 100 ms of the first packet that waits longer than \
           the bound, and be parked again; the job gets its processor meanwhile, and the daemon tells how far it comes. \
           The load comes from the same two processors, at real-time priority.",
    claims: &[],
    takes: Takes { quick_s: 45, full_s: 200 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let swings = if options.quick { 1 } else { 6 };
    recorder.plan(2);
    recorder.condition("wire", "veth pair of two queues, AF_XDP in copy mode");
    recorder.condition("request", format!("{REQUEST_US} us, deterministic; Poisson arrivals"));
    recorder.condition("load", format!("{} to {} of what two threads carry", SHARES[0], SHARES[1]));
    for policy in [AHEAD, PAPER] {
        recorder.step(policy.name)?;
        let plan = Plan { policy, swings, period_ms: PERIOD_MS, seed: options.seed };
        let found = carry_out(&plan)?;
        draw(recorder, &policy, &found);
        recorder.note(format!("{}: {}", policy.name, verdict(&policy, &found)));
    }
    Ok(())
}

/// Seconds of the load's window.
fn seconds(found: &Found, at_ns: u64) -> f64 {
    (at_ns as f64 - found.began_ns as f64) / 1e9
}

fn draw(recorder: &mut Recorder<'_>, policy: &Policy, found: &Found) {
    let short = policy.name.split([' ', ',']).next().unwrap_or(policy.name);
    let time = || Axis::linear("time", "s");
    let shares = Axis::linear("share of two processors, or of the capacity", "");
    let chart = recorder.chart(short, policy.name, time(), shares.range(0.0, 1.1));
    let offered = found.report.series.iter().map(|point| {
        let share = point.offered_rps.unwrap_or_default() / found.capacity_rps;
        (point.at_ms as f64 / 1e3, share)
    });
    recorder.curve(chart, "load offered", offered);
    let end_ns = found.progress.last().map_or(0, |told| told.at_ns);
    let mut steps = vec![(found.progress.first().map_or(0, |told| told.at_ns), 0.5)];
    for &(from_ns, to_ns) in &found.granted {
        steps.extend([(from_ns, 0.5), (from_ns, 1.0), (to_ns, 1.0), (to_ns, 0.5)]);
    }
    steps.push((end_ns, steps[steps.len() - 1].1));
    let threads = steps.into_iter().map(|(at_ns, share)| (seconds(found, at_ns), share));
    recorder.curve(chart, "processors granted to the service", threads);
    let job = found.progress.windows(6).step_by(5).filter_map(|pair| {
        let (from, to) = (pair[0], pair[5]);
        let share = found.job_share(from.at_ns, to.at_ns + 1)?;
        Some((seconds(found, to.at_ns), share / 2.0))
    });
    recorder.curve(chart, "the job's progress", job);
    let (name, title) =
        (format!("{short}-latency"), format!("{}: 99th percentile of 100 ms", policy.name));
    let latencies = recorder.chart(&name, &title, time(), Axis::log("latency", "us"));
    let points = found.report.series.iter();
    let p99 = points.filter_map(|point| Some((point.at_ms as f64 / 1e3, point.p99_us?)));
    recorder.curve(latencies, "p99", p99);
}

/// The worst and the median of what there is.
fn spread(values: &[f64]) -> String {
    let worst = values.iter().copied().fold(f64::NAN, f64::max);
    median(values)
        .map_or_else(|| "never".to_owned(), |m| format!("{m:.0} ms, at most {worst:.0} ms"))
}

/// What came of it, in sentences.
fn verdict(policy: &Policy, found: &Found) -> String {
    let of = |what: fn(&Swing) -> Option<f64>| -> Vec<f64> {
        found.swings.iter().filter_map(what).collect()
    };
    let (reacted, granted) = (of(Swing::reacted_ms), of(Swing::granted_ms));
    let parked = of(Swing::parked_ms);
    let violated = found.swings.iter().filter(|swing| swing.violation_ns.is_some()).count();
    let all = found.swings.len();
    let is_met = reacted.len() == all && reacted.iter().all(|ms| *ms <= REACTS_MS) && all > 0;
    let [low, high] = job_shares(found);
    let show =
        |share: Option<f64>| share.map_or("unknown".to_owned(), |s| format!("{:.0} %", 100.0 * s));
    format!(
        "two threads carry {:.0} requests/s; {all} swings, in {violated} of them a packet waited over {:.0} us; the second \
         thread served {} after that ({} of {all}; {} 100 ms), {} after the step, and was parked {} after the step down \
         ({} of {all}); the job got {} of a processor at low load and {} at high load; {} requests, {} errors; {}.",
        found.capacity_rps,
        policy.bound_us,
        spread(&reacted),
        reacted.len(),
        if is_met { "within" } else { "NOT always within" },
        spread(&granted),
        spread(&parked),
        parked.len(),
        show(low),
        show(high),
        found.report.requests,
        found.report.errors,
        found.disturbance,
    )
}

/// What the job got while the second thread was parked, and while it served, at the middle of each.
pub fn job_shares(found: &Found) -> [Option<f64>; 2] {
    let mean = |shares: Vec<f64>| {
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let high = found.granted.iter().filter_map(|&(from, to)| found.job_share(from, to)).collect();
    let gaps = found.granted.windows(2).map(|pair| (pair[0].1, pair[1].0));
    let begin_ns = found.progress.first().map_or(0, |told| told.at_ns);
    let end_ns = found.progress.last().map_or(0, |told| told.at_ns + 1);
    let first = found.granted.first().map_or(end_ns, |spell| spell.0);
    let last = found.granted.last().map_or(end_ns, |spell| spell.1);
    let low = gaps.chain([(begin_ns, first), (last, end_ns)]);
    let low = low.filter_map(|(from, to)| found.job_share(from, to)).collect();
    [mean(low), mean(high)]
}
