//! Numbers of batches: each names the core and the second in which the batch came, so that a connection that
//! remembers the batch of its last event also remembers when that was.

use clock::{Duration, Instant};

/// Nanoseconds of a tick, as a shift: a little over a second.
const TICK_SHIFT: u32 = 30;
/// Ticks that are told apart: eight years.
const TICK_BITS: u32 = 28;
/// Batches of one core within a tick: more than any core serves.
const COUNT_BITS: u32 = 28;
/// Position of the core's number.
pub(super) const CORE_SHIFT: u32 = TICK_BITS + COUNT_BITS;

/// Ticks since the clock's origin.
#[inline]
pub(super) fn tick(now: Instant) -> u64 {
    now.as_nanos() >> TICK_SHIFT
}

/// Whole ticks in a duration.
pub(super) fn ticks(duration: Duration) -> u64 {
    (duration.as_nanos() >> TICK_SHIFT) as u64
}

/// The first batch in a tick; `core` is the core's number in its place.
pub(super) fn first(core: u64, tick: u64) -> u64 {
    core | (tick & ((1 << TICK_BITS) - 1)) << COUNT_BITS
}

/// The tick that batch number `batch` came in, as its lowest bits.
pub(super) fn tick_of(batch: u64) -> u64 {
    batch >> COUNT_BITS & ((1 << TICK_BITS) - 1)
}

/// The end of the tick that batch number `batch` came in.
pub(super) fn last_moment(batch: u64, now: Instant) -> Instant {
    let passed = tick(now).wrapping_sub(batch >> COUNT_BITS) & ((1 << TICK_BITS) - 1);
    Instant::from_nanos((tick(now).saturating_sub(passed) + 1) << TICK_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_remembers_its_second() {
        for core in [0, 7, 255u64] {
            for seconds in [0, 1, 5, 1_000_000] {
                let then = Instant::ZERO + Duration::from_secs(seconds);
                let batch = first(core << CORE_SHIFT, tick(then)) + 12_345;
                for later in [0, 3, 90, 40_000] {
                    let moment = last_moment(batch, then + Duration::from_secs(later));
                    assert!(moment >= then && moment <= then + Duration::from_millis(1_100));
                }
            }
        }
    }
}
