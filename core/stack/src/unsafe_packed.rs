//! A flow group on its way from one core's stack to another's (IX §4.5): one value.
//!
//! `unsafe` because segments that wait for their acknowledgment are not `Send` by themselves: they may share
//! their chunk with a frame that the sending core's device still reads, and the chunk's state needs no
//! atomics only as long as one core has both claims. A packed group's have their chunks to themselves.
#![allow(unsafe_code)]

use alloc::boxed::Box;

use mem::Pool;

use crate::stack::baggage::Baggage;

/// A flow group with all that belongs to it: connections and how they are found, what they hold and have
/// sent, deadlines, and what waits to be done or told. [`Stack::pack`](crate::Stack::pack) makes it,
/// [`Stack::take_in`](crate::Stack::take_in) consumes it.
#[derive(Debug)]
#[must_use = "a flow group that is dropped is lost to its peers, and its packet memory to the pools"]
pub struct PackedGroup(Box<Baggage>);

// SAFETY: all that is in it but for `Retained` segments is `Send`. Of those, `pack` has given each whose
// frame a device of the sending core may still hold a chunk of its own, and refuses to make this value where
// it cannot; nobody reaches the connections inside before another core has taken the value in, so no
// further frame shares a chunk with them. What is left is the one claim on its chunk, as an mbuf is.
unsafe impl Send for PackedGroup {}

impl PackedGroup {
    /// The caller has seen to it that no segment in `baggage` shares its chunk with a frame.
    pub(crate) fn new(baggage: Box<Baggage>) -> Self {
        Self(baggage)
    }

    pub(crate) fn into_baggage(self) -> Box<Baggage> {
        self.0
    }

    /// Its number.
    pub fn group(&self) -> u16 {
        self.0.group()
    }

    /// Connections in it, all states.
    pub fn connections(&self) -> usize {
        self.0.connections()
    }

    /// Gives its packet memory back, where there is no core left to take it in. Answers how many peers were to be
    /// told that their connection has ended, and are not.
    pub fn discard(self, pool: &mut Pool) -> u64 {
        self.0.discard(pool)
    }
}
