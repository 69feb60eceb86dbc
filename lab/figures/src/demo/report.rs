//! What the demo found, as JSON for scripts (the contract of DESIGN §11).

use std::collections::BTreeMap;

use load::LoadReport;
use reproduce::Measured;
use serde::Serialize;

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Demo {
    /// Under which all numbers were measured.
    pub conditions: BTreeMap<String, String>,
    /// Ours, then memcached in the variant that was better for it.
    pub systems: Vec<System>,
    /// Above 1: ours is better.
    pub ratio: Ratio,
    /// What the wire allows.
    pub bound: Bound,
    /// The same servers under a client on kernel sockets.
    pub kernel_client: Vec<KernelClient>,
    /// 64-byte echo under a kernel client, ours beside the kernel's stack.
    pub echo: Echo,
    /// Other ways to run memcached, which were no better.
    pub variants: Vec<System>,
}

/// One server.
#[derive(Clone, Debug, Serialize)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Highest load answered with p99 within the objective, in requests per second.
    pub throughput_at_slo_rps: f64,
    /// Median with one request at a time.
    pub unloaded_p50_us: f64,
    /// 99th percentile with one request at a time.
    pub unloaded_p99_us: f64,
    /// At that load.
    pub p50_us: f64,
    /// At that load.
    pub p99_us: f64,
    /// At that load.
    pub p999_us: f64,
    /// What ended the search: the service, the generator, …
    pub limit: String,
    /// Answers with wrong bytes at that load: zero, or the result is worthless.
    pub wrong_bytes: u64,
    /// All loads that were tried.
    pub points: Vec<Point>,
}

/// One load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Point {
    /// Requests per second offered.
    pub offered_rps: f64,
    /// Requests per second answered.
    pub achieved_rps: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Whether the generator kept up and every answer was right.
    pub valid: bool,
}

impl Point {
    /// From a window's report.
    pub fn of(offered_rps: f64, report: &LoadReport) -> Self {
        Self {
            offered_rps,
            achieved_rps: report.achieved_rps,
            p50_us: report.p50_us,
            p99_us: report.p99_us,
            valid: report.valid,
        }
    }
}

/// What sockperf found: medians of the rounds that count.
#[derive(Clone, Debug, Serialize)]
pub struct Sockperf {
    /// Rounds in which the windows of both servers, a second each, count.
    pub rounds: usize,
    /// Median round trip of our service, in microseconds.
    pub tailplane_p50_us: Measured,
    /// The same of sockperf's own server, on the kernel's stack.
    pub linux_p50_us: Measured,
    /// Median of the single rounds' ratios: above 1 ours is better.
    pub ratio: Measured,
    /// How many windows were disturbed, in words: a condition.
    #[serde(skip)]
    pub disturbed: String,
}

/// Ours over memcached's, or the other way round where less is better.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratio {
    /// Throughput at the objective, ours over memcached's.
    pub throughput_at_slo: f64,
    /// Unloaded p99, memcached's over ours.
    pub unloaded_p99: f64,
}

/// The bare reflector.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bound {
    /// Frames per second, best of all undisturbed windows before and after the service's search.
    pub reflector_rps: f64,
    /// Our throughput at the objective over that. Above 1 where requests share frames.
    pub fraction: f64,
}

/// A server under a kernel client.
#[derive(Clone, Debug, Serialize)]
pub struct KernelClient {
    /// The server.
    pub name: String,
    /// Connections of the closed loop.
    pub connections: u32,
    /// Requests per second.
    pub rps: f64,
    /// Median of the closed loop.
    pub p50_us: f64,
    /// 99th percentile of the closed loop.
    pub p99_us: f64,
    /// Median with one request at a time.
    pub unloaded_p50_us: f64,
    /// 99th percentile with one request at a time.
    pub unloaded_p99_us: f64,
}

/// The echo comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Echo {
    /// Bytes of a message.
    pub bytes: u32,
    /// Ours, then the kernel's with a spinning server: medians of the rounds that count.
    pub systems: Vec<EchoSystem>,
    /// Above 1: ours is better.
    pub ratio: EchoRatio,
    /// The round trip by another tool, where it is installed.
    pub sockperf: Option<Sockperf>,
    /// Connect-request-close on our service from our own client, which is less of a bottleneck there
    /// than the kernel's system calls are.
    pub own_client_churn: Churn,
    /// How many windows were disturbed, in words: a condition.
    #[serde(skip)]
    pub disturbed: String,
}

/// Medians of the ratios of single rounds, in which both servers were measured in turn.
#[derive(Clone, Debug, Serialize)]
pub struct EchoRatio {
    /// How many count.
    pub rounds: usize,
    /// The kernel's round-trip time over ours.
    pub round_trip_p50: Measured,
    /// Our message rate over the kernel's, 32 connections.
    pub rps_32: Measured,
    /// The same with 1,000 connections.
    pub rps_1000: Measured,
}

/// What one echo server did in one round; the fields are those of [`EchoSystem`].
#[derive(Clone, Copy, Debug)]
pub struct EchoRound {
    /// Median of the round trip.
    pub round_trip_p50_us: f64,
    /// 99th percentile of the round trip.
    pub round_trip_p99_us: f64,
    /// Messages per second over 32 connections.
    pub rps_32: f64,
    /// Over 1,000 connections.
    pub rps_1000: f64,
}

/// One echo server.
#[derive(Clone, Debug, Serialize)]
pub struct EchoSystem {
    /// Its name.
    pub name: String,
    /// One message at a time, both ends spinning: median of the round trip.
    pub round_trip_p50_us: Measured,
    /// The same: 99th percentile.
    pub round_trip_p99_us: Measured,
    /// Messages per second over 32 connections, one outstanding on each.
    pub rps_32: Measured,
    /// Over 1,000 connections.
    pub rps_1000: Measured,
    /// Connect-request-close from the kernel's client.
    #[serde(flatten)]
    pub churn: Churn,
}

/// Connect, one request, close; again and again.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// Cycles per second, in windows in a row.
    #[serde(rename = "churn_cycles_per_s")]
    pub cycles_per_s: Vec<f64>,
    /// Cycles in all.
    #[serde(rename = "churn_cycles")]
    pub cycles: u64,
    /// Cycles that failed.
    #[serde(rename = "churn_errors")]
    pub errors: u64,
    /// Seconds of all windows together.
    #[serde(rename = "churn_seconds")]
    pub seconds: f64,
    /// How connections were closed.
    #[serde(rename = "churn_close")]
    pub close: String,
}

impl Churn {
    /// The first window's rate and the last one's.
    pub fn first_and_last(&self) -> (f64, f64) {
        let end = |rate: Option<&f64>| rate.copied().unwrap_or(f64::NAN);
        (end(self.cycles_per_s.first()), end(self.cycles_per_s.last()))
    }
}
