//! The window in intervals: how a load that changes with time was carried.
//!
//! A request belongs to the interval in which it was *meant* to be sent, and so does its latency;
//! a response counts where it came. The histograms of all intervals are allocated at the start, at
//! two digits: there are many of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::config::LoadConfig;
use crate::latency::LATENCY_MAX_NS;
use crate::pattern::RateWalk;

/// Length of an interval, in milliseconds, as long as the window has few enough of them.
const INTERVAL_MS: u64 = 100;
/// Most intervals: a longer window has longer ones. Their histograms take 50 MB.
const INTERVALS_MAX: u64 = 4_096;
/// Latencies below this, in nanoseconds, are not told apart.
const LATENCY_MIN_NS: u64 = 100;
/// Significant decimal digits of the histograms.
const DIGITS: u8 = 2;

/// One interval of the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interval<H = Histogram<u32>> {
    /// Requests meant to be sent in it.
    pub requests: u64,
    /// Responses without error that came in it.
    pub completed: u64,
    /// Latencies of its requests, in nanoseconds.
    pub latency_ns: H,
}

/// The window in intervals.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// Length of an interval, in nanoseconds.
    pub interval_ns: u64,
    /// When the window begins.
    from_ns: u64,
    /// All of them; the last may be shorter.
    pub intervals: Vec<Interval>,
}

impl Series {
    /// For a window of `window_ms` milliseconds.
    pub fn new(window_ms: u64) -> Self {
        let interval_ms = INTERVAL_MS * window_ms.div_ceil(INTERVAL_MS * INTERVALS_MAX).max(1);
        let latency_ns = Histogram::new_with_bounds(LATENCY_MIN_NS, LATENCY_MAX_NS, DIGITS)
            .expect("100 ns to 60 s at 2 digits are bounds that the histogram accepts");
        let interval = Interval { requests: 0, completed: 0, latency_ns };
        let count = window_ms.div_ceil(interval_ms).max(1);
        Self {
            interval_ns: interval_ms * 1_000_000,
            from_ns: 0,
            intervals: vec![interval; count as usize],
        }
    }

    /// The window begins at `from_ns`.
    pub const fn start(&mut self, from_ns: u64) {
        self.from_ns = from_ns;
    }

    /// The interval of a moment; `None` outside of the window.
    fn at(&mut self, moment_ns: u64) -> Option<&mut Interval> {
        let since_ns = moment_ns.checked_sub(self.from_ns)?;
        self.intervals.get_mut((since_ns / self.interval_ns) as usize)
    }

    /// A request was meant for `intended_ns`.
    pub fn on_request(&mut self, intended_ns: u64) {
        if let Some(interval) = self.at(intended_ns) {
            interval.requests += 1;
        }
    }

    /// A response came at `now_ns` to a request meant for `intended_ns`: `latency_ns` where that
    /// was in the window. An error's entry is the longest, as in the whole window's histogram.
    pub fn on_response(
        &mut self,
        intended_ns: u64,
        latency_ns: Option<u64>,
        answered: bool,
        now_ns: u64,
    ) {
        if let Some(interval) = self.at(now_ns) {
            interval.completed += u64::from(answered);
        }
        if let Some(latency_ns) = latency_ns {
            self.on_latency(intended_ns, if answered { latency_ns } else { LATENCY_MAX_NS });
        }
    }

    /// A request that was meant for `intended_ns` took `latency_ns`, or has waited for so long.
    pub fn on_latency(&mut self, intended_ns: u64, latency_ns: u64) {
        if let Some(interval) = self.at(intended_ns) {
            interval.latency_ns.saturating_record(latency_ns.max(1));
        }
    }

    /// Adds what another thread saw of the same window.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.intervals.len(), other.intervals.len(), "one window");
        for (interval, others) in self.intervals.iter_mut().zip(&other.intervals) {
            interval.requests += others.requests;
            interval.completed += others.completed;
            interval.latency_ns += &others.latency_ns;
        }
    }

    /// The points for the report of `config`.
    pub fn points(&self, config: &LoadConfig) -> Vec<SeriesPoint> {
        let peak_rps = config.mode.offered_rps();
        let mut walk = config
            .pattern
            .zip(peak_rps)
            .map(|(pattern, peak_rps)| RateWalk::new(pattern, peak_rps, 0, 0));
        let window_ns = config.measure_ms * 1_000_000;
        let point = |(index, interval): (usize, &Interval)| {
            let at_ns = index as u64 * self.interval_ns;
            let until_ns = (at_ns + self.interval_ns).min(window_ns);
            let seconds = until_ns.saturating_sub(at_ns).max(1) as f64 / 1e9;
            let offered_rps = match &mut walk {
                Some(walk) => Some(walk.until(until_ns) / seconds),
                None => peak_rps,
            };
            let latency = &interval.latency_ns;
            let quantile = |quantile| {
                (!latency.is_empty()).then(|| latency.value_at_quantile(quantile) as f64 / 1e3)
            };
            SeriesPoint {
                at_ms: at_ns / 1_000_000,
                offered_rps,
                requests: interval.requests,
                achieved_rps: interval.completed as f64 / seconds,
                p50_us: quantile(0.5),
                p99_us: quantile(0.99),
            }
        };
        self.intervals.iter().enumerate().map(point).collect()
    }
}

/// One interval of the window, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// When the interval begins, in milliseconds after the window's beginning.
    pub at_ms: u64,
    /// The rate that was asked for; absent where the responses decide.
    pub offered_rps: Option<f64>,
    /// Requests meant to be sent in the interval.
    pub requests: u64,
    /// Responses without error that came in the interval, per second.
    pub achieved_rps: f64,
    /// Median latency of the interval's requests; absent where there were none.
    pub p50_us: Option<f64>,
    /// 99th percentile of the same.
    pub p99_us: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;
    use crate::pattern::{Pattern, PatternShape};

    const MS: u64 = 1_000_000;

    #[test]
    fn a_request_counts_where_it_was_meant_and_a_response_where_it_came() {
        let mut series = Series::new(250);
        assert_eq!(series.intervals.len(), 3);
        series.start(1_000 * MS);
        for intended_ms in [999, 1_000, 1_099, 1_100, 1_249, 1_300] {
            series.on_request(intended_ms * MS);
            series.on_latency(intended_ms * MS, intended_ms * 1_000);
        }
        series.on_response(1, None, true, 1_205 * MS);
        series.on_response(1, None, false, 1_206 * MS);
        let mut twice = series.clone();
        twice.merge(&series);
        let mut config = LoadConfig::echo(64);
        config.measure_ms = 250;
        config.mode = Mode::open(100.0);
        let points = twice.points(&config);
        assert_eq!(points.iter().map(|p| p.requests).collect::<Vec<_>>(), [4, 2, 2]);
        assert_eq!(points.iter().map(|p| p.at_ms).collect::<Vec<_>>(), [0, 100, 200]);
        // Two responses in the 50 ms that are left of the window.
        assert_eq!(points.iter().map(|p| p.achieved_rps).collect::<Vec<_>>(), [0.0, 0.0, 40.0]);
        assert_eq!(points[1].offered_rps, Some(100.0));
        let p99 = points[1].p99_us.expect("there was one");
        assert!((p99 / 1_100.0 - 1.0).abs() < 0.02, "{p99}");
        assert_eq!(Series::new(100).points(&config)[0].p50_us, None);
    }

    #[test]
    fn the_offered_rate_is_that_of_the_pattern() {
        let mut config = LoadConfig::echo(64);
        config.measure_ms = 1_000;
        config.mode = Mode::open(1_000.0);
        let shape = PatternShape::Slope;
        config.pattern = Some(Pattern { shape, low_rps: 0.0, period_ms: 1_000, seed: 1 });
        let points = Series::new(1_000).points(&config);
        let offered: Vec<_> = points.iter().filter_map(|p| p.offered_rps).collect();
        for (rate, expected) in
            offered.iter().zip([100.0, 300.0, 500.0, 700.0, 900.0, 900.0, 700.0, 500.0])
        {
            assert!((rate - expected).abs() < 1.0, "{rate} of {expected}");
        }
    }

    #[test]
    fn the_longest_window_has_a_bounded_number_of_intervals() {
        let series = Series::new(crate::PERIOD_MAX_MS);
        assert!(series.intervals.len() <= INTERVALS_MAX as usize);
        assert_eq!(series.interval_ns % (INTERVAL_MS * MS), 0);
        assert_eq!(Series::new(1).intervals.len(), 1);
    }
}
