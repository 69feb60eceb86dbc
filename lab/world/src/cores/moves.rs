//! A controller that cannot decide: it moves flow groups from core to core all the time.
//!
//! What a migration costs the cores is not charged: its time is what it waits for.

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{Elastic, GroupSet, MoveCommand, MoveControl};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use stack::{FLOW_GROUPS, Shared};

use crate::device::Device;

/// Commands of one core that may be without a report.
const MAILBOX: usize = 4;

/// See the module's comment.
pub(crate) struct Moves {
    controls: Vec<MoveControl>,
    shared: Arc<Shared>,
    every_ns: u64,
    /// When it next asks for something.
    pub next: Instant,
    random: Xoshiro256PlusPlus,
    /// Migrations that were asked for.
    asked: u64,
}

impl Moves {
    /// A controller of these threads.
    pub fn new<T: Elastic>(
        threads: &mut [T],
        device: &Arc<Device>,
        every_ns: u64,
        seed: u64,
    ) -> Self {
        Self {
            controls: threads.iter_mut().map(|thread| device.govern(thread, MAILBOX)).collect(),
            shared: Arc::clone(&device.shared),
            every_ns,
            next: Instant::FAR_FUTURE,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            asked: 0,
        }
    }

    /// Asks for a migration. Answers the core that was asked.
    pub fn act(&mut self, now: Instant) -> Option<usize> {
        let Self { controls, random, shared, .. } = self;
        self.next = now + Duration::from_nanos(random.random_range(1..=2 * self.every_ns));
        for control in controls.iter_mut() {
            while control.report().is_some() {}
        }
        let cores = controls.len();
        let from = random.random_range(0..cores);
        let to = (from + random.random_range(1..cores.max(2))) % cores;
        let share: f64 = random.random();
        let at_home = |group: &u16| {
            usize::from(shared.home_of(*group)) == from && random.random::<f64>() < share
        };
        let groups: GroupSet = (0..FLOW_GROUPS as u16).filter(at_home).collect();
        if groups.is_empty() || from == to {
            return None;
        }
        let command = MoveCommand { token: self.asked, groups, to: to as u8 };
        self.asked += 1;
        controls[from].post(command).is_ok().then_some(from)
    }
}
