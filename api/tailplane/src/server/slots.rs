//! Where a server's connections stand: in slots of its own ([`OwnSlots`]), or in a table that the servers
//! of all cores share ([`CoreSlots`](super::CoreSlots)). Which one is a type, so that the former costs
//! nothing for the latter.

use core::ops::DerefMut;
use std::sync::Arc;

use clock::Instant;
use domain::{Cookie, Handle};
use mem::TableBox;

use super::batch;
use super::limits::ConnectionMemory;
use super::sending::Sending;

/// One connection.
#[derive(Debug)]
pub struct Slot<C> {
    pub(super) sending: Sending,
    /// Ended for the protocol, but not yet for the dataplane, where `None`.
    pub(super) connection: Option<C>,
}

impl<C> Slot<C> {
    /// Since when the connection has been idle; `None`: it keeps something, or ends.
    pub(super) fn idle_since(&self, now: Instant) -> Option<Instant> {
        let is_idle = self.connection.is_some() && self.sending.is_clear();
        is_idle.then(|| batch::last_moment(self.sending.batch, now).min(now))
    }
}

/// Slots that are allocated together.
pub(super) const PAGE: usize = 64;
/// Slots beyond which a batch's are asked for before the first of them is used: fewer are in the caches.
pub(super) const CACHED: usize = 4_096;

/// Connections, by cookie. They never move.
pub trait Slots<C> {
    /// A slot in hand.
    type Guard<'a>: DerefMut<Target = Option<Slot<C>>>
    where
        Self: 'a,
        C: 'a;

    /// Whether another core's server finds the slots too.
    const SHARED: bool;

    /// The slot that a cookie names; `None` where it names none, or the slot is in other hands.
    fn get(&mut self, cookie: Cookie) -> Option<Self::Guard<'_>>;

    /// Asks for the memory of a slot ahead of its use.
    fn prefetch(&self, cookie: Cookie);

    /// A slot that is free. `None`: there are as many as there may be.
    fn take(&mut self) -> Option<Cookie>;

    /// A slot that was taken has a connection. Nothing is to be done where the slot itself has all of it.
    fn occupy(&mut self, _cookie: Cookie, _handle: Handle) {}

    /// The connection in the `index`-th of the [`capacity`](Self::capacity) slots that were allocated here; `None`:
    /// there is none.
    fn connection(&self, index: usize) -> Option<(Cookie, Handle)>;

    /// A slot that was taken, here or on another core, is free.
    fn release(&mut self, cookie: Cookie);

    /// Slots that were allocated here.
    fn capacity(&self) -> usize;

    /// Those of them that are taken.
    fn taken(&self) -> usize;

    /// The core's number where numbers of batches have it: servers that share slots have different ones.
    fn first_batch(&self) -> u64 {
        0
    }

    /// What the connections keep is charged to this, where the protocol names no other.
    fn memory(&self) -> Arc<ConnectionMemory> {
        Arc::default()
    }

    /// Times that a slot was in other hands.
    fn out_of_turn(&self) -> u64 {
        0
    }
}

/// A slot on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Line<C>(Option<Slot<C>>);

const _: () = assert!(size_of::<Line<u64>>() == 64);

/// Slots of one server alone. A cookie is a slot's number.
#[derive(Debug)]
pub struct OwnSlots<C> {
    pages: Vec<TableBox<[Line<C>; PAGE]>>,
    free: Vec<u32>,
}

impl<C> OwnSlots<C> {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new(), free: Vec::new() }
    }
}

impl<C> Slots<C> for OwnSlots<C> {
    type Guard<'a>
        = &'a mut Option<Slot<C>>
    where
        C: 'a;
    const SHARED: bool = false;

    #[inline]
    fn get(&mut self, cookie: Cookie) -> Option<&mut Option<Slot<C>>> {
        let index = cookie.0 as usize;
        Some(&mut self.pages.get_mut(index / PAGE)?[index % PAGE].0)
    }

    #[inline]
    fn prefetch(&self, cookie: Cookie) {
        let index = cookie.0 as usize;
        if let Some(page) = self.pages.get(index / PAGE) {
            mem::prefetch(&page[index % PAGE]);
        }
    }

    /// Allocates a page now and then: when a connection opens.
    fn take(&mut self) -> Option<Cookie> {
        if self.free.is_empty() {
            let first = (self.pages.len() * PAGE) as u32;
            self.pages.push(TableBox::new(std::array::from_fn(|_| Line(None))));
            self.free.extend((first..first + PAGE as u32).rev());
        }
        self.free.pop().map(|index| Cookie(index.into()))
    }

    fn connection(&self, index: usize) -> Option<(Cookie, Handle)> {
        let slot = self.pages.get(index / PAGE)?[index % PAGE].0.as_ref()?;
        Some((Cookie(index as u64), slot.sending.handle))
    }

    fn release(&mut self, cookie: Cookie) {
        self.free.push(cookie.0 as u32);
    }

    #[inline]
    fn capacity(&self) -> usize {
        self.pages.len() * PAGE
    }

    fn taken(&self) -> usize {
        self.capacity() - self.free.len()
    }
}
