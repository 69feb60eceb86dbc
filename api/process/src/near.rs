//! The dataplane's side of one elastic thread's crossings.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{Calls, Event, Events, Handle};
use mem::Region;
use memfile::Memory;

use crate::attendant::Attendant;
use crate::layout::{self, Geometry, RECORD_WORDS, both, two};
use crate::mirror::{Mirror, offset};
use crate::near_stats::NearStats;
use crate::place::{Place, Placement, Placer};
use crate::rates::{Toll, Used};
use crate::record::{self, Words};
use crate::waiting;

/// Longest sleep of a thread that somebody attends to: its application can have the kernel lose a wake-up of the word
/// that it sleeps on. Beyond the kernel's next tick a limit is cheap.
const DOZE: Duration = Duration::from_millis(20);
/// Looks at the application's word between two looks at the network: a few microseconds.
const LOOKS: u32 = 128;
/// Before these some without a pause: about as long as an answer takes that comes soon.
const QUICK_LOOKS: u32 = 256;
/// On a shared core that nobody attends to: longest sleep before the next look at the network. A sleep with a limit
/// costs a timer, which is far dearer than the rest of a crossing where a hypervisor keeps the timers.
const NAP: Duration = Duration::from_micros(50);

/// What a [`Near`] is made of.
pub(crate) struct NearParts {
    pub events: Arc<Memory>,
    pub calls: Arc<Memory>,
    pub arena: Arc<Memory>,
    pub region: Arc<Region>,
    /// The same memory as the application sees it: bytes that it may name at any moment, whoever holds them here.
    pub packets: Arc<Memory>,
    pub geometry: Geometry,
    pub segment_bytes: usize,
    /// Whether the payloads of connections are summed as they are copied.
    pub sums: bool,
    pub gone: Arc<AtomicBool>,
    pub runs_anywhere: bool,
    /// This side's end of what wakes it.
    pub bell: Option<OwnedFd>,
}

/// What a side has under way whose batches last longer than the call that hands them over.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    /// The application has a batch.
    pub has_batch: bool,
    /// Since when, as far as somebody looked at the time.
    pub since: Option<Instant>,
    /// Nothing is handed over until it is out of debt.
    pub in_debt: Option<Instant>,
}

/// See the module's comment. Made by [`Host`](crate::Host).
pub struct Near<'a> {
    pub(crate) parts: NearParts,
    /// Address of the packet memory, whose bytes events tell of.
    base: usize,
    pub(crate) batch: u32,
    /// The same, for the [mirror](Self::mirror).
    last: Arc<AtomicU32>,
    pub(crate) wish: Option<Instant>,
    /// Where batches last longer than the call that hands them over.
    pub(crate) apart: Option<Apart>,
    /// Runs the network layer, and answers the time.
    meanwhile: Box<dyn FnMut() -> Instant + Send + 'a>,
    /// Pieces of the call at hand, offset and bytes: kept for its memory.
    pub(crate) gathered: Vec<(usize, usize)>,
    pub(crate) toll: Option<Arc<Toll>>,
    /// Pieces that the calls of the batch at hand may still name.
    pub(crate) pieces_left: usize,
    /// What the batch at hand uses of the rates.
    pub(crate) used: Used,
    /// When the batch at hand was handed over.
    pub(crate) now: Instant,
    /// Where a batch goes over in several: the bytes that connections have been given in it so far. Windows that
    /// its further events tell are from before.
    pub(crate) given: Option<HashMap<Handle, u32>>,
    /// Somebody wakes this thread where the application takes long.
    pub(crate) is_attended: bool,
    /// The dataplane ends.
    stop: Option<&'a AtomicBool>,
    pub(crate) stats: Arc<NearStats>,
}

impl<'a> Near<'a> {
    pub(crate) fn new(parts: NearParts) -> Self {
        let base = NonNull::addr(parts.region.base()).get();
        Self {
            parts,
            base,
            batch: 0,
            last: Arc::default(),
            // To be told of the first moment: a client begins by itself.
            wish: Some(Instant::ZERO),
            apart: None,
            meanwhile: Box::new(|| Instant::ZERO),
            gathered: Vec::new(),
            pieces_left: 0,
            toll: None,
            used: Used::default(),
            now: Instant::ZERO,
            given: None,
            is_attended: false,
            stop: None,
            stats: Arc::default(),
        }
    }

    /// Runs `meanwhile` again and again while the application has a batch: it runs the network layer, and answers
    /// the time.
    #[must_use]
    pub fn with_meanwhile(self, meanwhile: impl FnMut() -> Instant + Send + 'a) -> Self {
        Self { meanwhile: Box::new(meanwhile), ..self }
    }

    /// Charges what the application sends and opens to `toll`, by the clock of [`with_meanwhile`](Self::with_meanwhile).
    #[must_use]
    pub fn charged_to(self, toll: Option<&Arc<Toll>>) -> Self {
        Self { toll: toll.map(Arc::clone), ..self }
    }

    /// From now on this thread sleeps, where it shares its core with the application, until that is done (or for 20
    /// ms), or the answer's [`look`](Attendant::look) wakes it: to be called by a thread that nobody else's work holds up.
    pub fn attended(&mut self) -> Attendant {
        self.is_attended = true;
        let (calls, stats) = (Arc::clone(&self.parts.calls), Arc::clone(&self.stats));
        Attendant { calls, placer: self.placer(), stats, slept_for: 0, crossings: 0 }
    }

    /// What writes events down as they come about, for the array whose events this side is handed, all of them at a
    /// time, and nobody else: see [`EventArray::mirror_in`](domain::EventArray::mirror_in).
    pub fn mirror(&self) -> Mirror {
        let (events, last) = (Arc::clone(&self.parts.events), Arc::clone(&self.last));
        Mirror { events, geometry: self.parts.geometry, base: self.base, last, before: 0 }
    }

    /// Where the application's thread runs now.
    #[inline]
    pub fn placement(&self) -> Placement {
        Place::told(&self.parts.events, self.parts.geometry).placement
    }

    /// What tells the application's thread, and this side, where that thread is to run from now on.
    pub fn placer(&self) -> Placer {
        Placer::new(&self.parts.events, self.parts.geometry)
    }

    /// Waits for the application no longer than until `stop` is set.
    #[must_use]
    pub fn until(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Counters, to be looked at from elsewhere.
    pub fn stats(&self) -> Arc<NearStats> {
        Arc::clone(&self.stats)
    }

    /// A word of the call array, read once.
    pub(crate) fn heard(&self, at: usize) -> u64 {
        self.parts.calls.word64(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    pub(crate) fn has_gone(&self) -> bool {
        self.parts.gone.load(Ordering::Relaxed)
    }

    /// All batches of these events there and back.
    pub(crate) fn cross_all(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        let several = events.len() > self.parts.geometry.events as usize;
        self.given = several.then(HashMap::new);
        let mut rest = events.iter().peekable();
        // At least once: the application may have wished to be run without an event.
        loop {
            if self.has_gone() || self.is_to_stop() {
                self.wish = None;
                return;
            }
            self.now = self.pay(now);
            self.cross(&mut rest, calls);
            if rest.peek().is_none() {
                break;
            }
        }
    }

    /// One batch there and back.
    fn cross<'e>(&mut self, events: &mut impl Iterator<Item = Event<'e>>, calls: &mut Calls<'_>) {
        self.tell_batch(events, calls);
        if self.hand_over() {
            self.take_calls(calls);
        }
    }

    /// Tells a batch of which the [mirror](Self::mirror) has written all but the first event down. Answers how many
    /// it has; none where it is not so.
    #[inline]
    pub(crate) fn tell_mirrored(
        &mut self,
        events: &Events<'_>,
        calls: &mut Calls<'_>,
    ) -> Option<usize> {
        if !events.is_mirrored() {
            return None;
        }
        let first = events.iter().next()?;
        let place = self.parts.events.words(self.parts.geometry.record(0))?;
        record::write(place, words_of(&first, self.base));
        self.tell_header(events.len(), calls);
        Some(events.len())
    }

    /// Writes a batch down. Answers how many events it has.
    pub(crate) fn tell_batch<'e>(
        &mut self,
        events: &mut impl Iterator<Item = Event<'e>>,
        calls: &mut Calls<'_>,
    ) -> usize {
        let geometry = self.parts.geometry;
        let batch = layout::next_batch(self.batch);
        let Self { parts, given, base, .. } = self;
        let most = geometry.events as usize;
        // They are inside: the memory was made by this geometry.
        let first = parts.events.arrays(geometry.record(0), 1).unwrap_or_default();
        let further = geometry.further_event(batch, 0);
        let further = parts.events.arrays(further, most - 1).unwrap_or_default();
        let mut places = first.iter().chain(further);
        let mut count = 0;
        while count < most
            && let Some(event) = events.next()
        {
            let words = words_of(&renewed(given, event), *base);
            places.next().into_iter().for_each(|place| record::write(place, words));
            count += 1;
        }
        self.tell_header(count, calls);
        count
    }

    /// Says what there is besides events, and how many they are.
    fn tell_header(&mut self, events: usize, calls: &mut Calls<'_>) {
        let (geometry, now) = (self.parts.geometry, self.now);
        let room = calls.room().min(geometry.calls as usize) as u32;
        let buffers = calls.buffers().min(geometry.arena_chunks as usize) as u32;
        let yield_after = calls
            .yield_at()
            .map_or(0, |at| u32::try_from(at.since(now).as_nanos()).unwrap_or(u32::MAX).max(1));
        // They are inside: the memory was made by this geometry.
        if let Some([told, yield_and_events, room_and_buffers]) =
            self.parts.events.words(layout::NOW)
        {
            told.store(now.as_nanos(), Ordering::Relaxed);
            yield_and_events.store(two(yield_after, events as u32), Ordering::Relaxed);
            room_and_buffers.store(two(room, buffers), Ordering::Relaxed);
        }
        self.batch = layout::next_batch(self.batch);
        self.last.store(self.batch, Ordering::Relaxed);
        NearStats::add(&self.stats.crossings);
    }

    /// Has the lines come here on which the next batch's events are to stand, if they are as many as this one's: the
    /// application has read what they told last.
    pub(crate) fn call_for_lines(&self, events: usize) {
        let NearParts { events: memory, geometry, .. } = &self.parts;
        let next = geometry.further_event(layout::next_batch(self.batch), 0);
        // Two events share a line. A store, which nobody waits for: `prefetchw` was measured to save about half as much.
        let lines = memory.arrays::<8>(next, events.saturating_sub(1) / 2).unwrap_or_default();
        lines.iter().for_each(|line| line[0].store(0, Ordering::Relaxed));
    }

    /// Issues what the application asked for in answer to a batch.
    pub(crate) fn take_calls(&mut self, calls: &mut Calls<'_>) {
        // The header behind the batch's number, and the first call behind that: nearly always that is all of it. They are
        // inside: the memory was made by this geometry.
        let words = self.parts.calls.words::<{ 3 + RECORD_WORDS }>(layout::WISH);
        let Some([wish, calls_and_pieces, _, first @ ..]) = words else { return };
        let wish = wish.load(Ordering::Relaxed);
        let (count, pieces) = both(calls_and_pieces.load(Ordering::Relaxed));
        let only = (count == 1).then(|| record::read(first));
        self.wish = (wish != u64::MAX).then(|| Instant::from_nanos(wish));
        self.issue(count, pieces, only, calls);
    }

    /// Shows the application that a batch is there.
    pub(crate) fn publish(&self) {
        let NearParts { events, calls, .. } = &self.parts;
        if let (Some(begun), Some(asleep)) =
            (events.word(layout::BATCH), calls.word(layout::ASLEEP))
        {
            begun.store(self.batch, Ordering::Release);
            waiting::wake(begun, asleep);
        }
    }

    /// Waits until the application is out of debt, with the network layer running on.
    fn pay(&mut self, mut now: Instant) -> Instant {
        /// Sleeps are worth their timer from here on.
        const WORTH_A_SLEEP: Duration = Duration::from_micros(200);
        let Some(toll) = &self.toll else { return now };
        let free_at = toll.free_at();
        if free_at > now {
            NearStats::add(&self.stats.held_back);
        }
        while free_at > now && !self.has_gone() && !self.is_to_stop() {
            if free_at.since(now) > WORTH_A_SLEEP {
                std::thread::sleep(NAP);
            }
            now = (self.meanwhile)();
        }
        now
    }

    pub(crate) fn is_to_stop(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Hands the batch over and waits until it has been seen to. False: the application has gone, or nobody is to
    /// wait for it any more.
    fn hand_over(&mut self) -> bool {
        self.publish();
        let looks = if self.placement() == Placement::Split { LOOKS } else { 0 };
        let Self { parts, batch, meanwhile, stop, stats, is_attended, .. } = self;
        let NearParts { events, calls, gone, .. } = parts;
        let words = [events.word(layout::ASLEEP), calls.word(layout::BATCH)];
        let [Some(asleep), Some(done)] = words else { return false };
        let sleep = || sleep_for(*batch, (done, asleep), *is_attended, stats);
        // On a shared core nothing happens before this thread sleeps.
        if looks == 0 {
            sleep();
        }
        let mut since = None;
        while !waiting::look(done, (QUICK_LOOKS, looks), |done| done == *batch) {
            let now = meanwhile();
            stats.note_wait(*since.get_or_insert(now), now);
            let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            if is_set(gone) || stop.is_some_and(is_set) {
                return false;
            }
            // One that takes so long has no use for a thread that spins, and others may have some for its core.
            if looks == 0 || stats.is_unresponsive() {
                sleep();
            }
        }
        stats.note_answer();
        true
    }
}

/// Sleeps until the application is done with this batch, or for a while: for long only where somebody attends.
pub(crate) fn sleep_for(
    batch: u32,
    (done, asleep): (&AtomicU32, &AtomicU32),
    is_attended: bool,
    stats: &NearStats,
) {
    let old = done.load(Ordering::Relaxed);
    if old != batch {
        stats.slept_for.store(if is_attended { batch } else { 0 }, Ordering::Relaxed);
        waiting::sleep(done, old, asleep, if is_attended { DOZE } else { NAP });
        stats.slept_for.store(0, Ordering::Relaxed);
    }
}

/// An event as words, with its bytes in the packet memory that is mapped at `base`.
#[inline(always)]
fn words_of(event: &Event<'_>, base: usize) -> Words {
    match *event {
        // What most events are.
        Event::Recv { handle, cookie, data, acked, window } => {
            record::received(handle, cookie, (offset(base, data), data.len()), acked, window)
        }
        _ => record::event_words(event, |bytes| offset(base, bytes)),
    }
}

/// The event with the window that is left of the one it tells.
fn renewed<'e>(given: &Option<HashMap<Handle, u32>>, mut event: Event<'e>) -> Event<'e> {
    if let Some(given) = given.as_ref().filter(|given| !given.is_empty())
        && let Event::Recv { handle, window, .. }
        | Event::Sent { handle, window, .. }
        | Event::Again { handle, window, .. } = &mut event
    {
        let given = given.get(handle).copied().unwrap_or(0);
        *window = window.saturating_sub(given);
    }
    event
}

impl std::fmt::Debug for Near<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Near")
            .field("batch", &self.batch)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
