//! The application's side of one elastic thread's crossings: runs a [`Service`] as if it were linked in.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{CallArray, CallRecord, Calls, Handle, Held, Service};
use mem::{Mbuf, Pool};
use memfile::Memory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use wire::Sum;

use crate::layout::{self, Geometry, RECORD_WORDS, both, two};
use crate::record;
use crate::unsafe_shown::Shown;
use crate::waiting::{self, Placement, Waiting};

/// Longest sleep before the next look whether the dataplane is still there.
const NAP: Duration = Duration::from_millis(50);

/// Looks without a pause: about as long as it takes a dataplane to send an answer and receive a request that follows it.
const QUICK_LOOKS: u32 = 1_024;

/// Why [`Far::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// The dataplane has gone: there is no network any more.
    Gone,
    /// It was to stop.
    Stopped,
}

/// What a [`Far`] is made of.
pub(crate) struct FarParts {
    pub events: Arc<Memory>,
    pub calls: Arc<Memory>,
    pub packets: Arc<Memory>,
    pub geometry: Geometry,
    pub waiting: Waiting,
    pub segment_bytes: usize,
    pub socket: Arc<OwnedFd>,
    /// Wakes the dataplane's thread where it sleeps at its other end.
    pub bell: OwnedFd,
}

/// See the module's comment. One for each elastic thread; made by [`Application::join`](crate::Application::join).
pub struct Far {
    parts: FarParts,
    pool: Pool,
    shown: Shown,
    call_array: CallArray,
    batch: u32,
    /// Payloads that the dataplane may still read: until it hands over the next batch.
    lent: Vec<Mbuf>,
}

/// Bytes of earlier batches are kept by the application, if it wants them: see [`domain::Events::held`].
struct NothingHeld;

impl Held for NothingHeld {
    fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
}

impl Far {
    pub(crate) fn new(parts: FarParts, pool: Pool) -> Self {
        let events = parts.geometry.events as usize;
        let shown = Shown::new(events, Arc::clone(&parts.packets));
        let call_array = CallArray::new(parts.geometry.calls as usize, parts.segment_bytes)
            .by_place(parts.packets.addresses());
        Self { parts, pool, shown, call_array, batch: 0, lent: Vec::new() }
    }

    /// What it was made of, for tests of applications that do otherwise.
    pub(crate) fn parts(&self) -> &FarParts {
        &self.parts
    }

    #[cfg(test)]
    pub(crate) fn arena(&self) -> &mem::Region {
        self.pool.region()
    }

    fn told(&self, at: usize) -> u64 {
        self.parts.events.word64(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn tell(&self, at: usize, value: u64) {
        if let Some(word) = self.parts.calls.word64(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Runs `service` on every batch, until `stop` is set or the dataplane goes.
    pub fn run(&mut self, service: &mut impl Service, stop: &AtomicBool) -> FarEnd {
        while !stop.load(Ordering::Relaxed) {
            match self.wait() {
                true => self.batch(service),
                false if self.is_alone() => return FarEnd::Gone,
                false => {}
            }
        }
        FarEnd::Stopped
    }

    /// Runs `service` on a batch if there is one now, without waiting. Answers whether there was: for a thread that has
    /// something else to do as well.
    pub fn poll(&mut self, service: &mut impl Service) -> bool {
        let Some(begun) = self.parts.events.word(layout::BATCH) else { return false };
        let now = begun.load(Ordering::Acquire);
        let is_new = std::mem::replace(&mut self.batch, now) != now;
        if is_new {
            self.batch(service);
        }
        is_new
    }

    /// Whether a batch is there, after a while.
    fn wait(&mut self) -> bool {
        let Self { parts, batch, .. } = self;
        let words = (parts.events.word(layout::BATCH), parts.calls.word(layout::ASLEEP));
        let (Some(begun), Some(asleep)) = words else { return false };
        let looks = match parts.waiting.placement {
            Placement::Split => parts.waiting.looks,
            Placement::SameCore => 0,
        };
        let old = *batch;
        if !waiting::look(begun, (QUICK_LOOKS, looks), |begun| begun != old) {
            waiting::sleep(begun, old, asleep, NAP);
        }
        let now = begun.load(Ordering::Acquire);
        *batch = now;
        now != old
    }

    /// Whether the dataplane has hung up.
    fn is_alone(&self) -> bool {
        let socket = PollFd::from_borrowed_fd(self.parts.socket.as_fd(), PollFlags::IN);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut asked = [socket];
        poll(&mut asked, Some(&now)).is_ok_and(|count| count > 0)
            && asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    fn batch(&mut self, service: &mut impl Service) {
        let now = Instant::from_nanos(self.told(layout::NOW));
        let (yield_after, events) = both(self.told(layout::YIELD_AND_EVENTS));
        let (room, buffers) = both(self.told(layout::ROOM_AND_BUFFERS));
        self.show(events);
        // The dataplane has read what the batch before had to send.
        self.take_back();
        let yield_at = (yield_after != 0).then(|| now + Duration::from_nanos(yield_after.into()));
        self.call_array.bound(room.min(self.parts.geometry.calls) as usize, buffers as usize);
        let mut calls = Calls::new(&mut self.call_array, &mut self.pool).until(yield_at);
        service.on_batch(now, self.shown.view(&NothingHeld), &mut calls);
        self.shown.conclude();
        let (records, payloads) = self.ask();
        self.tell(layout::WISH, service.wake_at().map_or(u64::MAX, Instant::as_nanos));
        let words = (self.parts.calls.word(layout::BATCH), self.parts.events.word(layout::ASLEEP));
        if let (Some(done), Some(asleep)) = words {
            done.store(self.batch, Ordering::Release);
            if waiting::wake(done, asleep) == layout::AT_THE_BELL {
                // Full: it has reason enough to wake up.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::send(&self.parts.bell, &[1], flags);
            }
        }
        // Nobody waits for this.
        self.lend(records, payloads);
    }

    /// Empties the call array: its buffers are lent from now on.
    fn lend(&mut self, records: Vec<CallRecord>, mut payloads: Vec<(Mbuf, Sum)>) {
        self.lent.extend(payloads.drain(..).map(|(mbuf, _)| mbuf));
        self.call_array.restore(records, payloads);
        self.lent.extend(self.call_array.take_placed().into_iter().flatten());
    }

    /// Frees what was lent.
    fn take_back(&mut self) {
        self.lent.drain(..).for_each(|mbuf| self.pool.free(mbuf));
    }

    /// Reads so many events.
    fn show(&mut self, events: u32) {
        let Self { parts: FarParts { events: memory, geometry, .. }, shown, batch, .. } = self;
        let mut show = |place: &_| {
            if let Some((record, span)) = record::event(&record::read(place)) {
                shown.push(record, span);
            }
        };
        let Some(further) = (events.min(geometry.events) as usize).checked_sub(1) else { return };
        memory.words(geometry.record(0)).into_iter().for_each(&mut show);
        if further > 0 {
            // They are inside: the memory has the size that this geometry says.
            let behind = memory.arrays(geometry.further_event(*batch, 0), further);
            behind.unwrap_or_default().iter().for_each(show);
        }
    }

    /// Writes the calls down, and takes them.
    fn ask(&mut self) -> (Vec<CallRecord>, Vec<(Mbuf, Sum)>) {
        let geometry = self.parts.geometry;
        let calls = &self.parts.calls;
        let (records, payloads) = self.call_array.take();
        let piece = |index: u32| {
            let payload = payloads.get(index as usize);
            payload.map_or(0, |(mbuf, _)| {
                record::piece_word(self.pool.offset_of(mbuf).unwrap_or(0), mbuf.len())
            })
        };
        let mut rest = &records[..];
        let mut count = 0;
        while let Some((told, taken)) = record::calls_words(rest, piece)
            && count < geometry.call_records()
        {
            let Some(words) = calls.words::<RECORD_WORDS>(geometry.record(count)) else { break };
            for (word, value) in words.iter().zip(told) {
                word.store(value, Ordering::Relaxed);
            }
            // The only piece of a call stands in the call.
            if let CallRecord::Sendv { staged, .. } | CallRecord::UdpSendv { staged, .. } = rest[0]
                && staged.count > 1
            {
                for index in staged.first..staged.first + staged.count {
                    if let Some(word) = calls.word64(geometry.piece(index as usize)) {
                        word.store(piece(index), Ordering::Relaxed);
                    }
                }
            }
            rest = &rest[taken..];
            count += 1;
        }
        self.tell(layout::CALLS_AND_PIECES, two(count as u32, payloads.len() as u32));
        (records, payloads)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let (records, payloads) = self.call_array.take();
        self.lend(records, payloads);
        self.take_back();
    }
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("batch", &self.batch).finish_non_exhaustive()
    }
}
