//! How many chunks the kernel holds to receive into.
//!
//! The fill ring is a queue, so received frames go round through all chunks that it holds: with a few
//! thousand of them every frame lands in lines that have left the caches (and, as chunks lie 2 KiB
//! apart, in few of their sets). With few of them a burst that finds the core descheduled is dropped.
//! So the number follows the bursts: it grows at once to four times the backlog that was seen, and
//! shrinks slowly to what the caches hold.

use clock::{Duration, Instant};

/// Chunks that are lent however quiet it is: two batches twice over, half a megabyte.
pub(super) const FEWEST: u32 = 256;
/// Chunks that are lent at first: a burst that comes before any other has told what to expect.
const FIRST: u32 = 1024;
/// Chunks that are lent for each frame of the largest backlog seen.
const PER_FRAME: u32 = 4;
/// How long a burst is remembered whole.
const HOLD: Duration = Duration::from_secs(1);
/// After that, a quarter less each time.
const STEP: Duration = Duration::from_millis(250);

/// See the module's comment.
#[derive(Debug)]
pub(super) struct Lending {
    most: u32,
    target: u32,
    shrink_at: Option<Instant>,
}

impl Lending {
    /// Never lends more than `most` chunks.
    pub(super) fn new(most: u32) -> Self {
        Self { most, target: most.min(FIRST), shrink_at: None }
    }

    /// Chunks that the kernel should hold now.
    #[inline]
    pub(super) fn target(&self) -> u32 {
        self.target
    }

    /// Hears of frames that waited to be received.
    #[inline]
    pub(super) fn seen(&mut self, backlog: u32, now: Instant) {
        let wanted = backlog.saturating_mul(PER_FRAME).min(self.most);
        if wanted >= self.target || self.shrink_at.is_none() {
            self.target = self.target.max(wanted);
            self.shrink_at = Some(now + HOLD);
        } else if self.target > FEWEST && self.shrink_at.is_some_and(|at| at <= now) {
            self.target = (self.target - self.target / 4).max(wanted).max(FEWEST);
            self.shrink_at = Some(now + STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn shrinks_when_it_is_quiet_and_grows_with_a_burst() {
        let mut lending = Lending::new(4096);
        lending.seen(0, at(0));
        lending.seen(10, at(999));
        assert_eq!(lending.target(), FIRST, "a second at first");
        for step in 0..40 {
            lending.seen(10, at(1000 + 250 * step));
        }
        assert_eq!(lending.target(), FEWEST);
        lending.seen(200, at(12_000));
        assert_eq!(lending.target(), 800, "at once");
        lending.seen(0, at(12_900));
        assert_eq!(lending.target(), 800, "remembered");
        lending.seen(0, at(13_000));
        assert_eq!(lending.target(), 600);
        lending.seen(u32::MAX, at(13_001));
        assert_eq!(lending.target(), 4096, "no more than there are");
    }

    #[test]
    fn few_chunks_are_all_lent_always() {
        let mut lending = Lending::new(64);
        for millis in 0..10_000 {
            lending.seen((millis % 70) as u32, at(millis));
            assert_eq!(lending.target(), 64);
        }
    }
}
