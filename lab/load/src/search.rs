//! The highest load that a service carries within its latency objective: the figure of merit of
//! IX (Table 2) and ZygOS (Table 1).
//!
//! The load doubles until the objective is missed, then the gap is halved until it is small.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::report::LoadReport;
use crate::setting::{ConfigError, RATE_MAX_RPS, check_range, parse_number};

/// The percentiles that a report has.
const PERCENTILES: &str = "50, 90, 99, 99.9";

/// The share of requests that an objective is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub enum Percentile {
    /// Half of them.
    P50,
    /// 90 %.
    P90,
    /// 99 %: the papers' objective (IX §5.5, ZygOS §3.2).
    #[default]
    P99,
    /// 99.9 %.
    P999,
}

impl From<Percentile> for f64 {
    /// In percent.
    fn from(percentile: Percentile) -> Self {
        match percentile {
            Percentile::P50 => 50.0,
            Percentile::P90 => 90.0,
            Percentile::P99 => 99.0,
            Percentile::P999 => 99.9,
        }
    }
}

impl TryFrom<f64> for Percentile {
    type Error = ConfigError;

    fn try_from(percent: f64) -> Result<Self, ConfigError> {
        let all = [Self::P50, Self::P90, Self::P99, Self::P999];
        let found = all.into_iter().find(|percentile| f64::from(*percentile) == percent);
        found.ok_or_else(|| ConfigError::new("percentile", percent, PERCENTILES))
    }
}

impl Percentile {
    /// That percentile of the latency in `report`, in microseconds.
    pub const fn of(self, report: &LoadReport) -> f64 {
        match self {
            Self::P50 => report.p50_us,
            Self::P90 => report.p90_us,
            Self::P99 => report.p99_us,
            Self::P999 => report.p999_us,
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f64::from(*self).fmt(f)
    }
}

impl FromStr for Percentile {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let percent: f64 = parse_number("percentile", text, text, PERCENTILES)?;
        Self::try_from(percent)
    }
}

/// How to search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchConfig {
    /// The objective: the percentile must not exceed this, in microseconds.
    pub slo_p99_us: f64,
    /// Which percentile; the 99th unless told otherwise.
    #[serde(default)]
    pub percentile: Percentile,
    /// The first load that is tried, in requests per second.
    pub start_rps: f64,
    /// The highest load that is tried, in requests per second.
    pub max_rps: f64,
    /// The search ends when the gap between a load that passes and one that does not is below
    /// this share of the load.
    pub precision: f64,
    /// The achieved load must be at least this share of the offered one.
    pub min_achieved: f64,
    /// Further tries of a load that did not pass, before it is believed: neighbours on the host
    /// can spoil a window, but not improve it.
    pub retries: u32,
    /// How often the lowest load that did not pass is tried once more at the end, when a neighbour's bad
    /// spell may be over: where it passes then, the search goes on above it.
    #[serde(default)]
    pub ascents: u32,
    /// Most runs altogether.
    pub max_runs: u32,
}

impl Default for SearchConfig {
    /// 500 us (IX §5.5), from 10,000 requests per second, to 2 %, one retry.
    fn default() -> Self {
        Self {
            slo_p99_us: 500.0,
            percentile: Percentile::P99,
            start_rps: 10_000.0,
            max_rps: 10_000_000.0,
            precision: 0.02,
            min_achieved: 0.95,
            retries: 1,
            ascents: 0,
            max_runs: 60,
        }
    }
}

impl SearchConfig {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        check_range("slo_p99_us", self.slo_p99_us, 0.001, 60_000_000.0)?;
        check_range("start_rps", self.start_rps, 1.0, RATE_MAX_RPS)?;
        check_range("max_rps", self.max_rps, self.start_rps, RATE_MAX_RPS)?;
        check_range("precision", self.precision, 0.001, 1.0)?;
        check_range("min_achieved", self.min_achieved, 0.0, 1.0)?;
        check_range("retries", self.retries, 0, 100)?;
        check_range("ascents", self.ascents, 0, 10)?;
        check_range("max_runs", self.max_runs, 1, 10_000)
    }
}

/// Tries after which a load is given up where each of them answered far too few: a neighbour spoils a
/// window, but not all of it and not every one.
const HOPELESS_TRIES: u32 = 3;

/// Why a load did or did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Within the objective.
    Pass,
    /// The objective's percentile is above it.
    TooSlow,
    /// Too few requests were answered, or some with errors.
    TooFew,
    /// The result is invalid, as when the generator does not keep up.
    Invalid,
}

/// What ended the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The service: a little more load misses the objective.
    Service,
    /// The measurement: results of a little more load are invalid. The service may carry more.
    Generator,
    /// `max_rps` passed. The service may carry more.
    MaxRate,
    /// `max_runs` were used up.
    MaxRuns,
}

/// One run of the search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Load that was offered, in requests per second.
    pub offered_rps: f64,
    /// Load that was answered, in requests per second.
    pub achieved_rps: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// How it was judged.
    pub verdict: Verdict,
}

/// What the search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The highest offered load that passed, in requests per second; `None` where not even the
    /// lowest did.
    pub throughput_at_slo_rps: Option<f64>,
    /// The run of that load.
    pub best: Option<LoadReport>,
    /// Why there is no higher one.
    pub limit: Limit,
    /// Every run, in order.
    pub probes: Vec<Probe>,
}

/// Judges one report against the objective.
pub fn judge(config: &SearchConfig, offered_rps: f64, report: &LoadReport) -> Verdict {
    if !report.valid {
        Verdict::Invalid
    } else if report.errors > 0 || report.achieved_rps < offered_rps * config.min_achieved {
        Verdict::TooFew
    } else if config.percentile.of(report) > config.slo_p99_us {
        Verdict::TooSlow
    } else {
        Verdict::Pass
    }
}

/// The highest offered load whose 99th percentile is within the objective; `run` measures one
/// load. Where the first load does not pass, lower ones are tried, down to a thousandth.
///
/// # Errors
/// What `run` fails with, which ends the search; or a setting that cannot be used.
pub fn throughput_at_slo<E: From<ConfigError>>(
    config: &SearchConfig,
    run: impl FnMut(f64) -> Result<LoadReport, E>,
) -> Result<SearchResult, E> {
    config.validate()?;
    let mut search = Search { config, run, probes: Vec::new(), best: None };
    let limit = match search.search() {
        Ok(limit) | Err(Stop::Limit(limit)) => limit,
        Err(Stop::Failed(error)) => return Err(error),
    };
    let Search { probes, best, .. } = search;
    let throughput_at_slo_rps = best.as_ref().map(|(rps, _)| *rps);
    Ok(SearchResult { throughput_at_slo_rps, best: best.map(|(_, r)| r), limit, probes })
}

/// Where the answer lies: `low_rps` passes, `high_rps` did not.
#[derive(Clone, Copy)]
struct Gap {
    low_rps: f64,
    high_rps: f64,
    failure: Verdict,
}

/// What ends a search before its gap is small.
enum Stop<E> {
    /// There is nothing more to find.
    Limit(Limit),
    /// A run failed.
    Failed(E),
}

struct Search<'a, F> {
    config: &'a SearchConfig,
    run: F,
    probes: Vec<Probe>,
    best: Option<(f64, LoadReport)>,
}

impl<E, F: FnMut(f64) -> Result<LoadReport, E>> Search<'_, F> {
    fn search(&mut self) -> Result<Limit, Stop<E>> {
        let start_rps = self.config.start_rps;
        let mut gap = match self.probe(start_rps)? {
            Verdict::Pass => self.up(start_rps, 1.0)?,
            failure => self.down(start_rps, failure)?,
        };
        for _ in 0..self.config.ascents {
            let Gap { high_rps, .. } = self.halve(gap)?;
            gap = match self.probe(high_rps)? {
                // What is above is near, unless the spell was very bad.
                Verdict::Pass => self.up(high_rps, 2.0 * self.config.precision)?,
                failure => return Ok(limit_of(failure)),
            };
        }
        Ok(limit_of(self.halve(gap)?.failure))
    }

    /// Raises the load from one that passes, by the share `step` and then by twice that and so on, but no
    /// further than to its double at a time, up to the first that does not.
    fn up(&mut self, mut low_rps: f64, mut step: f64) -> Result<Gap, Stop<E>> {
        let max_rps = self.config.max_rps;
        while low_rps < max_rps {
            let high_rps = (low_rps * (1.0 + step.min(1.0))).min(max_rps);
            step *= 2.0;
            match self.probe(high_rps)? {
                Verdict::Pass => low_rps = high_rps,
                failure => return Ok(Gap { low_rps, high_rps, failure }),
            }
        }
        Err(Stop::Limit(Limit::MaxRate))
    }

    /// Halves the load from one that does not pass, down to the first that does.
    fn down(&mut self, mut high_rps: f64, mut failure: Verdict) -> Result<Gap, Stop<E>> {
        loop {
            let low_rps = high_rps / 2.0;
            if low_rps < (self.config.start_rps / 1e3).max(1.0) {
                return Err(Stop::Limit(limit_of(failure)));
            }
            match self.probe(low_rps)? {
                Verdict::Pass => return Ok(Gap { low_rps, high_rps, failure }),
                other => (failure, high_rps) = (other, low_rps),
            }
        }
    }

    /// Halves the gap until it is small.
    fn halve(&mut self, mut gap: Gap) -> Result<Gap, Stop<E>> {
        while gap.high_rps - gap.low_rps > self.config.precision * gap.low_rps {
            let middle_rps = (gap.low_rps + gap.high_rps) / 2.0;
            match self.probe(middle_rps)? {
                Verdict::Pass => gap.low_rps = middle_rps,
                failure => gap = Gap { high_rps: middle_rps, failure, ..gap },
            }
        }
        Ok(gap)
    }

    /// Measures one load, again where it does not pass. The search ends when no run is left.
    fn probe(&mut self, rps: f64) -> Result<Verdict, Stop<E>> {
        let (mut last, mut all_overloaded) = (None, true);
        for tried in 0..=self.config.retries {
            if tried >= HOPELESS_TRIES && all_overloaded {
                break;
            }
            if self.probes.len() >= self.config.max_runs as usize {
                break;
            }
            let report = (self.run)(rps).map_err(Stop::Failed)?;
            let verdict = judge(self.config, rps, &report);
            all_overloaded &= report.achieved_rps < self.config.min_achieved * rps;
            self.probes.push(Probe {
                offered_rps: rps,
                achieved_rps: report.achieved_rps,
                p99_us: report.p99_us,
                verdict,
            });
            last = Some(verdict);
            if verdict == Verdict::Pass {
                self.best = Some((rps, report));
                break;
            }
        }
        last.ok_or(Stop::Limit(Limit::MaxRuns))
    }
}

/// For each load that was offered the window with the lowest latency, by load: what a machine's
/// neighbours did to the rest is no part of a server's curve. `of` tells a window's load and latency.
pub fn best_windows<'a, T>(
    windows: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&T) -> (f64, f64),
) -> Vec<&'a T> {
    let mut best: Vec<&T> = Vec::new();
    for window in windows {
        let (load, latency) = of(window);
        match best.iter_mut().find(|other| of(other).0 == load) {
            Some(other) if of(other).1 <= latency => {}
            Some(other) => *other = window,
            None => best.push(window),
        }
    }
    best.sort_by(|a, b| of(a).0.total_cmp(&of(b).0));
    best
}

fn limit_of(verdict: Verdict) -> Limit {
    if verdict == Verdict::Invalid { Limit::Generator } else { Limit::Service }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Outcome;
    use crate::config::{LoadConfig, Mode};
    use crate::measurement::Measurement;
    use crate::report::Conditions;

    /// The report of a service whose p99 is that of an M/M/1 queue of `capacity_rps`, measured by
    /// a generator that keeps up to `generator_rps`.
    fn model(capacity_rps: f64, generator_rps: f64, rps: f64) -> LoadReport {
        let mut config = LoadConfig::echo(64);
        config.mode = Mode::open(rps);
        let mut m = Measurement::new(1_000_000_000);
        let p99_us =
            if rps < capacity_rps { 100f64.ln() * 1e6 / (capacity_rps - rps) } else { 1e6 };
        m.counts.requests = rps as u64;
        m.on_response(Outcome::Complete, false, Some((p99_us * 1e3) as u64), true);
        m.counts.completed = rps.min(capacity_rps) as u64;
        if rps > generator_rps {
            m.counts.late = m.counts.requests;
        }
        LoadReport::new(&config, Conditions::new(&config, "model", "M/M/1", "none"), &m)
    }

    fn search(config: &SearchConfig, capacity: f64, generator: f64) -> SearchResult {
        throughput_at_slo(config, |rps| Ok::<_, ConfigError>(model(capacity, generator, rps)))
            .expect("the model does not fail")
    }

    #[test]
    fn it_finds_the_load_of_the_closed_form() {
        let config = SearchConfig { slo_p99_us: 100.0, ..SearchConfig::default() };
        // p99 = ln(100) / (capacity - load) = 100 us
        for capacity in [60_000.0, 700_000.0, 2_345_678.0] {
            let expected = capacity - 100f64.ln() * 1e4;
            let found = search(&config, capacity, f64::INFINITY);
            let rps = found.throughput_at_slo_rps.expect("some load passes");
            assert!(rps <= expected && rps > expected * 0.97, "{rps} of {expected}");
            assert_eq!(found.limit, Limit::Service);
            assert_eq!(found.best.expect("has a report").offered_rps, Some(rps));
            assert!(found.probes.len() < 50, "{} runs", found.probes.len());
        }
    }

    #[test]
    fn it_goes_down_when_the_first_load_is_too_high() {
        let config = SearchConfig { start_rps: 1e6, ..SearchConfig::default() };
        let found = search(&config, 90_000.0, f64::INFINITY);
        let expected = 90_000.0 - 100f64.ln() * 2e3;
        let rps = found.throughput_at_slo_rps.expect("some load passes");
        assert!(rps <= expected && rps > expected * 0.97, "{rps} of {expected}");
    }

    #[test]
    fn a_service_that_never_meets_it_has_no_result() {
        let config = SearchConfig { slo_p99_us: 0.5, ..SearchConfig::default() };
        let found = search(&config, 50_000.0, f64::INFINITY);
        assert_eq!((found.throughput_at_slo_rps, found.limit), (None, Limit::Service));
        assert!(found.best.is_none());
    }

    #[test]
    fn it_says_what_ended_it() {
        let config = SearchConfig::default();
        let found = search(&config, 1e6, 200_000.0);
        assert_eq!(found.limit, Limit::Generator);
        assert!(found.throughput_at_slo_rps.expect("passes") <= 200_000.0);

        let found = search(&SearchConfig { max_rps: 50_000.0, ..config.clone() }, 1e6, 1e9);
        assert_eq!((found.throughput_at_slo_rps, found.limit), (Some(50_000.0), Limit::MaxRate));

        let found = search(&SearchConfig { max_runs: 3, ..config }, 1e6, 1e9);
        assert_eq!((found.probes.len(), found.limit), (3, Limit::MaxRuns));
        assert_eq!(found.throughput_at_slo_rps, Some(40_000.0));
    }

    #[test]
    fn the_objective_may_be_of_another_percentile() {
        let mut report = model(1e6, 1e9, 1_000.0);
        (report.p50_us, report.p99_us, report.p999_us) = (10.0, 100.0, 1_000.0);
        for (percentile, expected) in [
            (Percentile::P50, Verdict::Pass),
            (Percentile::P99, Verdict::Pass),
            (Percentile::P999, Verdict::TooSlow),
        ] {
            let config = SearchConfig { percentile, ..SearchConfig::default() };
            assert_eq!(judge(&config, 1_000.0, &report), expected, "{percentile}");
            assert_eq!(percentile.to_string().parse(), Ok(percentile));
            let json = serde_json::to_string(&percentile).expect("a number");
            assert_eq!(serde_json::from_str::<Percentile>(&json).expect("a number"), percentile);
        }
        assert!("98".parse::<Percentile>().is_err());
    }

    #[test]
    fn of_each_load_the_best_window_is_shown() {
        let windows = [(200, 9), (100, 3), (200, 5), (200, 7)];
        let best = best_windows(&windows, |&(load, p99)| (f64::from(load), f64::from(p99)));
        assert_eq!(best, [&(100, 3), &(200, 5)]);
    }

    #[test]
    fn one_spoiled_window_does_not_spoil_the_result() {
        let config = SearchConfig { slo_p99_us: 100.0, ..SearchConfig::default() };
        let mut runs = 0;
        let found = throughput_at_slo(&config, |rps| {
            runs += 1;
            // Every load's first window is disturbed.
            let capacity = if runs % 2 == 1 { 1_000.0 } else { 500_000.0 };
            Ok::<_, ConfigError>(model(capacity, 1e9, rps))
        })
        .expect("does not fail");
        assert!(found.throughput_at_slo_rps.expect("passes") > 400_000.0);
    }

    #[test]
    fn a_bad_spell_at_the_start_is_outlived() {
        let found_after = |ascents| {
            let config = SearchConfig { slo_p99_us: 100.0, ascents, ..SearchConfig::default() };
            let mut runs = 0;
            let found = throughput_at_slo(&config, |rps| {
                runs += 1;
                let spoiled = if runs <= 2 { 20_000.0 } else { 1e6 };
                Ok::<_, ConfigError>(model(spoiled, f64::INFINITY, rps))
            });
            found.expect("valid settings").throughput_at_slo_rps.expect("a load passes")
        };
        // The first load is given up, and it bounds the search from then on.
        assert!(found_after(0) < 10_000.0);
        let closed_form = 1e6 - 100.0f64.ln() / 100e-6;
        assert!((found_after(1) / closed_form - 1.0).abs() < 0.03, "{}", found_after(1));
    }

    #[test]
    fn a_hopeless_load_is_given_up_early_and_a_near_one_is_not() {
        let config = SearchConfig { retries: 7, max_rps: 1e6, ..SearchConfig::default() };
        let tries = |found: &SearchResult, rps: f64| {
            found.probes.iter().filter(|probe| probe.offered_rps == rps).count()
        };
        // Of 640,000 a service of 600,000 answers less than 95 %: three tries say so.
        let found = search(&config, 600_000.0, f64::INFINITY);
        assert_eq!(tries(&found, 640_000.0), HOPELESS_TRIES as usize);
        // Of one of 645,000 all are answered, too late.
        let found = search(&config, 645_000.0, f64::INFINITY);
        assert_eq!(tries(&found, 640_000.0), 8);
    }

    #[test]
    fn a_failing_run_ends_it_and_bad_settings_do_not_start_it() {
        let config = SearchConfig::default();
        let error = ConfigError::new("a", "b", "c");
        assert_eq!(throughput_at_slo(&config, |_| Err(error.clone())), Err(error));
        let config = SearchConfig { slo_p99_us: 0.0, ..config };
        let result = throughput_at_slo(&config, |rps| Ok::<_, ConfigError>(model(1e6, 1e9, rps)));
        assert_eq!(result.expect_err("0 us").key, "slo_p99_us");
    }
}
