//! How control crosses between the dataplane and the application (IX §4.3, Table II).
//!
//! In step 3 of an elastic thread's cycle the application consumes a bounded array of *event
//! conditions* and fills a bounded array of *batched system calls*, which step 4 executes. Both
//! hold fixed-size records; results of calls come as events of a later batch, since under a
//! scheduler that steals the batch may be executed on another core.
//!
//! A [`Service`] is what an application implements; [`Events`] and [`Calls`] are its two arrays.
//! This crate is the vocabulary; the dataplane fills and executes the arrays.
#![no_std]
extern crate alloc;

mod calls;
mod events;
mod handle;

pub use calls::{CallArray, CallKind, CallRecord, Calls, Full, Staged};
pub use events::{
    BufferRef, CallError, ConnectError, DeadReason, Event, EventArray, EventRecord, Events, Held,
    Received,
};
pub use handle::{Cookie, Handle};

use clock::Instant;

/// An application: what runs in step 3 (IX Figure 2).
///
/// One value serves one elastic thread and is never entered from another. It must not block: the
/// network stack of its core waits for it.
pub trait Service {
    /// Consumes one batch of events and issues calls. `now` is the moment at which the batch was
    /// received.
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>);

    /// The next moment at which the service wants to be run although no event has come: a load
    /// generator's next request, an item's expiry. `None`: only on events.
    fn wake_at(&self) -> Option<Instant> {
        None
    }
}

impl<S: Service + ?Sized> Service for alloc::boxed::Box<S> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        (**self).on_batch(now, events, calls);
    }
    fn wake_at(&self) -> Option<Instant> {
        (**self).wake_at()
    }
}

#[cfg(test)]
mod tests;
