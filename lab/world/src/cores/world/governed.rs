//! The world under a control loop.

use crate::controlled::server::{Latencies, Record};
use dataplane::Elastic;
use stack::FLOW_GROUPS;
use statseg::Words;

use super::World;
use crate::cores::error::WorldError;
use crate::cores::governor::{Governance, Order};
use crate::cores::outcome::Outcome;
use crate::cores::scheduler::Scheduler;
use crate::cores::setup::{Run, Setup};

/// Runs `setup` under `scheduler` and a load that changes, with somebody who grants and parks its elastic threads, sets
/// their clock, and moves flow groups from one to another (IX §4.6): the control loop, in nearly all cases. Answers
/// the run second by second as [`crate::controlled::server::simulate`] does for its model of queues, and what else was found.
///
/// Threads show themselves, are sampled and move flow groups by the code that does so on real machines. What a clock
/// and a hyperthread are worth, what changes take, and what is drawn, is the model's. Of `setup`, the mean service
/// time is what a request takes on a core of its own at the nominal clock; a load of 1 in the outcome is the
/// pattern.
///
/// ```
/// use world::controlled::server::{Fixed, RunConfig, ServerModel};
/// use world::cores::{Costs, Governance, RunToCompletion, Setup, govern};
/// use queueing::Law;
/// let service = Setup { batch: 64, connections: 200, ..Setup::zygos(Costs::zero(), Law::Exponential, 10.0) };
/// let model = ServerModel::ix().with_unit_rps(1e6 / service.mean_us);
/// let mut all = Fixed::new(&model, model.machine().maximum());
/// let run = RunConfig { duration_s: 1, ..RunConfig::at_hz(10, 1) };
/// let load = |_: u64| 20_000.0;
/// let governance = Governance { model: &model, load: &load, controller: &mut all, run };
/// let (record, _) = govern(&RunToCompletion, &service, governance)?;
/// assert!((record.seconds[0].rps - 20_000.0).abs() < 1_000.0);
/// # Ok::<(), world::cores::WorldError>(())
/// ```
///
/// # Errors
/// As [`simulate`](super::simulate); a controller or a model for another number of threads or flow groups.
pub fn govern<S: Scheduler>(
    scheduler: &S,
    setup: &Setup,
    governance: Governance<'_>,
) -> Result<(Record, Outcome), WorldError> {
    setup.validate()?;
    governance.validate(setup)?;
    let began = std::time::Instant::now();
    let words: Vec<Box<Words>> = (0..setup.cores).map(|_| statseg::words()).collect();
    // As long as the words of what the threads show, and no longer.
    let Governance { model, load, controller, run } = governance;
    let governance = Governance { model, load, controller: &mut *controller, run };
    let duration_ns = run.duration_s * 1_000_000_000;
    let run = Run { seed: run.seed, warmup: 0, ..Run::new(1.0, 1) };
    let mut world = World::new(scheduler, setup, &run, Some((governance, &words)))?;
    let outcome = world.open().and_then(|()| world.measure_governed(&run, duration_ns));
    let record = world.governor.take().map(|governor| governor.record);
    world.close();
    let outcome = outcome.map(|outcome| Outcome { took: began.elapsed(), ..outcome })?;
    Ok((record.unwrap_or_default(), outcome))
}

impl<T: Elastic> World<'_, T> {
    /// The run itself, of so many nanoseconds. What is unanswered at its end stays so: there is more load than cores
    /// where that is much, and the last second tells.
    fn measure_governed(&mut self, run: &Run, duration_ns: u64) -> Result<Outcome, WorldError> {
        let start = self.now.as_nanos() as f64;
        self.began = self.now;
        self.governor.iter_mut().for_each(|governor| governor.start(self.now));
        // The last second is recorded at the window's end.
        let end = start + duration_ns as f64;
        self.window = queueing::Window { start, end };
        self.client.start(self.now, self.window, f64::MAX);
        self.client.recent = Some(Latencies::default());
        while self.now.as_nanos() as f64 <= end {
            self.step("serving a load that changes")?;
        }
        self.check()?;
        Ok(self.outcome(run, false))
    }

    /// What the governor has to do now.
    pub(super) fn govern(&mut self) {
        let now = self.now;
        let Some(governor) = &mut self.governor else { return };
        governor.meter(now, self.cores.iter().map(|core| core.budget.busy_ns()));
        governor.advance(now);
        if governor.turns(now) {
            let mut packets = [0; FLOW_GROUPS];
            for thread in &self.threads {
                let of_thread = thread.inspect(|stack, _| stack.group_packets());
                packets.iter_mut().zip(of_thread).for_each(|(all, of)| *all += of);
            }
            let (samples, groups) = governor.samples(now, &packets);
            governor.turn(now, &samples, &groups);
        }
        if let Some(recent) = &mut self.client.recent {
            governor.second(now, recent);
        }
        self.obey();
    }

    /// A core's step may have ended a migration.
    pub(super) fn after_step(&mut self) {
        if let Some(governor) = self.governor.as_mut().filter(|governor| governor.is_moving()) {
            governor.advance(self.now);
            self.obey();
        }
    }

    fn obey(&mut self) {
        let orders = self.governor.as_mut().map(|governor| std::mem::take(&mut governor.orders));
        for order in orders.unwrap_or_default() {
            match order {
                Order::SetParked(core, parked) => {
                    self.threads[core].set_parked(parked);
                    self.wake_one(core, self.now);
                }
                Order::Halt(ns) => (0..self.cores.len()).for_each(|core| self.take_from(core, ns)),
                Order::Rouse(core) => self.wake_one(core, self.now),
            }
        }
    }

    /// How many times as long as the costs say a step of this core takes.
    pub(super) fn slow(&self, core: usize) -> f64 {
        self.governor.as_ref().map_or(1.0, |governor| governor.slow[core])
    }
}
