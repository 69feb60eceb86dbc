//! The synthetic service of ZygOS §3: each request carries its own service time.
//!
//! The service spins for that time and returns the request. With the times drawn by the client, one
//! service serves every distribution, and what is measured can be laid beside a queueing model.
//!
//! ```
//! use tailplane::MonotonicClock;
//! use tailplane_spin::{Frame, SpinMode, SpinService};
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

pub use busy::Spin;
pub use delay::DelayedSpin;
pub use frame::{Assembler, FRAME_BYTES, Frame, SERVICE_NS_MAX};

use tailplane::{Calls, Clock, Events, Instant, Server, Service};

/// How a request's service time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinMode {
    /// The elastic thread spins: a real clock moves on meanwhile.
    Busy,
    /// The response is held back by a timer: for virtual clocks, which stand still during a batch.
    Delay,
}

/// The service in either mode. (Where the mode is known, `Server::new(Spin::new(clock))` and
/// [`DelayedSpin`] do without the choice.)
#[derive(Debug)]
pub enum SpinService<C: Clock> {
    /// Spins.
    Busy(Server<Spin<C>>),
    /// Holds the responses back.
    Delay(DelayedSpin),
}

impl<C: Clock> SpinService<C> {
    /// A service without connections; `clock` is looked at in [`SpinMode::Busy`] only.
    pub fn new(mode: SpinMode, clock: C) -> Self {
        match mode {
            SpinMode::Busy => Self::Busy(Server::new(Spin::new(clock))),
            SpinMode::Delay => Self::Delay(DelayedSpin::new()),
        }
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        match self {
            Self::Busy(server) => server.connections(),
            Self::Delay(service) => service.connections(),
        }
    }
}

impl<C: Clock> Service for SpinService<C> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        match self {
            Self::Busy(server) => server.on_batch(now, events, calls),
            Self::Delay(service) => service.on_batch(now, events, calls),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Busy(server) => server.wake_at(),
            Self::Delay(service) => service.wake_at(),
        }
    }
}
