//! One queue pair: a submission ring to the plane, a completion ring back, and what each side keeps.
//!
//! ```text
//! tenant   submit   n = submitted + 1; slot[n % depth] = payload; its header = (length, n); ring
//! plane    look     header of slot[(head + 1) % depth], read once: is its number head + 1?
//!          take     copy the payload, once; serve the copy
//!          complete completion slot of the same number = reply; its header = (length, n); head = n
//! tenant   poll     header of the next completion: is it the next number? copy; consumed += 1
//! ```
//!
//! A header is one word of 64 bits, so that a length belongs to its number whatever the other side
//! does meanwhile. Every request has one completion of the same number, in order; so one counter of
//! the plane's is both rings' position, and a tenant that has at most `depth` requests outstanding
//! (its *credits*) overruns neither ring. The plane does not rely on that: it looks at `consumed`.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::geometry::{Geometry, HEADER_BYTES};
use memfile::Memory;

/// Set in a completion's length where the request was refused.
const REFUSED: u32 = 1 << 31;

#[inline]
fn header(len: u32, number: u32) -> u64 {
    u64::from(len) << 32 | u64::from(number)
}

#[inline]
fn split(header: u64) -> (u32, u32) {
    ((header >> 32) as u32, header as u32)
}

/// Where one queue's parts lie.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    consumed: usize,
    submissions: usize,
    completions: usize,
    /// From slot to slot.
    stride: usize,
    /// Entries less one.
    mask: u32,
    /// Most bytes of a payload.
    slot_bytes: u32,
}

impl Offsets {
    fn new(geometry: &Geometry, queue: u32) -> Self {
        let shape = geometry.shape();
        debug_assert!(shape.depth.is_power_of_two() && queue < shape.queues);
        Self {
            consumed: geometry.consumed(queue),
            submissions: geometry.submissions(queue),
            completions: geometry.completions(queue),
            stride: geometry.slot_stride(),
            mask: shape.depth - 1,
            slot_bytes: shape.slot_bytes,
        }
    }

    #[inline]
    fn submission(&self, number: u32) -> usize {
        self.submissions + (number & self.mask) as usize * self.stride
    }

    #[inline]
    fn completion(&self, number: u32) -> usize {
        self.completions + (number & self.mask) as usize * self.stride
    }
}

/// What the plane found at a queue's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// No request of the next number.
    Nothing,
    /// A request of so many bytes; they fit a slot.
    Request(u32),
    /// A request with a length that no slot has.
    TooLong,
}

/// Whether there is a place for the next completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// Yes.
    Free,
    /// The tenant has as many completions left as there are places.
    None,
    /// The tenant says that it consumed what it did not get.
    Lied,
}

/// The plane's side of a queue: everything here is the plane's own memory. Only the queue's owner of
/// the moment uses it, so that the atomics are plain loads and stores; what makes its writes visible to
/// the next owner is the claim (`qwait`'s, or [`try_lock`](Self::try_lock)).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct PlanePair {
    /// The last request that was served, which is the last completion, too.
    head: AtomicU32,
    /// Completions that the tenant consumed, when last looked at.
    consumed: AtomicU32,
    /// Visits' worth of requests in a row.
    weight: AtomicU32,
    /// Spinning cores that share queues: held by the one that serves it.
    lock: AtomicU32,
    /// Spinning cores: left alone until a timer says otherwise.
    aside: AtomicU32,
    offsets: Offsets,
}

impl PlanePair {
    pub(crate) fn new(geometry: &Geometry, queue: u32, weight: u32) -> Self {
        Self {
            head: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            weight: AtomicU32::new(weight),
            lock: AtomicU32::new(0),
            aside: AtomicU32::new(0),
            offsets: Offsets::new(geometry, queue),
        }
    }

    /// Looks for the next request. Two loads, of the head's slot and the plane's own line.
    #[inline]
    pub(crate) fn look(&self, memory: &Memory) -> Look {
        self.look_ahead(memory, 0)
    }

    /// Looks for the request after so many others.
    #[inline]
    pub(crate) fn look_ahead(&self, memory: &Memory, ahead: u32) -> Look {
        let next = self.head.load(Ordering::Relaxed).wrapping_add(1 + ahead);
        let Some(place) = memory.word64(self.offsets.submission(next)) else {
            return Look::Nothing;
        };
        let (len, number) = split(place.load(Ordering::Acquire));
        match number == next {
            false => Look::Nothing,
            true if len <= self.offsets.slot_bytes => Look::Request(len),
            true => Look::TooLong,
        }
    }

    /// Whether the next completion has a place. Reads the tenant's word only where the plane's own
    /// knowledge says that there is none: once a round of the ring, for an honest tenant.
    #[inline]
    pub(crate) fn room(&self, memory: &Memory) -> Room {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.consumed.load(Ordering::Relaxed)) <= self.offsets.mask {
            return Room::Free;
        }
        let Some(place) = memory.word(self.offsets.consumed) else { return Room::None };
        let consumed = place.load(Ordering::Acquire);
        let outstanding = head.wrapping_sub(consumed);
        if outstanding > self.offsets.mask + 1 {
            return Room::Lied;
        }
        self.consumed.store(consumed, Ordering::Relaxed);
        if outstanding <= self.offsets.mask { Room::Free } else { Room::None }
    }

    /// Copies the next request, of the length that [`look`](Self::look) told, into private memory.
    #[inline]
    pub(crate) fn take<'a>(&self, memory: &Memory, len: u32, to: &'a mut [u8]) -> &'a [u8] {
        let next = self.head.load(Ordering::Relaxed).wrapping_add(1);
        let len = (len.min(self.offsets.slot_bytes) as usize).min(to.len());
        let to = &mut to[..len];
        // Slots lie inside the memory: the geometry is the plane's own.
        let copied = memory.copy_out(self.offsets.submission(next) + HEADER_BYTES, to);
        debug_assert!(copied);
        to
    }

    /// Answers the next request, which is then over. `None`: it was refused.
    #[inline]
    pub(crate) fn complete(&self, memory: &Memory, reply: Option<&[u8]>) {
        let next = self.head.load(Ordering::Relaxed).wrapping_add(1);
        let at = self.offsets.completion(next);
        let bytes = reply.unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(self.offsets.slot_bytes as usize)];
        let copied = memory.copy_in(at + HEADER_BYTES, bytes);
        debug_assert!(copied);
        let len = if reply.is_some() { bytes.len() as u32 } else { REFUSED };
        if let Some(place) = memory.word64(at) {
            // Release: the payload is before it.
            place.store(header(len, next), Ordering::Release);
        }
        self.head.store(next, Ordering::Relaxed);
    }

    /// How many visits' worth of requests it gets in a row.
    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.weight.store(weight, Ordering::Relaxed);
    }

    /// Spinning cores only: becomes the owner, if there is none.
    #[inline]
    pub(crate) fn try_lock(&self) -> bool {
        self.lock.load(Ordering::Relaxed) == 0 && self.lock.swap(1, Ordering::Acquire) == 0
    }

    #[inline]
    pub(crate) fn unlock(&self) {
        self.lock.store(0, Ordering::Release);
    }

    /// Spinning cores only: whether it is left alone for the time being.
    #[inline]
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_aside(&self, aside: bool) {
        self.aside.store(u32::from(aside), Ordering::Relaxed);
    }
}

/// Why a request was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// As many requests are outstanding as the ring has entries: poll for completions first.
    #[error("the queue is full: poll it for replies, then submit again")]
    Full,
    /// The request is larger than a slot.
    #[error("a request of {len} bytes for slots of {slot_bytes}: join with larger slots")]
    TooLong {
        /// The request's size in bytes.
        len: usize,
        /// A slot's.
        slot_bytes: u32,
    },
    /// There is no such queue.
    #[error("queue {queue} of a tenant with {queues}: numbers begin at 0")]
    NoSuchQueue {
        /// Which.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
}

/// The tenant's side of a queue.
#[derive(Debug)]
pub(crate) struct TenantPair {
    submitted: u32,
    consumed: u32,
    offsets: Offsets,
}

impl TenantPair {
    pub(crate) fn new(geometry: &Geometry, queue: u32) -> Self {
        Self { submitted: 0, consumed: 0, offsets: Offsets::new(geometry, queue) }
    }

    /// Requests without a completion that was consumed.
    pub(crate) fn outstanding(&self) -> u32 {
        self.submitted.wrapping_sub(self.consumed)
    }

    /// Puts a request into the ring. The doorbell comes after this.
    #[inline]
    pub(crate) fn submit(&mut self, memory: &Memory, request: &[u8]) -> Result<(), SubmitError> {
        if self.outstanding() > self.offsets.mask {
            return Err(SubmitError::Full);
        }
        let slot_bytes = self.offsets.slot_bytes;
        if request.len() > slot_bytes as usize {
            return Err(SubmitError::TooLong { len: request.len(), slot_bytes });
        }
        let next = self.submitted.wrapping_add(1);
        let at = self.offsets.submission(next);
        let copied = memory.copy_in(at + HEADER_BYTES, request);
        debug_assert!(copied);
        if let Some(place) = memory.word64(at) {
            place.store(header(request.len() as u32, next), Ordering::Release);
        }
        self.submitted = next;
        Ok(())
    }

    /// Takes the next completion, if there is one: its length, and whether the request was refused.
    #[inline]
    pub(crate) fn poll(&mut self, memory: &Memory, to: &mut [u8]) -> Option<(usize, bool)> {
        let next = self.consumed.wrapping_add(1);
        let at = self.offsets.completion(next);
        let (len, number) = split(memory.word64(at)?.load(Ordering::Acquire));
        if number != next || self.outstanding() == 0 {
            return None;
        }
        let refused = len & REFUSED != 0;
        let len = if refused { 0 } else { (len as usize).min(to.len()) };
        let copied = memory.copy_out(at + HEADER_BYTES, &mut to[..len]);
        debug_assert!(copied);
        self.consumed = next;
        // Release: the copy is before it; the plane may use the place again.
        memory.word(self.offsets.consumed)?.store(next, Ordering::Release);
        Some((len, refused))
    }

    /// Whether a completion is there. Sequentially consistent, for who is about to sleep.
    pub(crate) fn is_ready(&self, memory: &Memory) -> bool {
        let next = self.consumed.wrapping_add(1);
        let place = memory.word64(self.offsets.completion(next));
        let number = place.map_or(0, |place| split(place.load(Ordering::SeqCst)).1);
        self.outstanding() > 0 && number == next
    }
}

#[cfg(test)]
#[path = "queue_pair_tests.rs"]
mod tests;
