//! The application's side of one elastic thread's crossings: runs a [`Service`] as if it were linked in.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{CallArray, CallRecord, Calls, Service};
use mem::{Mbuf, Pool};
use memfile::Memory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::layout::{self, Geometry, RECORD_WORDS, both, two};
use crate::place::{Place, Placement};
use crate::record::{self, Words};
use crate::unsafe_shown::Shown;
use crate::waiting;

/// Longest sleep before the next look whether the dataplane is still there.
const NAP: Duration = Duration::from_millis(50);

/// Looks without a pause: about as long as it takes a dataplane to send an answer and receive a request that follows it.
const QUICK_LOOKS: u32 = 1_024;

/// What a [`Far`] is made of.
pub(crate) struct FarParts {
    pub events: Arc<Memory>,
    pub calls: Arc<Memory>,
    pub packets: Arc<Memory>,
    pub geometry: Geometry,
    /// For how many looks its thread spins before it sleeps, where it has a core of its own.
    pub looks: u32,
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
    /// Where its thread was told to run.
    place: Place,
    /// The processors that its thread had before it was told one.
    found: Option<CpuSet>,
    /// Payloads that the dataplane may still read: until it hands over the next batch.
    lent: Vec<Mbuf>,
}

impl Far {
    pub(crate) fn new(parts: FarParts, pool: Pool) -> Self {
        let events = parts.geometry.events as usize;
        let shown = Shown::new(events, Arc::clone(&parts.packets));
        let call_array = CallArray::new(parts.geometry.calls as usize, parts.segment_bytes)
            .by_place(parts.packets.addresses());
        let (place, found) = (Place::default(), None);
        Self { parts, pool, shown, call_array, batch: 0, place, found, lent: Vec::new() }
    }

    /// What it was made of, for tests of applications that do otherwise.
    pub(crate) fn parts(&self) -> &FarParts {
        &self.parts
    }

    /// What its application sends from.
    pub(crate) fn arena(&self) -> &mem::Region {
        self.pool.region()
    }

    /// Runs `service` on every batch, until `stop` is set or the dataplane goes.
    pub fn run(&mut self, service: &mut impl Service, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            match self.wait() {
                true => self.batch(service),
                false if self.is_alone() => return,
                false => {}
            }
        }
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
        let told = Place::told(&self.parts.events, self.parts.geometry);
        if told != self.place {
            self.go_to(told);
        }
        let Self { parts, batch, place, .. } = self;
        let words = (parts.events.word(layout::BATCH), parts.calls.word(layout::ASLEEP));
        let (Some(begun), Some(asleep)) = words else { return false };
        let looks = match place.placement {
            Placement::Split => parts.looks,
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

    /// Has the calling thread run where the dataplane says. A processor that it cannot have is left alone: then it
    /// serves from where it is.
    #[cold]
    fn go_to(&mut self, place: Place) {
        self.place = place;
        if self.found.is_none() {
            self.found = sched_getaffinity(None).ok();
        }
        let one = place.cpu.filter(|&cpu| (cpu as usize) < CpuSet::MAX_CPU).map(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu as usize);
            one
        });
        if let Some(set) = one.or(self.found) {
            let _ = sched_setaffinity(None, &set);
        }
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
        let [now, yield_and_events, room_and_buffers, first @ ..] = self.told();
        let now = Instant::from_nanos(now);
        let (yield_after, count) = both(yield_and_events);
        let (room, buffers) = both(room_and_buffers);
        self.show(&first, count);
        // The dataplane has read what the batch before had to send.
        self.take_back();
        let yield_at = (yield_after != 0).then(|| now + Duration::from_nanos(yield_after.into()));
        self.call_array.bound(room.min(self.parts.geometry.calls) as usize, buffers as usize);
        let mut calls = Calls::new(&mut self.call_array, &mut self.pool).until(yield_at);
        service.on_batch(now, self.shown.view(&()), &mut calls);
        self.shown.conclude();
        self.ask(service.wake_at());
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
        self.call_array.emptied_into(&mut self.lent);
    }

    /// What the header tells behind the batch's number, and behind that the first event, if there is one.
    #[inline]
    fn told(&self) -> [u64; 3 + RECORD_WORDS] {
        // They are inside: the memory has the size that this geometry says.
        let words = self.parts.events.words(layout::NOW);
        words.map_or([0; _], |words| words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// Frees what was lent.
    #[inline]
    fn take_back(&mut self) {
        if !self.lent.is_empty() {
            self.lent.drain(..).for_each(|mbuf| self.pool.free(mbuf));
        }
    }

    /// Shows so many events, of which `first` is the first.
    fn show(&mut self, first: &Words, events: u32) {
        let Self { parts: FarParts { events: memory, geometry, .. }, shown, batch, .. } = self;
        let Some(further) = (events.min(geometry.events) as usize).checked_sub(1) else { return };
        shown.push(first);
        if further > 0 {
            let behind = memory.arrays(geometry.further_event(*batch, 0), further);
            behind.unwrap_or_default().iter().for_each(|place| shown.push(&record::read(place)));
        }
    }

    /// Writes the calls down, and when the application wants to be run without an event.
    fn ask(&mut self, wish: Option<Instant>) {
        let Self { parts: FarParts { calls, geometry, .. }, call_array, pool, .. } = self;
        let (records, payloads) = call_array.told();
        let piece = |index: u32| {
            let payload = payloads.get(index as usize);
            payload.map_or(0, |(mbuf, _)| {
                record::piece_word(pool.offset_of(mbuf).unwrap_or(0), mbuf.len())
            })
        };
        let mut rest = records;
        let mut count = 0;
        // They are inside: the memory was made by this geometry.
        let places = calls.arrays(geometry.record(0), geometry.call_records());
        let mut places = places.unwrap_or_default().iter();
        while let Some((told, taken)) = record::calls_words(rest, piece)
            && let Some(place) = places.next()
        {
            record::write(place, told);
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
        if let Some([wished, calls_and_pieces]) = calls.words(layout::WISH) {
            wished.store(wish.map_or(u64::MAX, Instant::as_nanos), Ordering::Relaxed);
            calls_and_pieces.store(two(count, payloads.len() as u32), Ordering::Relaxed);
        }
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.call_array.emptied_into(&mut self.lent);
        self.take_back();
    }
}

impl std::fmt::Debug for Far {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Far").field("batch", &self.batch).finish_non_exhaustive()
    }
}
