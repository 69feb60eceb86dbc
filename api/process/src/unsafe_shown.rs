//! Received bytes in place: the application reads them where the NIC put them.
//!
//! This module holds `unsafe` because an array of events shows bytes that another process writes, for as long as
//! a batch lasts, which the borrow checker cannot follow. It stays sound as the array never leaves [`Shown`], which
//! keeps the mapping too, and lends what it shows for no longer than itself is borrowed.
#![allow(unsafe_code)]

use std::sync::Arc;

use domain::{EventArray, Events, Full, Held};
use memfile::Memory;

use crate::record::{self, Received, Span, Words};

/// The events of one batch, and the packet memory in which their bytes stand.
#[derive(Debug)]
pub(crate) struct Shown {
    /// Before the mapping, which it refers to.
    array: EventArray,
    packets: Arc<Memory>,
}

impl Shown {
    /// Room for the events of a batch whose bytes are in `packets`.
    pub fn new(events: usize, packets: Arc<Memory>) -> Self {
        Self { array: EventArray::new(events), packets }
    }

    /// Appends the event that words tell. Where they tell none, or of bytes that would be outside the packet memory,
    /// or there is no room, it is left out: no dataplane tells of such.
    #[inline]
    pub fn push(&mut self, words: &Words) {
        let _ = match record::received_at(words) {
            // What most events are.
            Some(Received { connection, span, acked, window }) => match self.bytes(span) {
                Some(bytes) => self.array.show_recv(connection, bytes, acked, window),
                None => return,
            },
            None => self.push_other(words),
        };
    }

    #[inline(never)]
    fn push_other(&mut self, words: &Words) -> Result<(), Full> {
        let Some((record, span)) = record::other_event(words) else { return Ok(()) };
        match span.map(|span| self.bytes(span)) {
            Some(None) => Ok(()),
            bytes => self.array.show(record, bytes.flatten()),
        }
    }

    /// Received bytes, to be shown until the batch has been consumed.
    #[inline]
    fn bytes(&self, Span { offset, len }: Span) -> Option<&'static [u8]> {
        // SAFETY: the dataplane, which the application trusts, leaves bytes that it has told of as they are
        // until they are given back, and hears of that only after the batch, when the array was emptied.
        // They are in the mapping, which `self` keeps.
        let bytes = unsafe { self.packets.bytes(offset as usize, len as usize) }?;
        // SAFETY: as above; what refers to it stays in `self`, see the module's comment.
        Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
    }

    /// The batch, to be consumed.
    pub fn view<'a>(&'a mut self, held: &'a dyn Held) -> Events<'a> {
        self.array.view(held)
    }

    /// The batch has been consumed.
    pub fn conclude(&mut self) {
        self.array.conclude();
    }
}
