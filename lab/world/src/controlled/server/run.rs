//! One run: the server under a load pattern, with a controller, second by second.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::cause::{Cause, Causes};
use super::cost::MigrationLaw;
use super::error::{ModelError, check};
use super::executor::{Controller, Pending, UnderWay};
use super::latency::Latencies;
use super::meter::Meter;
use super::model::ServerModel;
use super::queue::{Queue, Rates};
use control::metrics::{GroupId, GroupSample, Sample, ThreadId};
use control::{Decision, Event, Machine, Outcome, Place};

/// Length of a slice, in nanoseconds: short against migrations.
const SLICE_NS: u64 = 100_000;
const SLICE_S: f64 = SLICE_NS as f64 / 1e9;
/// Power is reckoned once in so many slices.
const POWER_SLICES: u64 = 10;
/// A queue shorter than what is served in so many seconds is no backlog any more.
const BACKLOG_S: f64 = 50e-6;

/// How a run is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunConfig {
    /// Seconds that are simulated.
    pub duration_s: u64,
    /// From one turn of the control loop to the next, in nanoseconds.
    pub period_ns: u64,
    /// All draws follow from it.
    pub seed: u64,
}

impl RunConfig {
    /// The 4 minutes of IX §5.4, with so many turns a second: at most 1,000.
    pub fn at_hz(hz: u32, seed: u64) -> Self {
        Self { duration_s: 240, period_ns: 1_000_000_000 / u64::from(hz.max(1)), seed }
    }

    /// Checks it.
    ///
    /// # Errors
    /// The first number that is out of its range.
    pub fn validate(&self) -> Result<(), ModelError> {
        check("duration_s", self.duration_s as f64, 1.0, 86_400.0, "1 to 86400")?;
        check("period_ns", self.period_ns as f64, 1e6, 1e10, "1e6 (1 kHz) to 1e10")
    }
}

/// What one second was like.
#[derive(Debug, Clone, PartialEq)]
pub struct Second {
    /// Requests answered.
    pub rps: f64,
    /// The 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Mean power, in watts.
    pub watts: f64,
    /// The background job's mean throughput, over that on a dedicated processor at the nominal clock.
    pub background: f64,
    /// The step in force at its end.
    pub step: usize,
    /// The least and the greatest load within it and within the second before, in requests per second.
    pub load_rps: (f64, f64),
    /// The least that the granted resources could serve within it, always busy, in requests per second.
    pub capacity_rps: f64,
    /// Late requests, by their cause.
    pub late: Causes,
    /// Flow groups that moved within it.
    pub groups_moved: u32,
}

/// What a run was like.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// Second by second.
    pub seconds: Vec<Second>,
    /// What the control loop reported, with its time in nanoseconds.
    pub events: Vec<(u64, Event)>,
    /// How long each migration took, in microseconds, and whether resources were being added.
    pub migrations: Vec<(f64, bool)>,
}

/// Runs a server under a load, given in requests per second at nanoseconds since the beginning.
///
/// # Errors
/// Parameters out of their range; nothing was run.
pub fn simulate(
    model: &ServerModel,
    load: &dyn Fn(u64) -> f64,
    controller: &mut dyn Controller,
    run: &RunConfig,
) -> Result<Record, ModelError> {
    model.validate()?;
    run.validate()?;
    let mut server = Server::new(model, controller, run.seed);
    let slices = run.duration_s * 1_000_000_000 / SLICE_NS;
    let mut last_ns = 0;
    for slice in 1..=slices {
        let now_ns = slice * SLICE_NS;
        server.slice(load(now_ns - SLICE_NS).max(0.0), now_ns);
        if now_ns - last_ns >= run.period_ns {
            let (samples, groups) = server.samples(now_ns - last_ns);
            let decisions = server.controller.step(now_ns, &samples, &groups);
            server.take(decisions, now_ns);
            last_ns = now_ns;
        }
        if now_ns.is_multiple_of(1_000_000_000) {
            server.second();
        }
    }
    Ok(server.record)
}

/// The relative load of each flow group: connections hash onto them as they fall. The sum is 1.
pub(crate) fn group_weights(model: &ServerModel, seed: u64) -> Vec<f64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5EED_0F67_0095_0001);
    let mut weights = vec![0.0; usize::from(model.flow_groups)];
    for _ in 0..model.connections {
        let group = random.random_range(0..weights.len());
        weights[group] += 1.0 / f64::from(model.connections);
    }
    weights
}

/// A core's hardware thread.
#[derive(Debug, Clone, Copy, Default)]
struct Thread {
    core: usize,
    runs: bool,
    queue: Queue,
    /// The part of the load whose flow groups are at home here and not on their way.
    weight: f64,
    /// It has, or still works off, more than the granted resources serve.
    backlog: Option<Cause>,
    served: f64,
    idle_s: f64,
    /// Of the last slices: the mean queue.
    waiting: f64,
    serving: f64,
}

struct Server<'a> {
    model: &'a ServerModel,
    controller: &'a mut dyn Controller,
    record: Record,
    machine: Machine,
    unit_rps: f64,
    /// Most requests that wait on a thread, for its part of the load: clients do not send more.
    window: f64,
    laws: [MigrationLaw; 2],
    threads: Vec<Thread>,
    weights: Vec<f64>,
    homes: Vec<ThreadId>,
    group_packets: Vec<f64>,
    pending: Pending,
    /// The cores stand still until then, in nanoseconds.
    halted_until_ns: u64,
    /// Whether resources were added last, for the law of migrations.
    adding: bool,
    meter: Meter,
    random: Xoshiro256PlusPlus,
    latencies: Latencies,
    sums: Sums,
    loads_before: (f64, f64),
}

/// Of the second that is going on.
#[derive(Debug, Clone, Copy)]
struct Sums {
    served: f64,
    loads: (f64, f64),
    capacity: f64,
    late: Causes,
    groups_moved: u32,
}

impl Sums {
    fn new() -> Self {
        Self {
            served: 0.0,
            loads: (f64::MAX, 0.0),
            capacity: f64::MAX,
            late: Causes::default(),
            groups_moved: 0,
        }
    }
}

impl<'a> Server<'a> {
    fn new(model: &'a ServerModel, controller: &'a mut dyn Controller, seed: u64) -> Self {
        let machine = model.machine();
        let found = controller.found();
        let mut threads: Vec<Thread> = Place::all(&machine)
            .iter()
            .map(|place| Thread { core: place.core as usize, ..Thread::default() })
            .collect();
        let weights = group_weights(model, seed);
        for thread in &found.running {
            threads[usize::from(thread.0)].runs = true;
        }
        for (home, weight) in found.homes.iter().zip(&weights) {
            threads[usize::from(home.0)].weight += weight;
        }
        let costs = &model.reconfiguration;
        let mut this = Self {
            unit_rps: model.unit_rps(),
            window: f64::from(model.connections) * f64::from(model.pipeline),
            laws: [costs.migration_remove.law(), costs.migration_add.law()],
            group_packets: vec![0.0; weights.len()],
            threads,
            weights,
            meter: Meter::new(machine.cores, &found),
            homes: found.homes,
            pending: Pending::default(),
            halted_until_ns: 0,
            adding: true,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            latencies: Latencies::default(),
            sums: Sums::new(),
            loads_before: (f64::MAX, 0.0),
            machine,
            model,
            controller,
            record: Record::default(),
        };
        this.count_beside();
        this
    }

    /// One slice, which ends at `now_ns`.
    fn slice(&mut self, load_rps: f64, now_ns: u64) {
        self.sums.loads.0 = self.sums.loads.0.min(load_rps);
        self.sums.loads.1 = self.sums.loads.1.max(load_rps);
        self.serve(load_rps, now_ns);
        self.defer(load_rps, now_ns);
        if (now_ns / SLICE_NS).is_multiple_of(POWER_SLICES) {
            self.draw_power(load_rps, POWER_SLICES as f64 * SLICE_S);
        }
        self.advance(now_ns);
    }

    /// Requests in a second that each thread of a core serves, by how many of them run.
    fn serving(&self, beside: usize, now_ns: u64) -> f64 {
        let scaling = &self.model.scaling;
        let gain = if beside > 1 { scaling.hyperthread_gain / beside as f64 } else { 1.0 };
        let halted_ns = self.halted_until_ns.saturating_sub(now_ns - SLICE_NS).min(SLICE_NS);
        let runs = 1.0 - halted_ns as f64 / SLICE_NS as f64;
        self.unit_rps * scaling.clock_ratio(&self.machine, self.meter.clock) * gain * runs
    }

    fn count_beside(&mut self) {
        let running = self.threads.iter().filter(|thread| thread.runs);
        self.meter.count(running.map(|thread| thread.core));
    }

    fn serve(&mut self, load_rps: f64, now_ns: u64) {
        let beside = std::mem::take(&mut self.meter.beside);
        let capacity: f64 = (self.threads.iter())
            .filter(|thread| thread.runs)
            .map(|thread| self.serving(beside[thread.core], now_ns))
            .sum();
        self.sums.capacity = self.sums.capacity.min(capacity);
        for index in 0..self.threads.len() {
            let mut thread = self.threads[index];
            if !thread.runs {
                continue;
            }
            let serving = self.serving(beside[thread.core], now_ns);
            let arriving = load_rps * thread.weight;
            let before = thread.queue.packets();
            let rates = Rates { arriving, serving, scv: self.model.service_scv };
            let slice = thread.queue.pass(&rates, SLICE_S, &mut self.random);
            let after = thread.queue.packets();
            if arriving > serving {
                let all = load_rps > capacity;
                thread.backlog = Some(if all { Cause::Overload } else { Cause::Imbalance });
            } else if after < serving * BACKLOG_S {
                thread.backlog = None;
            }
            thread.served += slice.served;
            thread.idle_s += slice.idle * SLICE_S;
            thread.waiting += 0.1 * (after - thread.waiting);
            thread.serving = serving.max(1.0);
            self.sums.served += slice.served;
            let waiting = ((before + after) / 2.0).min(self.window * thread.weight.max(0.01));
            let latency_us = waiting / thread.serving * 1e6;
            self.answered(latency_us, slice.arrived, thread.backlog.unwrap_or(Cause::Chance));
            self.threads[index] = thread;
        }
        self.meter.beside = beside;
    }

    fn answered(&mut self, queueing_us: f64, requests: f64, cause: Cause) {
        let latency_us = self.model.unloaded_p99_us + queueing_us;
        self.latencies.add(latency_us, requests);
        if latency_us > self.model.slo_us {
            self.sums.late.add(cause, requests);
        }
    }

    /// Packets of flow groups that are on their way wait for the end of the migration, and then their turn.
    fn defer(&mut self, load_rps: f64, now_ns: u64) {
        let Some(mut moving) = self.pending.under_way.take() else { return };
        let weight: f64 = moving.groups.iter().map(|g| self.weights[usize::from(g.0)]).sum();
        let mean = load_rps * weight * SLICE_S;
        let noise: f64 = self.random.sample(StandardNormal);
        let arrived = (mean + mean.sqrt() * noise).max(0.0);
        let target = &self.threads[usize::from(moving.to.0)];
        let behind = (target.queue.packets() + moving.deferred) / target.serving.max(1.0);
        let left_us = moving.ends_ns.saturating_sub(now_ns - SLICE_NS / 2) as f64 / 1e3;
        let cause = target.backlog.unwrap_or(Cause::Migration);
        self.answered(left_us + behind * 1e6, arrived, cause);
        moving.deferred += arrived;
        self.pending.under_way = Some(moving);
    }

    fn draw_power(&mut self, load_rps: f64, seconds: f64) {
        // The share of time for which a core's threads have packets: what arrives over what they could serve.
        let used = |core: usize, _| {
            let running = self.threads.iter().filter(|thread| thread.runs && thread.core == core);
            let (load, serving) = running.fold((0.0, 0.0), |(load, serving), thread| {
                (load + thread.weight * load_rps, serving + thread.serving)
            });
            if serving > 0.0 { (load / serving).min(1.0) } else { 0.0 }
        };
        self.meter.pass(self.model, seconds, used);
    }

    /// What has come to its end; what can begin.
    fn advance(&mut self, now_ns: u64) {
        if let Some((_, clock)) = self.pending.clock.take_if(|(at_ns, _)| *at_ns <= now_ns) {
            let halt_ns = (self.model.reconfiguration.clock_halt_us * 1e3) as u64;
            self.halted_until_ns = now_ns + halt_ns;
            self.meter.clock = clock;
        }
        let mut outcomes = Vec::new();
        for (_, thread) in self.pending.waking.extract_if(.., |(at_ns, _)| *at_ns <= now_ns) {
            self.threads[usize::from(thread.0)].runs = true;
            outcomes.push(Outcome::Granted(thread));
        }
        if !outcomes.is_empty() {
            self.count_beside();
        }
        if let Some(moving) = self.pending.under_way.take_if(|moving| moving.ends_ns <= now_ns) {
            outcomes.push(self.arrive(moving));
        }
        if outcomes.is_empty() {
            self.begin_migration(now_ns);
            return;
        }
        outcomes.iter().for_each(|outcome| self.controller.outcome(outcome));
        let decisions = self.controller.proceed();
        self.take(decisions, now_ns);
    }

    fn arrive(&mut self, moving: UnderWay) -> Outcome {
        let took_us = (moving.ends_ns - moving.begins_ns) as f64 / 1e3;
        self.record.migrations.push((took_us, self.adding));
        let target = &mut self.threads[usize::from(moving.to.0)];
        target.queue.put(moving.deferred);
        for group in &moving.groups {
            target.weight += self.weights[usize::from(group.0)];
            self.homes[usize::from(group.0)] = moving.to;
        }
        self.sums.groups_moved += moving.groups.len() as u32;
        Outcome::Migrated { request: Some(moving.request), to: moving.to, groups: moving.groups }
    }

    fn begin_migration(&mut self, now_ns: u64) {
        if self.pending.under_way.is_some() {
            return;
        }
        let Some((request, from, to, groups)) = self.pending.requests.pop_front() else { return };
        let weight: f64 = groups.iter().map(|g| self.weights[usize::from(g.0)]).sum();
        let source = &mut self.threads[usize::from(from.0)];
        // Its packets that wait at the old home go along (IX §4.5).
        let share = if source.weight > 0.0 { (weight / source.weight).min(1.0) } else { 0.0 };
        let waiting = source.queue.packets() * share;
        source.queue.put(-waiting);
        source.weight = (source.weight - weight).max(0.0);
        let queued_us = waiting / source.serving.max(1.0) * 1e6;
        let cause = source.backlog.unwrap_or(Cause::Migration);
        let took_us = self.laws[usize::from(self.adding)].draw_us(&mut self.random);
        let ends_ns = now_ns + (took_us * 1e3) as u64;
        self.answered(queued_us / 2.0 + took_us, waiting, cause);
        self.pending.under_way =
            Some(UnderWay { request, to, groups, begins_ns: now_ns, ends_ns, deferred: waiting });
    }

    /// Begins what a controller decided.
    fn take(&mut self, decisions: Vec<Decision>, now_ns: u64) {
        let costs = &self.model.reconfiguration;
        let after = |us: f64| now_ns + (us * 1e3) as u64;
        let (clock_ns, wake_ns) = (after(costs.clock_us), after(costs.wake_us));
        for decision in decisions {
            match decision {
                Decision::Background(cores) => self.meter.background = cores,
                Decision::SetClock(clock) => self.pending.clock = Some((clock_ns, clock)),
                Decision::Grant(thread) => {
                    self.adding = true;
                    self.pending.waking.push((wake_ns, thread));
                }
                Decision::Migrate { request, from, to, groups } => {
                    // Threads whose groups all go are about to be parked.
                    let kept = self.homes.iter().filter(|home| **home == from).count();
                    self.adding = kept > groups.len();
                    self.pending.requests.push_back((request, from, to, groups));
                }
                Decision::Park(thread) => {
                    let parked = &mut self.threads[usize::from(thread.0)];
                    parked.runs = false;
                    debug_assert!(parked.weight < 1e-9, "a parked thread has flow groups");
                    self.count_beside();
                    self.controller.outcome(&Outcome::Parked(thread));
                }
            }
        }
        self.begin_migration(now_ns);
    }

    /// What the dataplane shows of the last period.
    fn samples(&mut self, period_ns: u64) -> (Vec<Sample>, Vec<GroupSample>) {
        let period_s = period_ns as f64 / 1e9;
        let batch = f64::from(self.model.batch_max);
        let mut samples = Vec::new();
        let mut total = 0.0;
        for (index, thread) in self.threads.iter_mut().enumerate() {
            total += thread.served;
            if thread.runs {
                let taken = thread.waiting.clamp(1.0, batch);
                let iteration_ns = taken / thread.serving * 1e9;
                samples.push(Sample {
                    thread: ThreadId(index as u16),
                    period_ns,
                    packets: thread.served.round() as u64,
                    queue_packets: thread.queue.packets().round(),
                    ready: 0.0,
                    ready_ns: 0.0,
                    iteration_ns,
                    batch_packets: taken,
                    idle: (thread.idle_s / period_s).clamp(0.0, 1.0),
                    oldest_waiting_ns: (thread.queue.packets() / thread.serving * 1e9) as u64,
                    batch_max: self.model.batch_max,
                });
            }
            (thread.served, thread.idle_s) = (0.0, 0.0);
        }
        (samples, self.group_samples(period_ns, total))
    }

    /// What was served, dealt out to the groups as their connections make it likely. The counts of threads and
    /// groups are drawn apart: nobody compares them over periods so short that it shows.
    fn group_samples(&mut self, period_ns: u64, total: f64) -> Vec<GroupSample> {
        let mut samples = Vec::with_capacity(self.weights.len());
        for (index, &weight) in self.weights.iter().enumerate() {
            let mean = total * weight;
            let noise: f64 = self.random.sample(StandardNormal);
            // Whole packets are counted; what is left of one counts the next time.
            let packets = self.group_packets[index] + (mean + mean.sqrt() * noise).max(0.0);
            self.group_packets[index] = packets.fract();
            let group = GroupId(index as u16);
            samples.push(GroupSample { group, period_ns, packets: packets as u64 });
        }
        samples
    }

    /// Records the second that ends.
    fn second(&mut self) {
        let sums = std::mem::replace(&mut self.sums, Sums::new());
        let (watts, background) = self.meter.take();
        let (before, now) = (self.loads_before, sums.loads);
        self.loads_before = now;
        self.record.seconds.push(Second {
            rps: sums.served,
            p99_us: self.latencies.quantile_us(0.99),
            watts,
            background,
            step: self.controller.at(),
            load_rps: (before.0.min(now.0), before.1.max(now.1)),
            capacity_rps: sums.capacity,
            late: sums.late,
            groups_moved: sums.groups_moved,
        });
        self.record.events.extend(self.controller.take_events());
        self.latencies.clear();
    }
}
