//! IX Figure 7 and Table 3: memcached's two workloads, ours beside the distribution's memcached.

use std::time::Duration;

use load::{LoadReport, Mode, Probe, SearchConfig, Verdict, WorkloadConfig};
use load::{best_windows, throughput_at_slo};
use measure::{Disturbance, Plan, QUIET, contest, shuffled};
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::curve::{CPU_RPS, Curve, Curves};
use super::testbed::Testbed;
use crate::demo::config::SLO_P99_US;
use crate::demo::kv_test::{CONNECTIONS, KvServer, KvTest, SEARCH_WINDOW_MS};
use crate::demo::systems::{MEMCACHED_CONDITION, MODERATION_US, Memcached, Tailplane};
use crate::demo::window::window_once;
use service::config::App;

const ETC: &str = "ix.table3.etc_rps_at_slo_vs_linux";
const USR: &str = "ix.table3.usr_rps_at_slo_vs_linux";
const CPU: &str = "ix.table3.usr_server_cpu_per_request_vs_linux";
const UNLOADED: &str = "ix.table3.unloaded_p99_vs_linux";

const WHAT: &str = "The memcached protocol under Facebook's USR (99 % GETs, keys of 19 B, values of \
    2 B) and ETC (75 % GETs, keys of 20 to 70 B, values of 1 B to 1 KB) pools, open loop with Poisson \
    arrivals on 64 connections with at most four requests outstanding on each, from our own dataplane \
    as client for both servers; one server core each. The highest load whose p99 stays below 500 us, \
    found by bisection in windows of 200 ms, and the p99 of one request at a time.";

/// Figure 7.
pub const FIG7: Figure<Testbed> = Figure {
    id: "ix/fig7",
    title: "memcached: latency over throughput",
    section: "IX (TOCS'16) §5.5, Figure 7",
    what: WHAT,
    claims: &[],
    takes: Takes { quick_s: 150, full_s: 400 },
    run: curves,
};

/// Table 3.
pub const TABLE3: Figure<Testbed> = Figure {
    id: "ix/table3",
    title: "memcached: unloaded latency, and throughput within 500 us",
    section: "IX (TOCS'16) §5.5, Table 3",
    what: WHAT,
    claims: &[ETC, USR, CPU, UNLOADED],
    takes: Takes { quick_s: 150, full_s: 400 },
    run: table,
};

/// Windows for each sample that is wanted, before the rest is given up.
const CPU_TRIES: usize = 8;

/// The search for the throughput at the objective. Returns its windows and what was found.
///
/// # Errors
/// What the client could not do; the run was asked to stop.
pub fn search(
    test: &KvTest<'_>,
    recorder: &mut Recorder<'_>,
    name: &str,
) -> anyhow::Result<(Vec<Probe>, Option<f64>)> {
    let options = recorder.options();
    let config = SearchConfig {
        slo_p99_us: SLO_P99_US,
        start_rps: 50_000.0,
        precision: if options.quick { 0.06 } else { 0.03 },
        retries: if options.quick { 4 } else { 7 },
        ascents: 2,
        max_runs: 140,
        ..SearchConfig::default()
    };
    let found = throughput_at_slo(&config, |rps| -> anyhow::Result<LoadReport> {
        recorder.step(&format!("{name}: {rps:.0} requests/s"))?;
        test.at_rate(rps, SEARCH_WINDOW_MS)
    })?;
    Ok((found.probes, found.best.map(|best| best.achieved_rps)))
}

/// Throughput at the objective, as a search found it.
pub fn at_slo(found: Option<f64>) -> Measured {
    let missing = || Measured::missing("the objective was kept at no load that was tried");
    found.map_or_else(missing, Measured::single)
}

/// The workloads, in the order in which they are measured.
const WORKLOADS: [&str; 2] = ["USR", "ETC"];
/// The servers of the comparison, which are measured in an order that the seed draws.
const SERVERS: [&str; 2] = ["tailplane", "memcached-linux"];

fn measure(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let measured = testbed.memcached.is_some();
    let lab = testbed.lab(recorder)?;
    recorder.condition("B", 64);
    recorder.condition("priority", "real-time for both servers and the client");
    recorder.condition("memcached", MEMCACHED_CONDITION);
    recorder.condition("receive moderation of ours", format!("at most {MODERATION_US} us"));
    recorder.condition("objective", format!("p99 < {SLO_P99_US} us"));
    if measured {
        recorder.note("Measured once in this run, for Figure 7 and Table 3 together.");
        return Ok(());
    }
    let (mut curves, seed) = (Curves::new(), recorder.options().seed);
    for (round, workload) in [(0, WorkloadConfig::usr()), (1, WorkloadConfig::etc())] {
        for name in shuffled(SERVERS.to_vec(), seed.wrapping_add(round)) {
            let server = if name == SERVERS[0] {
                let ours = Tailplane::start(lab, App::Kv, |config| {
                    config.dataplane.moderation_us = MODERATION_US;
                })?;
                recorder.condition("driver", ours.driver.clone());
                KvServer::Tailplane(ours)
            } else {
                KvServer::Memcached(Memcached::start(lab)?)
            };
            let test = KvTest::new(lab, server, &workload, seed);
            curves.push(curve(&test, WORKLOADS[round as usize], name, recorder)?);
            test.end()?;
        }
    }
    testbed.memcached = Some(curves);
    Ok(())
}

fn curve(
    test: &KvTest<'_>,
    workload: &'static str,
    server: &'static str,
    recorder: &mut Recorder<'_>,
) -> anyhow::Result<Curve> {
    let options = recorder.options();
    let name = format!("{server}, {workload}");
    recorder.step(&format!("{name}: storing the keys"))?;
    test.store_keys()?;
    recorder.step(&format!("{name}: unloaded"))?;
    let unloaded = test.unloaded(options.repeats.max(3), SEARCH_WINDOW_MS)?;
    let unloaded_p99_us = unloaded.iter().map(|report| report.p99_us).collect();
    let (probes, at_slo) = search(test, recorder, &name)?;
    let cpu_us = cpu_us(test, recorder)?;
    Ok(Curve { workload, server, probes, at_slo, unloaded_p99_us, cpu_us })
}

/// The server's processor time for a request at [`CPU_RPS`], in us, window by window.
fn cpu_us(test: &KvTest<'_>, recorder: &mut Recorder<'_>) -> anyhow::Result<Vec<f64>> {
    let windows = recorder.options().repeats.max(3) as usize;
    recorder.step(&format!("processor time at {CPU_RPS} requests/s"))?;
    let load = test.load(Mode::open(CPU_RPS), CONNECTIONS, 350);
    // Requests are sent before the window, too.
    let requests = CPU_RPS * (load.warmup_ms + load.measure_ms) as f64 / 1e3;
    // A thread that waits for its processor uses none meanwhile: that disturbs nothing here.
    let quiet = Disturbance { waited_ns: u64::MAX, ..QUIET };
    let tries = CPU_TRIES * windows;
    let plan = Plan { windows, tries, pause: Duration::ZERO, quiet, seed: test.seed };
    let kept = contest(&mut [()], plan, |()| {
        let before = test.busy();
        let (report, disturbance) = window_once(test.lab, &test.processes(), &load, test.target())?;
        let took = test.busy().zip(before).map(|(after, before)| after - before);
        let carried = took.filter(|_| report.achieved_rps > 0.95 * CPU_RPS);
        anyhow::Ok((carried.map(|took| took.as_secs_f64() * 1e6 / requests), disturbance))
    })?;
    let quiet = kept.into_iter().filter(|kept| kept.disturbed.is_none());
    Ok(quiet.flat_map(|kept| kept.found).flatten().collect())
}

fn curves(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    measure(testbed, recorder)?;
    for workload in WORKLOADS {
        let (x, y) = (Axis::linear("throughput", "requests/s"), Axis::log("p99", "us"));
        let title = format!("{workload}: p99 over throughput");
        let chart = recorder.chart(&workload.to_lowercase(), &title, x, y);
        recorder.mark(chart, Mark::horizontal(MarkOf::Objective, SLO_P99_US, "500 us"));
        let series = SERVERS.map(|server| recorder.series(chart, server));
        for curve in testbed.memcached.iter().flatten().filter(|of| of.workload == workload) {
            let series = series[usize::from(curve.server == SERVERS[1])];
            let valid = curve.probes.iter().filter(|probe| probe.verdict != Verdict::Invalid);
            for best in best_windows(valid, |probe| (probe.offered_rps, probe.p99_us)) {
                recorder.point(series, best.achieved_rps, Measured::single(best.p99_us));
            }
        }
    }
    recorder
        .note("Each point is the best window at its load: a host's neighbours only add latency.");
    Ok(())
}

fn table(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    measure(testbed, recorder)?;
    let curves = testbed.memcached.as_deref().unwrap_or_default();
    let mut chart = |name, title, y| recorder.chart(name, title, Axis::category("workload"), y);
    let y = Axis::linear("throughput", "requests/s");
    let rates = chart("table", "Requests per second within 500 us", y);
    let unloaded = chart("unloaded", "p99 of one request at a time", Axis::linear("p99", "us"));
    let title = "Server's processor time per request at 80,000 requests/s";
    let times = chart("cpu", title, Axis::linear("time", "us"));
    for server in SERVERS {
        let [rate, p99, time] =
            [rates, unloaded, times].map(|chart| recorder.series(chart, server));
        for curve in curves.iter().filter(|curve| curve.server == server) {
            recorder.category(rate, curve.workload, at_slo(curve.at_slo));
            recorder.category(p99, curve.workload, Measured::samples(&curve.unloaded_p99_us));
            recorder.category(time, curve.workload, Measured::samples(&curve.cpu_us));
        }
    }
    let of = |workload: &str, server: &str| {
        curves.iter().find(|curve| curve.workload == workload && curve.server == server)
    };
    for (id, workload) in [(ETC, "ETC"), (USR, "USR")] {
        let at_slo = |server: &str| of(workload, server)?.at_slo;
        match (at_slo("tailplane"), at_slo("memcached-linux")) {
            (Some(ours), Some(linux)) => recorder.claim(id, Measured::single(ours / linux))?,
            _ => recorder.claim_not_run(id, "a server kept the objective at no load")?,
        }
    }
    if let (Some(ours), Some(linux)) = (of("USR", "tailplane"), of("USR", "memcached-linux")) {
        let seed = recorder.options().seed;
        let (linux, ours) = (&linux.unloaded_p99_us, &ours.unloaded_p99_us);
        recorder.claim(UNLOADED, Measured::ratio(linux, ours, seed))?;
    }
    let times = |server: &str| of("USR", server).map(|curve| curve.cpu_us.as_slice());
    match (times("memcached-linux"), times("tailplane")) {
        (Some(linux @ [_, ..]), Some(ours @ [_, ..])) => {
            recorder.claim(CPU, Measured::ratio(linux, ours, recorder.options().seed))
        }
        _ => recorder.claim_not_run(CPU, "no undisturbed window at 80,000 requests/s"),
    }
}
