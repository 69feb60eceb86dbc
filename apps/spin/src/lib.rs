//! The synthetic service of ZygOS §3: each request carries its own service time.
//!
//! The service spins for that time and returns the request. With the times drawn by the client, one
//! service serves every distribution, and what is measured can be laid beside a queueing model.
//!
//! ```
//! use tailplane::MonotonicClock;
//! use spin::{Frame, SpinMode, SpinService};
//! let service = SpinService::new(SpinMode::Busy, MonotonicClock::new());
//! assert_eq!(service.connections(), 0);
//! let request = Frame { service_ns: 10_000, sequence: 7 };
//! assert_eq!(Frame::from_bytes(&request.to_bytes()), request);
//! ```
//!
//! A service that runs in a simulation cannot make virtual time pass, and spinning would never
//! end: [`SpinMode::Delay`] answers when the time would have been spent instead, one request after
//! the other, as one core serves them.

mod busy;
mod delay;
mod frame;
mod pending;

pub use busy::{Connection, Spin};
pub use delay::DelayedSpin;
pub use frame::{Assembler, FRAME_BYTES, Frame, SERVICE_NS_MAX};
pub use pending::Pending;

use std::sync::Arc;

use tailplane::{Calls, Clock, Events, Instant, Server, Service, SharedServer, SharedSlots};

/// How a request's service time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinMode {
    /// The elastic thread spins: a real clock moves on meanwhile.
    Busy,
    /// The response is held back by a timer: for virtual clocks, which stand still during a batch.
    Delay,
    /// The same, with a core for each request: latencies are known however much is asked for.
    Parallel,
}

/// The service in any mode. (Where the mode is known, `Server::new(Spin::new(clock))` and
/// [`DelayedSpin`] do without the choice.)
#[derive(Debug)]
pub enum SpinService<C: Clock> {
    /// Spins.
    Busy(Server<Spin<C>>),
    /// Spins, and so does any other core for its connections.
    Shared(SharedServer<Spin<C>>),
    /// Holds the responses back.
    Delay(DelayedSpin),
}

impl<C: Clock> SpinService<C> {
    /// A service without connections; `clock` is looked at in [`SpinMode::Busy`] only.
    pub fn new(mode: SpinMode, clock: C) -> Self {
        match mode {
            SpinMode::Busy => Self::Busy(Server::new(Spin::new(clock))),
            SpinMode::Delay => Self::Delay(DelayedSpin::new()),
            SpinMode::Parallel => Self::Delay(DelayedSpin::parallel()),
        }
    }

    /// The service of elastic thread `core` in [`SpinMode::Busy`], whose connections any core may serve:
    /// while one spins, an idle one runs the turns that wait (ZygOS §3).
    ///
    /// # Panics
    /// As [`Server::shared`].
    pub fn shared(core: usize, clock: C, slots: &Arc<SharedSlots<Connection>>) -> Self {
        Self::Shared(Server::shared(core, Spin::new(clock), Arc::clone(slots)))
    }

    /// Connections that are open, of those that were accepted here.
    pub fn connections(&self) -> usize {
        match self {
            Self::Busy(server) => server.connections(),
            Self::Shared(server) => server.connections(),
            Self::Delay(service) => service.connections(),
        }
    }
}

impl<C: Clock> Service for SpinService<C> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        match self {
            Self::Busy(server) => server.on_batch(now, events, calls),
            Self::Shared(server) => server.on_batch(now, events, calls),
            Self::Delay(service) => service.on_batch(now, events, calls),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Busy(server) => server.wake_at(),
            Self::Shared(server) => server.wake_at(),
            Self::Delay(service) => service.wake_at(),
        }
    }

    fn runs_anywhere(&self) -> bool {
        match self {
            Self::Busy(server) => server.runs_anywhere(),
            Self::Shared(server) => server.runs_anywhere(),
            Self::Delay(service) => service.runs_anywhere(),
        }
    }
}
