//! A device with an indirection table that the cores write (IX §4.5), and what lies between the table and their
//! receive queues: a frame whose queue is chosen is in that queue a while later, behind all that were chosen for
//! it before, and in no order with those of other queues.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::{DeviceTable, GroupSet, Redirected};
use stack::{FLOW_GROUPS, Shared};

use crate::network::Network;

/// One for each host that has such a device. Behind locks only since what a thread owns is to be `Send`.
#[derive(Debug)]
pub(super) struct Device {
    entries: Vec<AtomicU8>,
    /// Probes that were asked for, each with the queue that it is for.
    probes: Option<Mutex<Vec<(u8, u64)>>>,
    next_token: AtomicU64,
}

/// A core's access to it.
#[derive(Debug)]
pub(super) struct CoreTable(pub Arc<Device>);

impl Device {
    /// The table as `shared` deals out the groups.
    pub fn new(shared: &Shared, probes: bool) -> Arc<Self> {
        let entries = (0..FLOW_GROUPS as u16).map(|group| AtomicU8::new(shared.home_of(group)));
        let probes = probes.then(Mutex::default);
        Arc::new(Self { entries: entries.collect(), probes, next_token: AtomicU64::new(1) })
    }

    /// The queue of a flow group.
    pub fn queue_of(&self, group: u16) -> usize {
        self.entries[usize::from(group)].load(Ordering::Relaxed).into()
    }

    fn asked(probes: &Mutex<Vec<(u8, u64)>>) -> MutexGuard<'_, Vec<(u8, u64)>> {
        probes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the probes that were asked for on their way to `port`.
    pub fn send_probes(
        &self,
        shared: &Shared,
        network: &mut Network,
        port: usize,
        now: clock::Instant,
    ) {
        let asked = self.probes.iter().flat_map(|probes| std::mem::take(&mut *Self::asked(probes)));
        for (queue, token) in asked {
            let frame = nic::probe::frame(shared.config.mac, shared.config.address, token);
            network.inject(now, port, queue.into(), frame.to_vec());
        }
    }
}

impl DeviceTable for CoreTable {
    fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Redirected {
        let Device { entries, probes, next_token } = &*self.0;
        for group in groups.iter() {
            let before = entries[usize::from(group)].swap(to, Ordering::Relaxed);
            assert_eq!(before, from, "the table follows the homes");
        }
        let Some(probes) = probes else { return Redirected::Yes };
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        Device::asked(probes).push((from, token));
        Redirected::Probed(token)
    }
}
