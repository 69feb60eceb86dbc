//! A service's life as a state machine: started, reached, asked to end, started again. Time is a parameter.
//!
//! ```
//! use configfile::Restart;
//! use daemon::{Act, Config, Lifecycle};
//! let mut kv = Lifecycle::new(Restart::OnFailure, Config::default().supervision);
//! kv.start(0);
//! assert_eq!(kv.turn(0, false), Some(Act::Spawn));
//! kv.reached(5);
//! kv.ended(6, false); // it failed: again, after a pause
//! assert_eq!(kv.turn(7, false), None);
//! assert_eq!(kv.turn(6 + 1_000_000_000, false), Some(Act::Spawn));
//! ```

use crate::config::SupervisionConfig;
use configfile::Restart;

fn ns(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}

/// How far its end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It is to be asked.
    Due,
    /// It was asked over its control socket.
    Asked,
    /// It was sent SIGTERM.
    Terminated,
    /// It was sent SIGKILL: nothing more can be done.
    Killed,
}

/// Where a service is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
enum Phase {
    Down,
    Waiting {
        until_ns: u64,
    },
    /// `is_own`: it was started by this daemon. One that was found is left as it is, also where it cannot be reached.
    Starting {
        since_ns: u64,
        is_own: bool,
    },
    Up {
        since_ns: u64,
    },
    Stopping {
        since_ns: u64,
        stage: Stage,
    },
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Start the process.
    Spawn,
    /// Ask it to end, over its control socket.
    AskToEnd,
    /// Send it SIGTERM.
    Terminate,
    /// Send it SIGKILL.
    Kill,
}

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    phase: Phase,
    restart: Restart,
    limits: SupervisionConfig,
    /// Whether it shall run.
    wanted: bool,
    /// In a row.
    failures: u32,
}

impl Lifecycle {
    /// Of a service that does not run.
    pub fn new(restart: Restart, limits: SupervisionConfig) -> Self {
        Self { phase: Phase::Down, restart, limits, wanted: false, failures: 0 }
    }

    /// Whether it is started again from now on.
    pub fn set_restart(&mut self, restart: Restart) {
        self.restart = restart;
    }

    /// It shall run: at once, where it does not.
    pub fn start(&mut self, now_ns: u64) {
        self.wanted = true;
        if matches!(self.phase, Phase::Down | Phase::Waiting { .. }) {
            self.phase = Phase::Waiting { until_ns: now_ns };
        }
    }

    /// It shall end.
    pub fn stop(&mut self, now_ns: u64) {
        self.wanted = false;
        self.failures = 0;
        match self.phase {
            Phase::Down | Phase::Waiting { .. } => self.phase = Phase::Down,
            Phase::Starting { .. } | Phase::Up { .. } => {
                self.phase = Phase::Stopping { since_ns: now_ns, stage: Stage::Due };
            }
            Phase::Stopping { .. } => {}
        }
    }

    /// A process runs that is it, which nobody has reached yet: found, rather than started.
    pub fn found(&mut self, now_ns: u64) {
        self.wanted = true;
        if matches!(self.phase, Phase::Down | Phase::Waiting { .. }) {
            self.phase = Phase::Starting { since_ns: now_ns, is_own: false };
        }
    }

    /// It answers.
    pub fn reached(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Up { .. } | Phase::Stopping { .. } => {}
            Phase::Down | Phase::Waiting { .. } | Phase::Starting { .. } => {
                self.wanted = true;
                self.phase = Phase::Up { since_ns: now_ns };
            }
        }
    }

    /// Its process has ended, in order or not.
    pub fn ended(&mut self, now_ns: u64, in_order: bool) {
        let was_up_ns = match self.phase {
            Phase::Up { since_ns } => now_ns.saturating_sub(since_ns),
            _ => 0,
        };
        if was_up_ns >= ns(self.limits.backoff_max_s) {
            self.failures = 0;
        }
        if !self.wanted || in_order || self.restart == Restart::Never {
            self.phase = Phase::Down;
            return;
        }
        let doubled = ns(self.limits.backoff_s).saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let pause_ns = doubled.min(ns(self.limits.backoff_max_s));
        self.phase = Phase::Waiting { until_ns: now_ns.saturating_add(pause_ns) };
    }

    /// What is due. `can_ask`: the service can be reached over its control socket. A [`Act::Spawn`] that fails is
    /// told as an end.
    pub fn turn(&mut self, now_ns: u64, can_ask: bool) -> Option<Act> {
        if self.due_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return None;
        }
        let stopping = |stage| Phase::Stopping { since_ns: now_ns, stage };
        let (act, phase) = match self.phase {
            Phase::Down | Phase::Up { .. } => return None,
            Phase::Waiting { .. } => {
                (Act::Spawn, Phase::Starting { since_ns: now_ns, is_own: true })
            }
            // It counts as failed: `wanted` stays as it is.
            Phase::Starting { .. } => (Act::Terminate, stopping(Stage::Terminated)),
            Phase::Stopping { stage, .. } => match stage {
                Stage::Due if can_ask => (Act::AskToEnd, stopping(Stage::Asked)),
                Stage::Due | Stage::Asked => (Act::Terminate, stopping(Stage::Terminated)),
                Stage::Terminated => (Act::Kill, stopping(Stage::Killed)),
                Stage::Killed => return None,
            },
        };
        self.phase = phase;
        Some(act)
    }

    /// When a turn is due at the latest; none where nothing is.
    pub fn due_ns(&self) -> Option<u64> {
        let after = |since_ns: u64, ns: u64| since_ns.saturating_add(ns).saturating_add(1);
        match self.phase {
            Phase::Down | Phase::Up { .. } | Phase::Starting { is_own: false, .. } => None,
            Phase::Waiting { until_ns } => Some(until_ns),
            Phase::Starting { since_ns, is_own: true } => {
                Some(after(since_ns, ns(self.limits.start_timeout_s)))
            }
            Phase::Stopping { since_ns, stage } => match stage {
                Stage::Due => Some(since_ns),
                Stage::Asked => Some(after(since_ns, ns(self.limits.stop_timeout_s))),
                Stage::Terminated => Some(after(since_ns, ns(self.limits.kill_timeout_s))),
                Stage::Killed => None,
            },
        }
    }

    /// Whether a process of it runs, or is about to.
    pub fn is_down(&self) -> bool {
        self.phase == Phase::Down
    }

    /// Whether it answers and is not asked to end.
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up { .. })
    }

    /// Whether it is to end, or has.
    pub fn is_stopping(&self) -> bool {
        matches!(self.phase, Phase::Stopping { .. })
    }

    /// The word for where it is.
    pub fn as_str(&self) -> &'static str {
        self.phase.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn of(restart: Restart) -> Lifecycle {
        Lifecycle::new(restart, SupervisionConfig::default())
    }

    #[test]
    fn an_end_is_asked_for_then_signalled_then_forced() {
        let mut one = of(Restart::OnFailure);
        one.reached(0);
        one.stop(10 * S);
        assert_eq!(one.turn(10 * S, true), Some(Act::AskToEnd));
        assert_eq!(one.turn(20 * S, true), None);
        assert_eq!(one.turn(21 * S, true), Some(Act::Terminate));
        assert_eq!(one.turn(26 * S, true), None);
        assert_eq!(one.turn(27 * S, true), Some(Act::Kill));
        assert_eq!(one.turn(99 * S, true), None);
        one.ended(100 * S, false);
        assert!(one.is_down(), "it was to end: it is not started again");
        let mut other = of(Restart::Never);
        other.found(0);
        other.stop(1);
        assert_eq!(other.turn(1, false), Some(Act::Terminate), "it cannot be asked");
    }

    /// It may be of another version, whose control socket or segment this daemon cannot read.
    #[test]
    fn a_service_that_was_found_is_left_alone_where_it_is_not_reached() {
        let mut one = of(Restart::OnFailure);
        one.found(0);
        assert_eq!((one.turn(1_000_000 * S, false), one.due_ns()), (None, None));
        one.stop(1_000_000 * S);
        assert_eq!(one.turn(1_000_000 * S, false), Some(Act::Terminate), "by order it ends");
        let mut other = of(Restart::Never);
        other.start(0);
        other.turn(0, false);
        assert_eq!(other.turn(1_000_000 * S, false), Some(Act::Terminate), "its own start failed");
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_a_long_life_forgives() {
        let mut one = of(Restart::OnFailure);
        one.start(0);
        let mut now_ns = 0;
        for pause_s in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(one.turn(now_ns, false), Some(Act::Spawn));
            one.ended(now_ns, false);
            assert_eq!(one.due_ns(), Some(now_ns + pause_s * S));
            now_ns += pause_s * S;
        }
        assert_eq!(one.turn(now_ns, false), Some(Act::Spawn));
        one.reached(now_ns);
        one.ended(now_ns + 60 * S, false);
        assert_eq!(one.due_ns(), Some(now_ns + 61 * S));
        one.start(now_ns + 60 * S);
        assert_eq!(one.turn(now_ns + 60 * S, false), Some(Act::Spawn), "somebody is impatient");
        one.ended(now_ns + 61 * S, true);
        assert!(one.is_down(), "it ended in order");
    }

    #[test]
    fn who_never_answers_is_ended_and_counts_as_failed() {
        let mut one = of(Restart::OnFailure);
        one.start(0);
        assert_eq!(one.turn(0, false), Some(Act::Spawn));
        assert_eq!(one.turn(30 * S, false), None);
        assert_eq!(one.turn(31 * S, false), Some(Act::Terminate));
        one.ended(32 * S, false);
        assert_eq!(one.as_str(), "waiting");
        let mut other = of(Restart::Never);
        other.start(0);
        assert_eq!(other.turn(0, false), Some(Act::Spawn));
        other.ended(1, false);
        assert!(other.is_down());
    }

    proptest! {
        /// Whatever happens: no process is started while one may run, and none is signalled that is not to end.
        #[test]
        fn there_is_one_process_at_most(
            steps in prop::collection::vec((0u8..7, 0u64..40), 1..80), again: bool,
        ) {
            let restart = if again { Restart::OnFailure } else { Restart::Never };
            let mut life = of(restart);
            let (mut now_ns, mut runs, mut to_end) = (0, false, false);
            for (what, seconds) in steps {
                now_ns += seconds * S;
                match what {
                    0 => life.start(now_ns),
                    1 => { life.stop(now_ns); to_end = runs; }
                    2 if runs => life.reached(now_ns),
                    3 | 4 if runs => { life.ended(now_ns, what == 3); (runs, to_end) = (false, false); }
                    _ => {}
                }
                match life.turn(now_ns, what == 6) {
                    Some(Act::Spawn) => { prop_assert!(!runs, "a second process"); runs = true; }
                    Some(Act::AskToEnd | Act::Kill) => prop_assert!(runs),
                    // Also one that never answered.
                    Some(Act::Terminate) => { prop_assert!(runs); to_end = true; }
                    None => {}
                }
                prop_assert!(!life.is_stopping() || (runs && to_end));
                prop_assert_eq!(life.is_down(), !runs && life.due_ns().is_none());
            }
        }
    }
}
