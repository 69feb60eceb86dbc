//! Packets that arrive at the wrong core (a device without programmable RSS) travel home through
//! single-producer, single-consumer rings, in order (DESIGN §3).

use alloc::sync::Arc;
use alloc::vec::Vec;

use mem::{Mbuf, Pool};
use rtrb::{Consumer, Producer, RingBuffer};
use shuffle::TryLock;

/// Receiving ends whose cores have left. Others may still send to them: what does is given back when the last
/// core leaves.
type Orphans = TryLock<Vec<Consumer<Mbuf>>>;

/// One core's ends of the rings: towards and from every other core.
///
/// Packets in the rings are lost to their pool unless the last core to leave does so with
/// [`close`](Self::close).
#[derive(Debug, Default)]
pub struct ForwardPorts {
    /// By core; `None` for itself.
    to: Vec<Option<Producer<Mbuf>>>,
    from: Vec<Consumer<Mbuf>>,
    /// Common to all cores.
    orphans: Option<Arc<Orphans>>,
}

/// Rings between each pair of `cores` cores, `capacity` packets each.
pub fn forwarding_mesh(cores: usize, capacity: usize) -> Vec<ForwardPorts> {
    let orphans = Arc::new(Orphans::new(Vec::new()));
    let port = |_| {
        let (to, from) = (Vec::new(), Vec::new());
        ForwardPorts { to, from, orphans: Some(Arc::clone(&orphans)) }
    };
    let mut ports: Vec<ForwardPorts> = (0..cores).map(port).collect();
    for sender in 0..cores {
        for receiver in 0..cores {
            let producer = (sender != receiver).then(|| {
                let (producer, consumer) = RingBuffer::new(capacity);
                ports[receiver].from.push(consumer);
                producer
            });
            ports[sender].to.push(producer);
        }
    }
    ports
}

impl ForwardPorts {
    /// Sends a packet to core `home`.
    ///
    /// # Errors
    /// The packet comes back where the ring is full, or there is no such core: drop and count it.
    pub fn send(&mut self, home: u8, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.to.get_mut(home as usize) {
            Some(Some(producer)) => producer.push(mbuf).map_err(|rtrb::PushError::Full(mbuf)| mbuf),
            _ => Err(mbuf),
        }
    }

    /// Takes packets that other cores sent here, at most `limit`, in turn.
    pub fn receive(&mut self, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let mut taken = 0;
        for consumer in &mut self.from {
            while taken < limit
                && let Ok(mbuf) = consumer.pop()
            {
                out.push(mbuf);
                taken += 1;
            }
        }
        taken
    }

    /// Whether packets wait here.
    pub fn has_work(&self) -> bool {
        self.from.iter().any(|consumer| !consumer.is_empty())
    }

    /// Leaves: sends and receives nothing any more. The last core to do so gives back what is left in all
    /// rings.
    pub fn close(mut self, pool: &mut Pool) {
        let others = self.hand_over().into_iter().flatten();
        for mut consumer in others.chain(core::mem::take(&mut self.from)) {
            while let Ok(mbuf) = consumer.pop() {
                pool.free(mbuf);
            }
        }
    }

    /// Gives up all ends. Answers those of all cores where this one is the last.
    fn hand_over(&mut self) -> Option<Vec<Consumer<Mbuf>>> {
        self.to.clear();
        let orphans = self.orphans.take()?;
        loop {
            if let Some(mut orphans) = orphans.try_lock() {
                orphans.append(&mut self.from);
                break;
            }
            // Whoever has it does just this.
            core::hint::spin_loop();
        }
        Arc::into_inner(orphans).map(TryLock::into_inner)
    }
}

impl Drop for ForwardPorts {
    fn drop(&mut self) {
        self.hand_over();
    }
}
