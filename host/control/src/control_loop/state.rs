//! What the loop knows of threads and flow groups.

use crate::configuration::{Clock, Configuration, Machine, MachineError, Scaling};
use crate::metrics::{GroupId, ThreadId};

use super::RequestId;

/// Where an elastic thread runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The core, by its place in the order of allocation, from 0.
    pub core: u32,
    /// Which of the core's hyperthreads, from 0.
    pub sibling: u32,
}

impl Place {
    /// One for each hardware thread, in the order of allocation: cores first, then hyperthreads.
    pub fn all(machine: &Machine) -> Vec<Self> {
        let siblings = 0..machine.threads_per_core;
        let of = |sibling| (0..machine.cores).map(move |core| Self { core, sibling });
        siblings.flat_map(of).collect()
    }
}

/// A state found at the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Threads that run.
    pub running: Vec<ThreadId>,
    /// The home of each flow group.
    pub homes: Vec<ThreadId>,
    /// The clock of the granted cores.
    pub clock: Clock,
    /// Cores that the background job may use.
    pub background_cores: u32,
}

impl Found {
    /// A fresh dataplane: its first thread runs and has all flow groups; no background job.
    pub fn first_thread(groups: u16, clock: Clock) -> Self {
        let homes = vec![ThreadId(0); usize::from(groups)];
        Self { running: vec![ThreadId(0)], homes, clock, background_cores: 0 }
    }
}

/// An elastic thread, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Parked,
    Granting {
        since_ns: u64,
    },
    Running,
    Parking {
        since_ns: u64,
    },
    /// Not to be used until then.
    Failed {
        until_ns: u64,
    },
}

#[derive(Debug)]
pub(super) struct Threads {
    places: Vec<Place>,
    states: Vec<State>,
    /// All cores, in the order of allocation, each with its first thread.
    cores: Vec<(u32, ThreadId)>,
}

impl Threads {
    pub fn new(places: Vec<Place>, found: &Found) -> Result<Self, MachineError> {
        let count = places.len();
        if !(1..=usize::from(u16::MAX)).contains(&count) {
            let wrong = format!("number of elastic threads is {count}; allowed: 1 to 65535");
            return Err(MachineError(wrong));
        }
        let mut seen = places.clone();
        seen.sort_unstable();
        if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            let wrong =
                format!("place of a thread is {:?}, twice; allowed: one thread each", pair[0]);
            return Err(MachineError(wrong));
        }
        let mut states = vec![State::Parked; count];
        for ThreadId(thread) in &found.running {
            let state = states.get_mut(usize::from(*thread)).ok_or_else(|| {
                let wrong =
                    format!("number of a running thread is {thread}; allowed: under {count}");
                MachineError(wrong)
            })?;
            *state = State::Running;
        }
        let leads = places.iter().enumerate().filter(|(_, place)| place.sibling == 0);
        let mut cores: Vec<(u32, ThreadId)> =
            leads.map(|(index, place)| (place.core, ThreadId(index as u16))).collect();
        cores.sort_unstable();
        Ok(Self { places, states, cores })
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    pub fn ids(&self) -> impl Iterator<Item = ThreadId> + use<> {
        (0..self.states.len() as u16).map(ThreadId)
    }

    /// The state; a thread that there is not has failed for ever.
    pub fn get(&self, thread: ThreadId) -> State {
        let failed = State::Failed { until_ns: u64::MAX };
        self.states.get(usize::from(thread.0)).copied().unwrap_or(failed)
    }

    pub fn set(&mut self, thread: ThreadId, state: State) {
        if let Some(place) = self.states.get_mut(usize::from(thread.0)) {
            *place = state;
        }
    }

    pub fn is_running(&self, thread: ThreadId) -> bool {
        self.get(thread) == State::Running
    }

    pub fn running(&self) -> impl Iterator<Item = ThreadId> + '_ {
        self.ids().filter(|&thread| self.is_running(thread))
    }

    fn is_usable(&self, thread: ThreadId) -> bool {
        !matches!(self.get(thread), State::Failed { .. })
    }

    /// The threads of a configuration: cores in the order of allocation, those left out whose first thread has
    /// failed. At least one, while any is usable.
    pub fn of(&self, configuration: &Configuration) -> Vec<ThreadId> {
        let usable = self.cores.iter().filter(|(_, lead)| self.is_usable(*lead));
        let cores: Vec<u32> =
            usable.map(|core| core.0).take(configuration.cores.max(1) as usize).collect();
        let mut threads: Vec<ThreadId> = self
            .ids()
            .filter(|&thread| {
                let Place { core, sibling } = self.places[usize::from(thread.0)];
                cores.contains(&core)
                    && (sibling == 0 || configuration.hyperthreads)
                    && self.is_usable(thread)
            })
            .collect();
        if threads.is_empty() {
            threads.extend(self.ids().find(|&thread| self.is_usable(thread)));
        }
        threads
    }

    /// The speed of each of these threads, in units of a core with one thread.
    pub fn with_speed(&self, threads: &[ThreadId], scaling: &Scaling) -> Vec<(ThreadId, f64)> {
        let core = |thread: ThreadId| self.places[usize::from(thread.0)].core;
        let speed = |thread: ThreadId| {
            let beside = threads.iter().filter(|other| core(**other) == core(thread)).count();
            if beside > 1 { scaling.hyperthread_gain / beside as f64 } else { 1.0 }
        };
        threads.iter().map(|&thread| (thread, speed(thread))).collect()
    }

    pub fn running_with_speed(&self, scaling: &Scaling) -> Vec<(ThreadId, f64)> {
        let running: Vec<ThreadId> = self.running().collect();
        self.with_speed(&running, scaling)
    }

    pub fn running_speed(&self, scaling: &Scaling) -> f64 {
        self.running_with_speed(scaling).iter().map(|thread| thread.1).sum()
    }
}

/// Homes of the flow groups, and where those under way go.
#[derive(Debug)]
pub(super) struct Groups {
    pub homes: Vec<ThreadId>,
    moving: Vec<Option<(ThreadId, u64)>>,
    under_way: usize,
    /// Groups whose migration had no outcome in time: they are at home, or there.
    uncertain: Vec<(GroupId, ThreadId)>,
    /// The latest request for each group.
    latest: Vec<RequestId>,
    requests: u64,
}

impl Groups {
    pub fn new(homes: Vec<ThreadId>) -> Self {
        Self {
            moving: vec![None; homes.len()],
            latest: vec![RequestId(0); homes.len()],
            homes,
            under_way: 0,
            uncertain: Vec::new(),
            requests: 0,
        }
    }

    pub fn under_way(&self) -> usize {
        self.under_way
    }

    pub fn begin(&mut self, groups: &[GroupId], to: ThreadId, now_ns: u64) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        for group in groups {
            let Some(place) = self.moving.get_mut(usize::from(group.0)) else { continue };
            self.under_way += usize::from(place.is_none());
            *place = Some((to, now_ns));
            self.latest[usize::from(group.0)] = request;
        }
        request
    }

    /// A group has arrived: by the latest request for it, or, while none is under way, by none.
    pub fn arrived(&mut self, request: Option<RequestId>, group: GroupId, to: ThreadId) {
        let index = usize::from(group.0);
        let (Some(home), Some(latest)) = (self.homes.get_mut(index), self.latest.get(index)) else {
            return;
        };
        if request.map_or(self.moving[index].is_none(), |request| request == *latest) {
            *home = to;
            self.uncertain.retain(|(one, _)| *one != group);
            self.ended(group);
        }
    }

    /// The latest request for a group has failed; an earlier one's failure says nothing.
    pub fn stayed(&mut self, request: RequestId, group: GroupId) {
        if self.latest.get(usize::from(group.0)) == Some(&request) {
            self.ended(group);
        }
    }

    fn ended(&mut self, group: GroupId) {
        let moving = self.moving.get_mut(usize::from(group.0)).and_then(Option::take);
        self.under_way -= usize::from(moving.is_some());
    }

    /// Gives up what matches; how many groups that were.
    pub fn give_up(&mut self, matches: impl Fn(ThreadId, u64) -> bool) -> usize {
        let mut given_up = 0;
        for moving in &mut self.moving {
            if moving.is_some_and(|(to, since_ns)| matches(to, since_ns)) {
                *moving = None;
                given_up += 1;
            }
        }
        self.under_way -= given_up;
        given_up
    }

    /// The same for what began too long ago, of which it is not known where it is.
    pub fn lose(&mut self, is_late: impl Fn(u64) -> bool) -> usize {
        for (index, moving) in self.moving.iter().enumerate() {
            if let Some((to, since_ns)) = *moving
                && is_late(since_ns)
                && let Ok(group) = u16::try_from(index)
            {
                self.uncertain.push((GroupId(group), to));
            }
        }
        self.give_up(|_, since_ns| is_late(since_ns))
    }

    /// Groups of which it is not known where they are: where else than at home they may be.
    pub fn uncertain(&self) -> &[(GroupId, ThreadId)] {
        &self.uncertain
    }

    /// Nothing is on a thread that is gone.
    pub fn gone(&mut self, thread: ThreadId) {
        self.uncertain.retain(|(_, other)| *other != thread);
    }

    /// Whether a thread has groups, may have some, or gets some.
    pub fn concerns(&self, thread: ThreadId) -> bool {
        self.homes.contains(&thread)
            || self.uncertain.iter().any(|(_, other)| *other == thread)
            || self.moving.iter().flatten().any(|moving| moving.0 == thread)
    }
}
