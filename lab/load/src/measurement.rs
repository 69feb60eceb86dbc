//! What a run counts, and how the counts of several threads become one.
//!
//! Every request that was meant to be sent inside the window has exactly one entry in the latency
//! histogram, also when it was never answered: leaving those out is how a measurement flatters an
//! overloaded server.

use derive_more::AddAssign;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::codec::{Outcome, Violation};
use crate::config::LoadConfig;
use crate::error::LoadError;
use crate::gap_check::GapSample;
use crate::latency::{LATENCY_MAX_NS, latency_histogram};
use crate::probe::ProbeMeasured;
use crate::series::Series;

/// What is counted, and added up over threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, AddAssign)]
pub struct Counts {
    /// Requests intended inside the window.
    pub requests: u64,
    /// Responses without error that came inside the window.
    pub completed: u64,
    /// The same, but in churn mode each answer for itself, also where its cycle was not over.
    pub answers: u64,
    /// Requests of the window sent late because the generator was busy.
    pub late: u64,
    /// Error responses, whole run.
    pub errors: u64,
    /// GETs whose key was not there, whole run.
    pub misses: u64,
    /// Responses whose bytes were wrong, whole run.
    pub wrong_bytes: u64,
    /// Responses whose bytes were compared, whole run.
    pub verified: u64,
    /// Requests of the window without an answer when the drain ended.
    pub unanswered: u64,
    /// Requests that were outstanding on a connection that ended, whole run.
    pub lost: u64,
    /// Requests that the full backlog refused, whole run.
    pub dropped: u64,
    /// Most requests that waited in the backlog.
    pub backlog_peak: u64,
    /// Connections that ended before the run did; in churn mode, cycles that failed.
    pub connections_lost: u64,
    /// SETs before the load that did not succeed.
    pub preload_failures: u64,
    /// Processor time that the generator's threads took inside the window, in nanoseconds.
    pub cpu_ns: u64,
    /// Times that a generator's thread was descheduled inside the window against its will.
    pub involuntary_switches: u64,
    /// Time in which the generator's threads were ready and did not run, within the window.
    pub waited_ns: u64,
}

/// Counts and histograms of one thread's run, or of all threads' together.
#[derive(Debug, Clone)]
pub struct Measurement {
    /// From intended send time to the response's last byte, in nanoseconds; requests intended
    /// inside the window.
    pub latency_ns: Histogram<u64>,
    /// From intended time to the generator's attempt to send, in nanoseconds: how busy the
    /// generator was. Open loop only.
    pub lag_ns: Histogram<u64>,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    /// The counts.
    pub counts: Counts,
    /// The first bytes that were no response of the protocol.
    pub violation: Option<Violation>,
    /// The last connection was lost before the end.
    pub ended_early: bool,
    /// Gaps between the requests of the window, as meant and as sent. Open loop only.
    pub(crate) gaps: Option<GapSample>,
    /// The window in intervals, where that was asked for.
    pub(crate) series: Option<Series>,
    /// What the latency agent measured, where there was one.
    pub(crate) probe: Option<ProbeMeasured>,
}

impl Measurement {
    /// Nothing counted yet, for a window of `window_ns` nanoseconds.
    pub fn new(window_ns: u64) -> Self {
        Self {
            latency_ns: latency_histogram(),
            lag_ns: latency_histogram(),
            window_ns,
            counts: Counts::default(),
            violation: None,
            ended_early: false,
            gaps: None,
            series: None,
            probe: None,
        }
    }

    /// Responses without error per second of the window.
    pub fn achieved_rps(&self) -> f64 {
        if self.window_ns == 0 {
            0.0
        } else {
            self.counts.completed as f64 * 1e9 / self.window_ns as f64
        }
    }

    /// Answers without error per second of the window.
    pub fn answers_rps(&self) -> f64 {
        if self.window_ns == 0 {
            0.0
        } else {
            self.counts.answers as f64 * 1e9 / self.window_ns as f64
        }
    }

    /// Adds what another thread counted in the same window.
    ///
    /// # Panics
    /// The windows differ in length: their rates must not be added.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.window_ns, other.window_ns, "threads of one run share one window");
        self.latency_ns += &other.latency_ns;
        self.lag_ns += &other.lag_ns;
        self.counts += other.counts;
        self.violation = self.violation.or(other.violation);
        self.ended_early |= other.ended_early;
        merge(&mut self.gaps, &other.gaps, GapSample::merge);
        merge(&mut self.series, &other.series, Series::merge);
        merge(&mut self.probe, &other.probe, ProbeMeasured::merge);
    }

    /// Counts a response: `latency_ns` where the request was intended inside the window,
    /// `in_window` where the response came inside it. An error has no latency, being cheaper than
    /// the answer that was asked for; its entry is the longest.
    pub(crate) fn on_response(
        &mut self,
        outcome: Outcome,
        verified: bool,
        latency_ns: Option<u64>,
        in_window: bool,
    ) {
        self.counts.verified += u64::from(verified);
        match outcome {
            Outcome::Complete => {}
            Outcome::Miss => self.counts.misses += 1,
            Outcome::WrongBytes => self.counts.wrong_bytes += 1,
            Outcome::Error => self.counts.errors += 1,
        }
        let answered = outcome != Outcome::Error;
        self.counts.completed += u64::from(in_window && answered);
        self.counts.answers += u64::from(in_window && answered);
        if let Some(latency_ns) = latency_ns {
            let entry_ns = if answered { latency_ns } else { LATENCY_MAX_NS };
            self.latency_ns.saturating_record(entry_ns.max(1));
        }
    }

    /// Counts a request of the window whose answer can no longer come.
    pub(crate) fn on_hopeless(&mut self) {
        self.latency_ns.saturating_record(LATENCY_MAX_NS);
    }

    /// Counts a request of the window that is still unanswered `elapsed_ns` after its intended
    /// time: at least that is its latency.
    pub(crate) fn on_unanswered(&mut self, elapsed_ns: u64) {
        self.counts.unanswered += 1;
        self.latency_ns.saturating_record(elapsed_ns.max(1));
    }
}

/// Adds what another thread has of something that not all of them have.
fn merge<T: Clone>(mine: &mut Option<T>, other: &Option<T>, add: fn(&mut T, &T)) {
    match (mine, other) {
        (Some(mine), Some(other)) => add(mine, other),
        (mine @ None, Some(other)) => *mine = Some(other.clone()),
        (_, None) => {}
    }
}

/// What a thread brings back from its part of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// What it counted.
    pub measured: Measurement,
    /// The first failure of a connection, in words.
    pub first_failure: Option<String>,
}

impl Ran {
    /// What all threads of a run of `config` brought back, as one; the error of the thread that
    /// failed first, if one did.
    pub fn of_threads(
        config: &LoadConfig,
        outcomes: Vec<Result<Self, LoadError>>,
    ) -> Result<Self, LoadError> {
        let mut all =
            Self { measured: Measurement::new(config.measure_ms * 1_000_000), first_failure: None };
        let mut error = None;
        for outcome in outcomes {
            match outcome {
                Ok(ran) => {
                    all.measured.merge(&ran.measured);
                    all.first_failure = all.first_failure.or(ran.first_failure);
                }
                // Threads that only gave up because of another one hide the reason.
                Err(new) if matches!(error, None | Some(LoadError::OtherThread)) => {
                    error = Some(new);
                }
                Err(_) => {}
            }
        }
        error.map_or(Ok(all), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up() {
        let mut a = Measurement::new(1_000_000_000);
        let mut b = a.clone();
        a.on_response(Outcome::Complete, true, Some(1_000), true);
        a.on_response(Outcome::WrongBytes, true, Some(2_000), true);
        b.on_response(Outcome::Miss, false, Some(3_000), true);
        b.on_response(Outcome::Error, false, Some(10), true);
        b.on_unanswered(5_000);
        b.violation = Some(Violation::Unasked);
        a.merge(&b);
        assert_eq!((a.counts.completed, a.counts.verified), (3, 2));
        assert_eq!(
            (a.counts.wrong_bytes, a.counts.misses, a.counts.errors, a.counts.unanswered),
            (1, 1, 1, 1)
        );
        assert_eq!(a.latency_ns.len(), 5);
        assert_eq!(a.achieved_rps(), 3.0);
        assert_eq!(a.violation, Some(Violation::Unasked));
    }

    #[test]
    fn a_fast_error_is_not_a_low_latency() {
        let mut m = Measurement::new(1);
        m.on_response(Outcome::Error, false, Some(10), true);
        assert!(m.latency_ns.max() >= LATENCY_MAX_NS);
        assert_eq!(m.counts.completed, 0);
    }
}
