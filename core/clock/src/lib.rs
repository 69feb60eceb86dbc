//! Time as a parameter.
//!
//! Nothing in the dataplane reads a clock: every step is handed `now`. Real threads take it from
//! [`MonotonicClock`], simulations from [`VirtualClock`], so that one seed replays one run.
//!
//! ```
//! use clock::{Clock, Duration, Instant, VirtualClock};
//! let mut clock = VirtualClock::default();
//! clock.advance(Duration::from_micros(16));
//! assert_eq!(clock.now(), Instant::from_nanos(16_000));
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

mod due;

use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;
pub use due::DueQueue;

/// A moment, in nanoseconds since an origin that the clock chooses (boot, or the start of a
/// simulation). Totally ordered; arithmetic saturates, so that no peer-supplied delay overflows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than every moment that a clock returns.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The moment `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The moment `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time from `earlier` to `self`; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Nanoseconds of a duration, saturated to 64 bits (585 years).
const fn nanos_of(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos_of(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos_of(duration)))
    }
}

/// Something that tells the time.
pub trait Clock {
    /// The present moment. Never earlier than an earlier answer of the same clock.
    fn now(&self) -> Instant;
}

/// The clock of a simulation or a test: stands still until it is moved.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock {
    now: Instant,
}

impl VirtualClock {
    /// Moves the clock forward by `duration`.
    pub fn advance(&mut self, duration: Duration) {
        self.now += duration;
    }

    /// Moves the clock to `moment`; a moment in the past leaves it where it is.
    pub fn advance_to(&mut self, moment: Instant) {
        self.now = self.now.max(moment);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.now
    }
}

/// The machine's monotonic clock (`CLOCK_MONOTONIC`, read in the vDSO: no system call).
///
/// All clones share one origin, so that instants of different threads compare.
#[cfg(feature = "std")]
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: std::time::Instant,
}

#[cfg(feature = "std")]
impl MonotonicClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }
}

#[cfg(feature = "std")]
impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(feature = "std")]
impl Clock for MonotonicClock {
    fn now(&self) -> Instant {
        Instant(nanos_of(self.origin.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Instant::FAR_FUTURE + Duration::from_secs(1), Instant::FAR_FUTURE);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(
            Instant::from_micros(3).since(Instant::from_micros(1)),
            Duration::from_micros(2)
        );
        assert_eq!(Instant::from_micros(1).since(Instant::from_micros(3)), Duration::ZERO);
    }

    #[test]
    fn the_virtual_clock_never_goes_back() {
        let mut clock = VirtualClock::default();
        clock.advance_to(Instant::from_millis(5));
        clock.advance_to(Instant::from_millis(1));
        assert_eq!(clock.now(), Instant::from_millis(5));
    }

    #[test]
    fn the_monotonic_clock_advances() {
        let clock = MonotonicClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
