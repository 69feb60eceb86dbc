//! A flow group apart from the core that it was at home on, with what that core had noted about it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use domain::{EventRecord, Handle};
use mem::Pool;

use crate::pairs::PairTable;
use crate::tcp::close;
use crate::tcp::group::FlowGroup;
use crate::wheel::Entry;

/// A flow group that takes nothing in, with what the core had noted about its connections.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(super) group: Box<FlowGroup>,
    /// The addresses of its connections.
    pub(super) pairs: Option<Box<PairTable>>,
    /// Entries of the wheel: those that fired since, and all once it is packed.
    pub(super) entries: Vec<Entry>,
    /// Slots that step 6 is to look at.
    pub(super) pending: Vec<u32>,
    /// Slots with received bytes that the application has not been told of.
    pub(super) undelivered: Vec<u32>,
    pub(super) again: Vec<Handle>,
    pub(super) late_events: Vec<EventRecord>,
}

/// What a [`PackedGroup`](crate::PackedGroup) is made of.
#[derive(Debug)]
pub(crate) struct Baggage {
    pub(super) sealed: Sealed,
    /// Received buffers that its connections keep: they count against the memory of the core that has it.
    pub(super) kept: u32,
}

impl Baggage {
    pub fn group(&self) -> u16 {
        self.sealed.group.index
    }

    pub fn connections(&self) -> usize {
        self.sealed.group.connections()
    }

    pub fn discard(mut self, pool: &mut Pool) -> u64 {
        // They are counted by no pool now, and by this one when they are given back.
        (0..self.kept).for_each(|_| pool.keep());
        let group = &mut self.sealed.group;
        let mut untold = group.half_open.len() as u64;
        for slot in 0..group.slots.capacity() {
            untold += u64::from(close::owes_reset(group.slots.hot(slot)));
            group.release_buffers(slot, pool);
        }
        untold
    }
}

/// An entry fired whose flow group is not here: it is asked for where the group goes.
#[cold]
pub(crate) fn put_off(sealed: &mut [Sealed], group: u16, entry: Entry) {
    if let Some(sealed) = sealed.iter_mut().find(|sealed| sealed.group.index == group) {
        sealed.entries.push(entry);
    }
}
