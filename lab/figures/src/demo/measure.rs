//! The order of the measurements, and what each of them is.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use load::{LoadReport, Mode, SearchConfig, Wait, WorkloadConfig, throughput_at_slo};
use measure::{Plan, QUIET, conditions, contest, shuffled, watched};
use reproduce::{Grid, Progress};

use super::bound::{FRAME_BYTES, reflector_rps};
use super::config::{DemoConfig, SLO_P99_US};
use super::echo;
use super::kv_test::{CONNECTIONS, KvServer, KvTest, SEARCH_WINDOW_MS, Windows};
use super::processors::{CLIENT_CPU, REALTIME, SERVER_CPU};
use super::report::{Bound, Demo, KernelClient, Point, Ratio, System};
use super::sockperf;
use super::softirq;
use super::systems::{MEMCACHED_CONDITION, Memcached, Tailplane, steer_receive};
use super::window::{PAUSE, TRIES, WINDOW_MAX_MS};
use crate::reproduce::testbed::{Client, carry};
use service::config::App;
use service::huge_pages;
use service::lab::{Lab, LabConfig};

/// Steps of a demo: the bound twice, four of each of three servers, the echo's windows, sockperf's, and what opens and
/// closes connections.
pub const STEPS: u64 = 2 + 3 * 4 + 2 * (echo::ROUNDS + sockperf::ROUNDS) as u64 + 3;

/// Seconds for a system from which a search is as thorough as for a result: below, it is for a look.
const THOROUGH_SECONDS: f64 = 8.0;
/// Windows of the reflector before the systems, and again after them.
const REFLECTOR_WINDOWS: usize = 5;
/// Packet memory of server and client together, in bytes, twice over.
const MEMORY_BYTES: usize = 264 << 20;

/// How the highest load within the objective is searched for.
fn search(config: &DemoConfig) -> SearchConfig {
    let is_thorough = config.seconds >= THOROUGH_SECONDS;
    SearchConfig {
        slo_p99_us: SLO_P99_US,
        start_rps: 50_000.0,
        precision: if is_thorough { 0.03 } else { 0.06 },
        // Windows at one rate, of which one must keep the objective, less one.
        retries: if is_thorough { 7 } else { 3 },
        ascents: if is_thorough { 2 } else { 1 },
        max_runs: 160,
        ..SearchConfig::default()
    }
}

/// A server in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contestant {
    Tailplane,
    /// With the receive work where the sender pays for it, or steered to the server's core.
    Memcached {
        steered: bool,
    },
}

/// What was measured of one.
struct Measured {
    contestant: Contestant,
    system: System,
    client: KernelClient,
    driver: Option<String>,
}

/// Runs the whole demo in a lab of its own, which is gone afterwards.
///
/// # Errors
/// What could not be set up or measured.
pub fn run(config: &DemoConfig, progress: &mut dyn Progress) -> anyhow::Result<Demo> {
    let raised = softirq::raise();
    let loan = huge_pages::borrow(MEMORY_BYTES);
    let lab = Lab::create(LabConfig::unique("demo")).context("cannot make the demo's lab")?;
    progress.step("the bound: a bare AF_XDP reflector on the pair");
    let bound_before = best_reflector_rps(&lab)?;
    let kernels = [false, true].map(|steered| Contestant::Memcached { steered });
    let all = [vec![Contestant::Tailplane], kernels.to_vec()].concat();
    let (mut found, mut windows) = (Vec::new(), Windows::default());
    for contestant in shuffled(all, config.seed) {
        found.extend(measured(config, &lab, contestant, &mut windows, progress)?);
    }
    progress.found(&format!(
        "the servers beside each other; the echo follows, and then the report\n{}",
        beside(&found)
    ));
    progress.step("the bound once more");
    let reflector_rps = best_reflector_rps(&lab)?.max(bound_before);
    // A failure here leaves the receive steering of a lab that goes away in a moment.
    let _ = steer_receive(&lab, false);
    let echo = echo::measure(&lab, config.churn_seconds, config.seed, progress)?;

    let mut all = conditions::here();
    let deferred = if raised.is_some() { "above both" } else { "below: expect stalls" };
    all.insert("ksoftirqd priority".into(), deferred.into());
    drop((loan, raised));
    describe(&mut all, config, windows);
    all.insert("disturbed, echo".into(), echo.disturbed.clone());
    if let Some(sockperf) = &echo.sockperf {
        all.insert("disturbed, sockperf".into(), sockperf.disturbed.clone());
    }
    demo(all, found, reflector_rps, echo)
}

/// The servers in a table: the demo's first, minutes before the last.
fn beside(found: &[Measured]) -> Grid {
    let objective = format!("requests/s, p99 < {SLO_P99_US} us");
    let mut grid = Grid::new([
        "server",
        &objective,
        "unloaded p50 (us)",
        "p99 (us)",
        "kernel client: requests/s",
        "p99 (us)",
    ]);
    for Measured { system, client, .. } in found {
        let rates = [system.throughput_at_slo_rps, client.rps].map(|rate| format!("{rate:.0}"));
        let times = [system.unloaded_p50_us, system.unloaded_p99_us, client.p99_us];
        let ([within, kernel], [p50, p99, kernel_p99]) =
            (rates, times.map(|time| format!("{time:.1}")));
        grid.row([system.name.clone(), within, p50, p99, kernel, kernel_p99]);
    }
    grid
}

/// What was found, put together: memcached counts in the variant that was better for it.
fn demo(
    mut conditions: BTreeMap<String, String>,
    found: Vec<Measured>,
    reflector_rps: f64,
    echo: super::report::Echo,
) -> anyhow::Result<Demo> {
    let (ours, mut kernel): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|one| one.contestant == Contestant::Tailplane);
    let ours = ours.into_iter().next().context("tailplane was not measured")?;
    kernel
        .sort_by(|a, b| b.system.throughput_at_slo_rps.total_cmp(&a.system.throughput_at_slo_rps));
    let mut kernel = kernel.into_iter();
    let best = kernel.next().context("memcached could not be measured")?;
    let steering = match best.contestant {
        Contestant::Memcached { steered: true } => "RPS to the server's core (faster)",
        _ => "none (faster)",
    };
    conditions.insert("driver".into(), ours.driver.unwrap_or_default());
    conditions.insert("kernel receive steering".into(), steering.into());
    let name = "memcached-linux".to_owned();
    let linux = System { name: name.clone(), ..best.system };
    let ratio = Ratio {
        throughput_at_slo: ours.system.throughput_at_slo_rps / linux.throughput_at_slo_rps,
        unloaded_p99: linux.unloaded_p99_us / ours.system.unloaded_p99_us,
    };
    let fraction = ours.system.throughput_at_slo_rps / reflector_rps;
    Ok(Demo {
        conditions,
        ratio,
        bound: Bound { reflector_rps, fraction },
        kernel_client: vec![ours.client, KernelClient { name, ..best.client }],
        systems: vec![ours.system, linux],
        echo,
        variants: kernel.map(|one| one.system).collect(),
    })
}

/// The reflector's best quiet window of a few; the best of all where others disturbed each.
fn best_reflector_rps(lab: &Lab) -> anyhow::Result<f64> {
    let (windows, tries) = (REFLECTOR_WINDOWS, REFLECTOR_WINDOWS);
    let plan = Plan { windows, tries, pause: PAUSE, quiet: QUIET, seed: 0 };
    let length = Duration::from_millis(WINDOW_MAX_MS);
    let window = |_: &mut ()| watched(&[], || reflector_rps(lab, length, FRAME_BYTES));
    let kept = contest(&mut [()], plan, window)?;
    Ok(kept.iter().flat_map(|kept| &kept.found).copied().fold(0.0, f64::max))
}

/// Measures one server; nothing where the kernel cannot steer as it asks for.
fn measured(
    config: &DemoConfig,
    lab: &Lab,
    contestant: Contestant,
    windows: &mut Windows,
    progress: &mut dyn Progress,
) -> anyhow::Result<Option<Measured>> {
    let (name, server) = match contestant {
        Contestant::Tailplane => {
            ("tailplane", KvServer::Tailplane(Tailplane::start(lab, App::Kv, |_| ())?))
        }
        Contestant::Memcached { steered } => {
            let name = if steered { "memcached-linux-rps" } else { "memcached-linux" };
            if let Err(error) = steer_receive(lab, steered) {
                progress.detail(&format!("{name} is not measured: {error:#}"));
                return Ok(None);
            }
            (name, KvServer::Memcached(Memcached::start(lab)?))
        }
    };
    let driver = match &server {
        KvServer::Tailplane(tailplane) => Some(tailplane.driver.clone()),
        KvServer::Memcached(_) => None,
    };
    let test = KvTest::new(lab, server, &WorkloadConfig::usr(), config.seed);
    let system = system(config, &test, name, progress)?;
    let client = kernel_client(config, &test, name, progress)?;
    progress.found(&format!(
        "{name}: {:.0} requests/s within p99 < {SLO_P99_US} us; unloaded p50 {:.1} us, p99 {:.1} us",
        system.throughput_at_slo_rps, system.unloaded_p50_us, system.unloaded_p99_us
    ));
    let Windows { measured, disturbed } = test.windows.get();
    windows.measured += measured;
    windows.disturbed += disturbed;
    test.end()?;
    Ok(Some(Measured { contestant, system, client, driver }))
}

/// The conditions that are this demo's own.
fn describe(all: &mut BTreeMap<String, String>, config: &DemoConfig, windows: Windows) {
    let Windows { measured, disturbed } = windows;
    let window = format!(
        "at most {WINDOW_MAX_MS} ms, in the search {SEARCH_WINDOW_MS} ms and up to \
         {} at a rate; up to {TRIES} tries while others use over 5 % of a core, a tick is \
         stolen, or a busy thread is kept waiting over 1 ms; systems in the seed's order",
        search(config).retries + 1
    );
    let own = [
        ("scheduler", "run-to-completion".into()),
        ("domain", "inline".into()),
        ("batch", "64".into()),
        ("server core", SERVER_CPU.to_string()),
        ("client core", CLIENT_CPU.to_string()),
        ("client", "tailplane dataplane, open loop, Poisson".into()),
        ("connections", CONNECTIONS.to_string()),
        ("workload", "memcached USR: 99 % GET, 19 B keys, 2 B values".into()),
        ("slo", format!("p99 < {SLO_P99_US} us")),
        ("priority", format!("real-time (FIFO {REALTIME}) for both servers and the client")),
        ("window", window),
        ("disturbed windows", format!("{disturbed} of {measured}")),
        ("memcached", MEMCACHED_CONDITION.into()),
        ("seed", config.seed.to_string()),
        ("seconds per system", config.seconds.to_string()),
        ("kernel congestion control", "cubic".into()),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
}

/// Milliseconds of a window, of which so many fit into the time for a system.
fn window_ms(config: &DemoConfig, windows: f64) -> u64 {
    ((config.seconds * 1000.0 / windows) as u64).clamp(50, WINDOW_MAX_MS)
}

fn system(
    config: &DemoConfig,
    test: &KvTest<'_>,
    name: &str,
    progress: &mut dyn Progress,
) -> anyhow::Result<System> {
    progress.step(&format!("{name}: storing the keys"));
    test.store_keys()?;
    progress.step(&format!("{name}: unloaded latency"));
    let mut unloaded = test.unloaded(3, window_ms(config, 20.0))?;
    unloaded.sort_by(|a, b| a.p99_us.total_cmp(&b.p99_us));
    let unloaded = &unloaded[1];

    progress.step(&format!("{name}: highest load within {SLO_P99_US} us"));
    let mut points = Vec::new();
    let found = throughput_at_slo(&search(config), |rps| -> anyhow::Result<LoadReport> {
        let report = test.at_rate(rps, window_ms(config, 20.0).min(SEARCH_WINDOW_MS))?;
        let others = report.conditions.more.get("disturbance").map_or("", String::as_str);
        progress.detail(&format!(
            "{name}: {:>9.0} requests/s offered, {:>9.0} answered, p99 {:>7.1} us ({others})",
            rps, report.achieved_rps, report.p99_us
        ));
        points.push(Point::of(rps, &report));
        Ok(report)
    })?;
    let best = found
        .best
        .with_context(|| format!("{name} meets p99 < {SLO_P99_US} us at no load that was tried"))?;
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
    config: &DemoConfig,
    test: &KvTest<'_>,
    name: &str,
    progress: &mut dyn Progress,
) -> anyhow::Result<KernelClient> {
    progress.step("the same with a client on kernel sockets");
    let run = |connections| {
        let load = test.load(Mode::closed(1), connections, window_ms(config, 10.0));
        carry(test.lab, Client::Kernel(Wait::Spin), &load, test.target())
    };
    let (unloaded, loaded) = (run(1)?, run(32)?);
    Ok(KernelClient {
        name: name.to_owned(),
        connections: 32,
        rps: loaded.achieved_rps,
        p50_us: loaded.p50_us,
        p99_us: loaded.p99_us,
        unloaded_p50_us: unloaded.p50_us,
        unloaded_p99_us: unloaded.p99_us,
    })
}
