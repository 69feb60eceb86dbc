//! What is known of connections that are not open yet, and where it is kept.
//!
//! The code that answers is in `half_open` and `listen`.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use wire::{FlowKey, SeqNumber};

use super::conn::DEFAULT_MSS;
use super::fields::Segment;
use super::table::FlowTable;
use crate::wheel::ticks;

/// Retransmissions of a SYN-ACK at most: who never acknowledges one keeps a place in the backlog for 63 s.
pub(crate) const RETRIES: usize = 5;
/// How long the first SYN-ACK waits for its acknowledgment (RFC 6298 §2.1); the next ones twice as long each.
const FIRST_WAIT: core::time::Duration = core::time::Duration::from_secs(1);
/// How long the first one waits that could not be sent, for want of memory or of room towards the device.
const UNSENT_WAIT: core::time::Duration = core::time::Duration::from_millis(10);

/// Below this a peer asks for nothing but work (RFC 9293 §3.7.1 allows a floor).
const MIN_MSS: u16 = 64;

/// What the two SYNs of a handshake have agreed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handshake {
    /// Our initial sequence number.
    pub iss: SeqNumber,
    /// The peer's.
    pub irs: SeqNumber,
    /// The MSS that the peer announced, before options.
    pub mss: u16,
    /// Shift of the windows that the peer announces; `None`: neither end scales.
    pub window_scale: Option<u8>,
    /// The peer's timestamp; `None`: neither end sends them.
    pub ts_recent: Option<u32>,
    /// Whether both ends take selective acknowledgments.
    pub sack: bool,
    /// Whether they agreed on explicit congestion notification.
    pub ecn: bool,
}

impl Handshake {
    /// What a SYN agrees on, with `iss` as our number.
    pub fn of_syn(segment: &Segment, iss: SeqNumber, ecn: bool) -> Self {
        Self {
            iss,
            irs: segment.seq,
            mss: segment.syn.mss.unwrap_or(DEFAULT_MSS).max(MIN_MSS),
            window_scale: segment.syn.window_scale,
            ts_recent: segment.timestamp.map(|stamp| stamp.value),
            sack: segment.syn.sack_permitted,
            ecn,
        }
    }
}

/// A SYN was answered, and its answer is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub flow: FlowKey,
    pub handshake: Handshake,
    /// When the last SYN-ACK left; 0: none has.
    pub sent_at_ns: u64,
    /// When a segment that did not open it was last answered, in ticks of the timestamp clock.
    pub answered_at: Option<u32>,
    /// Counts the half-open connections that have had this slot.
    pub generation: u32,
    /// SYN-ACKs that were tried; 0: the slot is free.
    pub tried: u8,
}

/// A half-open connection that has waited long enough at `tick`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub tick: u64,
    pub slot: u32,
    pub generation: u32,
}

/// The half-open connections of a flow group.
#[derive(Debug, Default)]
pub(crate) struct HalfOpens {
    slots: Vec<HalfOpen>,
    free: Vec<u32>,
    /// By the hash of their ends.
    table: FlowTable,
    /// When to look at them, by the SYN-ACKs that were tried: all of one queue wait equally long. The first queue is of
    /// those whose first one could not be sent. Some may have ended.
    due: [VecDeque<Due>; RETRIES + 2],
}

impl HalfOpens {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of their state.
    pub fn bytes(&self) -> usize {
        let due = self.due.iter().map(|queue| queue.capacity() * size_of::<Due>());
        self.slots.capacity() * size_of::<HalfOpen>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.bytes()
            + due.sum::<usize>()
    }

    /// The one in a slot.
    pub fn at(&mut self, slot: u32) -> &mut HalfOpen {
        &mut self.slots[slot as usize]
    }

    /// Slots that there are, free ones among them.
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The one in a slot, where there is one.
    pub fn get(&self, slot: u32) -> Option<HalfOpen> {
        self.slots.get(slot as usize).filter(|half| half.tried > 0).copied()
    }

    /// The next tick at which one has waited long enough.
    pub fn next_due(&self) -> u64 {
        let fronts = self.due.iter().filter_map(|queue| queue.front());
        fronts.map(|due| due.tick).min().unwrap_or(u64::MAX)
    }

    /// All.
    #[cfg(test)]
    pub fn all(&self) -> Vec<HalfOpen> {
        let taken = (0..self.slots.len()).filter(|&slot| !self.free.contains(&(slot as u32)));
        taken.map(|slot| self.slots[slot]).collect()
    }

    /// Some one.
    pub fn first(&self) -> Option<(u32, HalfOpen)> {
        let slot = self.table.any()?;
        Some((slot, self.slots[slot as usize]))
    }

    /// The one between these ends.
    pub fn find(&self, hash: u32, flow: FlowKey) -> Option<u32> {
        self.table.find(hash, |slot| self.slots[slot as usize].flow == flow)
    }

    /// Enters one, and answers its slot.
    pub fn insert(&mut self, hash: u32, half: HalfOpen) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(free) => *free = HalfOpen { generation: free.generation.wrapping_add(1), ..half },
            None => self.slots.push(half),
        }
        self.table.insert(hash, slot);
        slot
    }

    /// Takes one out.
    pub fn remove(&mut self, hash: u32, slot: u32) -> HalfOpen {
        self.table.remove(hash, slot);
        self.free.push(slot);
        let half = &mut self.slots[slot as usize];
        half.generation = half.generation.wrapping_add(1);
        let removed = *half;
        half.tried = 0;
        // Nearly always those that came first end first: the queues are as long as there are half-open connections.
        let Self { slots, due, .. } = self;
        for queue in due {
            while queue
                .front()
                .is_some_and(|due| slots[due.slot as usize].generation != due.generation)
            {
                queue.pop_front();
            }
        }
        removed
    }

    /// Takes one that has waited long enough at `tick` off its queue; some may have ended.
    pub fn pop_due(&mut self, tick: u64) -> Option<Due> {
        let is_due = |queue: &&mut VecDeque<Due>| queue.front().is_some_and(|due| due.tick <= tick);
        self.due.iter_mut().find(is_due)?.pop_front()
    }

    /// Has one looked at after its wait. Answers the tick.
    pub fn wait(&mut self, slot: u32, now: u64) -> u64 {
        let Self { slots, due, .. } = self;
        let HalfOpen { generation, tried, sent_at_ns, .. } = slots[slot as usize];
        let (queue, wait) = match tried {
            ..=1 if sent_at_ns == 0 => (0, ticks(UNSENT_WAIT)),
            _ => (usize::from(tried), ticks(FIRST_WAIT) << (tried - 1)),
        };
        due[queue].push_back(Due { tick: now + wait, slot, generation });
        now + wait
    }
}
