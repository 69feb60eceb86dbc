//! The control loop of IXCP (IX §4.6) as a state machine: samples in, decisions out, time a parameter.
//!
//! ```
//! use control::metrics::{Sample, ThreadId};
//! use control::policy::Sequence;
//! use control::{ControlLoop, Decision, Found, LoopConfig, Machine, Outcome, Place, Scaling};
//! let machine = Machine::ix();
//! let places = Place::all(&machine); // eight cores, then their hyperthreads
//! let found = Found::first_thread(128, machine.lowest_clock()); // one thread has all flow groups
//! let policy = Box::new(Sequence::energy(&machine, Scaling::ix()));
//! let mut ixcp = ControlLoop::new(policy, machine, Scaling::ix(), places, found, LoopConfig::ixcp())?;
//! let overloaded = Sample {
//!     thread: ThreadId(0), period_ns: 100_000_000, packets: 18_000, queue_packets: 900.0,
//!     ready: 0.0, ready_ns: 0.0, iteration_ns: 350_000.0, batch_packets: 64.0, idle: 0.0,
//!     oldest_waiting_ns: 5_000_000, batch_max: 64,
//! };
//! assert_eq!(ixcp.step(5_000_000_000, &[overloaded], &[]), [Decision::Grant(ThreadId(1))]);
//! ixcp.outcome(&Outcome::Granted(ThreadId(1)));
//! let decisions = ixcp.step(5_100_000_000, &[overloaded], &[]);
//! // Half of the flow groups move, or nearly: what is within the tolerance stays.
//! assert!(matches!(&decisions[..], [Decision::Migrate { groups, .. }] if (60..=64).contains(&groups.len())));
//! # Ok::<(), control::MachineError>(())
//! ```
//!
//! Each step has three parts: the samples go into the averages (`measure`); the policy says which
//! configuration of its sequence is right, and the pace whether it may change now (here); and what differs
//! between that configuration and the known state becomes decisions (`reconcile`). Since the third part only
//! ever looks at the difference, a grant that fails, a thread that vanishes, a reading that is missing, or a
//! state found at the start of a new daemon are all the same thing: a difference.

mod batching;
mod measure;
mod reconcile;
mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::configuration::{Clock, Machine, MachineError, Scaling};
use crate::metrics::{GroupId, GroupSample, Sample, ThreadId};
use crate::policy::{Because, Pace, Policy, Step, View, Wish};
use crate::spread::imbalance;

use measure::Measurements;
pub use state::{Found, Place};
use state::{Groups, Threads};

/// Events kept until they are taken; older ones are dropped.
const EVENTS_MAX: usize = 1_024;

/// The loop's numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopConfig {
    /// The least time between changes of configuration.
    pub pace: Pace,
    /// Time constants of the averages, the shortest first, in nanoseconds.
    pub horizons_ns: [f64; 3],
    /// Whether more may be added while the last change is still under way.
    pub add_unsettled: bool,
    /// A grant, a migration or parking that has no outcome for so long has failed, in nanoseconds.
    pub timeout_ns: u64,
    /// What has failed is not tried again for so long, in nanoseconds.
    pub retry_ns: u64,
    /// Time that passes without a step beyond this is a gap: the averages begin anew, in nanoseconds.
    pub gap_ns: u64,
    /// A thread that gives no sample for so long, while others do, has vanished, in nanoseconds.
    pub vanished_ns: u64,
    /// Imbalance that is left alone after a change of threads, as a share.
    pub tolerance: f64,
    /// Imbalance at which flow groups move although the threads stay, as a share.
    pub rebalance_at: f64,
    /// The least time from one such move to the next, in nanoseconds.
    pub rebalance_ns: u64,
    /// The fastest clock that bridges a change is kept until the estimated delay is under this, in nanoseconds.
    pub bridge_delay_ns: f64,
}

impl LoopConfig {
    /// As IXCP: 10 Hz, one step after the other, the authors' pace.
    pub fn ixcp() -> Self {
        Self {
            pace: Pace::ixcp(),
            horizons_ns: [30e6, 200e6, 1e9],
            add_unsettled: false,
            timeout_ns: 1_000_000_000,
            retry_ns: 5_000_000_000,
            gap_ns: 2_000_000_000,
            vanished_ns: 1_000_000_000,
            tolerance: 0.03,
            rebalance_at: 0.10,
            rebalance_ns: 10_000_000_000,
            bridge_delay_ns: 100_000.0,
        }
    }

    /// For [`LatencyTarget`](crate::policy::LatencyTarget) at 1 kHz.
    pub fn predicting() -> Self {
        Self {
            pace: Pace::predicting(),
            horizons_ns: [2e6, 25e6, 500e6],
            add_unsettled: true,
            gap_ns: 500_000_000,
            tolerance: 0.002,
            rebalance_at: 0.007,
            rebalance_ns: 1_000_000_000,
            ..Self::ixcp()
        }
    }
}

/// The number of a request to move flow groups. Its outcome says it again: one that comes late, after the loop
/// has given it up and asked for something else, is then not taken for the later request's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestId(pub u64);

/// What is to be done, begun in this order. Unlike IXCP's (IX §4.5) migrations need not wait for each other: out of an
/// overloaded thread each waits for what stands in its ring, and all of them can wait for the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The background job may use so many cores, the last ones.
    Background(u32),
    /// All granted cores run at this clock.
    SetClock(Clock),
    /// Resume this elastic thread on its core.
    Grant(ThreadId),
    /// Move these flow groups, in one request.
    Migrate {
        /// The request's number: larger than all before it.
        request: RequestId,
        /// Their home until now, as far as is known: it may have vanished, and after an outcome that was lost
        /// they may be elsewhere. Groups that are there already have arrived.
        from: ThreadId,
        /// Their home from then on.
        to: ThreadId,
        /// Which.
        groups: Vec<GroupId>,
    },
    /// Suspend this elastic thread: it has no flow group any more.
    Park(ThreadId),
}

/// What became of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The thread runs.
    Granted(ThreadId),
    /// It could not be resumed.
    GrantFailed(ThreadId),
    /// The thread is suspended.
    Parked(ThreadId),
    /// The groups are at home there.
    Migrated {
        /// By this request; none where they were found there without one.
        request: Option<RequestId>,
        /// Their home now.
        to: ThreadId,
        /// Which.
        groups: Vec<GroupId>,
    },
    /// The groups stayed where they were.
    MigrationFailed {
        /// The request that failed.
        request: RequestId,
        /// Which.
        groups: Vec<GroupId>,
    },
    /// The thread is gone, whatever was asked of it.
    Vanished(ThreadId),
    /// The clock could not be set.
    ClockFailed(Clock),
    /// The background job could not be given so many cores.
    BackgroundFailed(u32),
}

/// Something that a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Another configuration.
    Step {
        /// The index in the policy's sequence.
        from: usize,
        /// The new one.
        to: usize,
        /// Why.
        because: Because,
    },
    /// A grant failed, or had no outcome in time.
    GrantFailed(ThreadId),
    /// A thread vanished, by its outcome or because it gave no samples; its flow groups get another home.
    Vanished(ThreadId),
    /// A migration of so many groups failed, or had no outcome in time; it is planned anew.
    MigrationFailed(usize),
    /// The clock could not be set.
    ClockFailed(Clock),
    /// The background job could not be given its cores.
    BackgroundFailed(u32),
    /// The clock went back by so many nanoseconds.
    TimeWentBack(u64),
    /// No step for so many nanoseconds.
    Gap(u64),
    /// The application has kept the thread for over 10 ms (IX §4.7).
    Unresponsive(ThreadId),
    /// So many flow groups move to even out the load.
    Rebalanced(usize),
}

/// See the module's comment.
pub struct ControlLoop {
    config: LoopConfig,
    policy: Box<dyn Policy>,
    machine: Machine,
    scaling: Scaling,
    threads: Threads,
    groups: Groups,
    measured: Measurements,
    /// The step in force, or being taken.
    at: usize,
    clock: Clock,
    background: u32,
    /// Threads of which it is not known whether they run: they are to be parked, again perhaps.
    undo: Vec<ThreadId>,
    /// The fastest clock bridges the change that is under way.
    bridging: bool,
    /// What was known when the last step ended.
    is_settled: bool,
    /// The clock that the caller passes, and our own, which never goes back and never jumps.
    caller_ns: Option<u64>,
    now_ns: u64,
    last_add_ns: Option<u64>,
    last_remove_ns: Option<u64>,
    last_rebalance_ns: u64,
    clock_retry_ns: u64,
    background_retry_ns: u64,
    events: VecDeque<(u64, Event)>,
}

impl ControlLoop {
    /// Takes over what was found: a fresh dataplane, or what an earlier daemon left. The step of the sequence
    /// that serves at least as much is taken for the one in force, and differences from it are put right.
    ///
    /// # Errors
    /// A machine that there cannot be.
    pub fn new(
        policy: Box<dyn Policy>,
        machine: Machine,
        scaling: Scaling,
        places: Vec<Place>,
        found: Found,
        config: LoopConfig,
    ) -> Result<Self, MachineError> {
        machine.validate()?;
        let threads = Threads::new(places, &found)?;
        let mut this = Self {
            at: 0,
            clock: found.clock,
            background: found.background_cores,
            measured: Measurements::new(config.horizons_ns, threads.len(), found.homes.len()),
            groups: Groups::new(found.homes),
            threads,
            config,
            policy,
            machine,
            scaling,
            undo: Vec::new(),
            bridging: false,
            is_settled: false,
            caller_ns: None,
            now_ns: 0,
            last_add_ns: None,
            last_remove_ns: None,
            last_rebalance_ns: 0,
            clock_retry_ns: 0,
            background_retry_ns: 0,
            events: VecDeque::new(),
        };
        this.at = this.nearest_step();
        if this.at > 0 {
            this.log(Event::Step { from: 0, to: this.at, because: Because::Adopted });
        }
        Ok(this)
    }

    /// The first step that is predicted to serve as much as what runs.
    fn nearest_step(&self) -> usize {
        let speed = self.threads.running_speed(&self.scaling)
            * self.scaling.clock_ratio(&self.machine, self.clock);
        let steps = self.policy.steps();
        let enough = |step: &Step| step.speed >= speed * (1.0 - 1e-6);
        steps.iter().position(enough).unwrap_or(steps.len() - 1)
    }

    /// One turn: what to do, in order. `now_ns` is any clock; `samples` are of the threads that gave one since
    /// the last turn, `groups` likewise.
    pub fn step(
        &mut self,
        now_ns: u64,
        samples: &[Sample],
        groups: &[GroupSample],
    ) -> Vec<Decision> {
        self.pass_time(now_ns);
        self.time_out();
        self.measured.take(self.now_ns, samples, groups);
        self.watch_threads(samples);
        self.consider();
        self.proceed()
    }

    /// What outcomes since the last turn have made possible, without new samples: a thread that runs now gets
    /// its flow groups at once, not at the loop's next turn.
    pub fn proceed(&mut self) -> Vec<Decision> {
        let decisions = self.reconcile();
        self.is_settled = decisions.is_empty() && self.nothing_under_way();
        decisions
    }

    /// Our own time goes on by what passed, but not back, and not further than a gap: waiting times then hold
    /// whatever happens to the caller's clock.
    fn pass_time(&mut self, caller_ns: u64) {
        let Some(last_ns) = self.caller_ns.replace(caller_ns) else {
            return;
        };
        if caller_ns < last_ns {
            self.log(Event::TimeWentBack(last_ns - caller_ns));
            return;
        }
        let passed_ns = caller_ns - last_ns;
        if passed_ns > self.config.gap_ns {
            self.log(Event::Gap(passed_ns));
            self.measured.forget(self.now_ns);
        }
        self.now_ns += passed_ns.min(self.config.gap_ns);
    }

    /// What the policy sees.
    pub fn view(&self) -> View {
        let settled = self.is_settled && !self.bridging;
        // While flow groups are on their way, how they lie says nothing of how they will.
        let imbalance = if settled {
            let threads = self.threads.running_with_speed(&self.scaling);
            imbalance(&threads, &self.groups.homes, &self.measured.group_loads())
        } else {
            1.0
        };
        View { now_ns: self.now_ns, at: self.at, settled, imbalance, ..self.measured.view() }
    }

    /// Asks the policy, and holds it to the pace.
    fn consider(&mut self) {
        // What was measured says how fast the configuration is only while nothing else is under way.
        if self.is_settled && !self.bridging {
            let speed = self.policy.steps()[self.at].speed;
            self.measured.learn_capacity(speed);
        }
        if self.measured.is_blind() {
            return;
        }
        let view = self.view();
        let Wish::Go { to, boost, because } = self.policy.wish(&view) else {
            return;
        };
        let to = to.min(self.policy.steps().len() - 1);
        let now_ns = self.now_ns;
        let over = |last: Option<u64>, least_ns: u64| {
            last.is_none_or(|last_ns| now_ns.saturating_sub(last_ns) >= least_ns)
        };
        let pace = self.config.pace;
        let may = if to > self.at {
            (self.is_settled || self.config.add_unsettled || self.last_add_ns.is_none())
                && over(self.last_add_ns, pace.add_after_add_ns)
                && over(self.last_remove_ns, pace.add_after_remove_ns)
        } else {
            to < self.at
                && over(self.last_add_ns, pace.remove_after_add_ns)
                && over(self.last_remove_ns, pace.remove_after_remove_ns)
        };
        if !may {
            return;
        }
        if to > self.at {
            self.last_add_ns = Some(now_ns);
            self.bridging |= boost;
        } else {
            self.last_remove_ns = Some(now_ns);
        }
        self.log(Event::Step { from: self.at, to, because });
        self.at = to;
    }

    /// The index in the policy's sequence of the step in force, or being taken.
    pub fn at(&self) -> usize {
        self.at
    }

    /// The step in force, or being taken.
    pub fn current(&self) -> &Step {
        &self.policy.steps()[self.at]
    }

    /// How many steps the policy's sequence has.
    pub fn steps(&self) -> usize {
        self.policy.steps().len()
    }

    /// Threads that run, as far as is known.
    pub fn running(&self) -> Vec<ThreadId> {
        self.threads.running().collect()
    }

    /// The home of each flow group, as far as is known.
    pub fn homes(&self) -> &[ThreadId] {
        &self.groups.homes
    }

    /// What happened since the last call, each with the loop's own time in nanoseconds since its first step;
    /// of very many, the latest 1,024.
    pub fn take_events(&mut self) -> Vec<(u64, Event)> {
        self.events.drain(..).collect()
    }

    fn log(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((self.now_ns, event));
    }
}
