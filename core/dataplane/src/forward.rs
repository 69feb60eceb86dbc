//! Packets that arrive at the wrong core (a device without programmable RSS) travel home through
//! single-producer, single-consumer rings, in order (DESIGN §3). What cores tell each other about a
//! migration stands in the same rings, and so in one line with the packets.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use mem::{Mbuf, Pool};
use rtrb::{Consumer, Producer, PushError, RingBuffer};
use shuffle::TryLock;

use crate::message::Message;
use crate::migration::Control;

/// Receiving ends whose cores have left. Others may still send to them: what does is given back when the last
/// core leaves.
type Orphans = TryLock<Vec<Consumer<Message>>>;

/// One core's ends of the rings: towards and from every other core.
///
/// Packets in the rings are lost to their pool unless the last core to leave does so with
/// [`close`](Self::close).
#[derive(Debug, Default)]
pub struct ForwardPorts {
    /// This core.
    core: u8,
    /// By core; `None` for itself.
    to: Vec<Option<Producer<Message>>>,
    /// With the core that sends.
    from: Vec<(u8, Consumer<Message>)>,
    /// Words that found the ring full, by core: what is sent after them waits for them.
    backlog: Vec<VecDeque<Message>>,
    /// How many those are.
    waiting: usize,
    /// Common to all cores.
    orphans: Option<Arc<Orphans>>,
}

/// Rings between each pair of `cores` cores, `capacity` packets each.
pub fn forwarding_mesh(cores: usize, capacity: usize) -> Vec<ForwardPorts> {
    let orphans = Arc::new(Orphans::new(Vec::new()));
    let port = |core| {
        let (to, from, core) = (Vec::new(), Vec::new(), core as u8);
        let backlog = (0..cores).map(|_| VecDeque::new()).collect();
        let orphans = Some(Arc::clone(&orphans));
        ForwardPorts { core, to, from, backlog, waiting: 0, orphans }
    };
    let mut ports: Vec<ForwardPorts> = (0..cores).map(port).collect();
    for sender in 0..cores {
        for receiver in 0..cores {
            let producer = (sender != receiver).then(|| {
                let (producer, consumer) = RingBuffer::new(capacity);
                ports[receiver].from.push((sender as u8, consumer));
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
        if self.waiting > 0 && !self.flush_to(home as usize) {
            return Err(mbuf);
        }
        let Some(Some(producer)) = self.to.get_mut(home as usize) else { return Err(mbuf) };
        match producer.push(Message::Packet(mbuf)) {
            Err(PushError::Full(Message::Packet(mbuf))) => Err(mbuf),
            _ => Ok(()),
        }
    }

    /// Tells core `to` something, behind all that was sent there before. Where the ring is full it waits here.
    ///
    /// # Errors
    /// It comes back where there is no such core.
    pub(crate) fn tell(&mut self, to: u8, control: Control) -> Result<(), Control> {
        let at = to as usize;
        if !matches!(self.to.get(at), Some(Some(_))) {
            return Err(control);
        }
        self.backlog[at].push_back(Message::Control(Box::new(control)));
        self.waiting += 1;
        self.flush_to(at);
        Ok(())
    }

    /// Sends what waits for room. Answers whether nothing does any more.
    pub(crate) fn flush(&mut self) -> bool {
        if self.waiting > 0 {
            for core in 0..self.to.len() {
                self.flush_to(core);
            }
        }
        self.waiting == 0
    }

    #[cold]
    fn flush_to(&mut self, core: usize) -> bool {
        let Some(Some(producer)) = self.to.get_mut(core) else { return false };
        let backlog = &mut self.backlog[core];
        while let Some(message) = backlog.pop_front() {
            if let Err(PushError::Full(message)) = producer.push(message) {
                backlog.push_front(message);
                return false;
            }
            self.waiting -= 1;
        }
        true
    }

    /// Words that wait for room towards core `to`.
    pub(crate) fn backlog(&self, to: u8) -> usize {
        self.backlog.get(to as usize).map_or(0, VecDeque::len)
    }

    /// Takes packets that other cores sent here, at most `limit`, in turn; and words, with who said them. Each
    /// comes behind all packets of its sender that were sent before it.
    pub(crate) fn receive(
        &mut self,
        out: &mut Vec<Mbuf>,
        limit: usize,
        heard: &mut Vec<(u8, Box<Control>)>,
    ) -> usize {
        let mut taken = 0;
        for (sender, consumer) in &mut self.from {
            while taken < limit
                && let Ok(message) = consumer.pop()
            {
                match message {
                    Message::Packet(mbuf) => {
                        out.push(mbuf);
                        taken += 1;
                    }
                    Message::Control(control) => heard.push((*sender, control)),
                }
            }
        }
        taken
    }

    /// Whether packets or words wait here.
    pub fn has_work(&self) -> bool {
        self.from.iter().any(|(_, consumer)| !consumer.is_empty())
    }

    /// How many cores there are: one where there are no rings.
    pub(crate) fn cores(&self) -> u8 {
        self.to.len().max(1) as u8
    }

    /// Cores that send here still, and this one, one bit each: the others have left, and all that they
    /// sent was taken.
    pub(crate) fn alive(&self) -> u128 {
        let alive = self.from.iter().filter(|(_, from)| !from.is_abandoned() || !from.is_empty());
        alive.fold(1 << self.core, |all, (core, _)| all | 1 << core)
    }

    /// Sends nothing any more, so that others need not wait for a word of this core.
    pub(crate) fn fall_silent(&mut self, pool: &mut Pool) -> u64 {
        self.to.iter_mut().for_each(|producer| drop(producer.take()));
        self.waiting = 0;
        let backlog = self.backlog.iter_mut().flat_map(|backlog| backlog.drain(..));
        backlog.map(|message| message.discard(pool)).sum()
    }

    /// Leaves: sends and receives nothing any more. The last core to do so gives back what is left in all
    /// rings. Answers how many peers were to be told that their connection has ended, and are not.
    pub fn close(mut self, pool: &mut Pool) -> u64 {
        let mut untold = self.fall_silent(pool);
        let others = self.hand_over().into_iter().flatten();
        for mut consumer in others {
            while let Ok(message) = consumer.pop() {
                untold += message.discard(pool);
            }
        }
        untold
    }

    /// Gives up all ends. Answers those of all cores where this one is the last.
    fn hand_over(&mut self) -> Option<Vec<Consumer<Message>>> {
        self.to.clear();
        let own = core::mem::take(&mut self.from).into_iter().map(|(_, consumer)| consumer);
        let orphans = self.orphans.take()?;
        loop {
            if let Some(mut orphans) = orphans.try_lock() {
                orphans.extend(own);
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
