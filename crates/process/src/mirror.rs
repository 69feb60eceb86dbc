//! Events written down as they come about (IX §4.3): while the network layer works on the packets of a batch, the lines
//! that will tell of them are on their way here from the application's processor, which read the batch before the last
//! from them. Written all at once when the batch is handed over, each would be waited for.
//!
//! The first event is not: it shares its line with the word that the application looks at again and again, and would
//! take it away from there before its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use domain::{EventMirror, EventRecord};
use memfile::Memory;

use crate::layout::{Geometry, RECORD_BYTES, next_batch};
use crate::record::{self, Words};

/// Made by [`Near::mirror`](crate::Near::mirror), for the array whose events that side hands over.
#[derive(Debug)]
pub struct Mirror {
    events: Arc<Memory>,
    geometry: Geometry,
    /// Address of the packet memory.
    base: usize,
    /// The batch that was handed over last, of which this thread alone tells.
    last: Arc<AtomicU32>,
    /// The one before those events that are written down now.
    before: u32,
    /// Where the second of them stands.
    second: usize,
}

impl Mirror {
    pub(crate) fn new(
        events: Arc<Memory>,
        geometry: Geometry,
        base: usize,
        last: Arc<AtomicU32>,
    ) -> Self {
        Self { events, geometry, base, last, before: 0, second: 0 }
    }

    /// The words of an event that needs nobody's leave to be told. What knocks, and datagrams, the policy is asked
    /// about when they are handed over.
    #[inline(always)]
    fn words_of(&self, record: &EventRecord, bytes: &[u8]) -> Option<Words> {
        match *record {
            EventRecord::Recv { handle, cookie, acked, window, .. } => {
                let place = (offset(self.base, bytes), bytes.len());
                Some(record::received(handle, cookie, place, acked, window))
            }
            EventRecord::Knock { .. } | EventRecord::Datagram { .. } => None,
            _ => Some(record::event_words(&record.event(|_| bytes), |_| 0)),
        }
    }
}

impl EventMirror for Mirror {
    fn put(&mut self, index: usize, record: &EventRecord, bytes: &[u8]) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let Some(further) = index.checked_sub(1) else {
            self.before = last;
            self.second = self.geometry.further_event(next_batch(last), 0);
            return self.words_of(record, bytes).is_some();
        };
        let is_begun = last == self.before && index < self.geometry.events as usize;
        if is_begun
            && let Some(words) = self.words_of(record, bytes)
            && let Some(place) = self.events.words(self.second + further * RECORD_BYTES)
        {
            record::write(place, words);
            return true;
        }
        false
    }
}

/// Where bytes stand in the packet memory that is mapped at `base`.
#[inline]
pub(crate) fn offset(base: usize, bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr().wrapping_sub(base) as u64
}
