//! The order of the measurements, and what each of them is.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context;
use load::{
    ConfigError, KernelConfig, LoadConfig, LoadReport, Mode, SearchConfig, Wait, WorkloadConfig,
    throughput_at_slo,
};

use super::bound::reflector_rps;
use super::config::{DemoConfig, Progress, SLO_P99_US};
use super::echo;
use super::machine::{Usage, conditions};
use super::processors::{CLIENT_CPU, REALTIME, SERVER_CPU};
use super::report::{Bound, Demo, KernelClient, Point, Ratio, System};
use super::softirq;
use super::systems::{MEMCACHED_CONDITION, Memcached, Tailplane, steer_receive};
use super::window::{PAUSE, WINDOW_MAX_MS, window};
use service::huge_pages;
use service::lab::{Lab, LabConfig, in_namespace};

/// Connections of the load.
const CONNECTIONS: u32 = 64;
/// Window of the search: some ten thousand requests, and seldom one of the milliseconds in which a
/// host takes a virtual processor away without saying so.
const SEARCH_WINDOW_MS: u64 = 200;
/// Windows at one rate, of which one must keep the objective.
const SEARCH_TRIES: u32 = 8;
/// Windows of the reflector before the service's search, and again after it.
const REFLECTOR_WINDOWS: u32 = 5;
/// Packet memory of server and client together, in bytes, twice over.
const MEMORY_BYTES: usize = 264 << 20;

/// Runs the whole demo in a lab of its own, which is gone afterwards.
///
/// # Errors
/// What could not be set up or measured.
pub fn run(config: &DemoConfig, progress: Progress<'_>) -> anyhow::Result<Demo> {
    let windows = Cell::new(Windows::default());
    let raised = softirq::raise();
    let loan = huge_pages::borrow(MEMORY_BYTES);
    let lab = Lab::create(LabConfig::unique("demo")).context("cannot make the demo's lab")?;
    progress("the bound: a bare AF_XDP reflector on the pair");
    let bound_before = best_reflector_rps(&lab)?;
    let server = Tailplane::start(&lab)?;
    let driver = server.driver.clone();
    let measuring = Measuring { config, lab: &lab, others: Vec::new(), windows: &windows };
    let tailplane = measuring.system("tailplane", Tailplane::target(), progress)?;
    let tailplane_kernel = measuring.kernel_client(Tailplane::target(), progress)?;
    server.stop()?;
    progress("the bound once more");
    let reflector_rps = best_reflector_rps(&lab)?.max(bound_before);

    let kernel = memcached(config, &lab, &windows, progress)?;
    // A failure here leaves the receive steering of a lab that goes away in a moment.
    let _ = steer_receive(&lab, false);
    let echo = echo::measure(&lab, config.churn_seconds, config.seed, progress)?;

    let mut all = conditions();
    let deferred = if raised.is_some() { "above both" } else { "below: expect stalls" };
    all.insert("ksoftirqd priority".into(), deferred.into());
    drop((loan, raised));
    describe(&mut all, config, windows.get());
    all.insert("driver".into(), driver);
    all.insert("kernel receive steering".into(), kernel.steering.into());
    let ratio = Ratio {
        throughput_at_slo: tailplane.throughput_at_slo_rps / kernel.best.throughput_at_slo_rps,
        unloaded_p99: kernel.best.unloaded_p99_us / tailplane.unloaded_p99_us,
    };
    let fraction = tailplane.throughput_at_slo_rps / reflector_rps;
    Ok(Demo {
        conditions: all,
        ratio,
        bound: Bound { reflector_rps, fraction },
        kernel_client: vec![
            KernelClient { name: "tailplane".into(), ..tailplane_kernel },
            kernel.client,
        ],
        systems: vec![tailplane, kernel.best],
        echo,
        variants: kernel.variants,
    })
}

/// The reflector's best undisturbed window of a few; the best of all where others disturbed each.
fn best_reflector_rps(lab: &Lab) -> anyhow::Result<f64> {
    let (mut quiet, mut any) = (0.0f64, 0.0f64);
    for _ in 0..REFLECTOR_WINDOWS {
        std::thread::sleep(PAUSE);
        let before = Usage::now(&[]);
        let rate = reflector_rps(lab, Duration::from_millis(WINDOW_MAX_MS))?;
        any = any.max(rate);
        if before.disturbance_since(&[]).is_quiet() {
            quiet = quiet.max(rate);
        }
    }
    Ok(if quiet > 0.0 { quiet } else { any })
}

/// memcached in the variant that was better for it, and the others.
struct KernelSide {
    best: System,
    client: KernelClient,
    steering: &'static str,
    variants: Vec<System>,
}

/// Measures memcached with the receive work where the sender pays for it, and steered to the
/// server's core.
fn memcached(
    config: &DemoConfig,
    lab: &Lab,
    windows: &Cell<Windows>,
    progress: Progress<'_>,
) -> anyhow::Result<KernelSide> {
    let mut measured = Vec::new();
    for (name, steered) in [("memcached-linux", false), ("memcached-linux-rps", true)] {
        if let Err(error) = steer_receive(lab, steered) {
            progress(&format!("{name} is not measured: {error:#}"));
            continue;
        }
        let server = Memcached::start(lab)?;
        let measuring = Measuring { config, lab, others: vec![server.pid()], windows };
        let system = measuring.system(name, Memcached::target(), progress)?;
        let client = measuring.kernel_client(Memcached::target(), progress)?;
        measured.push((system, client, steered));
    }
    measured
        .sort_by(|(a, ..), (b, ..)| b.throughput_at_slo_rps.total_cmp(&a.throughput_at_slo_rps));
    let mut measured = measured.into_iter();
    let (best, client, steered) = measured.next().context("memcached could not be measured")?;
    Ok(KernelSide {
        best: System { name: "memcached-linux".to_owned(), ..best },
        client: KernelClient { name: "memcached-linux".to_owned(), ..client },
        steering: if steered { "RPS to the server's core (faster)" } else { "none (faster)" },
        variants: measured.map(|(system, ..)| system).collect(),
    })
}

/// The conditions that are this demo's own.
fn describe(all: &mut BTreeMap<String, String>, config: &DemoConfig, windows: Windows) {
    let mut say = |key: &str, value: String| {
        all.insert(key.to_owned(), value);
    };
    say("scheduler", "run-to-completion".into());
    say("domain", "inline".into());
    say("batch", "64".into());
    say("server core", SERVER_CPU.to_string());
    say("client core", CLIENT_CPU.to_string());
    say("client", "tailplane dataplane, open loop, Poisson".into());
    say("connections", CONNECTIONS.to_string());
    say("workload", "memcached USR: 99 % GET, 19 B keys, 2 B values".into());
    say("slo", format!("p99 < {SLO_P99_US} us"));
    say("priority", format!("real-time (FIFO {REALTIME}) for both servers and the client"));
    say(
        "window",
        format!(
            "at most {WINDOW_MAX_MS} ms, in the search {SEARCH_WINDOW_MS} ms and up to \
             {SEARCH_TRIES} at a rate; repeated where others used over 5 % of a core, a tick was \
             stolen, or a busy thread was kept waiting over 1 ms"
        ),
    );
    let Windows { measured, disturbed } = windows;
    say("disturbed windows", format!("{disturbed} of {measured}"));
    say("memcached", MEMCACHED_CONDITION.into());
    say("seed", config.seed.to_string());
    say("seconds per system", config.seconds.to_string());
    say("kernel congestion control", "cubic".into());
}

struct Measuring<'a> {
    config: &'a DemoConfig,
    lab: &'a Lab,
    /// Processes of ours whose time is not foreign.
    others: Vec<u32>,
    windows: &'a Cell<Windows>,
}

/// How many windows were measured, and how many of them others disturbed to the last try.
#[derive(Clone, Copy, Default)]
struct Windows {
    measured: u32,
    disturbed: u32,
}

impl Measuring<'_> {
    fn load(&self, mode: Mode, connections: u32, window_ms: u64) -> LoadConfig {
        LoadConfig {
            mode,
            connections,
            warmup_ms: 50,
            measure_ms: window_ms.clamp(50, WINDOW_MAX_MS),
            preload: false,
            // A late request's latency counts from its intended time anyway, and the objective
            // judges that; on veth a transmit burst alone takes 100 us.
            lag_limit_us: SLO_P99_US as u64,
            seed: self.config.seed,
            ..LoadConfig::new(WorkloadConfig::usr())
        }
    }

    /// One window with the dataplane client; repeated where somebody else used the machine.
    fn window(&self, load: &LoadConfig, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        let (report, disturbance) = window(self.lab, &self.others, load, target)?;
        let mut windows = self.windows.get();
        windows.measured += 1;
        windows.disturbed += !disturbance.is_quiet() as u32;
        self.windows.set(windows);
        Ok(report)
    }

    fn system(
        &self,
        name: &str,
        target: SocketAddrV4,
        progress: Progress<'_>,
    ) -> anyhow::Result<System> {
        let window_ms = (self.config.seconds * 1000.0 / 20.0) as u64;
        progress(&format!("{name}: storing the keys"));
        let preload = LoadConfig { preload: true, ..self.load(Mode::closed(1), 8, 50) };
        self.window(&preload, target)?;
        progress(&format!("{name}: unloaded latency"));
        let mut unloaded = Vec::new();
        for _ in 0..3 {
            let load = self.load(Mode::closed(1), 1, window_ms);
            unloaded.push(self.window(&load, target)?);
        }
        unloaded.sort_by(|a, b| a.p99_us.total_cmp(&b.p99_us));
        let unloaded = &unloaded[1];

        progress(&format!("{name}: highest load within {SLO_P99_US} us"));
        let search = SearchConfig {
            slo_p99_us: SLO_P99_US,
            start_rps: 50_000.0,
            precision: 0.03,
            retries: SEARCH_TRIES - 1,
            ascents: 2,
            max_runs: 160,
            ..SearchConfig::default()
        };
        let mut points = Vec::new();
        let found = throughput_at_slo(&search, |rps| -> Result<LoadReport, Failure> {
            let load = self.load(Mode::open(rps), CONNECTIONS, window_ms.min(SEARCH_WINDOW_MS));
            let report = self.window(&load, target).map_err(Failure)?;
            let others = report.conditions.more.get("disturbance").map_or("", String::as_str);
            progress(&format!(
                "{name}: {:>9.0} requests/s offered, {:>9.0} answered, p99 {:>7.1} us ({others})",
                rps, report.achieved_rps, report.p99_us
            ));
            points.push(Point::of(rps, &report));
            Ok(report)
        })
        .map_err(|failure| failure.0)?;
        let best = found.best.with_context(|| {
            format!("{name} meets p99 < {SLO_P99_US} us at no load that was tried")
        })?;
        points.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
        Ok(System {
            name: name.to_owned(),
            throughput_at_slo_rps: best.achieved_rps,
            unloaded_p50_us: unloaded.p50_us,
            unloaded_p99_us: unloaded.p99_us,
            p50_us: best.p50_us,
            p99_us: best.p99_us,
            p999_us: best.p999_us,
            limit: format!("{:?}", found.limit).to_lowercase(),
            wrong_bytes: best.wrong_bytes,
            points,
        })
    }

    /// What an ordinary client on the kernel's sockets sees: closed loop, 32 connections.
    fn kernel_client(
        &self,
        target: SocketAddrV4,
        progress: Progress<'_>,
    ) -> anyhow::Result<KernelClient> {
        progress("the same with a client on kernel sockets");
        let window_ms = (self.config.seconds * 1000.0 / 10.0) as u64;
        let transport = KernelConfig {
            target: SocketAddr::V4(target),
            wait: Wait::Spin,
            threads: 1,
            cores: vec![CLIENT_CPU],
        };
        let run = |connections| {
            let load = self.load(Mode::closed(1), connections, window_ms);
            in_namespace(self.lab.client(), || load::kernel::run(&load, &transport))
        };
        let (unloaded, loaded) = (run(1)??, run(32)??);
        Ok(KernelClient {
            name: String::new(),
            connections: 32,
            rps: loaded.achieved_rps,
            p50_us: loaded.p50_us,
            p99_us: loaded.p99_us,
            unloaded_p50_us: unloaded.p50_us,
            unloaded_p99_us: unloaded.p99_us,
        })
    }
}

/// The search wants an error that a bad setting can become.
pub(crate) struct Failure(pub anyhow::Error);

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self(error.into())
    }
}
