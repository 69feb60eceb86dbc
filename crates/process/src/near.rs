//! The dataplane's side of one elastic thread's crossings.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{CallRecord, Calls, Event, Events, Handle, Service, Staged};
use mem::Region;
use memfile::Memory;
use wire::Sum;

use crate::geometry::{self, Geometry};
use crate::record;
use crate::waiting::{self, Placement, Waiting};

/// An application that takes longer for one batch is reported (IX §4.1).
const UNRESPONSIVE: Duration = Duration::from_millis(10);
/// Looks at the application's word between two looks at the network: a few hundred nanoseconds.
const LOOKS: u32 = 32;
/// On a shared core: longest sleep before the next look at the network.
const NAP: Duration = Duration::from_micros(50);

/// What an elastic thread has seen of its application, for others to look at.
#[derive(Debug, Default)]
pub struct NearStats {
    crossings: AtomicU64,
    violations: AtomicU64,
    refused: AtomicU64,
    unresponsive: AtomicU64,
}

impl NearStats {
    /// Batches handed over.
    pub fn crossings(&self) -> u64 {
        self.crossings.load(Ordering::Relaxed)
    }

    /// Calls that made no sense: words that are no call, pieces outside the arena or its bounds.
    pub fn violations(&self) -> u64 {
        self.violations.load(Ordering::Relaxed)
    }

    /// Calls beyond what the dataplane had said that it has room for; a connection whose bytes they were is reset.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Batches that took longer than 10 ms.
    pub fn unresponsive(&self) -> u64 {
        self.unresponsive.load(Ordering::Relaxed)
    }

    fn add(counter: &AtomicU64) {
        // Only the elastic thread writes.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// What a [`Near`] is made of.
pub(crate) struct NearParts {
    pub events: Arc<Memory>,
    pub calls: Arc<Memory>,
    pub arena: Arc<Memory>,
    pub region: Arc<Region>,
    pub geometry: Geometry,
    pub waiting: Waiting,
    pub gone: Arc<AtomicBool>,
    pub runs_anywhere: bool,
}

/// See the module's comment. Made by [`Host`](crate::Host).
pub struct Near<'a> {
    parts: NearParts,
    /// Address of the packet memory, whose bytes events tell of.
    base: usize,
    batch: u32,
    wish: Option<Instant>,
    /// Runs the network layer, and answers the time.
    meanwhile: Box<dyn FnMut() -> Instant + Send + 'a>,
    /// Pieces of the call at hand: kept for its memory.
    pieces: Vec<(usize, usize)>,
    /// Where a batch goes over in several: the bytes that connections have been given in it so far. Windows that
    /// its further events tell are from before.
    given: Option<HashMap<Handle, u32>>,
    /// The dataplane ends.
    stop: Option<&'a AtomicBool>,
    stats: Arc<NearStats>,
}

impl<'a> Near<'a> {
    pub(crate) fn new(parts: NearParts) -> Self {
        let base = NonNull::addr(parts.region.base()).get();
        Self {
            parts,
            base,
            batch: 0,
            // To be told of the first moment: a client begins by itself.
            wish: Some(Instant::ZERO),
            meanwhile: Box::new(|| Instant::ZERO),
            pieces: Vec::new(),
            given: None,
            stop: None,
            stats: Arc::default(),
        }
    }

    /// Runs `meanwhile` again and again while the application has a batch: it runs the network layer, and answers
    /// the time.
    #[must_use]
    pub fn with_meanwhile<'b>(self, meanwhile: impl FnMut() -> Instant + Send + 'b) -> Near<'b> {
        let Near { parts, base, batch, wish, pieces, stats, .. } = self;
        let meanwhile = Box::new(meanwhile);
        Near { parts, base, batch, wish, meanwhile, pieces, given: None, stop: None, stats }
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

    /// A word of the event array. It is inside: offsets follow from the geometry that the memory was made by.
    fn told(&self, at: usize, value: u64) {
        if let Some(word) = self.parts.events.word64(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// A word of the call array, read once.
    fn heard(&self, at: usize) -> u64 {
        self.parts.calls.word64(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn heard_count(&self, at: usize, most: usize) -> usize {
        usize::try_from(self.heard(at)).unwrap_or(usize::MAX).min(most)
    }

    fn has_gone(&self) -> bool {
        self.parts.gone.load(Ordering::Relaxed)
    }

    /// One batch there and back.
    fn cross<'e>(
        &mut self,
        now: Instant,
        events: &mut impl Iterator<Item = Event<'e>>,
        calls: &mut Calls<'_>,
    ) {
        let geometry = self.parts.geometry;
        let mut count = 0;
        for event in events.take(geometry.events as usize) {
            let offset = |bytes: &[u8]| (bytes.as_ptr().addr().wrapping_sub(self.base)) as u64;
            let words = record::event_words(&self.renewed(event), offset);
            let at = geometry.event(count);
            for (index, word) in words.into_iter().enumerate() {
                self.told(at + 8 * index, word);
            }
            count += 1;
        }
        let room = calls.room().min(geometry.calls as usize);
        let buffers = calls.buffers().min(geometry.arena_chunks as usize);
        self.told(geometry::NOW, now.as_nanos());
        self.told(geometry::YIELD_AT, calls.yield_at().map_or(0, |at| at.as_nanos().max(1)));
        self.told(geometry::EVENTS, count as u64);
        self.told(geometry::ROOM, room as u64);
        self.told(geometry::BUFFERS, buffers as u64);
        self.batch = self.batch.wrapping_add(1);
        NearStats::add(&self.stats.crossings);
        if self.hand_over() {
            let wish = self.heard(geometry::WISH);
            self.wish = (wish != u64::MAX).then(|| Instant::from_nanos(wish));
            self.issue(calls);
        }
    }

    /// The event with the window that is left of the one it tells.
    fn renewed<'e>(&self, mut event: Event<'e>) -> Event<'e> {
        if let Some(given) = self.given.as_ref().filter(|given| !given.is_empty())
            && let Event::Recv { handle, window, .. }
            | Event::Sent { handle, window, .. }
            | Event::Again { handle, window, .. } = &mut event
        {
            let given = given.get(handle).copied().unwrap_or(0);
            *window = window.saturating_sub(given);
        }
        event
    }

    /// Hands the batch over and waits until it has been seen to. False: the application has gone, or nobody is to
    /// wait for it any more.
    fn hand_over(&mut self) -> bool {
        let Self { parts, batch, meanwhile, stop, stats, .. } = self;
        let NearParts { events, calls, waiting, gone, .. } = parts;
        let words = [
            events.word(geometry::BATCH),
            events.word(geometry::ASLEEP),
            calls.word(geometry::BATCH),
            calls.word(geometry::ASLEEP),
        ];
        let [Some(begun), Some(asleep), Some(done), Some(other_asleep)] = words else {
            return false;
        };
        begun.store(*batch, Ordering::Release);
        waiting::wake(begun, other_asleep);
        let is_split = waiting.placement == Placement::Split;
        let mut since = None;
        let mut reported = false;
        while !waiting::look(done, if is_split { LOOKS } else { 0 }, |done| done == *batch) {
            let now = meanwhile();
            let since = *since.get_or_insert(now);
            if !reported && now.since(since) >= UNRESPONSIVE {
                reported = true;
                NearStats::add(&stats.unresponsive);
            }
            let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
            if is_set(gone) || stop.is_some_and(is_set) {
                return false;
            }
            if !is_split {
                let old = done.load(Ordering::Relaxed);
                if old != *batch {
                    waiting::sleep(done, old, asleep, NAP);
                }
            }
        }
        true
    }

    /// Issues what the application asked for.
    fn issue(&mut self, calls: &mut Calls<'_>) {
        let geometry = self.parts.geometry;
        let count = self.heard_count(geometry::CALLS, geometry.call_records());
        let pieces = self.heard_count(geometry::PIECES, geometry.arena_chunks as usize);
        for index in 0..count {
            let at = geometry.call(index);
            let words = std::array::from_fn(|word| self.heard(at + 8 * word));
            match record::call(&words) {
                Some(record) => self.issue_one(record, pieces, calls),
                None => NearStats::add(&self.stats.violations),
            }
        }
    }

    fn issue_one(&mut self, record: CallRecord, pieces: usize, calls: &mut Calls<'_>) {
        let issued = match record {
            CallRecord::Connect { cookie, peer } => calls.connect(cookie, peer),
            CallRecord::Accept { handle, cookie } => calls.accept(handle, cookie),
            CallRecord::RecvDone { handle, bytes } => calls.recv_done(handle, bytes as usize),
            CallRecord::Close { handle } => calls.close(handle),
            CallRecord::Abort { handle } => calls.abort(handle),
            CallRecord::Again { handle } => {
                calls.again(handle);
                Ok(())
            }
            CallRecord::Sendv { handle, staged } => {
                let Some(len) = self.gather(staged, pieces) else { return };
                if let Some(given) = &mut self.given {
                    *given.entry(handle).or_default() += len as u32;
                }
                let sent = calls.sendv_with(handle, len, copier(&self.parts.arena, &self.pieces));
                // A hole in the stream cannot be mended.
                sent.or_else(|_| calls.abort(handle).and(Err(domain::Full)))
            }
            CallRecord::UdpSendv { local_port, peer, staged } => {
                let Some(len) = self.gather(staged, pieces) else { return };
                let fill = copier(&self.parts.arena, &self.pieces);
                calls.udp_sendv_with(local_port, peer, len, fill)
            }
        };
        if issued.is_err() {
            NearStats::add(&self.stats.refused);
        }
    }

    /// Reads where the bytes of a call stand, each word once, into `pieces`. Answers how many bytes; none where
    /// they are not all in the arena.
    fn gather(&mut self, staged: Staged, pieces: usize) -> Option<usize> {
        let mut gathered = std::mem::take(&mut self.pieces);
        gathered.clear();
        let (first, count) = (staged.first as usize, staged.count as usize);
        let arena = self.parts.arena.len() as u64;
        let mut total = 0;
        let mut valid = first.saturating_add(count) <= pieces;
        for index in first..first + if valid { count } else { 0 } {
            let word = self.heard(self.parts.geometry.piece(index));
            let (offset, len) = (word >> 16, word & 0xffff);
            valid &= offset.saturating_add(len) <= arena;
            total += len as usize;
            gathered.push((offset as usize, len as usize));
        }
        self.pieces = gathered;
        if !valid {
            NearStats::add(&self.stats.violations);
        }
        valid.then_some(total)
    }
}

/// Writes the bytes of `pieces` one after the other, with their sums: of what was copied, as the application may
/// write there meanwhile.
fn copier<'m>(
    arena: &'m Memory,
    pieces: &'m [(usize, usize)],
) -> impl FnMut(&mut [u8]) -> Sum + 'm {
    let mut pieces = pieces.iter().copied();
    let mut rest = (0, 0);
    move |room| {
        let mut filled = 0;
        while filled < room.len() {
            if rest.1 == 0 {
                let Some(next) = pieces.next() else { break };
                rest = next;
                continue;
            }
            let count = rest.1.min(room.len() - filled);
            if !arena.copy_out(rest.0, &mut room[filled..filled + count]) {
                break;
            }
            filled += count;
            rest = (rest.0 + count, rest.1 - count);
        }
        // What was not written (there is no such thing: pieces were checked) is not what was there before.
        room[filled..].fill(0);
        Sum::of(room)
    }
}

impl Service for Near<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        let several = events.len() > self.parts.geometry.events as usize;
        self.given = several.then(HashMap::new);
        let mut rest = events.iter().peekable();
        // At least once: the application may have wished to be run without an event.
        loop {
            if self.has_gone() {
                self.wish = None;
                return;
            }
            self.cross(now, &mut rest, calls);
            if rest.peek().is_none() {
                return;
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wish
    }

    fn runs_anywhere(&self) -> bool {
        self.parts.runs_anywhere
    }
}

impl std::fmt::Debug for Near<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Near")
            .field("batch", &self.batch)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
