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

mod answers;
mod calls;
mod event_array;
mod events;
mod full;
mod handle;
mod info;
mod local;
mod mirrored;
mod placed;

pub use answers::Answers;
pub use calls::{CallArray, CallRecord, Calls, Staged, Transport};
pub use event_array::{EventArray, EventIter, Events, Held};
pub use events::{
    BufferRef, CallError, CallKind, ConnectError, DeadReason, Event, EventRecord, FirstWindow,
    Received,
};
pub use full::Full;
pub use handle::{Cookie, Handle};
pub use info::ConnectionInfo;
pub use local::LocalEndpoint;
pub use mirrored::{Appended, EventMirror};
pub use placed::{Placed, SharedMemory};

use clock::Instant;

/// An application: what runs in step 3 (IX Figure 2).
///
/// One value serves one elastic thread and is never entered from another. It must not block: the
/// network stack of its core waits for it.
///
/// # Which value is told of a connection
///
/// The one of the connection's home core, always, unless the service [runs
/// anywhere](Self::runs_anywhere).
pub trait Service {
    /// Consumes one batch of events and issues calls. `now` is the moment at which the batch was
    /// received.
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>);

    /// The next moment at which the service wants to be run although no event has come: a load
    /// generator's next request, an item's expiry. `None`: only on events.
    fn wake_at(&self) -> Option<Instant> {
        None
    }

    /// Whether no batch is to be handed over now: what serves is in another process, and has the batch before, or may
    /// not have another one yet. Events wait meanwhile, and the network stack goes on. Asked in each cycle of a thread
    /// that runs to completion; schedulers that share a core's work do not ask.
    fn is_away(&mut self, _now: Instant) -> bool {
        false
    }

    /// Whether the batch is not over though [`on_batch`](Self::on_batch) has returned: what was received with it stays
    /// where it is, and the calls come with [`collect`](Self::collect), as soon as the service [is not
    /// away](Self::is_away) any more.
    fn has_batch(&self) -> bool {
        false
    }

    /// Issues the calls of such a batch. They are executed before the next batch, whose events tell windows of after
    /// that.
    fn collect(&mut self, _now: Instant, _calls: &mut Calls<'_>) {}

    /// Whether a connection's events may be handed to another core's value of this service, so that a
    /// scheduler that is work-conserving can let an idle core run them (ZygOS §4.4). All values of a
    /// dataplane answer the same, and always the same.
    ///
    /// A service that answers `true` finds the state of a connection by its cookie from any of its values,
    /// and needs no lock for it. It is promised:
    /// - *turns*: all that there is for one connection is handed to one value at a time, and to the next
    ///   one only after the calls that it answered with were executed; what one value wrote for the
    ///   connection, the next one sees;
    /// - *the connection's home* alone is told of `Knock`, `Connected`, `Dead`, `Failed` and `Datagram`; so
    ///   what begins and ends a connection's state is run by one core's value;
    /// - *calls* on the turn's own connection are executed at its home, in order. On other connections,
    ///   and without one, a turn that another core runs issues none but [`Calls::again`], which is carried to
    ///   the connection's home;
    /// - a *window* in an event is that at the moment of the hand-over.
    ///
    /// Not promised: [`Events::held`], and that [`wake_at`](Self::wake_at) is asked on another core than
    /// the value's own.
    fn runs_anywhere(&self) -> bool {
        false
    }
}

/// A pointer to a service is one: every method is passed on. One that is forgotten here would be the trait's default,
/// silently.
macro_rules! passes_on {
    ($pointer:ty) => {
        impl<S: Service + ?Sized> Service for $pointer {
            fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
                (**self).on_batch(now, events, calls);
            }
            fn wake_at(&self) -> Option<Instant> {
                (**self).wake_at()
            }
            fn is_away(&mut self, now: Instant) -> bool {
                (**self).is_away(now)
            }
            fn has_batch(&self) -> bool {
                (**self).has_batch()
            }
            fn collect(&mut self, now: Instant, calls: &mut Calls<'_>) {
                (**self).collect(now, calls);
            }
            fn runs_anywhere(&self) -> bool {
                (**self).runs_anywhere()
            }
        }
    };
}

passes_on!(alloc::boxed::Box<S>);
passes_on!(&mut S);

#[cfg(test)]
mod tests;
