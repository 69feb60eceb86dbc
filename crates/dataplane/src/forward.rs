//! Packets that arrive at the wrong core (a device without programmable RSS) travel home through
//! single-producer, single-consumer rings, in order (DESIGN §3).

use alloc::vec::Vec;

use mem::Mbuf;
use rtrb::{Consumer, Producer, RingBuffer};

/// One core's ends of the rings: towards and from every other core.
#[derive(Debug, Default)]
pub struct ForwardPorts {
    /// By core; `None` for itself.
    to: Vec<Option<Producer<Mbuf>>>,
    from: Vec<Consumer<Mbuf>>,
}

/// Rings between each pair of `cores` cores, `capacity` packets each.
pub fn forwarding_mesh(cores: usize, capacity: usize) -> Vec<ForwardPorts> {
    let mut ports: Vec<ForwardPorts> = (0..cores).map(|_| ForwardPorts::default()).collect();
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
}
