//! The new home's end of migrations: what comes before its group does waits, in order. See the parent's
//! comment.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::Instant;
use mem::Mbuf;
use stack::{Elsewhere, FORWARDED, GroupSet};

use super::{MoveId, Parcel};

/// Groups that are on their way here.
#[derive(Debug)]
struct Expected {
    id: MoveId,
    set: GroupSet,
    /// Its old home knows that a packet has come.
    met: bool,
}

/// Groups that are here, as long as not all of their deferred packets are processed.
#[derive(Debug)]
struct Deferring {
    id: MoveId,
    set: GroupSet,
    /// Deferred packets, and those of them that are not processed.
    packets: u32,
    left: usize,
    adopted_at: Instant,
}

/// How a migration ended, as its new home knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub packets: u32,
    pub adopted_at: Instant,
    pub done_at: Instant,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    expected: Vec<Expected>,
    /// Packets whose group is not here yet, in the order in which they came.
    parked: VecDeque<(u16, Mbuf)>,
    most_parked: usize,
    /// Packets whose group has come, or does not come, with the migration that it was: before all others.
    deferred: VecDeque<(MoveId, Mbuf)>,
    deferring: VecDeque<Deferring>,
    /// Groups that have come and are not taken in yet.
    pub parcels: VecDeque<Parcel>,
    /// Calls whose group is not here yet.
    pub calls: Vec<Elsewhere>,
}

impl Arrivals {
    pub fn new(most_parked: usize) -> Self {
        Self { most_parked, ..Self::default() }
    }

    /// Whether there is nothing to be done, nor waited for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
            && self.parked.is_empty()
            && self.deferred.is_empty()
            && self.deferring.is_empty()
            && self.parcels.is_empty()
            && self.calls.is_empty()
    }

    /// Groups are going to come. Answers whether a packet has come before this word did, out of the own ring.
    pub fn expect(&mut self, id: MoveId, set: GroupSet) -> bool {
        let met = self.parked.iter().any(|(group, mbuf)| set.has(*group) && is_direct(mbuf));
        self.expected.push(Expected { id, set, met });
        met
    }

    /// A packet has come whose group has not. Answers the migration whose old home does not know of that, where
    /// the packet came out of the own receive ring.
    ///
    /// # Errors
    /// The packet comes back where no room is left.
    pub fn park(&mut self, group: u16, mbuf: Mbuf) -> Result<Option<MoveId>, Mbuf> {
        if self.parked.len() >= self.most_parked {
            return Err(mbuf);
        }
        let direct = is_direct(&mbuf);
        self.parked.push_back((group, mbuf));
        let found = self.expected.iter_mut().find(|one| direct && one.set.has(group) && !one.met);
        Ok(found.map(|one| {
            one.met = true;
            one.id
        }))
    }

    /// They do not come. What was parked for them is to go where they are.
    pub fn cancel(&mut self, id: MoveId) {
        if let Some(at) = self.expected.iter().position(|one| one.id == id) {
            let set = self.expected.swap_remove(at).set;
            self.defer(id, set);
        }
    }

    /// What is parked of these groups goes before all that is still to come. Answers how many those are.
    fn defer(&mut self, id: MoveId, set: GroupSet) -> usize {
        let before = self.deferred.len();
        for _ in 0..self.parked.len() {
            match self.parked.pop_front() {
                Some((group, mbuf)) if set.has(group) => self.deferred.push_back((id, mbuf)),
                Some(other) => self.parked.push_back(other),
                None => break,
            }
        }
        self.deferred.len() - before
    }

    /// These groups have been taken in. Answers how many packets are deferred.
    pub fn adopted(&mut self, id: MoveId, set: GroupSet, now: Instant) -> usize {
        self.expected.retain(|one| one.id != id);
        let left = self.defer(id, set);
        let packets = left as u32;
        self.deferring.push_back(Deferring { id, set, packets, left, adopted_at: now });
        left
    }

    /// Moves deferred packets, oldest first and at most `limit`, to where a batch is made up.
    pub fn take_deferred(&mut self, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let count = self.deferred.len().min(limit);
        for (id, mbuf) in self.deferred.drain(..count) {
            // Of one that was given up nobody counts them.
            if let Some(one) = self.deferring.iter_mut().find(|one| one.id == id) {
                one.left -= 1;
            }
            out.push(mbuf);
        }
        count
    }

    /// Whether packets are deferred.
    #[inline]
    pub fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// A migration all of whose deferred packets were taken: called when they are processed.
    pub fn finish(&mut self, now: Instant) -> Option<(MoveId, Finished)> {
        let one = self.deferring.pop_front_if(|one| one.left == 0)?;
        let Deferring { id, packets, adopted_at, .. } = one;
        Some((id, Finished { packets, adopted_at, done_at: now }))
    }

    /// Groups that are on their way here, or here and not done with.
    pub fn coming(&self) -> GroupSet {
        let expected = self.expected.iter().map(|one| one.set);
        let parcels = self.parcels.iter().map(|one| one.set);
        let sets = expected.chain(parcels).chain(self.deferring.iter().map(|one| one.set));
        sets.fold(GroupSet::NONE, GroupSet::union)
    }

    /// All packets that wait, for whoever ends: their group does not come any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Mbuf> + '_ {
        self.parked
            .drain(..)
            .map(|(_, mbuf)| mbuf)
            .chain(self.deferred.drain(..).map(|(_, mbuf)| mbuf))
    }

    /// Packets that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.parked.len() + self.deferred.len()
    }
}

/// Whether a packet came out of the own receive ring.
fn is_direct(mbuf: &Mbuf) -> bool {
    mbuf.tag != FORWARDED
}
