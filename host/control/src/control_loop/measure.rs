//! From samples to what the policy sees.

use crate::metrics::{Averages, Ewma, GroupSample, Sample, ThreadId};
use crate::policy::{Batching, View};

use super::batching::CycleCost;

/// A thread that says nothing for so long has an application that does not return (IX §4.7), in nanoseconds.
pub(super) const UNRESPONSIVE_NS: u64 = 10_000_000;
/// The load of each flow group is averaged over this, in nanoseconds.
const GROUP_HORIZON_NS: f64 = 2e9;
/// The service time is averaged over this, in nanoseconds.
const CAPACITY_HORIZON_NS: f64 = 200e6;
/// Packets that must have been served before a service time is believed, in as many periods as it takes.
const SERVED_MIN: f64 = 50.0;
/// But within this, in nanoseconds: where less is served, busy time is mostly other things.
const SERVED_WITHIN_NS: f64 = 1e9;

#[derive(Debug)]
struct Thread {
    delay: Averages,
    waiting: Ewma,
    /// Packets that waited in the ring at the last sample.
    last_waiting: f64,
    last_seen_ns: u64,
    /// For how long it has been in one cycle.
    silent_ns: u64,
}

#[derive(Debug)]
pub(super) struct Measurements {
    horizons_ns: [f64; 3],
    threads: Vec<Thread>,
    group_loads: Vec<Ewma>,
    idle: Averages,
    arrivals: Averages,
    arrivals_now_per_s: f64,
    /// Which threads gave the latest samples.
    present: Vec<ThreadId>,
    /// Of the latest samples: packets, busy time, the longest period.
    packets: f64,
    cycles: f64,
    busy_ns: f64,
    period_ns: u64,
    batch_max: u32,
    served: Served,
    capacity_per_speed: Ewma,
    /// Packets of a cycle, over the same time.
    batch: Ewma,
    cycle_cost: CycleCost,
}

/// What was served since the capacity was last learned.
#[derive(Debug, Default)]
struct Served {
    packets: f64,
    cycles: f64,
    /// The busy time that a configuration of speed 1 would have taken, of all its threads together.
    busy_ns: f64,
    over_ns: f64,
}

impl Measurements {
    pub fn new(horizons_ns: [f64; 3], threads: usize, groups: usize) -> Self {
        let thread = || Thread {
            delay: Averages::new(horizons_ns),
            waiting: Ewma::new(horizons_ns[0]),
            last_waiting: 0.0,
            last_seen_ns: 0,
            silent_ns: 0,
        };
        Self {
            threads: (0..threads).map(|_| thread()).collect(),
            group_loads: vec![Ewma::new(GROUP_HORIZON_NS); groups],
            idle: Averages::new(horizons_ns),
            arrivals: Averages::new(horizons_ns),
            arrivals_now_per_s: 0.0,
            present: Vec::new(),
            packets: 0.0,
            cycles: 0.0,
            busy_ns: 0.0,
            period_ns: 0,
            batch_max: 1,
            served: Served::default(),
            capacity_per_speed: Ewma::new(CAPACITY_HORIZON_NS),
            batch: Ewma::new(CAPACITY_HORIZON_NS),
            cycle_cost: CycleCost::default(),
            horizons_ns,
        }
    }

    /// Begins the averages anew, after a gap. Loads of groups and the service time stay: they change slowly.
    pub fn forget(&mut self, now_ns: u64) {
        let fresh = Self::new(self.horizons_ns, self.threads.len(), 0);
        (self.idle, self.arrivals) = (fresh.idle, fresh.arrivals);
        self.threads = fresh.threads;
        for thread in &mut self.threads {
            thread.last_seen_ns = now_ns;
        }
    }

    pub fn take(&mut self, now_ns: u64, samples: &[Sample], groups: &[GroupSample]) {
        self.present.clear();
        (self.packets, self.cycles, self.busy_ns, self.period_ns) = (0.0, 0.0, 0.0, 0);
        let (mut idle, mut arrivals_per_s) = (0.0, 0.0);
        for sample in samples.iter().filter(|sample| sample.period_ns > 0) {
            let Some(thread) = self.threads.get_mut(usize::from(sample.thread.0)) else {
                continue;
            };
            let period_ns = sample.period_ns as f64;
            thread.last_seen_ns = now_ns;
            let packets = sample.packets as f64;
            // In the midst of one long cycle nothing is seen, neither work nor its absence: what was seen last holds.
            if sample.is_blind() {
                thread.silent_ns += sample.period_ns;
            } else {
                thread.silent_ns = 0;
                thread.delay.add(sample.delay_ns(), period_ns);
                thread.waiting.add(sample.waiting(), period_ns);
                // What came in is what was taken and what waits more than before in the ring: connections that are
                // ready have been taken.
                let came = (packets + sample.queue_packets - thread.last_waiting).max(0.0);
                thread.last_waiting = sample.queue_packets;
                arrivals_per_s += came * 1e9 / period_ns;
            }
            idle += sample.idle;
            self.packets += packets;
            if sample.batch_packets > 0.0 {
                self.cycles += packets / sample.batch_packets;
            }
            self.batch_max = sample.batch_max;
            self.busy_ns += (1.0 - sample.idle) * period_ns;
            self.period_ns = self.period_ns.max(sample.period_ns);
            self.present.push(sample.thread);
        }
        if !self.present.is_empty() {
            let period_ns = self.period_ns as f64;
            self.arrivals_now_per_s = arrivals_per_s;
            self.arrivals.add(arrivals_per_s, period_ns);
            self.idle.add(idle / self.present.len() as f64, period_ns);
        }
        for group in groups.iter().filter(|group| group.period_ns > 0) {
            if let Some(load) = self.group_loads.get_mut(usize::from(group.group.0)) {
                let period_ns = group.period_ns as f64;
                load.add(group.packets as f64 * 1e9 / period_ns, period_ns);
            }
        }
    }

    /// Nothing was measured this time, or ever: no reason to change anything.
    pub fn is_blind(&self) -> bool {
        self.present.is_empty()
    }

    pub fn gave_sample(&self, thread: ThreadId) -> bool {
        self.present.contains(&thread)
    }

    /// For how long a thread has given no sample.
    pub fn unseen_ns(&self, thread: ThreadId, now_ns: u64) -> u64 {
        let last_ns = self.threads.get(usize::from(thread.0)).map_or(0, |t| t.last_seen_ns);
        now_ns.saturating_sub(last_ns)
    }

    /// A thread that begins to run has not been seen before.
    pub fn begins(&mut self, thread: ThreadId, now_ns: u64) {
        let fresh = Averages::new(self.horizons_ns);
        if let Some(thread) = self.threads.get_mut(usize::from(thread.0)) {
            thread.last_seen_ns = now_ns;
            thread.delay = fresh;
            thread.last_waiting = 0.0;
            thread.silent_ns = 0;
        }
    }

    /// Whether a thread became unresponsive with the latest sample.
    pub fn became_unresponsive(&self, sample: &Sample) -> bool {
        self.threads.get(usize::from(sample.thread.0)).is_some_and(|thread| {
            let before_ns = thread.silent_ns.saturating_sub(sample.period_ns);
            thread.silent_ns >= UNRESPONSIVE_NS && before_ns < UNRESPONSIVE_NS
        })
    }

    /// Learns what the threads can serve from the service time, referred to a configuration's `speed`.
    pub fn learn_capacity(&mut self, speed: f64) {
        if self.present.is_empty() || speed <= 0.0 {
            return;
        }
        let served = &mut self.served;
        let busy_ns = self.busy_ns * speed / self.present.len() as f64;
        served.packets += self.packets;
        served.cycles += self.cycles;
        served.busy_ns += busy_ns;
        served.over_ns += self.period_ns as f64;
        self.cycle_cost.add(self.period_ns as f64, self.cycles, self.packets, busy_ns);
        if served.packets >= SERVED_MIN && served.busy_ns > 0.0 {
            let capacity_per_speed = served.packets / served.busy_ns * 1e9;
            self.capacity_per_speed.add(capacity_per_speed, served.over_ns);
            self.batch.add(served.packets / served.cycles.max(1.0), served.over_ns);
        } else if served.over_ns < SERVED_WITHIN_NS {
            return;
        }
        self.served = Served::default();
    }

    pub fn group_loads(&self) -> Vec<f64> {
        self.group_loads.iter().map(Ewma::get).collect()
    }

    /// What of the view is measured.
    pub fn view(&self) -> View {
        let of_present = |value: fn(&Thread) -> f64| {
            let threads = &self.threads;
            self.present.iter().map(move |thread| value(&threads[usize::from(thread.0)]))
        };
        let count = self.present.len().max(1) as f64;
        let capacity = &self.capacity_per_speed;
        View {
            now_ns: 0,
            period_ns: self.period_ns,
            at: 0,
            settled: false,
            delay_ns: of_present(|thread| thread.delay.fast.get()).fold(0.0, f64::max),
            slow_delay_ns: of_present(|thread| thread.delay.slow.get()).sum::<f64>() / count,
            idle: self.idle.fast.get(),
            waiting_packets: of_present(|thread| thread.waiting.get()).sum(),
            arrivals_now_per_s: self.arrivals_now_per_s,
            arrivals_per_s: [
                self.arrivals.fast.get(),
                self.arrivals.middle.get(),
                self.arrivals.slow.get(),
            ],
            capacity_per_speed: (!capacity.is_empty()).then(|| capacity.get()),
            batching: Batching {
                cycle_ns: self.cycle_cost.least_ns(),
                batch: self.batch.get().max(1.0),
                batch_max: self.batch_max.max(1).into(),
            },
            imbalance: 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD_NS: u64 = 1_000_000;

    /// A thread that is busy for `busy` of a period of a millisecond and takes so many packets.
    fn sample(packets: u64, busy: f64) -> Sample {
        Sample {
            thread: ThreadId(0),
            period_ns: PERIOD_NS,
            packets,
            queue_packets: 1.0,
            ready: 0.0,
            ready_ns: 0.0,
            iteration_ns: 500_000.0,
            batch_packets: 1.0,
            idle: 1.0 - busy,
            oldest_waiting_ns: 0,
            batch_max: 64,
        }
    }

    fn measurements() -> Measurements {
        Measurements::new([2e6, 25e6, 500e6], 1, 1)
    }

    fn turns(measured: &mut Measurements, count: u64, speed: f64, samples: &[Sample]) {
        for turn in 0..count {
            measured.take(turn * PERIOD_NS, samples, &[]);
            measured.learn_capacity(speed);
        }
    }

    #[test]
    fn few_packets_a_period_tell_the_capacity_in_time() {
        let mut measured = measurements();
        turns(&mut measured, 24, 0.5, &[sample(2, 1.0)]);
        assert_eq!(measured.view().capacity_per_speed, None, "48 packets say little");
        turns(&mut measured, 1, 0.5, &[sample(2, 1.0)]);
        // 2,000 a second at half the speed; a quarter of the load says the same.
        let found = measured.view().capacity_per_speed.expect("50 packets");
        assert!((found - 4_000.0).abs() < 1e-6, "{found}");
        turns(&mut measured, 200, 0.5, &[sample(1, 0.5)]);
        let found = measured.view().capacity_per_speed.expect("as before");
        assert!((found - 4_000.0).abs() < 1e-6, "{found}");
        // Half as fast from now on.
        turns(&mut measured, 2_000, 0.5, &[sample(1, 1.0)]);
        let found = measured.view().capacity_per_speed.expect("as before");
        assert!((found - 2_000.0).abs() < 1.0, "{found}");
    }

    #[test]
    fn a_packet_now_and_then_tells_nothing_of_the_capacity() {
        let mut measured = measurements();
        // Busy with other things nearly all of the time.
        for _ in 0..10_000 {
            turns(&mut measured, 1, 1.0, &[sample(1, 0.1)]);
            turns(&mut measured, 99, 1.0, &[sample(0, 0.1)]);
        }
        assert_eq!(measured.view().capacity_per_speed, None);
    }

    #[test]
    fn in_a_long_cycle_the_last_look_holds() {
        let mut measured = measurements();
        let waiting = Sample { queue_packets: 9.0, ready: 3.0, ready_ns: 1e6, ..sample(2, 1.0) };
        turns(&mut measured, 50, 1.0, &[waiting]);
        let before = measured.view();
        assert_eq!((before.waiting_packets, before.delay_ns), (12.0, 1.5e6));
        let nothing = Sample { queue_packets: 0.0, iteration_ns: 0.0, ..sample(0, 1.0) };
        turns(&mut measured, 50, 1.0, &[nothing]);
        let after = measured.view();
        assert_eq!((after.waiting_packets, after.delay_ns), (12.0, 1.5e6));
        // What had waited is not taken for what has come.
        turns(&mut measured, 1, 1.0, &[waiting]);
        assert_eq!(measured.view().arrivals_now_per_s, 2_000.0);
    }

    #[test]
    fn what_became_ready_has_arrived_once() {
        let mut measured = measurements();
        let ready = |ready: f64| Sample { ready, ..sample(10, 1.0) };
        turns(&mut measured, 1, 1.0, &[ready(0.0)]);
        turns(&mut measured, 1, 1.0, &[ready(64.0)]);
        assert_eq!(measured.view().arrivals_now_per_s, 10_000.0);
    }
}
