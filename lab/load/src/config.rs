//! What a user asks for: one value that describes a load, checked before anything is sent.
//!
//! ```
//! use load::{LoadConfig, Mode};
//! let mut config = LoadConfig::echo(64);
//! config.mode = Mode::closed(1);
//! config.connections = 32;
//! config.validate()?;
//! config.connections = 0;
//! let error = config.validate().unwrap_err().to_string();
//! assert_eq!(error, "`connections` is `0`; allowed: 1 to 1000000");
//! # Ok::<(), load::ConfigError>(())
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::arrival::ArrivalProcess;
use crate::pattern::Pattern;
use crate::probe::ProbeConfig;
use crate::setting::{
    CONNECTIONS_MAX, ConfigError, DEPTH_MAX, PERIOD_MAX_MS, RATE_MAX_RPS, as_text, check_range,
};
use crate::workload::WorkloadConfig;

/// Pipelining bound of open-loop connections unless told otherwise (IX §5.5 uses 4).
pub const OPEN_DEPTH_DEFAULT: u32 = 4;

/// How a connection is ended in churn mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::EnumString)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = ConfigError, parse_err_fn = not_a_close_mode)]
pub enum CloseMode {
    /// The client half-closes, waits for the peer's FIN, and keeps TIME-WAIT for itself: a kernel
    /// client runs out of ports after some 28,000 cycles a minute.
    Fin,
    /// The client resets, as IX's benchmark does (IX §5.2): no TIME-WAIT anywhere.
    Rst,
}

impl CloseMode {
    /// What a reader of a result must know about this way of closing.
    pub const fn note(self) -> &'static str {
        match self {
            Self::Fin => "closed by FIN, TIME-WAIT stays at the client",
            Self::Rst => "closed by RST, no TIME-WAIT",
        }
    }
}

fn not_a_close_mode(text: &str) -> ConfigError {
    ConfigError::new("close", text, "fin, rst")
}

/// Who decides when a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "loop")]
pub enum Mode {
    /// An arrival process decides, whatever the server does: latency counts from the *intended*
    /// time, so that a slow server cannot slow down its own measurement.
    Open {
        /// Offered load, in requests per second, over all connections.
        rps: f64,
        /// Shape of the gaps.
        #[serde(with = "as_text")]
        arrivals: ArrivalProcess,
        /// Most requests outstanding on one connection; more wait in the generator.
        depth: u32,
    },
    /// The responses decide: each connection keeps `depth` requests outstanding.
    Closed {
        /// Requests outstanding on each connection.
        depth: u32,
    },
    /// Each connection is opened, used for a few requests, closed, and opened again.
    Churn {
        /// Requests on each connection, one after the other.
        requests: u32,
        /// How the connection is ended.
        close: CloseMode,
    },
}

impl Mode {
    /// Poisson arrivals at `rps` requests per second, four outstanding on a connection.
    pub const fn open(rps: f64) -> Self {
        Self::Open { rps, arrivals: ArrivalProcess::Poisson, depth: OPEN_DEPTH_DEFAULT }
    }

    /// `depth` requests outstanding on every connection.
    pub const fn closed(depth: u32) -> Self {
        Self::Closed { depth }
    }

    /// Most requests outstanding on one connection.
    pub const fn depth(&self) -> u32 {
        match self {
            Self::Open { depth, .. } | Self::Closed { depth } => *depth,
            Self::Churn { .. } => 1,
        }
    }

    /// The rate that is asked for, in requests per second; `None` where the responses decide.
    pub const fn offered_rps(&self) -> Option<f64> {
        match self {
            Self::Open { rps, .. } => Some(*rps),
            Self::Closed { .. } | Self::Churn { .. } => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { rps, arrivals, depth } => {
                write!(f, "open loop, {arrivals}, {rps} requests/s, depth {depth}")
            }
            Self::Closed { depth } => write!(f, "closed loop, depth {depth}"),
            Self::Churn { requests, close } => {
                write!(f, "churn, {requests} requests a connection, {}", close.note())
            }
        }
    }
}

/// A load, whatever carries it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadConfig {
    /// What the requests are.
    pub workload: WorkloadConfig,
    /// When they are sent.
    pub mode: Mode,
    /// How the rate of an open loop changes with time; the mode's rate is then the peak.
    #[serde(default)]
    pub pattern: Option<Pattern>,
    /// Connections that carry the load, over all threads.
    pub connections: u32,
    /// A latency agent beside the load, with connections of its own.
    #[serde(default)]
    pub probe: Option<ProbeConfig>,
    /// Whether the window is also reported in intervals; a pattern always is.
    #[serde(default)]
    pub series: bool,
    /// A file that the latencies are written to as an HdrHistogram log.
    #[serde(default)]
    pub hdr_log: Option<String>,
    /// Load without measuring, before the window, in milliseconds.
    pub warmup_ms: u64,
    /// The measured window, in milliseconds.
    pub measure_ms: u64,
    /// Longest wait for responses after the window, in milliseconds.
    pub drain_ms: u64,
    /// Longest wait for all connections to open, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Whether every key is stored before the load starts (memcached only).
    pub preload: bool,
    /// Longest time that storing the keys may take, in milliseconds.
    pub preload_timeout_ms: u64,
    /// Whether an earlier run has stored every key: they are not stored again, and misses count as
    /// if they had been stored now.
    #[serde(default)]
    pub keys_stored: bool,
    /// Share of responses whose bytes are compared with what they must be, 0 to 1.
    pub verify_share: f64,
    /// A request sent more than this after its intended time, because the generator was busy, is
    /// late. In microseconds.
    pub lag_limit_us: u64,
    /// The result is invalid when a greater share of requests than this was late, 0 to 1.
    pub lag_share_max: f64,
    /// The check of the gaps between requests takes a send time to be off by the 99th percentile of
    /// the lateness, and by this at most, in microseconds; by default by `lag_limit_us`.
    #[serde(default)]
    pub resolution_us: Option<u64>,
    /// Seed of arrivals, keys and choices: the same seed asks for the same requests.
    pub seed: u64,
}

impl LoadConfig {
    /// A load of `workload` with the defaults: one connection, closed loop, 100 ms of warm-up, one
    /// second measured, one response in sixteen verified.
    pub fn new(workload: WorkloadConfig) -> Self {
        Self {
            workload,
            mode: Mode::closed(1),
            pattern: None,
            connections: 1,
            probe: None,
            series: false,
            hdr_log: None,
            warmup_ms: 100,
            measure_ms: 1_000,
            drain_ms: 1_000,
            connect_timeout_ms: 10_000,
            preload: true,
            preload_timeout_ms: 60_000,
            keys_stored: false,
            verify_share: 1.0 / 16.0,
            lag_limit_us: 100,
            lag_share_max: 0.01,
            resolution_us: None,
            seed: 1,
        }
    }

    /// Echo of messages of `bytes` bytes.
    pub fn echo(bytes: u32) -> Self {
        Self::new(WorkloadConfig::Echo { bytes })
    }

    /// Connections of the load and of the latency agent.
    pub fn connections_in_all(&self) -> u32 {
        self.connections.saturating_add(self.probe.map_or(0, |probe| probe.connections))
    }

    /// Whether keys are stored before the load.
    pub(crate) const fn preloads(&self) -> bool {
        self.preload && !self.keys_stored
    }

    /// Whether the window is recorded in intervals.
    pub const fn has_series(&self) -> bool {
        self.series || self.pattern.is_some() || self.hdr_log.is_some()
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used, with its value and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.workload.validate()?;
        check_range("connections", self.connections, 1, CONNECTIONS_MAX)?;
        match self.mode {
            Mode::Open { rps, depth, arrivals } => {
                check_range("rate", rps, 1.0, RATE_MAX_RPS)?;
                check_range("depth", depth, 1, DEPTH_MAX)?;
                arrivals.validate()?;
                self.pattern.map_or(Ok(()), |pattern| pattern.validate(rps))?;
            }
            Mode::Closed { depth } => check_range("depth", depth, 1, DEPTH_MAX)?,
            Mode::Churn { requests, .. } => check_range("requests", requests, 1, 1_000_000)?,
        }
        if let (Some(pattern), None) = (&self.pattern, self.mode.offered_rps()) {
            return Err(ConfigError::new("pattern", pattern, "only in open loop (with a rate)"));
        }
        if let Some(probe) = &self.probe {
            if matches!(self.mode, Mode::Churn { .. }) {
                let allowed = "only in open and closed loop";
                return Err(ConfigError::new("probe", "on", allowed));
            }
            probe.validate()?;
        }
        check_range("warmup_ms", self.warmup_ms, 0, PERIOD_MAX_MS)?;
        check_range("measure_ms", self.measure_ms, 1, PERIOD_MAX_MS)?;
        check_range("drain_ms", self.drain_ms, 0, PERIOD_MAX_MS)?;
        check_range("connect_timeout_ms", self.connect_timeout_ms, 1, PERIOD_MAX_MS)?;
        check_range("preload_timeout_ms", self.preload_timeout_ms, 1, PERIOD_MAX_MS)?;
        check_range("verify_share", self.verify_share, 0.0, 1.0)?;
        check_range("lag_limit_us", self.lag_limit_us, 1, 1_000_000)?;
        check_range("resolution_us", self.resolution_us.unwrap_or(0), 0, 1_000_000)?;
        check_range("lag_share_max", self.lag_share_max, 0.0, 1.0)
    }

    /// The share of this load that thread `index` of `threads` carries: its connections, its part
    /// of the rate, and a seed of its own. Poisson streams add up to a Poisson stream; of the other
    /// processes each thread has one. The latency agent is the first thread's.
    ///
    /// # Errors
    /// `threads` is zero or exceeds the connections.
    pub fn split(&self, index: u32, threads: u32) -> Result<Self, ConfigError> {
        check_range("threads", threads, 1, self.connections)?;
        assert!(index < threads, "a thread's index is below the number of threads");
        let connections =
            self.connections / threads + u32::from(index < self.connections % threads);
        let mut part = self.clone();
        part.connections = connections;
        part.seed = self.seed.wrapping_add(u64::from(index).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let share = f64::from(connections) / f64::from(self.connections);
        if let Mode::Open { rps, .. } = &mut part.mode {
            *rps *= share;
        }
        if let Some(pattern) = &mut part.pattern {
            pattern.low_rps *= share;
        }
        if index > 0 {
            part.probe = None;
        }
        Ok(part)
    }

    /// The share of this load that generator `index` of `generators` carries, on machines of their
    /// own: as [`Self::split`], with a seed from which no other generator's threads draw.
    ///
    /// # Errors
    /// `generators` is zero or exceeds the connections.
    pub(crate) fn share(&self, index: u32, generators: u32) -> Result<Self, ConfigError> {
        check_range("agents", generators, 1, self.connections)?;
        let mut share = self.split(index, generators)?;
        // Another odd number than `split` has: the sums of the two do not meet.
        share.seed = self.seed.wrapping_add(u64::from(index).wrapping_mul(0xD1B5_4A32_D192_ED03));
        // The report of the whole is made, and its log written, where the shares come together.
        share.series = self.has_series();
        share.hdr_log = None;
        Ok(share)
    }

    /// The rate that is asked for, in requests per second: where it follows a pattern, its mean
    /// over the window. `None` where the responses decide.
    pub fn offered_rps(&self) -> Option<f64> {
        let rps = self.mode.offered_rps()?;
        Some(self.pattern.map_or(rps, |pattern| pattern.mean_rps(rps, self.measure_ms)))
    }
}

impl LoadConfig {
    /// By how much thread `index` starts later: equal gaps on several threads must interleave, not
    /// coincide.
    pub(crate) fn phase_shift_ns(&self, index: u32) -> u64 {
        match self.mode {
            Mode::Open { rps, arrivals: ArrivalProcess::Deterministic, .. } => {
                (f64::from(index) * 1e9 / rps) as u64
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bad_setting_is_named_with_its_value_and_what_is_allowed() {
        let good = LoadConfig::echo(64);
        good.validate().expect("the defaults are valid");
        type Spoil = fn(&mut LoadConfig);
        let cases: [(&str, Spoil); 9] = [
            ("`connections` is `0`; allowed: 1 to 1000000", |c| c.connections = 0),
            ("`rate` is `NaN`; allowed: 1 to 100000000", |c| c.mode = Mode::open(f64::NAN)),
            ("`rate` is `0`; allowed: 1 to 100000000", |c| c.mode = Mode::open(0.0)),
            ("`depth` is `0`; allowed: 1 to 1024", |c| c.mode = Mode::closed(0)),
            ("`measure_ms` is `0`; allowed: 1 to 3600000", |c| c.measure_ms = 0),
            ("`verify_share` is `2`; allowed: 0 to 1", |c| c.verify_share = 2.0),
            ("`lag_share_max` is `-1`; allowed: 0 to 1", |c| c.lag_share_max = -1.0),
            ("`requests` is `0`; allowed: 1 to 1000000", |c| {
                c.mode = Mode::Churn { requests: 0, close: CloseMode::Rst };
            }),
            ("`bytes` is `0`; allowed: 1 to 1000000", |c| {
                c.workload = WorkloadConfig::Echo { bytes: 0 };
            }),
        ];
        for (expected, spoil) in cases {
            let mut config = good.clone();
            spoil(&mut config);
            assert_eq!(config.validate().expect_err(expected).to_string(), expected);
        }
        assert_eq!(
            "abort".parse::<CloseMode>().expect_err("not a close mode").to_string(),
            "`close` is `abort`; allowed: fin, rst"
        );
    }

    #[test]
    fn the_parts_of_a_split_load_add_up() {
        let mut config = LoadConfig::echo(64);
        config.connections = 10;
        config.mode = Mode::open(9_000.0);
        let parts: Vec<_> = (0..3).map(|i| config.split(i, 3).expect("3 of 10")).collect();
        assert_eq!(parts.iter().map(|p| p.connections).sum::<u32>(), 10);
        let rps: f64 = parts.iter().filter_map(|p| p.mode.offered_rps()).sum();
        assert!((rps - 9_000.0).abs() < 1e-6);
        assert_ne!(parts[0].seed, parts[1].seed);
        assert!(config.split(0, 11).is_err(), "a thread without a connection");
    }

    #[test]
    fn a_config_survives_json() {
        let mut config = LoadConfig::new(WorkloadConfig::etc());
        config.mode = Mode::open(1_000.0);
        let text = serde_json::to_string(&config).expect("serializes");
        assert_eq!(serde_json::from_str::<LoadConfig>(&text).expect("parses"), config);
    }

    #[test]
    fn no_two_threads_of_any_agent_draw_from_the_same_seed() {
        let mut load = LoadConfig::echo(64);
        load.mode = Mode::open(6_400.0);
        load.connections = 64;
        let mut seeds = Vec::new();
        let (mut connections, mut rps) = (0, 0.0);
        for agent in 0..8 {
            let share = load.share(agent, 8).expect("divides");
            for thread in 0..4 {
                let part = share.split(thread, 4).expect("divides");
                seeds.push(part.seed);
                connections += part.connections;
                rps += part.mode.offered_rps().expect("open loop");
            }
        }
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!((seeds.len(), connections), (32, 64));
        assert!((rps - 6_400.0).abs() < 1e-6);
        // One agent draws what a run without agents draws.
        assert_eq!(load.share(0, 1).expect("divides"), load);
    }
}
