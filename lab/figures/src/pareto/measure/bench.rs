//! One service on its processors, and the load generator on its own: windows of load, the search for the highest one
//! within the objective, and what is drawn.

use std::cell::Cell;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use control::rapl::Rapl;
use load::{LoadConfig, LoadReport, Mode, SearchConfig, WorkloadConfig, throughput_at_slo};
use measure::watched;
use reproduce::Stopped;

use super::super::analysis::Run;
use super::plan::{Plan, Progress};
use super::split::Split;
use crate::commands::load::DataplaneClient;
use crate::demo::systems::Tailplane;
use service::lab::{Lab, LabConfig};

/// Load before a window that is not measured.
const WARM_UP: Duration = Duration::from_millis(100);
/// The first load that is tried, in requests per second, where nothing is known yet.
const START_RPS: f64 = 10_000.0;
/// A load that passes and one that does not are at most this share apart in the end.
const PRECISION: f64 = 0.03;
/// Further tries of a load that does not pass: neighbours can spoil a window, not improve it.
const RETRIES: u32 = 2;
/// Most windows of a search.
const WINDOWS_MAX: u32 = 60;
/// The part of a window over which power is taken; it begins after the warm-up.
const POWER_SHARE: f64 = 0.8;

/// See the module's comment.
pub struct Bench<'a> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    cpus: Vec<u32>,
    client: Vec<usize>,
    target: SocketAddrV4,
    /// Driver and queue mode.
    pub driver: String,
    /// Windows so far, and those of them that somebody else disturbed.
    windows: Cell<(u32, u32)>,
    // In this order: the service ends before its lab.
    _service: Tailplane,
    lab: Lab,
}

impl<'a> Bench<'a> {
    /// A lab with a queue for each of these processors, and the service on them.
    ///
    /// # Errors
    /// What could not be made: no privileges, say.
    pub fn open(
        plan: &'a Plan,
        split: &Split,
        cpus: &[u32],
        stop: &'a AtomicBool,
    ) -> anyhow::Result<Self> {
        let queues = cpus.len() as u32;
        let lab = Lab::create(LabConfig { queues, ..LabConfig::unique("pareto") })
            .context("cannot make a lab to measure in")?;
        let ids: Vec<usize> = cpus.iter().map(|&cpu| cpu as usize).collect();
        let (service, target) = Tailplane::start_on(&lab, plan.app, &ids)?;
        // As many threads as the service has, as each has a queue; where processors are fewer, they share.
        let all = split.client.allocation_order();
        let client = all.iter().cycle().take(cpus.len()).map(|&cpu| cpu as usize).collect();
        let bench = Self {
            plan,
            stop,
            cpus: cpus.to_vec(),
            client,
            target,
            driver: service.driver.clone(),
            windows: Cell::new((0, 0)),
            _service: service,
            lab,
        };
        if let WorkloadConfig::Memcached { .. } = plan.workload {
            let keys = LoadConfig { preload: true, ..bench.load(Mode::closed(1), 0.05) };
            bench.window(&keys).context("storing the keys")?;
        }
        Ok(bench)
    }

    fn load(&self, mode: Mode, seconds: f64) -> LoadConfig {
        LoadConfig {
            mode,
            connections: self.plan.connections.max(self.cpus.len() as u32),
            warmup_ms: WARM_UP.as_millis() as u64,
            measure_ms: (seconds * 1e3).ceil() as u64,
            preload: false,
            // A late request's latency counts from its intended time anyway, and the objective judges that.
            lag_limit_us: (self.plan.slo_us as u64).clamp(1, 1_000_000),
            seed: self.plan.seed,
            ..LoadConfig::new(self.plan.workload.clone())
        }
    }

    /// One window.
    fn window(&self, load: &LoadConfig) -> anyhow::Result<LoadReport> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Stopped.into());
        }
        let mut client = DataplaneClient::open(&self.lab, self.cpus.len() as u32, &self.client)?;
        let (report, disturbance) = watched(&[], || client.run(load, self.target))?;
        let (windows, disturbed) = self.windows.get();
        self.windows.set((windows + 1, disturbed + u32::from(!disturbance.is_quiet())));
        Ok(report)
    }

    /// The highest load within the objective, as it was answered, in requests per second, beginning at one that another
    /// configuration served; and how it was found.
    ///
    /// # Errors
    /// What the client could not do; the run was asked to stop.
    pub fn search(
        &self,
        start_rps: Option<f64>,
        name: &str,
        progress: Progress<'_>,
    ) -> anyhow::Result<(Option<f64>, Run)> {
        self.windows.set((0, 0));
        let search = SearchConfig {
            slo_p99_us: self.plan.slo_us,
            start_rps: start_rps.unwrap_or(START_RPS),
            precision: PRECISION,
            retries: RETRIES,
            max_runs: WINDOWS_MAX,
            ..SearchConfig::default()
        };
        let found = throughput_at_slo(&search, |rps| -> anyhow::Result<LoadReport> {
            let report = self.window(&self.load(Mode::open(rps), self.plan.seconds))?;
            progress(&format!(
                "{name}: {rps:.0} requests/s offered, {:.0} answered, 99 % within {:.1} us",
                report.achieved_rps, report.p99_us
            ));
            Ok(report)
        })?;
        let lowest = found.probes.iter().min_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
        let best = found.best.as_ref();
        let p99_us = best.map(|best| best.p99_us).or(lowest.map(|probe| probe.p99_us));
        let (windows, disturbed) = self.windows.get();
        let run = Run {
            cpus: self.cpus.clone(),
            p99_us: p99_us.unwrap_or(f64::NAN),
            limit: format!("{:?}", found.limit).to_lowercase(),
            windows,
            disturbed,
        };
        Ok((best.map(|best| best.achieved_rps), run))
    }

    /// What is drawn without load, while the threads poll in vain, and at a load; in watts.
    ///
    /// # Errors
    /// The counters cannot be read any more; as [`search`](Self::search).
    pub fn watts(&self, rapl: &Rapl, rps: f64) -> anyhow::Result<(f64, f64)> {
        let span = Duration::from_secs_f64(self.plan.seconds * POWER_SHARE);
        let sample = |after: Duration| {
            std::thread::sleep(after);
            let before = rapl.read()?;
            std::thread::sleep(span);
            rapl.watts_since(&before)
        };
        let idle = sample(WARM_UP)?;
        let load = self.load(Mode::open(rps), self.plan.seconds);
        let full = std::thread::scope(|scope| -> anyhow::Result<f64> {
            let sampled = scope.spawn(|| sample(2 * WARM_UP));
            self.window(&load)?;
            let sampled = sampled.join().map_err(|_| anyhow::anyhow!("reading power panicked"))?;
            Ok(sampled?)
        })?;
        Ok((idle, full))
    }
}
