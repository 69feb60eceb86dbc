//! What a server under a control loop has beside its cores: what its threads show, what was decided and takes its
//! time, and the record of it all.

use clock::{Duration, Instant};
use control::metrics::{GroupId, GroupSample, Sample, Sampler, ThreadId};
use control::server::{
    Controller, InUse, Latencies, Meter, Record, RunConfig, Second, ServerModel,
};
use control::{Clock, Decision, Outcome as Done, Place, RequestId};
use dataplane::{Elastic, GroupSet, MoveCommand, MoveControl, Progress, move_mailbox};
use shown::Shown;
use stack::{FLOW_GROUPS, Shared};
use statseg::{Board, Words};

use crate::device::Table;
use crate::error::WorldError;
use crate::pattern::LoadPattern;
use crate::setup::{Setup, check};

/// Commands of one core that may be without a report, as on real machines.
const MAILBOX: usize = 16;
/// How often what is drawn is added up, at least.
const METER_EVERY: Duration = Duration::from_millis(10);
/// How often the record has an entry.
const SECOND: Duration = Duration::from_secs(1);

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
        check("number of cores", setup.cores as f64, threads, threads)?;
        let found = self.controller.found();
        let (least, most) = (FLOW_GROUPS as f64, FLOW_GROUPS as f64);
        check("number of flow groups", found.homes.len() as f64, least, most)?;
        let last = found.homes.iter().chain(&found.running).map(|thread| thread.0).max();
        check("last thread that is used", last.unwrap_or(0).into(), 0.0, threads - 1.0)
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
}

/// See the module's comment.
pub(crate) struct Governor<'a> {
    controller: &'a mut dyn Controller,
    model: &'a ServerModel,
    pattern: LoadPattern,
    period: Duration,
    boards: Vec<Board<'a>>,
    shown: Vec<Shown<'a>>,
    /// Since when each thread rests.
    rests: Vec<Option<Instant>>,
    sampler: Sampler,
    controls: Vec<MoveControl>,
    places: Vec<Place>,
    running: Vec<bool>,
    /// Of each core: threads that run.
    beside: Vec<usize>,
    /// Of each thread: how many times as long a step takes as alone on its core at the nominal clock.
    slow: Vec<f64>,
    clock: Clock,
    background: u32,
    /// Threads that wake, and when they poll.
    waking: Vec<(Instant, ThreadId)>,
    next_clock: Option<(Instant, Clock)>,
    under_way: Vec<Part>,
    tokens: u64,
    adding: bool,
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
    record: Record,
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
        table: &Table,
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
        let obey = |thread: &mut T| {
            let (control, mailbox) = move_mailbox(MAILBOX);
            thread.obey(mailbox.with_device(Box::new(table.clone())));
            control
        };
        let mut this = Self {
            controller,
            model,
            pattern,
            period: Duration::from_nanos(run.period_ns),
            shown: boards.iter().enumerate().map(shown).collect(),
            boards,
            rests: vec![None; threads.len()],
            sampler: Sampler::new(threads.len() as u16, setup.batch as u32),
            controls: threads.iter_mut().map(obey).collect(),
            places: Place::all(&machine),
            running,
            beside: vec![0; machine.cores as usize],
            slow: vec![1.0; threads.len()],
            clock: found.clock,
            background: found.background_cores,
            waking: Vec::new(),
            next_clock: None,
            under_way: Vec::new(),
            tokens: 0,
            adding: true,
            began: far,
            next_turn: far,
            next_meter: far,
            next_second: far,
            metered: far,
            busy_ns: vec![0.0; threads.len()],
            meter: Meter::default(),
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

    /// How many times as long as on a core of its own at the nominal clock a step takes.
    pub fn slow(&self, core: usize) -> f64 {
        self.slow[core]
    }

    /// Whether a migration is under way.
    pub fn is_moving(&self) -> bool {
        !self.under_way.is_empty()
    }

    fn since(&self, now: Instant) -> u64 {
        now.since(self.began).as_nanos() as u64
    }

    fn reckon_speeds(&mut self) {
        self.beside.fill(0);
        for (place, _) in self.places.iter().zip(&self.running).filter(|(_, runs)| **runs) {
            self.beside[place.core as usize] += 1;
        }
        let scaling = &self.model.scaling;
        let clock = scaling.clock_ratio(&self.model.machine(), self.clock);
        for (slow, place) in self.slow.iter_mut().zip(&self.places) {
            let beside = self.beside[place.core as usize];
            let gain = if beside > 1 { scaling.hyperthread_gain / beside as f64 } else { 1.0 };
            *slow = 1.0 / (clock * gain);
        }
        let speeds = self.slow.iter().zip(&self.running).filter(|(_, runs)| **runs);
        let serves = self.model.unit_rps() * speeds.map(|(slow, _)| 1.0 / slow).sum::<f64>();
        self.capacity_rps = self.capacity_rps.min(serves);
    }

    // What the threads show.

    /// A cycle of `core` begins.
    pub fn begin(&mut self, core: usize, now: Instant, sleep_after_ns: Option<f64>) {
        if let Some(since) = self.rests[core].take() {
            let rested_ns = now.since(since).as_nanos() as f64;
            self.shown[core].awake(now, sleep_after_ns.is_some_and(|after| rested_ns > after));
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

    // What is decided.

    /// Whether a turn of the loop is due; if so the next one is a period later.
    pub fn turns(&mut self, now: Instant) -> bool {
        let due = self.next_turn <= now;
        if due {
            self.next_turn = now + self.period;
        }
        due
    }

    /// A turn of the loop.
    pub fn turn(
        &mut self,
        now: Instant,
        samples: &[Sample],
        groups: &[GroupSample],
        shared: &Shared,
    ) -> Vec<Order> {
        let decisions = self.controller.step(self.since(now), samples, groups);
        let mut orders = Vec::new();
        let done = self.carry_out(now, decisions, shared, &mut orders);
        self.go_on(now, done, shared, &mut orders);
        orders
    }

    /// What has come to its end: clocks, waking, migrations.
    pub fn advance(&mut self, now: Instant, shared: &Shared) -> Vec<Order> {
        let (mut orders, mut done) = (Vec::new(), self.reports(now));
        if let Some((_, clock)) = self.next_clock.take_if(|(at, _)| *at <= now) {
            self.clock = clock;
            self.reckon_speeds();
            orders.push(Order::Halt((self.model.reconfiguration.clock_halt_us * 1e3) as u64));
        }
        for (_, thread) in self.waking.extract_if(.., |(at, _)| *at <= now) {
            self.running[usize::from(thread.0)] = true;
            orders.push(Order::SetParked(thread.0.into(), false));
            done.push(Done::Granted(thread));
        }
        if !orders.is_empty() {
            self.reckon_speeds();
        }
        self.go_on(now, done, shared, &mut orders);
        orders
    }

    /// What became of things goes to the controller, and what that makes possible is begun, until there is no more.
    fn go_on(
        &mut self,
        now: Instant,
        mut done: Vec<Done>,
        shared: &Shared,
        orders: &mut Vec<Order>,
    ) {
        while !done.is_empty() {
            done.iter().for_each(|outcome| self.controller.outcome(outcome));
            let decisions = self.controller.proceed();
            done = self.carry_out(now, decisions, shared, orders);
        }
    }

    /// Begins what was decided; answers what is done at once.
    fn carry_out(
        &mut self,
        now: Instant,
        decisions: Vec<Decision>,
        shared: &Shared,
        orders: &mut Vec<Order>,
    ) -> Vec<Done> {
        let costs = &self.model.reconfiguration;
        let after = |us: f64| now + Duration::from_nanos((us * 1e3) as u64);
        let (clock_at, wake_at) = (after(costs.clock_us), after(costs.wake_us));
        let mut done = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Background(cores) => self.background = cores,
                Decision::SetClock(clock) => self.next_clock = Some((clock_at, clock)),
                Decision::Grant(thread) => {
                    self.adding = true;
                    self.waking.push((wake_at, thread));
                }
                Decision::Migrate { request, to, groups, .. } => {
                    for (from, groups) in self.by_home(shared, &groups) {
                        let part = Part { token: 0, request, from, to, groups, asked: now };
                        done.extend(self.begin_migration(part, orders));
                    }
                }
                Decision::Park(thread) => {
                    self.adding = false;
                    self.running[usize::from(thread.0)] = false;
                    self.reckon_speeds();
                    orders.push(Order::SetParked(thread.0.into(), true));
                    done.push(Done::Parked(thread));
                }
            }
        }
        done
    }

    /// Flow groups by the thread that is their home now, whatever the request says.
    fn by_home(&self, shared: &Shared, groups: &[GroupId]) -> Vec<(usize, Vec<GroupId>)> {
        let of = |from| {
            let at_home = |group: &&GroupId| usize::from(shared.home_of(group.0)) == from;
            (from, groups.iter().filter(at_home).copied().collect::<Vec<_>>())
        };
        (0..self.controls.len()).map(of).filter(|(_, groups)| !groups.is_empty()).collect()
    }

    /// Asks a thread to give flow groups up; answers what is known at once. As on real machines any number of
    /// migrations may be under way: each waits for what stood in its thread's ring, and all of them for the same.
    fn begin_migration(&mut self, part: Part, orders: &mut Vec<Order>) -> Option<Done> {
        let Part { request, from, to, groups, .. } = part;
        if from == usize::from(to.0) {
            return Some(Done::Migrated { request: Some(request), to, groups });
        }
        let set: GroupSet = groups.iter().map(|group| group.0).collect();
        self.tokens += 1;
        let token = self.tokens;
        let command = MoveCommand { token, groups: set, to: to.0 as u8 };
        if self.controls[from].post(command).is_err() {
            return Some(Done::MigrationFailed { request, groups });
        }
        orders.push(Order::Rouse(from));
        self.under_way.push(Part { token, groups, ..part });
        None
    }

    /// Migrations that have ended.
    fn reports(&mut self, now: Instant) -> Vec<Done> {
        let mut done = Vec::new();
        for (from, control) in self.controls.iter_mut().enumerate() {
            while let Some(report) = control.report() {
                let of_it = |part: &Part| part.from == from && part.token == report.token;
                let Some(at) = self.under_way.iter().position(of_it) else { continue };
                let Part { request, to, groups, asked, .. } = self.under_way.swap_remove(at);
                if report.outcome.is_err() {
                    done.push(Done::MigrationFailed { request, groups });
                    continue;
                }
                let took_us = now.since(asked).as_nanos() as f64 / 1e3;
                self.record.migrations.push((took_us, self.adding));
                self.groups_moved += groups.len() as u32;
                done.push(Done::Migrated { request: Some(request), to, groups });
            }
        }
        done
    }

    // What is recorded.

    /// Adds up what was drawn since the last time, given for how long each thread has been busy.
    pub fn meter(&mut self, now: Instant, busy_ns: impl Iterator<Item = f64>) {
        if self.next_meter <= now {
            self.next_meter = now + METER_EVERY;
        }
        let passed_ns = now.since(std::mem::replace(&mut self.metered, now)).as_nanos() as f64;
        let mut used_ns = vec![0.0; self.beside.len()];
        for ((before, busy_ns), place) in self.busy_ns.iter_mut().zip(busy_ns).zip(&self.places) {
            used_ns[place.core as usize] += busy_ns - std::mem::replace(before, busy_ns);
        }
        let (clock, background, beside) = (self.clock, self.background, &self.beside);
        let now = InUse { clock, beside, background };
        // A step is counted when it begins: the last one may reach beyond the moment.
        let used =
            |core: usize| (used_ns[core] / (passed_ns * beside[core].max(1) as f64)).min(1.0);
        if passed_ns > 0.0 {
            self.meter.pass(self.model, passed_ns / 1e9, now, used);
        }
    }

    /// Whether a second is over; `latencies` are those of the answers that came in it.
    pub fn second(&mut self, now: Instant, latencies: &mut Latencies) {
        if self.next_second > now {
            return;
        }
        self.next_second = now + SECOND;
        let (watts, background) = self.meter.take();
        let now_ns = self.since(now) as f64;
        let steps = |back_ms: u32| self.pattern.rps(now_ns - f64::from(back_ms) * 1e6 + 5e5);
        let loads = (1..=2_000).map(steps);
        let (low, high) = loads.fold((f64::MAX, 0.0f64), |(l, h), rps| (l.min(rps), h.max(rps)));
        let second = Second {
            rps: latencies.requests(),
            p99_us: latencies.quantile_us(0.99),
            watts,
            background,
            step: self.controller.at(),
            load_rps: (low, high),
            capacity_rps: std::mem::replace(&mut self.capacity_rps, f64::MAX),
            // Whose delay it was, an answer does not tell.
            late: Default::default(),
            groups_moved: std::mem::take(&mut self.groups_moved),
        };
        latencies.clear();
        self.record.seconds.push(second);
        self.record.events.extend(self.controller.take_events());
        self.reckon_speeds();
    }

    /// The record of all seconds.
    pub fn into_record(self) -> Record {
        self.record
    }
}
