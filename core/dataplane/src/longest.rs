//! The longest that an event took in the application of late: a maximum that decays.
//!
//! Many events share a crossing, and only the crossing is timed. One of them took at most what the crossing took
//! beyond an average for each of the others.

use clock::Duration;

use crate::elastic::FIRST_EVENT_NS;

/// Events in which the maximum falls to 1/e of itself. A request that is long once in so many keeps the crossings
/// short; when long ones cease, a few thousand events pass until short ones share crossings again.
const FADES_IN: u64 = 1_024;

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Longest {
    event_ns: u64,
    /// More is of no interest: a crossing holds one event then.
    most_ns: u64,
}

impl Longest {
    /// For crossings that are to take `crossing`. Nothing is known of the application yet.
    pub fn of(crossing: Duration) -> Self {
        let most_ns = 2 * (crossing.as_nanos() as u64).max(1);
        Self { event_ns: most_ns.min(FIRST_EVENT_NS), most_ns }
    }

    /// A crossing of so many events, at least one, took `spent`; an event takes `average_ns` otherwise.
    pub fn learn(&mut self, spent: Duration, events: usize, average_ns: u64) {
        let (spent_ns, events) = (spent.as_nanos() as u64, events.max(1) as u64);
        let others_ns = average_ns.saturating_mul(events - 1);
        let one_ns = spent_ns.saturating_sub(others_ns).max(spent_ns / events);
        // By one at least: a small maximum fades, too.
        let fades_ns = (self.event_ns * events.min(FADES_IN)).div_ceil(FADES_IN);
        self.event_ns = (self.event_ns - fades_ns).max(one_ns).min(self.most_ns);
    }

    /// The longest, in nanoseconds, up to twice what a crossing is to take.
    pub fn event_ns(&self) -> u64 {
        self.event_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CROSSING: Duration = Duration::from_micros(10);

    /// Crossings of as many events as fit, of which one in `every` takes `long_ns` and the others `short_ns`.
    /// Returns the most events that a crossing with a long one held, after the first thousand events.
    fn most_beside_a_long_one(short_ns: u64, long_ns: u64, every: u64) -> u64 {
        let mut longest = Longest::of(CROSSING);
        let (mut average_ns, mut number, mut most) = (10_000, 0, 0);
        while number < 100_000 {
            let len = (CROSSING.as_nanos() as u64 / longest.event_ns()).max(1);
            let long = (number..number + len).filter(|event| event % every == every - 1).count();
            let spent = long as u64 * long_ns + (len - long as u64) * short_ns;
            if long > 0 && number > 1_000 {
                most = most.max(len);
            }
            longest.learn(Duration::from_nanos(spent), len as usize, average_ns);
            average_ns = (7 * average_ns + spent / len) / 8;
            number += len;
        }
        most
    }

    #[test]
    fn short_events_share_a_crossing() {
        let mut longest = Longest::of(CROSSING);
        for _ in 0..10_000 {
            longest.learn(Duration::from_nanos(1_000), 1, 1_000);
        }
        assert!((1_000..1_010).contains(&longest.event_ns()), "{longest:?}");
        longest.learn(Duration::from_nanos(10_500), 10, 1_000);
        assert!((1_000..1_510).contains(&longest.event_ns()), "{longest:?}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "half a million events, nothing of them unsafe")]
    fn none_waits_behind_a_long_one_that_comes_now_and_then() {
        for every in [2, 10, 100, 1_000] {
            assert_eq!(most_beside_a_long_one(1_000, 500_000, every), 1, "one in {every}");
        }
        // By the mean, nine of ten would wait here.
        assert_eq!(most_beside_a_long_one(500, 12_000, 10), 1);
    }

    #[test]
    fn an_interruption_is_forgotten() {
        let mut longest = Longest::of(CROSSING);
        longest.learn(Duration::from_secs(1), 3, 1_000);
        assert_eq!(longest.event_ns(), 20_000, "no more than is of interest");
        (0..2_000).for_each(|_| longest.learn(Duration::from_nanos(2_000), 2, 1_000));
        assert!(longest.event_ns() < 1_100, "{longest:?}");
    }
}
