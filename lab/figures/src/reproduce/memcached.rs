//! IX Figure 7 and Table 3: memcached's two workloads, ours beside the distribution's memcached.

use load::{ConfigError, best_windows, throughput_at_slo};
use load::{LoadConfig, LoadReport, Mode, Probe, SearchConfig, Verdict, WorkloadConfig};
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::curve::{CPU_RPS, Curve, Curves};
use super::testbed::{Testbed, ratio};
use crate::demo::config::SLO_P99_US;
use crate::demo::machine::Disturbance;
use crate::demo::systems::{MEMCACHED_CONDITION, MODERATION_US, Memcached, Tailplane};
use crate::demo::window::{window, window_once};
use service::lab::Lab;

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
const CPU_TRIES: u32 = 8;

/// Carries a search's error.
struct Failed(anyhow::Error);

impl From<ConfigError> for Failed {
    fn from(error: ConfigError) -> Self {
        Self(error.into())
    }
}

/// A load of this workload.
pub fn load_of(workload: &WorkloadConfig, mode: Mode, connections: u32, seed: u64) -> LoadConfig {
    LoadConfig {
        mode,
        connections,
        warmup_ms: 50,
        measure_ms: 200,
        preload: false,
        // The objective judges late requests: their latency counts from the intended time.
        lag_limit_us: SLO_P99_US as u64,
        seed,
        ..LoadConfig::new(workload.clone())
    }
}

/// The search for the throughput at the objective. Answers its windows and what was found.
///
/// # Errors
/// What the client could not do.
pub fn search(
    lab: &Lab,
    others: &[u32],
    workload: &WorkloadConfig,
    target: std::net::SocketAddrV4,
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
    let found = throughput_at_slo(&config, |rps| -> Result<LoadReport, Failed> {
        recorder
            .step(&format!("{name}: {rps:.0} requests/s"))
            .map_err(|stop| Failed(stop.into()))?;
        let load = load_of(workload, Mode::open(rps), 64, options.seed);
        Ok(window(lab, others, &load, target).map_err(Failed)?.0)
    })
    .map_err(|failed| failed.0)?;
    Ok((found.probes, found.best.map(|best| best.achieved_rps)))
}

/// Stores all keys.
///
/// # Errors
/// What the client could not do.
pub fn store_keys(
    lab: &Lab,
    others: &[u32],
    workload: &WorkloadConfig,
    target: std::net::SocketAddrV4,
    seed: u64,
) -> anyhow::Result<()> {
    let load = LoadConfig { preload: true, ..load_of(workload, Mode::closed(1), 8, seed) };
    window(lab, others, &load, target).map(|_| ())
}

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
    let mut curves = Curves::new();
    for (workload, name) in [(WorkloadConfig::usr(), "USR"), (WorkloadConfig::etc(), "ETC")] {
        let server = Tailplane::start_moderated(lab)?;
        recorder.condition("driver", server.driver.clone());
        let target = Tailplane::target();
        let mut ours = curve(lab, &[], (&workload, name), ("tailplane", target), recorder)?;
        ours.cpu_us = cpu_us(lab, &[], &workload, target, || Some(server.busy()), recorder)?;
        curves.push(ours);
        server.stop()?;
        let server = Memcached::start(lab)?;
        let (others, target) = ([server.pid()], Memcached::target());
        let mut theirs =
            curve(lab, &others, (&workload, name), ("memcached-linux", target), recorder)?;
        theirs.cpu_us = cpu_us(lab, &others, &workload, target, || server.busy(), recorder)?;
        curves.push(theirs);
    }
    testbed.memcached = Some(curves);
    Ok(())
}

fn curve(
    lab: &Lab,
    others: &[u32],
    (workload, workload_name): (&WorkloadConfig, &'static str),
    (server, target): (&'static str, std::net::SocketAddrV4),
    recorder: &mut Recorder<'_>,
) -> anyhow::Result<Curve> {
    let options = recorder.options();
    let name = format!("{server}, {workload_name}");
    recorder.step(&format!("{name}: storing the keys"))?;
    store_keys(lab, others, workload, target, options.seed)?;
    recorder.step(&format!("{name}: unloaded"))?;
    let load = load_of(workload, Mode::closed(1), 1, options.seed);
    let unloaded_p99_us = (0..options.repeats.max(3))
        .map(|_| Ok(window(lab, others, &load, target)?.0.p99_us))
        .collect::<anyhow::Result<Vec<f64>>>()?;
    let (probes, at_slo) = search(lab, others, workload, target, recorder, &name)?;
    let cpu_us = Vec::new();
    Ok(Curve { workload: workload_name, server, probes, at_slo, unloaded_p99_us, cpu_us })
}

/// The server's processor time for a request at [`CPU_RPS`], in us, window by window. `busy` tells what
/// the server has used so far.
fn cpu_us(
    lab: &Lab,
    others: &[u32],
    workload: &WorkloadConfig,
    target: std::net::SocketAddrV4,
    busy: impl Fn() -> Option<std::time::Duration>,
    recorder: &mut Recorder<'_>,
) -> anyhow::Result<Vec<f64>> {
    let options = recorder.options();
    recorder.step(&format!("processor time at {CPU_RPS} requests/s"))?;
    let load =
        LoadConfig { measure_ms: 350, ..load_of(workload, Mode::open(CPU_RPS), 64, options.seed) };
    // Requests are sent before the window, too.
    let requests = CPU_RPS * (load.warmup_ms + load.measure_ms) as f64 / 1e3;
    let (wanted, mut samples) = (options.repeats.max(3), Vec::new());
    for _ in 0..CPU_TRIES * wanted {
        let Some(before) = busy() else { break };
        let (report, disturbance) = window_once(lab, others, &load, target)?;
        // A thread that waits for its processor uses none meanwhile: that disturbs nothing here.
        let quiet = Disturbance { waited_s: 0.0, ..disturbance }.is_quiet();
        if let Some(after) = busy()
            && quiet
            && report.achieved_rps > 0.95 * CPU_RPS
        {
            samples.push((after - before).as_secs_f64() * 1e6 / requests);
        }
        if samples.len() as u32 == wanted {
            break;
        }
    }
    Ok(samples)
}

fn curves(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    measure(testbed, recorder)?;
    for workload in ["USR", "ETC"] {
        let chart = recorder.chart(
            &workload.to_lowercase(),
            &format!("{workload}: p99 over throughput"),
            Axis::linear("throughput", "requests/s"),
            Axis::log("p99", "us"),
        );
        recorder.mark(chart, Mark::horizontal(MarkOf::Objective, SLO_P99_US, "500 us"));
        for curve in testbed.memcached.iter().flatten().filter(|of| of.workload == workload) {
            let series = recorder.series(chart, curve.server);
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
    let chart = recorder.chart(
        "table",
        "Requests per second within 500 us",
        Axis::category("workload"),
        Axis::linear("throughput", "requests/s"),
    );
    let unloaded = recorder.chart(
        "unloaded",
        "p99 of one request at a time",
        Axis::category("workload"),
        Axis::linear("p99", "us"),
    );
    let curves = testbed.memcached.as_deref().unwrap_or_default();
    let cpu = recorder.chart(
        "cpu",
        "Server's processor time per request at 80,000 requests/s",
        Axis::category("workload"),
        Axis::linear("time", "us"),
    );
    for server in ["tailplane", "memcached-linux"] {
        let (rate, p99) = (recorder.series(chart, server), recorder.series(unloaded, server));
        let time = recorder.series(cpu, server);
        for curve in curves.iter().filter(|curve| curve.server == server) {
            let at_slo = curve.at_slo.map_or_else(
                || Measured::missing("the objective was kept at no load that was tried"),
                Measured::single,
            );
            recorder.category(rate, curve.workload, at_slo);
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
        recorder.claim(UNLOADED, ratio(linux, ours, seed))?;
    }
    let times = |server: &str| of("USR", server).map(|curve| curve.cpu_us.as_slice());
    match (times("memcached-linux"), times("tailplane")) {
        (Some(linux @ [_, ..]), Some(ours @ [_, ..])) => {
            recorder.claim(CPU, ratio(linux, ours, recorder.options().seed))?;
        }
        _ => recorder.claim_not_run(CPU, "no undisturbed window at 80,000 requests/s")?,
    }
    Ok(())
}
