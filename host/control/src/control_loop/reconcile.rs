//! From the configuration that is wanted and the state that is known to decisions.
//!
//! The order in which resources change keeps the service served at every moment: the background job leaves
//! cores before the service gets them and comes back after it has left; clocks rise first and fall last; a
//! thread runs before it gets flow groups, and has none when it is parked.

use std::cmp::Ordering;

use super::state::State;
use super::{ControlLoop, Decision, Event, Outcome};
use crate::configuration::Clock;
use crate::metrics::{GroupId, Sample, ThreadId};
use crate::spread::{Move, Spread, imbalance, spread};

impl ControlLoop {
    pub(super) fn reconcile(&mut self) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let wanted = self.threads.of(&self.current().configuration);
        self.set_background(Ordering::Less, &mut decisions);
        self.set_clock(Ordering::Greater, &mut decisions);
        self.grant(&wanted, &mut decisions);
        self.migrate(&wanted, &mut decisions);
        self.park(&wanted, &mut decisions);
        if decisions.is_empty() && self.is_in_place(&wanted) {
            if self.bridging && self.measured.view().delay_ns < self.config.bridge_delay_ns {
                self.bridging = false;
            }
            self.set_clock(Ordering::Less, &mut decisions);
            self.set_background(Ordering::Greater, &mut decisions);
        }
        decisions
    }

    /// Nothing has been asked for whose outcome is not known.
    pub(super) fn nothing_under_way(&self) -> bool {
        let passing = |thread| {
            matches!(self.threads.get(thread), State::Granting { .. } | State::Parking { .. })
        };
        self.groups.under_way() == 0 && !self.threads.ids().any(passing)
    }

    fn is_in_place(&self, wanted: &[ThreadId]) -> bool {
        self.nothing_under_way() && self.threads.running().eq(wanted.iter().copied())
    }

    /// Gives the background job its cores, where that takes some from it (`Less`) or gives it more (`Greater`).
    fn set_background(&mut self, change: Ordering, decisions: &mut Vec<Decision>) {
        let cores = self.current().background_cores;
        if cores.cmp(&self.background) == change && self.now_ns >= self.background_retry_ns {
            self.background = cores;
            decisions.push(Decision::Background(cores));
        }
    }

    fn wanted_clock(&self) -> Clock {
        let clock = self.current().configuration.clock;
        if self.bridging { self.machine.fastest_clock() } else { clock }
    }

    /// Sets the clock, where that raises it (`Greater`) or lowers it (`Less`).
    fn set_clock(&mut self, change: Ordering, decisions: &mut Vec<Decision>) {
        let clock = self.wanted_clock();
        if clock.cmp(&self.clock) == change && self.now_ns >= self.clock_retry_ns {
            self.clock = clock;
            decisions.push(Decision::SetClock(clock));
        }
    }

    fn grant(&mut self, wanted: &[ThreadId], decisions: &mut Vec<Decision>) {
        for &thread in wanted {
            if self.threads.get(thread) == State::Parked {
                self.threads.set(thread, State::Granting { since_ns: self.now_ns });
                decisions.push(Decision::Grant(thread));
            }
        }
    }

    /// Plans moves once all threads run that shall, and one plan after the other.
    fn migrate(&mut self, wanted: &[ThreadId], decisions: &mut Vec<Decision>) {
        let running: Vec<ThreadId> =
            wanted.iter().copied().filter(|&thread| self.threads.is_running(thread)).collect();
        let waits = wanted.iter().any(|&t| matches!(self.threads.get(t), State::Granting { .. }));
        if running.is_empty() || waits || self.groups.under_way() > 0 {
            return;
        }
        if !self.groups.uncertain().is_empty() {
            self.bring_home(&running, decisions);
            return;
        }
        let threads = self.threads.with_speed(&running, &self.scaling);
        let loads = self.measured.group_loads();
        // A thread without a home for any group has just been granted, or one with groups must go.
        let homes = &self.groups.homes;
        let changed = running.iter().any(|thread| !homes.contains(thread))
            || homes.iter().any(|home| !running.contains(home));
        let due = self.now_ns >= self.last_rebalance_ns.saturating_add(self.config.rebalance_ns);
        let uneven = || imbalance(&threads, homes, &loads) > 1.0 + self.config.rebalance_at;
        if !(changed || due && uneven()) {
            return;
        }
        let tolerance = self.config.tolerance;
        let moves = spread(&Spread { threads: &threads, homes, loads: &loads, tolerance });
        if !changed && !moves.is_empty() {
            self.log(Event::Rebalanced(moves.len()));
        }
        self.last_rebalance_ns = self.now_ns;
        self.begin_moves(&moves, decisions);
    }

    /// Groups that may be in two places are asked to where they should be, until an outcome says that they are.
    fn bring_home(&mut self, running: &[ThreadId], decisions: &mut Vec<Decision>) {
        let mut moves: Vec<Move> = self
            .groups
            .uncertain()
            .iter()
            .map(|&(group, from)| {
                let home = self.groups.homes[usize::from(group.0)];
                let to = if running.contains(&home) { home } else { running[0] };
                Move { from, to, group }
            })
            .collect();
        moves.sort_unstable();
        // A group that was lost more than once may be in several places: one request moves it from any.
        moves.dedup_by_key(|m| m.group);
        self.begin_moves(&moves, decisions);
    }

    /// One request for each pair of threads: moves come ordered by them.
    fn begin_moves(&mut self, moves: &[Move], decisions: &mut Vec<Decision>) {
        for pair in moves.chunk_by(|a, b| (a.from, a.to) == (b.from, b.to)) {
            let groups: Vec<GroupId> = pair.iter().map(|m| m.group).collect();
            let Move { from, to, .. } = pair[0];
            let request = self.groups.begin(&groups, to, self.now_ns);
            decisions.push(Decision::Migrate { request, from, to, groups });
        }
    }

    fn park(&mut self, wanted: &[ThreadId], decisions: &mut Vec<Decision>) {
        decisions.extend(self.undo.drain(..).map(Decision::Park));
        let serves = wanted.iter().any(|&thread| self.threads.is_running(thread));
        if !serves {
            return;
        }
        for thread in self.threads.ids() {
            let surplus = self.threads.is_running(thread) && !wanted.contains(&thread);
            if surplus && !self.groups.concerns(thread) {
                self.threads.set(thread, State::Parking { since_ns: self.now_ns });
                decisions.push(Decision::Park(thread));
            }
        }
    }

    /// Tells the loop what became of a decision, or that a thread is gone; outcomes come in the order in which
    /// they happened. Those that nothing asked for are believed as well: they are how things are. Of a flow group
    /// only what became of the latest request says where it is: an earlier one's outcome that comes late may say
    /// where it was.
    pub fn outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(thread) => {
                self.threads.set(*thread, State::Running);
                self.measured.begins(*thread, self.now_ns);
            }
            Outcome::GrantFailed(thread) => self.failed(*thread, Event::GrantFailed(*thread)),
            // One that has failed stays so until its time is over.
            Outcome::Parked(thread) => {
                if !matches!(self.threads.get(*thread), State::Failed { .. }) {
                    self.threads.set(*thread, State::Parked);
                }
            }
            Outcome::Migrated { request, to, groups } => {
                groups.iter().for_each(|&group| self.groups.arrived(*request, group, *to));
            }
            Outcome::MigrationFailed { request, groups } => {
                groups.iter().for_each(|&group| self.groups.stayed(*request, group));
                self.log(Event::MigrationFailed(groups.len()));
            }
            Outcome::Vanished(thread) => self.vanished(*thread),
            Outcome::ClockFailed(clock) => {
                self.clock_retry_ns = self.now_ns + self.config.retry_ns;
                self.log(Event::ClockFailed(*clock));
                // It is not known what is set now; the step's own clock is asked for at the next try.
                self.clock = Clock::Fixed;
            }
            Outcome::BackgroundFailed(cores) => {
                self.background_retry_ns = self.now_ns + self.config.retry_ns;
                self.log(Event::BackgroundFailed(*cores));
                // As if it had all: the next try takes what it may not have.
                self.background = self.machine.cores;
            }
        }
    }

    /// The thread is not used for a while.
    fn failed(&mut self, thread: ThreadId, event: Event) {
        let until_ns = self.now_ns + self.config.retry_ns;
        self.threads.set(thread, State::Failed { until_ns });
        self.log(event);
    }

    fn vanished(&mut self, thread: ThreadId) {
        self.groups.give_up(|to, _| to == thread);
        self.groups.gone(thread);
        self.failed(thread, Event::Vanished(thread));
    }

    /// What has had no outcome in time has failed; what failed long ago may be tried again.
    pub(super) fn time_out(&mut self) {
        let now_ns = self.now_ns;
        let timeout_ns = self.config.timeout_ns;
        let late = |since_ns: u64| now_ns.saturating_sub(since_ns) > timeout_ns;
        let lost = self.groups.lose(late);
        if lost > 0 {
            self.log(Event::MigrationFailed(lost));
        }
        for thread in self.threads.ids() {
            match self.threads.get(thread) {
                State::Granting { since_ns } if late(since_ns) => {
                    self.failed(thread, Event::GrantFailed(thread));
                    // It may run now, for nobody.
                    self.undo.push(thread);
                }
                // Whether it sleeps is not known, so it can neither be granted nor relied on: asked again.
                State::Parking { since_ns } if late(since_ns) => {
                    self.threads.set(thread, State::Parking { since_ns: now_ns });
                    self.undo.push(thread);
                }
                State::Failed { until_ns } if now_ns >= until_ns => {
                    self.threads.set(thread, State::Parked);
                }
                _ => {}
            }
        }
    }

    /// Threads that say nothing while others do, or whose application does not return.
    pub(super) fn watch_threads(&mut self, samples: &[Sample]) {
        for sample in samples {
            if self.measured.became_unresponsive(sample) {
                self.log(Event::Unresponsive(sample.thread));
            }
        }
        if self.measured.is_blind() {
            return;
        }
        let silent = |thread: &ThreadId| {
            self.measured.unseen_ns(*thread, self.now_ns) > self.config.vanished_ns
                && !self.measured.gave_sample(*thread)
        };
        let gone: Vec<ThreadId> = self.threads.running().filter(silent).collect();
        for thread in gone {
            self.vanished(thread);
        }
    }
}
