//! Two queue pairs as the client sees them: one wire that brings each frame to the core where its flow is at
//! home, as a NIC with programmable RSS does.

use std::sync::Arc;

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use nic::shm::ShmNic;
use nic::{Capabilities, Closed, Nic, NicStats};
use stack::Shared;

use crate::device::group_of;

/// See the module's comment.
pub struct Split {
    server: Arc<Shared>,
    ends: Vec<(ShmNic, Vec<TxFrame>)>,
}

impl Split {
    /// The client's ends of the wires to the cores of the dataplane that `server` describes.
    pub fn new(server: Arc<Shared>, ends: Vec<ShmNic>) -> Self {
        Self { server, ends: ends.into_iter().map(|end| (end, Vec::new())).collect() }
    }

    /// The core at which the frame's flow is at home; the first for what is no flow.
    fn home_of(&self, frame: &[u8]) -> usize {
        group_of(&self.server, frame).map_or(0, |group| self.server.home_of(group).into())
    }
}

impl Nic for Split {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let mut received = 0;
        for (end, _) in &mut self.ends {
            received += end.receive(now, pool, out, limit - received);
        }
        received
    }

    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let taken = frames.len();
        for frame in frames.drain(..) {
            let home = self.home_of(frame.bytes()).min(self.ends.len() - 1);
            self.ends[home].1.push(frame);
        }
        for (end, waiting) in &mut self.ends {
            end.transmit(now, pool, waiting);
        }
        taken
    }

    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        self.ends.iter_mut().map(|(end, _)| end.reclaim(pool)).sum()
    }

    fn close(self, pool: &mut Pool) -> Closed {
        let mut closed = Closed::default();
        for (end, waiting) in self.ends {
            closed.returned += waiting.len() as u32;
            waiting.into_iter().for_each(|frame| pool.complete(frame));
            closed += end.close(pool);
        }
        closed
    }

    fn in_flight(&self) -> usize {
        self.ends.iter().map(|(end, waiting)| end.in_flight() + waiting.len()).sum()
    }

    fn capabilities(&self) -> Capabilities {
        self.ends[0].0.capabilities()
    }

    fn stats(&self) -> NicStats {
        self.ends[0].0.stats()
    }
}
