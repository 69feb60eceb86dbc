//! A service that gets a second processor while its load needs one, for real: `tailplaned`, a service that it has
//! started, and a background job, on two processors (IX §4.6, §5.4).
//!
//! ```text
//! generator (kernel sockets) --- veth, two queues --- two elastic threads: spin     a background job
//!                                                          ^                            ^
//!                                                          '-- grants, parks, moves ----'-- what is left: tailplaned
//! ```

mod figure;
mod rig;
mod timeline;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use load::kernel::{KernelConfig, Wait};
use load::{ArrivalProcess, LoadConfig, LoadReport, Mode, Pattern, PatternShape, WorkloadConfig};
use runtime::set_realtime;

pub use figure::{ELASTIC, job_shares};
pub use timeline::Swing;

use crate::demo::machine::{Disturbance, Usage};
use rig::Rig;
use service::lab::in_namespace;
use service::watch::now_ns;

/// Microseconds that a request takes: so long that generator and daemon, on the same two processors, take little of them,
/// and 90 % of what two threads carry is too much for one.
pub const REQUEST_US: f64 = 500.0;
const CONNECTIONS: u32 = 64;
/// Low and high load, as shares of what two threads carry.
pub const SHARES: [f64; 2] = [0.1, 0.9];
/// The generator and who looks come before the job and the service, for microseconds at a time.
const REALTIME: u8 = 2;
/// Of the measurement of what two threads carry.
const WARMUP_MS: u64 = 200;
const CAPACITY_MS: u64 = 1_000;
/// How often the daemon is asked how far the job has come.
const ASK: Duration = Duration::from_millis(100);

/// How the service is governed.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What results call it.
    pub name: &'static str,
    /// Its lines in the service's `[control]` table.
    pub table: &'static str,
    /// What a packet may wait, in microseconds: one that waits longer is a violation.
    pub bound_us: f64,
    /// The service's scheduler.
    pub scheduler: &'static str,
}

/// Our own: a thousand turns a second, ahead of the load.
pub const AHEAD: Policy = Policy {
    name: "latency target, 1 kHz",
    table: "policy = \"latency-target\"\nover = \"consolidation\"\nslo_us = 6000\nfloor_us = 700\nperiod_ms = 1\n",
    bound_us: 2_500.0,
    scheduler: "work-conserving",
};

/// As in the paper: ten turns a second.
pub const PAPER: Policy = Policy {
    name: "consolidation, 10 Hz",
    table: "policy = \"consolidation\"\nslo_us = 2500\nperiod_ms = 100\n",
    bound_us: 2_500.0,
    scheduler: "run-to-completion",
};

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Who decides.
    pub policy: Policy,
    /// From low to high load and back, so many times.
    pub swings: u32,
    /// Each takes so long: half of it at the high load.
    pub period_ms: u64,
    /// Of the arrivals.
    pub seed: u64,
}

/// What the daemon said of the job at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Its processor time so far, in seconds.
    pub cpu_s: f64,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// What two threads carry, in requests per second.
    pub capacity_rps: f64,
    /// The load, in intervals.
    pub report: LoadReport,
    /// When the load's window began, by `CLOCK_MONOTONIC`, in nanoseconds: as the first step shows.
    pub began_ns: u64,
    /// What was done about it.
    pub swings: Vec<Swing>,
    /// How far the job came.
    pub progress: Vec<Progress>,
    /// When the second thread served: from, to.
    pub granted: Vec<(u64, u64)>,
    /// What others did to the processors meanwhile.
    pub disturbance: Disturbance,
}

impl Found {
    /// What the job got of a processor between two moments: 1 is all of one. None where nothing was told between them.
    pub fn job_share(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let within = |told: &&Progress| (from_ns..to_ns).contains(&told.at_ns);
        let first = self.progress.iter().find(within)?;
        let last = self.progress.iter().rev().find(within)?;
        let over_s =
            last.at_ns.checked_sub(first.at_ns).filter(|over_ns| *over_ns > 0)? as f64 / 1e9;
        Some((last.cpu_s - first.cpu_s) / over_s)
    }
}

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
    let transport = KernelConfig {
        target: SocketAddr::V4(rig.target()),
        wait: Wait::Block,
        threads: 1,
        cores: Vec::new(),
    };
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
    let usage = Usage::now(&rig.processes());
    let (looks, progress, report) = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            // Without the right to it, it looks a little later.
            let _ = set_realtime(REALTIME);
            timeline::record(&service, &done)
        });
        let progress = scope.spawn(|| ask(rig, &done));
        let report = carry(rig, &load);
        done.store(true, Ordering::Relaxed);
        (looks.join(), progress.join(), report)
    });
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
        disturbance: usage.disturbance_since(&rig.processes()),
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
