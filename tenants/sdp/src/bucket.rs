//! Token buckets: requests and bytes a second, with a burst, for a tenant whose queues several cores
//! may serve.
//!
//! ```
//! use sdp::RateLimit;
//! let limit = RateLimit { requests_per_s: 10_000, burst_requests: 32, ..RateLimit::NONE };
//! # let _ = limit;
//! ```
//!
//! A bucket is one word (the generic cell rate algorithm, ITU-T I.371 annex A): the moment at which it
//! would be full again. Taking moves that moment on by the cost of what is taken; more than a burst
//! ahead of now is too far. A take is one load and one compare-and-exchange; no timer fills anything.

use std::sync::atomic::{AtomicU64, Ordering};

use clock::{Duration, Instant};

const NANOS_PER_S: u64 = 1_000_000_000;
/// Tries against other cores that take at the same moment. They got what they took, so that the
/// limit holds; who loses so often comes back.
const TRIES: u32 = 8;
/// Who loses them all comes back after this.
const LATER: Duration = Duration::from_micros(10);

/// What a tenant may take. Zero a second: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RateLimit {
    /// Requests a second.
    pub requests_per_s: u64,
    /// Requests at once after a pause; at least one.
    pub burst_requests: u64,
    /// Bytes of requests a second. The cost of a request is rounded up to a nanosecond.
    pub bytes_per_s: u64,
    /// Bytes at once after a pause; at least one request of the largest size.
    pub burst_bytes: u64,
}

impl RateLimit {
    /// No limit.
    pub const NONE: Self =
        Self { requests_per_s: 0, burst_requests: 0, bytes_per_s: 0, burst_bytes: 0 };
}

/// Time that so many units take at a rate, rounded up; saturates.
fn cost_ns(units: u64, per_s: u64) -> u64 {
    let nanos = (u128::from(units) * u128::from(NANOS_PER_S)).div_ceil(u128::from(per_s.max(1)));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[derive(Debug, Default)]
struct Bucket {
    per_s: AtomicU64,
    burst_ns: AtomicU64,
    /// When it would be full again.
    full_at_ns: AtomicU64,
}

impl Bucket {
    fn set(&self, per_s: u64, burst: u64) {
        self.burst_ns.store(cost_ns(burst, per_s), Ordering::Relaxed);
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    /// Takes, or says when there is enough.
    fn take(&self, now: Instant, units: u64) -> Result<(), Instant> {
        let per_s = self.per_s.load(Ordering::Relaxed);
        if per_s == 0 {
            return Ok(());
        }
        let (cost, now_ns) = (cost_ns(units, per_s), now.as_nanos());
        // What costs more than a burst could never be had otherwise.
        let burst = self.burst_ns.load(Ordering::Relaxed).max(cost);
        let mut full_at = self.full_at_ns.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            let later = full_at.max(now_ns).saturating_add(cost);
            if later - now_ns > burst {
                return Err(Instant::from_nanos(later - burst));
            }
            let order = Ordering::Relaxed;
            match self.full_at_ns.compare_exchange(full_at, later, order, order) {
                Ok(_) => return Ok(()),
                Err(other) => full_at = other,
            }
        }
        Err(now + LATER)
    }

    /// Gives back what was taken.
    fn give(&self, units: u64) {
        let per_s = self.per_s.load(Ordering::Relaxed);
        if per_s > 0 {
            // It was added, and nobody takes away but by this.
            self.full_at_ns.fetch_sub(cost_ns(units, per_s), Ordering::Relaxed);
        }
    }
}

/// A tenant's two buckets.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    requests: Bucket,
    bytes: Bucket,
}

impl Limiter {
    /// Full buckets of this limit.
    pub(crate) fn new(limit: RateLimit) -> Self {
        let new = Self::default();
        new.set(limit);
        new
    }

    /// When it would be full again.
    pub(crate) fn full_at(&self) -> Instant {
        let at = |bucket: &Bucket| bucket.full_at_ns.load(Ordering::Relaxed);
        Instant::from_nanos(at(&self.requests).max(at(&self.bytes)))
    }

    /// Sets the limit; cores see it at their next request.
    pub(crate) fn set(&self, limit: RateLimit) {
        self.requests.set(limit.requests_per_s, limit.burst_requests.max(1));
        self.bytes.set(limit.bytes_per_s, limit.burst_bytes);
    }

    /// Whether there is a limit at all: two loads of lines that seldom change.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.requests.per_s.load(Ordering::Relaxed) | self.bytes.per_s.load(Ordering::Relaxed) != 0
    }

    /// Takes one request of so many bytes, or says when to come back.
    pub(crate) fn take(&self, now: Instant, bytes: u64) -> Result<(), Instant> {
        self.requests.take(now, 1)?;
        self.bytes.take(now, bytes).inspect_err(|_| self.requests.give(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(limit: RateLimit) -> Limiter {
        let limiter = Limiter::default();
        limiter.set(limit);
        limiter
    }

    /// Takes as fast as it can for a second: how many came through.
    fn in_a_second(limiter: &Limiter, bytes: u64) -> u64 {
        let (start, mut now, mut taken) = (Instant::from_millis(5), Instant::from_millis(5), 0);
        while now.since(start) < Duration::from_secs(1) {
            match limiter.take(now, bytes) {
                Ok(()) => taken += 1,
                Err(later) => {
                    assert!(later > now, "time goes on");
                    now = later;
                }
            }
        }
        taken
    }

    #[test]
    fn a_rate_and_a_burst_are_kept() {
        let limit = RateLimit { requests_per_s: 1_000, burst_requests: 10, ..RateLimit::NONE };
        let limiter = limiter(limit);
        assert_eq!(in_a_second(&limiter, 1 << 20), 1_010 - 1);
        // After a pause the burst is back, and no more.
        let later = Instant::from_millis(60_000);
        let burst = (0..100).filter(|_| limiter.take(later, 0).is_ok()).count();
        assert_eq!(burst, 10);
    }

    #[test]
    fn bytes_are_limited_too_and_a_refused_request_costs_nothing() {
        let limit = RateLimit { bytes_per_s: 64_000, burst_bytes: 640, ..RateLimit::NONE };
        assert_eq!(in_a_second(&limiter(limit), 64), 1_009);
        let both = RateLimit { requests_per_s: 2_000, burst_requests: 1, ..limit };
        let both = limiter(both);
        // Each refusal by the bytes gives its request back, else the rate would fall below.
        assert!(in_a_second(&both, 64) >= 1_000);
    }

    #[test]
    fn without_a_limit_everything_passes_and_absurd_ones_do_not_overflow() {
        let open = limiter(RateLimit::NONE);
        assert!(!open.is_limited() && open.take(Instant::ZERO, u64::MAX).is_ok());
        let slow = RateLimit { requests_per_s: 1, burst_requests: u64::MAX, ..RateLimit::NONE };
        assert!(limiter(slow).take(Instant::from_nanos(u64::MAX - 1), 0).is_ok());
        let huge = RateLimit { bytes_per_s: 1, burst_bytes: 0, ..RateLimit::NONE };
        let huge = limiter(huge);
        assert!(huge.is_limited() && huge.take(Instant::ZERO, 1 << 40).is_ok());
        assert!(huge.take(Instant::from_millis(1), 1).is_err(), "it is paid for");
    }
}
