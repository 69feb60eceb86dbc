//! The result of a run, for people and for scripts. It carries its conditions, and says itself
//! whether it may be used.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use measure::conditions::kernel_and_processor;
use serde::{Deserialize, Serialize};

use crate::config::LoadConfig;
use crate::error::LoadError;
use crate::gap_check::ArrivalCheck;
use crate::hdr_log;
use crate::measurement::{Measurement, Ran};
use crate::probe::ProbeReport;
use crate::remote::AgentReport;
use crate::series::SeriesPoint;

mod table;

pub use table::Sheet;

/// Share of GET misses above which a result is invalid although every key was stored: a miss is
/// cheaper than the hit that was asked for.
const MISS_SHARE_MAX: f64 = 0.01;

/// Under which conditions a result was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// What carried the requests: `kernel sockets`, or the dataplane's driver.
    pub transport: String,
    /// Whom they went to.
    pub target: String,
    /// What they were.
    pub workload: String,
    /// When they were sent.
    pub mode: String,
    /// Connections, over all threads.
    pub connections: u32,
    /// The generator's threads.
    pub threads: u32,
    /// Cores that the threads are pinned to; empty where they are not.
    pub cores: Vec<usize>,
    /// How a thread waits: `spin` or `block`.
    pub wait: String,
    /// Warm-up before the window, in milliseconds.
    pub warmup_ms: u64,
    /// The measured window, in milliseconds.
    pub measure_ms: u64,
    /// Share of responses whose bytes were compared.
    pub verify_share: f64,
    /// Seed of the run.
    pub seed: u64,
    /// Kernel release of the generator's machine.
    pub kernel: String,
    /// Processor of the generator's machine.
    pub processor: String,
    /// What else the caller knows: driver and queue mode, scheduler, commit, …
    #[serde(flatten)]
    pub more: BTreeMap<String, String>,
}

impl Conditions {
    /// The conditions that `config` and this machine give; the transport fills in the rest.
    pub fn new(config: &LoadConfig, transport: &str, target: &str, wait: &str) -> Self {
        let [kernel, processor] = kernel_and_processor();
        Self {
            transport: transport.to_owned(),
            target: target.to_owned(),
            workload: config.workload.to_string(),
            mode: match &config.pattern {
                None => config.mode.to_string(),
                Some(pattern) => format!("{} at the peak; {pattern}", config.mode),
            },
            connections: config.connections,
            threads: 1,
            cores: Vec::new(),
            wait: wait.to_owned(),
            warmup_ms: config.warmup_ms,
            measure_ms: config.measure_ms,
            verify_share: config.verify_share,
            seed: config.seed,
            kernel,
            processor,
            more: BTreeMap::new(),
        }
    }
}

/// One measured run. Latencies are those of requests intended inside the window, from the
/// intended time to the last byte of the response; in churn mode, those of whole cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Under which conditions this was measured.
    pub conditions: Conditions,
    /// Load that was asked for, in requests per second; absent where the responses decide.
    pub offered_rps: Option<f64>,
    /// Responses without error per second of the window (cycles per second in churn mode).
    pub achieved_rps: f64,
    /// The same, but in churn mode each answer for itself: long cycles need not be over to be counted.
    #[serde(default)]
    pub answers_rps: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 90th percentile of the latency.
    pub p90_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// 99.9th percentile of the latency.
    pub p999_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Requests intended inside the window (cycles in churn mode).
    pub requests: u64,
    /// Error responses, lost and dropped requests, over the whole run.
    pub errors: u64,
    /// GETs whose key was not there.
    pub misses: u64,
    /// Responses whose bytes were not those that belong to the request.
    pub wrong_bytes: u64,
    /// Responses whose bytes were compared.
    pub verified: u64,
    /// Requests of the window that had no answer when the drain ended.
    pub unanswered: u64,
    /// Connections that ended before the run did (failed cycles in churn mode).
    pub connections_lost: u64,
    /// Most requests that waited in the generator for a free connection.
    pub backlog_peak: u64,
    /// Share of requests sent too late because the generator was busy.
    pub late_share: f64,
    /// Median of how long after its intended time the generator turned to a request.
    #[serde(default)]
    pub lag_p50_us: f64,
    /// 99th percentile of the same.
    pub lag_p99_us: f64,
    /// Whether the requests left as the arrival process says; absent where the responses decide,
    /// and where the window has too few requests to tell.
    #[serde(default)]
    pub arrivals: Option<ArrivalCheck>,
    /// Processor time of the generator per request, where the transport measures it.
    pub generator_cpu_us_per_request: Option<f64>,
    /// Times that a generator's thread was descheduled inside the window against its will.
    pub involuntary_switches: u64,
    /// Time in which the generator's threads were ready and did not run, in us, within the window.
    #[serde(default)]
    pub waited_us: f64,
    /// What the latency agent measured, where there was one.
    #[serde(default)]
    pub probe: Option<ProbeReport>,
    /// The window in intervals, where that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<SeriesPoint>,
    /// Whether the result may be used.
    pub valid: bool,
    /// Why not.
    pub invalid_reason: Option<String>,
    /// What the target did that no other load would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Whether a part of the run is missing here, as where an agent was lost or the target closed
    /// all connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// What is missing, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_reason: Option<String>,
    /// By how much the agents' starts may differ at most, as far as their clocks tell; absent where
    /// one process measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_skew_bound_us: Option<f64>,
    /// The agents that carried the load; empty where this process did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentReport>,
}

impl LoadReport {
    /// The report of what `measured` counted under `config`.
    pub fn new(config: &LoadConfig, conditions: Conditions, measured: &Measurement) -> Self {
        let at = |quantile| measured.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        let arrivals = arrival_check(config, measured);
        let invalid_reason =
            invalid_reason(config, measured).or_else(|| arrivals.as_ref().and_then(wrong_arrivals));
        let ended_early = (measured.ended_early && measured.counts.completed > 0)
            .then(|| Fault::Closed.describe(measured));
        let cpu = (measured.counts.cpu_ns > 0 && measured.counts.completed > 0)
            .then(|| measured.counts.cpu_ns as f64 / 1e3 / measured.counts.completed as f64);
        Self {
            conditions,
            offered_rps: config.offered_rps(),
            achieved_rps: measured.achieved_rps(),
            answers_rps: measured.answers_rps(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: measured.latency_ns.max() as f64 / 1e3,
            mean_us: measured.latency_ns.mean() / 1e3,
            requests: measured.counts.requests,
            errors: measured.counts.errors + measured.counts.lost + measured.counts.dropped,
            misses: measured.counts.misses,
            wrong_bytes: measured.counts.wrong_bytes,
            verified: measured.counts.verified,
            unanswered: measured.counts.unanswered,
            connections_lost: measured.counts.connections_lost,
            backlog_peak: measured.counts.backlog_peak,
            late_share: share(measured.counts.late, measured.counts.requests),
            lag_p50_us: measured.lag_ns.value_at_quantile(0.5) as f64 / 1e3,
            lag_p99_us: measured.lag_ns.value_at_quantile(0.99) as f64 / 1e3,
            arrivals,
            generator_cpu_us_per_request: cpu,
            involuntary_switches: measured.counts.involuntary_switches,
            waited_us: measured.counts.waited_ns as f64 / 1e3,
            probe: config.probe.zip(measured.probe.as_ref()).map(|(c, m)| ProbeReport::new(&c, m)),
            series: measured.series.as_ref().map_or_else(Vec::new, |series| series.points(config)),
            valid: invalid_reason.is_none(),
            invalid_reason,
            fault: Fault::of(measured),
            partial: ended_early.is_some(),
            partial_reason: ended_early,
            start_skew_bound_us: None,
            agents: Vec::new(),
        }
    }

    /// The report of what a run brought back; the latencies are written to a log, where `config` asks
    /// for one.
    pub(crate) fn of(
        config: &LoadConfig,
        mut conditions: Conditions,
        Ran { measured, first_failure }: Ran,
    ) -> Result<Self, LoadError> {
        if let Some(failure) = first_failure {
            conditions.more.insert("first failure".to_owned(), failure);
        }
        write_log(config, &conditions, &measured)?;
        Ok(Self::new(config, conditions, &measured))
    }

    /// The report as JSON, in lines.
    pub fn to_json(&self) -> String {
        // Strings, numbers and maps with string keys always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// Writes the log of the latencies, where `config` asks for one.
fn write_log(
    config: &LoadConfig,
    conditions: &Conditions,
    measured: &Measurement,
) -> Result<(), LoadError> {
    let Some(path) = &config.hdr_log else { return Ok(()) };
    // The last thread has just ended: the window began at least its own length ago, and the drain
    // is short beside it.
    let began = SystemTime::now() - Duration::from_nanos(measured.window_ns);
    let description = format!("{}, {}", conditions.workload, conditions.mode);
    hdr_log::write_file(path, &description, began, measured)
        .map_err(|source| LoadError::HdrLog { path: path.clone(), source })
}

/// What the target does that no other load would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A response was none of the workload's protocol.
    Protocol,
    /// It closed all connections before the end.
    Closed,
    /// Responses had other bytes than they must have.
    WrongBytes,
    /// Keys could not be stored.
    NotStored,
    /// It answered nothing inside the window.
    Silent,
}

impl Fault {
    /// The most telling one of what was counted.
    fn of(m: &Measurement) -> Option<Self> {
        let faults = [
            (m.violation.is_some(), Self::Protocol),
            (m.ended_early, Self::Closed),
            (m.counts.wrong_bytes > 0, Self::WrongBytes),
            (m.counts.preload_failures > 0, Self::NotStored),
            (m.counts.completed == 0, Self::Silent),
        ];
        faults.into_iter().find_map(|(found, fault)| found.then_some(fault))
    }

    /// What was found, and what to do.
    fn describe(self, m: &Measurement) -> String {
        match self {
            Self::Protocol => format!(
                "a response broke the protocol: {}; does the target speak the workload's protocol?",
                m.violation.map(|violation| violation.to_string()).unwrap_or_default()
            ),
            Self::Closed => format!(
                "all connections were closed by the peer ({}) before the end; did the service end, \
                 or does it not speak the workload's protocol?",
                m.counts.connections_lost
            ),
            Self::WrongBytes => format!(
                "{} of {} verified responses had wrong bytes; does the target serve this workload, \
                 and nobody else change its keys?",
                m.counts.wrong_bytes, m.counts.verified
            ),
            Self::NotStored => format!(
                "{} keys could not be stored before the load; is the service's memory large enough \
                 for all keys?",
                m.counts.preload_failures
            ),
            Self::Silent => format!(
                "nothing was answered inside the window ({} errors); is the service alive, and does \
                 it speak the workload's protocol?",
                m.counts.errors + m.counts.lost + m.counts.dropped
            ),
        }
    }
}

/// Why a result must not be used; the most telling reason first.
fn invalid_reason(config: &LoadConfig, m: &Measurement) -> Option<String> {
    if let Some(fault) = Fault::of(m) {
        return Some(fault.describe(m));
    }
    let late_share = share(m.counts.late, m.counts.requests);
    if late_share > config.lag_share_max {
        return Some(format!(
            "the generator did not keep up: {:.2} % of the requests were sent more than {} us \
             late, {:.2} % are allowed; give it more threads, or ask for less",
            late_share * 100.0,
            config.lag_limit_us,
            config.lag_share_max * 100.0
        ));
    }
    let miss_share = share(m.counts.misses, m.counts.completed);
    if config.preload && miss_share > MISS_SHARE_MAX {
        return Some(format!(
            "{:.2} % of the responses were misses although every key was stored; is the service's \
             memory large enough for all keys?",
            miss_share * 100.0
        ));
    }
    None
}

/// The check of the gaps. A send time is known up to the lateness that one request in a hundred
/// exceeds, but never less well than the configuration allows.
fn arrival_check(config: &LoadConfig, m: &Measurement) -> Option<ArrivalCheck> {
    let limit_ns = config.resolution_us.unwrap_or(config.lag_limit_us) as f64 * 1e3;
    let resolution_ns = (m.lag_ns.value_at_quantile(0.99) as f64).min(limit_ns);
    m.gaps.as_ref()?.check(resolution_ns)
}

/// Why the arrivals were not those that were asked for, and what to do.
fn wrong_arrivals(check: &ArrivalCheck) -> Option<String> {
    (!check.passed).then(|| {
        format!(
            "the requests did not leave as {} arrivals: distance {:.3} ({}), {:.3} is allowed; the \
             generator was interrupted or too slow: pin it to cores of its own, let it spin, give it \
             more threads, or ask for less",
            check.process, check.statistic, check.test, check.critical
        )
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Outcome, Violation};
    use crate::config::Mode;

    fn config() -> LoadConfig {
        let mut config = LoadConfig::echo(64);
        config.mode = Mode::open(1_000.0);
        config
    }

    fn measured() -> Measurement {
        let mut m = Measurement::new(1_000_000_000);
        for latency_us in 1..=1_000u64 {
            m.counts.requests += 1;
            m.on_response(Outcome::Complete, true, Some(latency_us * 1_000), true);
        }
        m
    }

    fn report(m: &Measurement) -> LoadReport {
        let config = config();
        let conditions = Conditions::new(&config, "kernel sockets", "127.0.0.1:1", "spin");
        LoadReport::new(&config, conditions, m)
    }

    #[test]
    fn percentiles_are_those_of_the_histogram_in_microseconds() {
        let report = report(&measured());
        for (value, expected) in [
            (report.p50_us, 500.0),
            (report.p90_us, 900.0),
            (report.p99_us, 990.0),
            (report.p999_us, 999.0),
            (report.max_us, 1_000.0),
            (report.mean_us, 500.5),
        ] {
            assert!((value / expected - 1.0).abs() < 2e-3, "{value} instead of {expected}");
        }
        assert_eq!(report.achieved_rps, 1_000.0);
        assert!(report.valid, "{:?}", report.invalid_reason);
    }

    #[test]
    fn a_result_says_why_it_must_not_be_used() {
        type Spoil = fn(&mut Measurement);
        let cases: [(&str, Spoil); 7] = [
            ("the generator did not keep up: 2.00 %", |m| m.counts.late = 20),
            ("all connections were closed", |m| m.ended_early = true),
            ("3 of 1000 verified responses had wrong bytes", |m| m.counts.wrong_bytes = 3),
            ("1 keys could not be stored", |m| m.counts.preload_failures = 1),
            ("nothing was answered", |m| m.counts.completed = 0),
            ("5.00 % of the responses were misses", |m| m.counts.misses = 50),
            ("broke the protocol: bytes arrived that answer no request", |m| {
                m.violation = Some(Violation::Unasked);
            }),
        ];
        for (expected, spoil) in cases {
            let mut m = measured();
            spoil(&mut m);
            let report = report(&m);
            let reason = report.invalid_reason.clone().unwrap_or_default();
            assert!(!report.valid && reason.contains(expected), "{reason}");
            assert!(report.to_table().contains(&format!("NO: {reason}")));
        }
        let mut m = measured();
        m.counts.late = 10;
        assert!(report(&m).valid, "1 % late is allowed");
    }

    #[test]
    fn json_can_be_read_back_and_keeps_what_the_caller_added() {
        let mut report = report(&measured());
        report.conditions.more.insert("commit".into(), "abc".into());
        let json = report.to_json();
        assert_eq!(serde_json::from_str::<LoadReport>(&json).expect("reads back"), report);
        let value: serde_json::Value = serde_json::from_str(&json).expect("is JSON");
        assert_eq!(value["conditions"]["commit"], "abc");
        assert_eq!(value["offered_rps"], 1_000.0);
    }

    #[test]
    fn the_table_is_aligned() {
        let text = report(&measured()).to_table();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (label, value) = line.split_at(15);
            assert!(label.ends_with(' '), "{line}");
            assert!(!value.starts_with(' '), "{line}");
        }
        assert!(text.contains("offered        1000 /s"), "{text}");
    }
}
