//! Events written down as they come about, some at a time (IX §4.3): while the network layer works on the packets of a
//! batch, the lines that will tell of them are on their way here from the application's processor, which read the batch
//! before the last from them. Written all at once when the batch is handed over, each would be waited for.
//!
//! The first event is not: it shares its line with the word that the application looks at again and again, and would
//! take it away from there before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::{Appended, EventMirror, EventRecord};
use memfile::Memory;

use crate::layout::{Geometry, next_batch};
use crate::record::{self, Words};

/// Made by [`Near::mirror`](crate::Near::mirror), for the array whose events that side hands over.
#[derive(Debug)]
pub struct Mirror {
    pub(crate) events: Arc<Memory>,
    pub(crate) geometry: Geometry,
    /// Address of the packet memory.
    pub(crate) base: usize,
    /// The batch that was handed over last, of which this thread alone tells.
    pub(crate) last: Arc<AtomicU32>,
    /// The one before those events that are written down now.
    pub(crate) before: u32,
}

impl Mirror {
    /// The words of an event.
    #[inline(always)]
    fn words_of(&self, record: &EventRecord, events: Appended<'_>) -> Words {
        match *record {
            EventRecord::Recv { handle, cookie, buffer, acked, window } => {
                let bytes = events.bytes_at(buffer);
                let place = (offset(self.base, bytes), bytes.len());
                record::received(handle, cookie, place, acked, window)
            }
            _ => words_of_other(self.base, record, events),
        }
    }
}

/// The words of any other event.
#[inline(never)]
fn words_of_other(base: usize, record: &EventRecord, events: Appended<'_>) -> Words {
    let event = record.event(|buffer| events.bytes_at(buffer));
    record::event_words(&event, |bytes| offset(base, bytes))
}

impl EventMirror for Mirror {
    fn put(&mut self, index: usize, events: Appended<'_>) -> usize {
        let last = self.last.load(Ordering::Relaxed);
        if index == 1 {
            self.before = last;
        }
        if last != self.before {
            return 0;
        }
        let room = (self.geometry.events as usize).saturating_sub(index);
        let records = events.records();
        let records = &records[..records.len().min(room)];
        let from = self.geometry.event(next_batch(last), index);
        // They are inside: the memory has the size that this geometry says.
        let places = self.events.arrays(from, records.len()).unwrap_or_default();
        for (record, place) in records.iter().zip(places) {
            record::write(place, self.words_of(record, events));
        }
        places.len()
    }
}

/// Where bytes stand in the packet memory that is mapped at `base`.
#[inline]
pub(crate) fn offset(base: usize, bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr().wrapping_sub(base) as u64
}
