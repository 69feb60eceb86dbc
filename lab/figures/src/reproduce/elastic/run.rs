//! Carries a plan out.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use load::kernel::{KernelConfig, Wait};
use load::{ArrivalProcess, LoadConfig, LoadReport, Mode, Pattern, PatternShape, WorkloadConfig};
use measure::watched;
use runtime::set_realtime;

use super::found::{Found, Progress};
use super::plan::{Plan, REQUEST_US, SHARES};
use super::rig::Rig;
use super::timeline;
use service::lab::in_namespace;
use service::watch::now_ns;

const CONNECTIONS: u32 = 64;
/// The generator and who looks come before the job and the service, for microseconds at a time.
const REALTIME: u8 = 2;
/// Of the measurement of what two threads carry.
const WARMUP_MS: u64 = 200;
const CAPACITY_MS: u64 = 1_000;
/// How often the daemon is asked how far the job has come.
const ASK: Duration = Duration::from_millis(100);

/// Carries the plan out.
///
/// # Errors
/// What could not be started; a load that nobody answers.
pub fn run(plan: &Plan) -> anyhow::Result<Found> {
    let capacity_rps = capacity(plan)?;
    let rig = Rig::start(plan.policy.scheduler, Some(&plan.policy))?;
    let found = swing(&rig, plan, capacity_rps);
    found.with_context(|| format!("the end of tailplaned's log:\n{}", rig.log()))
}

/// What two threads carry, with nobody else on their processors but the generator.
fn capacity(plan: &Plan) -> anyhow::Result<f64> {
    let rig = Rig::start(plan.policy.scheduler, None)?;
    let mut load = load_of(plan)?;
    load.mode = Mode::closed(1);
    (load.warmup_ms, load.measure_ms) = (WARMUP_MS, CAPACITY_MS);
    Ok(carry(&rig, &load)?.achieved_rps)
}

fn load_of(plan: &Plan) -> anyhow::Result<LoadConfig> {
    let workload = WorkloadConfig::named(&format!("spin:deterministic:{REQUEST_US}"))?;
    let mut load = LoadConfig::new(workload);
    (load.connections, load.seed) = (CONNECTIONS, plan.seed);
    Ok(load)
}

fn carry(rig: &Rig, load: &LoadConfig) -> anyhow::Result<LoadReport> {
    let target = SocketAddr::V4(rig.target());
    let transport = KernelConfig { wait: Wait::Block, ..KernelConfig::new(target) };
    let report = in_namespace(rig.lab().client(), || {
        // The generator's thread is as its maker.
        set_realtime(REALTIME)?;
        Ok::<_, anyhow::Error>(load::kernel::run(load, &transport)?)
    })??;
    ensure!(report.errors == 0, "{} requests failed", report.errors);
    Ok(report)
}

fn swing(rig: &Rig, plan: &Plan, capacity_rps: f64) -> anyhow::Result<Found> {
    let [low_rps, high_rps] = SHARES.map(|share| share * capacity_rps);
    let mut load = load_of(plan)?;
    load.mode = Mode::Open { rps: high_rps, arrivals: ArrivalProcess::Poisson, depth: 4 };
    let (shape, period_ms) = (PatternShape::Square, plan.period_ms);
    load.pattern = Some(Pattern { shape, low_rps, period_ms, seed: plan.seed });
    // The first thing that is seen of it is a step up, after a calm time.
    (load.warmup_ms, load.measure_ms) = (0, u64::from(plan.swings) * period_ms);
    load.series = true;
    let (service, done) = (rig.service()?, AtomicBool::new(false));
    let everything = || {
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                // Without the right to it, it looks a little later.
                let _ = set_realtime(REALTIME);
                timeline::record(&service, &done)
            });
            let progress = scope.spawn(|| ask(rig, &done));
            let report = carry(rig, &load);
            done.store(true, Ordering::Relaxed);
            anyhow::Ok((looks.join(), progress.join(), report))
        })
    };
    let ((looks, progress, report), disturbance) = watched(&rig.processes(), everything)?;
    let (Ok(looks), Ok(progress), report) = (looks, progress, report?) else {
        anyhow::bail!("a thread that only looked has ended by a panic");
    };
    // A request is a packet of data and one that confirms the answer: with the next request, or alone.
    let packets = report_rate(&looks, &report) / report.achieved_rps;
    let bound_ns = (plan.policy.bound_us * 1e3) as u64;
    let rates = (low_rps * packets, high_rps * packets);
    let up_ns = timeline::first_step_ns(&looks, rates).context("the load never stepped up")?;
    let period_ns = plan.period_ms * 1_000_000;
    let swings = timeline::swings(&looks, (up_ns, period_ns), bound_ns);
    Ok(Found {
        capacity_rps,
        began_ns: up_ns.saturating_sub(period_ns / 4),
        granted: timeline::granted(&looks),
        swings,
        progress: progress?,
        disturbance,
        report,
    })
}

/// Packets per second, over the whole of the load's window.
fn report_rate(looks: &[timeline::Look], report: &LoadReport) -> f64 {
    let (Some(first), Some(last)) = (looks.first(), looks.last()) else { return 0.0 };
    let window_s = report.conditions.measure_ms as f64 / 1e3;
    last.packets.saturating_sub(first.packets) as f64 / window_s
}

fn ask(rig: &Rig, done: &AtomicBool) -> anyhow::Result<Vec<Progress>> {
    let mut told = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let status = rig.status()?;
        let cpu_s = status["running"]["background"]["cpu_seconds"].as_f64();
        told.push(Progress { at_ns: now_ns(), cpu_s: cpu_s.context("no job is told of")? });
        std::thread::sleep(ASK);
    }
    Ok(told)
}
