//! The simulated server's hands: it carries out what a controller decides, and takes its time for it.

use std::collections::VecDeque;

use super::model::ServerModel;
use control::metrics::{GroupId, GroupSample, Sample, ThreadId};
use control::{Clock, Configuration};
use control::{ControlLoop, Decision, Event, Found, Outcome, Place, RequestId};
use control::{Spread, spread};

/// Who decides: the control loop, or nobody.
pub trait Controller {
    /// The state in which the server begins.
    fn found(&self) -> Found;
    /// One turn.
    fn step(&mut self, now_ns: u64, samples: &[Sample], groups: &[GroupSample]) -> Vec<Decision>;
    /// What became of a decision.
    fn outcome(&mut self, _outcome: &Outcome) {}
    /// What can go on since then.
    fn proceed(&mut self) -> Vec<Decision> {
        Vec::new()
    }
    /// The index of the step in force, for the record.
    fn at(&self) -> usize {
        0
    }
    /// What happened, each with the loop's time in nanoseconds.
    fn take_events(&mut self) -> Vec<(u64, Event)> {
        Vec::new()
    }
}

/// A control loop with the state that it found.
impl Controller for (ControlLoop, Found) {
    fn found(&self) -> Found {
        self.1.clone()
    }
    fn step(&mut self, now_ns: u64, samples: &[Sample], groups: &[GroupSample]) -> Vec<Decision> {
        self.0.step(now_ns, samples, groups)
    }
    fn outcome(&mut self, outcome: &Outcome) {
        self.0.outcome(outcome);
    }
    fn proceed(&mut self) -> Vec<Decision> {
        self.0.proceed()
    }
    fn at(&self) -> usize {
        self.0.at()
    }
    fn take_events(&mut self) -> Vec<(u64, Event)> {
        self.0.take_events()
    }
}

/// A static configuration (IX §5.3): nothing ever changes.
#[derive(Debug, Clone)]
pub struct Fixed {
    found: Found,
}

impl Fixed {
    /// With as many flow groups at home on each of its threads, as IX deals them out.
    pub fn new(model: &ServerModel, configuration: Configuration) -> Self {
        let places = Place::all(&model.machine());
        let granted = |place: &Place| {
            place.core < configuration.cores && (place.sibling == 0 || configuration.hyperthreads)
        };
        let all = places.iter().enumerate().filter(|(_, place)| granted(place));
        let running: Vec<ThreadId> = all.map(|(index, _)| ThreadId(index as u16)).collect();
        let homes = (0..usize::from(model.flow_groups)).map(|g| running[g % running.len()]);
        let found = Found {
            homes: homes.collect(),
            clock: configuration.clock,
            background_cores: 0,
            running,
        };
        Self { found }
    }

    /// The same, but with the groups dealt out so that the `loads` are even.
    pub fn balanced(model: &ServerModel, configuration: Configuration, loads: &[f64]) -> Self {
        let mut this = Self::new(model, configuration);
        let threads: Vec<_> = this.found.running.iter().map(|&thread| (thread, 1.0)).collect();
        let homes = this.found.homes.clone();
        let plan = Spread { threads: &threads, homes: &homes, loads, tolerance: 0.0 };
        for m in spread(&plan) {
            this.found.homes[usize::from(m.group.0)] = m.to;
        }
        this
    }
}

impl Controller for Fixed {
    fn found(&self) -> Found {
        self.found.clone()
    }
    fn step(&mut self, _: u64, _: &[Sample], _: &[GroupSample]) -> Vec<Decision> {
        Vec::new()
    }
}

/// Flow groups on their way.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub request: RequestId,
    pub to: ThreadId,
    pub groups: Vec<GroupId>,
    pub begins_ns: u64,
    pub ends_ns: u64,
    /// Packets that wait for the end.
    pub deferred: f64,
}

/// Decisions whose time has not come.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Migration requests, in order: one at a time (IX §4.5).
    pub requests: VecDeque<(RequestId, ThreadId, ThreadId, Vec<GroupId>)>,
    pub under_way: Option<UnderWay>,
    /// Threads that wake, and when they poll.
    pub waking: Vec<(u64, ThreadId)>,
    /// The clock that is asked for, and from when on it holds.
    pub clock: Option<(u64, Clock)>,
}
