//! What a server under a control loop has beside its cores: what its threads show, what was decided and takes its
//! time, and the record of it all.

mod accounts;
mod changes;

use crate::controlled::server::{Controller, Meter, Record, RunConfig, ServerModel};
use std::sync::Arc;

use clock::{Duration, Instant};
use control::metrics::{GroupId, GroupSample, Sample, Sampler, ThreadId};
use control::{Clock, Place, RequestId};
use dataplane::{Elastic, MoveControl, Progress};
use queueing::check;
use shown::Shown;
use stack::{FLOW_GROUPS, Shared};
use statseg::{Board, Words};

use crate::cores::error::WorldError;
use crate::cores::pattern::LoadPattern;
use crate::cores::setup::Setup;
use crate::device::Device;
use accounts::{METER_EVERY, SECOND};

/// Commands of one core that may be without a report, as on real machines.
const MAILBOX: usize = 16;

/// A load, and who governs the server under it.
pub struct Governance<'a> {
    /// The server's dimensions, how its speed grows with clock and hyperthreads, what it draws, what changes take.
    /// Its elastic threads are one for each hardware thread, in the order of [`Place::all`].
    pub model: &'a ServerModel,
    /// Requests per second, at nanoseconds since the beginning.
    pub load: &'a dyn Fn(u64) -> f64,
    /// Who decides: the control loop, or nobody.
    pub controller: &'a mut dyn Controller,
    /// How long, how often, and the seed.
    pub run: RunConfig,
}

impl Governance<'_> {
    /// Checks it against the server that is to be simulated.
    pub(crate) fn validate(&self, setup: &Setup) -> Result<(), WorldError> {
        self.model.validate()?;
        self.run.validate()?;
        let threads = Place::all(&self.model.machine()).len() as f64;
        check("number of cores", setup.cores as f64, threads..=threads)?;
        let found = self.controller.found();
        let groups = FLOW_GROUPS as f64;
        check("number of flow groups", found.homes.len() as f64, groups..=groups)?;
        let last = found.homes.iter().chain(&found.running).map(|thread| thread.0).max();
        Ok(check("last thread that is used", last.unwrap_or(0).into(), 0.0..=threads - 1.0)?)
    }

    pub(crate) fn pattern(&self) -> LoadPattern {
        LoadPattern::new(self.load, self.run.duration_s * 1_000_000_000)
    }
}

/// A part of a request that a thread was asked for.
struct Part {
    token: u64,
    request: RequestId,
    from: usize,
    to: ThreadId,
    groups: Vec<GroupId>,
    asked: Instant,
    /// The thread keeps others: it is not about to be parked.
    adding: bool,
}

/// See the module's comment.
pub(crate) struct Governor<'a> {
    controller: &'a mut dyn Controller,
    model: &'a ServerModel,
    pattern: LoadPattern,
    period: Duration,
    boards: Vec<Board<'a>>,
    shown: Vec<Shown<'a>>,
    /// An idle thread sleeps after so much time, if it does.
    sleep_after_ns: Option<f64>,
    /// Since when each thread rests.
    rests: Vec<Option<Instant>>,
    sampler: Sampler,
    shared: Arc<Shared>,
    controls: Vec<MoveControl>,
    /// What the world has to do by what was decided, in order.
    pub orders: Vec<Order>,
    places: Vec<Place>,
    running: Vec<bool>,
    /// Of each thread: how many times as long a step takes as alone on its core at the nominal clock.
    pub slow: Vec<f64>,
    /// Threads that wake, and when they poll.
    waking: Vec<(Instant, ThreadId)>,
    next_clock: Option<(Instant, Clock)>,
    under_way: Vec<Part>,
    tokens: u64,
    began: Instant,
    next_turn: Instant,
    next_meter: Instant,
    next_second: Instant,
    metered: Instant,
    /// Of each thread, when it was last metered.
    busy_ns: Vec<f64>,
    meter: Meter,
    groups_moved: u32,
    capacity_rps: f64,
    /// The record of all seconds.
    pub record: Record,
}

/// What the world is to do for its governor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// This core's thread leaves its processor, or has it again.
    SetParked(usize, bool),
    /// All cores stand still for so long, in nanoseconds.
    Halt(u64),
    /// This core has a command in its mailbox.
    Rouse(usize),
}

impl<'a> Governor<'a> {
    /// Of these threads, whose boards are in `words`; everything is as the controller found it.
    pub fn new<T: Elastic>(
        governance: Governance<'a>,
        words: &'a [Box<Words>],
        threads: &mut [T],
        device: &Arc<Device>,
        setup: &Setup,
    ) -> Self {
        let pattern = governance.pattern();
        let Governance { model, controller, run, .. } = governance;
        let machine = model.machine();
        let found = controller.found();
        let mut running = vec![false; threads.len()];
        found.running.iter().for_each(|thread| running[usize::from(thread.0)] = true);
        for (thread, runs) in threads.iter_mut().zip(&running) {
            thread.set_parked(!runs);
        }
        let boards: Vec<Board<'a>> = words.iter().map(|words| Board::over(words)).collect();
        let far = Instant::FAR_FUTURE;
        let shown = |(thread, board): (usize, &Board<'a>)| {
            Shown::new(*board, None, thread as u16, 0, setup.batch, Instant::ZERO)
        };
        let mut this = Self {
            controller,
            model,
            pattern,
            period: Duration::from_nanos(run.period_ns),
            shown: boards.iter().enumerate().map(shown).collect(),
            boards,
            sleep_after_ns: setup.sleep_after_ns.map(|ns| ns as f64),
            rests: vec![None; threads.len()],
            sampler: Sampler::new(threads.len() as u16, setup.batch as u32),
            shared: Arc::clone(&device.shared),
            orders: Vec::new(),
            controls: threads.iter_mut().map(|thread| device.govern(thread, MAILBOX)).collect(),
            places: Place::all(&machine),
            running,
            slow: vec![1.0; threads.len()],
            waking: Vec::new(),
            next_clock: None,
            under_way: Vec::new(),
            tokens: 0,
            began: far,
            next_turn: far,
            next_meter: far,
            next_second: far,
            metered: far,
            busy_ns: vec![0.0; threads.len()],
            meter: Meter::new(machine.cores, &found),
            groups_moved: 0,
            capacity_rps: f64::MAX,
            record: Record::default(),
        };
        this.reckon_speeds();
        this
    }

    /// It begins now.
    pub fn start(&mut self, now: Instant) {
        self.began = now;
        self.metered = now;
        self.next_turn = now + self.period;
        self.next_meter = now + METER_EVERY;
        self.next_second = now + SECOND;
        self.record = Record::default();
    }

    /// When something is to be done next.
    pub fn next(&self) -> Instant {
        let woken = self.waking.iter().map(|(at, _)| *at).min().unwrap_or(Instant::FAR_FUTURE);
        let clock = self.next_clock.map_or(Instant::FAR_FUTURE, |(at, _)| at);
        self.next_turn.min(self.next_meter).min(self.next_second).min(woken).min(clock)
    }

    /// Whether a migration is under way.
    pub fn is_moving(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn since(&self, now: Instant) -> u64 {
        now.since(self.began).as_nanos() as u64
    }

    fn reckon_speeds(&mut self) {
        let running = self.places.iter().zip(&self.running).filter(|(_, runs)| **runs);
        self.meter.count(running.map(|(place, _)| place.core as usize));
        let scaling = &self.model.scaling;
        let clock = scaling.clock_ratio(&self.model.machine(), self.meter.clock);
        for (slow, place) in self.slow.iter_mut().zip(&self.places) {
            let beside = self.meter.beside[place.core as usize];
            let gain = if beside > 1 { scaling.hyperthread_gain / beside as f64 } else { 1.0 };
            *slow = 1.0 / (clock * gain);
        }
        let speeds = self.slow.iter().zip(&self.running).filter(|(_, runs)| **runs);
        let serves = self.model.unit_rps() * speeds.map(|(slow, _)| 1.0 / slow).sum::<f64>();
        self.capacity_rps = self.capacity_rps.min(serves);
    }

    /// A cycle of `core` begins.
    pub fn begin(&mut self, core: usize, now: Instant) {
        if let Some(since) = self.rests[core].take() {
            let rested_ns = now.since(since).as_nanos() as f64;
            let slept = self.sleep_after_ns.is_some_and(|after| rested_ns > after);
            self.shown[core].awake(now, slept);
        }
        self.shown[core].begin(now);
    }

    /// It is in the application, or back.
    pub fn in_application(&self, core: usize, entered: Option<Instant>) {
        match entered {
            Some(now) => self.boards[core].enter_application(now.as_nanos()),
            None => self.boards[core].leave_application(),
        }
    }

    /// Its steps are done.
    pub fn end(&mut self, core: usize, progress: &Progress) {
        self.shown[core].end(progress);
    }

    /// It polls, and finds nothing, or sleeps.
    pub fn rest(&mut self, core: usize, now: Instant) {
        self.shown[core].fall_asleep(now);
        self.rests[core] = Some(now);
    }

    /// What happened in the period that ends now, of the threads that run.
    pub fn samples(&mut self, now: Instant, packets: &[u64]) -> (Vec<Sample>, Vec<GroupSample>) {
        let (now_ns, boards) = (now.as_nanos(), &self.boards);
        let shown = |thread| boards.get(usize::from(thread)).map(Board::snapshot);
        let mut samples = self.sampler.threads(now_ns, shown);
        samples.retain(|sample| self.running[usize::from(sample.thread.0)]);
        (samples, self.sampler.groups(now_ns, packets))
    }
}
