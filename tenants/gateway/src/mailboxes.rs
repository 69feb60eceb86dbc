//! Packets that wait for the tenants that they are for, each in a bounded queue.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use sdp::TenantQueue;
use services::BackendId;

/// Packets that wait for one tenant at most; more are dropped and counted.
const WAITING_MAX: usize = 256;
/// Buffers that are kept for packets to come.
const SPARE_MAX: usize = 4_096;

/// A tenant with an address.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) address: Ipv4Addr,
    /// Where it serves the virtual address.
    pub(crate) backend: Option<BackendId>,
    packets: VecDeque<Vec<u8>>,
    /// Its queues whose head waits for a packet.
    receivers: VecDeque<TenantQueue>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Mailboxes {
    by_address: HashMap<Ipv4Addr, u64>,
    by_tenant: HashMap<u64, Attached>,
    spare: Vec<Vec<u8>>,
}

/// What became of a packet for a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// It waits; where a queue is named, its head waits for this packet.
    Waits(Option<TenantQueue>),
    /// Too many wait.
    Full,
    /// Nobody has the address.
    NoSuchAddress,
}

impl Mailboxes {
    pub(crate) fn owner(&self, address: Ipv4Addr) -> Option<u64> {
        self.by_address.get(&address).copied()
    }

    pub(crate) fn tenant(&self, tenant: u64) -> Option<&Attached> {
        self.by_tenant.get(&tenant)
    }

    pub(crate) fn attach(&mut self, tenant: u64, address: Ipv4Addr, backend: Option<BackendId>) {
        let (packets, receivers) = (VecDeque::new(), VecDeque::new());
        self.by_address.insert(address, tenant);
        self.by_tenant.insert(tenant, Attached { address, backend, packets, receivers });
    }

    pub(crate) fn detach(&mut self, tenant: u64) -> Option<Attached> {
        let mut gone = self.by_tenant.remove(&tenant)?;
        self.by_address.remove(&gone.address);
        while let Some(packet) = gone.packets.pop_front() {
            self.give_back(packet);
        }
        Some(gone)
    }

    /// Keeps a copy of a packet for whoever has the address.
    pub(crate) fn post(&mut self, address: Ipv4Addr, packet: &[u8]) -> Posted {
        let tenant = self.by_address.get(&address).and_then(|id| self.by_tenant.get_mut(id));
        let Some(tenant) = tenant else { return Posted::NoSuchAddress };
        if tenant.packets.len() >= WAITING_MAX {
            return Posted::Full;
        }
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.extend_from_slice(packet);
        tenant.packets.push_back(copy);
        Posted::Waits(tenant.receivers.pop_front())
    }

    /// Writes the next packet of a tenant to the start of `out`; its size in bytes. `None`: there is
    /// none yet, and `queue` is remembered.
    pub(crate) fn take(&mut self, queue: TenantQueue, out: &mut [u8]) -> Option<usize> {
        let tenant = self.by_tenant.get_mut(&queue.tenant)?;
        let Some(packet) = tenant.packets.pop_front() else {
            if !tenant.receivers.contains(&queue) {
                tenant.receivers.push_back(queue);
            }
            return None;
        };
        let len = packet.len().min(out.len());
        out[..len].copy_from_slice(&packet[..len]);
        self.give_back(packet);
        Some(len)
    }

    fn give_back(&mut self, mut packet: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            packet.clear();
            self.spare.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);

    fn queue(tenant: u64) -> TenantQueue {
        TenantQueue { tenant, queue: 3 }
    }

    #[test]
    fn packets_wait_in_order_and_wake_who_waits_for_them() {
        let mut boxes = Mailboxes::default();
        assert_eq!(boxes.post(A, b"x"), Posted::NoSuchAddress);
        boxes.attach(7, A, None);
        let mut out = [0; 8];
        assert_eq!((boxes.take(queue(7), &mut out), boxes.take(queue(7), &mut out)), (None, None));
        assert_eq!(boxes.post(A, b"first"), Posted::Waits(Some(queue(7))));
        assert_eq!(boxes.post(A, b"second"), Posted::Waits(None), "it waits once");
        assert_eq!((boxes.take(queue(7), &mut out), &out[..5]), (Some(5), &b"first"[..]));
        assert_eq!((boxes.take(queue(7), &mut out), &out[..6]), (Some(6), &b"second"[..]));
    }

    #[test]
    fn a_tenant_that_does_not_receive_fills_its_own_box_alone() {
        let mut boxes = Mailboxes::default();
        boxes.attach(7, A, None);
        boxes.attach(8, Ipv4Addr::new(10, 8, 0, 2), None);
        for _ in 0..WAITING_MAX {
            assert_eq!(boxes.post(A, b"x"), Posted::Waits(None));
        }
        assert_eq!(boxes.post(A, b"x"), Posted::Full);
        assert_eq!(boxes.post(Ipv4Addr::new(10, 8, 0, 2), b"x"), Posted::Waits(None));
        assert_eq!(boxes.detach(7).map(|gone| gone.address), Some(A));
        assert_eq!((boxes.owner(A), boxes.detach(7).is_none()), (None, true));
        assert_eq!(boxes.spare.len(), WAITING_MAX, "their memory is used again");
    }
}
