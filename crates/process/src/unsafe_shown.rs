//! Received bytes in place: the application reads them where the NIC put them.
//!
//! This module holds `unsafe` because an array of events shows bytes that another process writes, for as long as
//! a batch lasts, which the borrow checker cannot follow. It stays sound as the array never leaves [`Shown`], which
//! keeps the mapping too, and lends what it shows for no longer than itself is borrowed.
#![allow(unsafe_code)]

use std::sync::Arc;

use domain::{EventArray, EventRecord, Events, Held};
use memfile::Memory;

use crate::record::Span;

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

    /// Appends an event. One whose bytes would be outside the packet memory, or for which there is no room, is
    /// left out: no dataplane tells of such.
    pub fn push(&mut self, record: EventRecord, span: Option<Span>) {
        let bytes = match span {
            Some(Span { offset, len }) => {
                // SAFETY: the dataplane, which the application trusts, leaves bytes that it has told of as they are
                // until they are given back, and hears of that only after the batch, when the array was emptied.
                // They are in the mapping, which `self` keeps.
                let Some(bytes) = (unsafe { self.packets.bytes(offset as usize, len as usize) })
                else {
                    return;
                };
                // SAFETY: as above; what refers to it stays in `self`, see the module's comment.
                Some(unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) })
            }
            None => None,
        };
        let _ = self.array.show(record, bytes);
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
