//! How far two machines' clocks are apart, by Cristian's method (Cristian, "Probabilistic clock
//! synchronization", 1989): the coordinator asks an agent for its time; the answer was read between
//! the question's leaving and the answer's coming, so the middle is off by half the round trip at
//! most. Of several exchanges the quickest says it best.
//!
//! ```text
//! coordinator  asked ──────────────────── answered
//! agent                 └─ remote ─┘
//! ```

/// Exchanges with each agent before each start.
pub(super) const EXCHANGES: u32 = 16;
/// By how much two clocks drift apart, as a share of the time between the exchange and the start:
/// 50 parts in a million each, a usual quartz.
const DRIFT: f64 = 100e-6;

/// One question and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exchange {
    /// When the question left, in nanoseconds of the asker's clock.
    pub asked_ns: u64,
    /// What the other clock said.
    pub remote_ns: u64,
    /// When the answer came.
    pub answered_ns: u64,
}

/// What is known of another clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// What must be added to our time to have its.
    offset_ns: i64,
    /// By how much that may be wrong.
    bound_ns: u64,
    /// When it was known.
    read_ns: u64,
}

impl Reading {
    /// What the quickest of `exchanges` says; `None` where there is none, or where they contradict
    /// time itself.
    pub fn of(exchanges: &[Exchange]) -> Option<Self> {
        let round_trip = |e: &Exchange| e.answered_ns.checked_sub(e.asked_ns);
        let (trip_ns, best) = exchanges
            .iter()
            .filter_map(|e| Some((round_trip(e)?, e)))
            .min_by_key(|(trip, _)| *trip)?;
        let middle_ns = best.asked_ns + trip_ns / 2;
        let offset = i128::from(best.remote_ns) - i128::from(middle_ns);
        Some(Self {
            offset_ns: i64::try_from(offset).ok()?,
            bound_ns: trip_ns.div_ceil(2),
            read_ns: best.answered_ns,
        })
    }

    /// How long a word to the other side may take, with room to spare.
    pub const fn lead_ns(&self) -> u64 {
        self.bound_ns.saturating_mul(8)
    }

    /// Our moment `at_ns` on the other clock.
    pub fn there(&self, at_ns: u64) -> u64 {
        at_ns.saturating_add_signed(self.offset_ns)
    }

    /// By how much [`Self::there`] may be wrong for the moment `at_ns`.
    pub fn bound_at(&self, at_ns: u64) -> u64 {
        let drift_ns = at_ns.saturating_sub(self.read_ns) as f64 * DRIFT;
        self.bound_ns.saturating_add(drift_ns.ceil() as u64)
    }
}

/// By how much the starts at `at_ns` may differ: the two worst readings, one too early and one too
/// late.
pub(super) fn skew_bound_ns(readings: &[Reading], at_ns: u64) -> u64 {
    let mut bounds: Vec<u64> = readings.iter().map(|reading| reading.bound_at(at_ns)).collect();
    bounds.sort_unstable_by(|a, b| b.cmp(a));
    match bounds[..] {
        [first, second, ..] => first.saturating_add(second),
        // One agent starts together with itself.
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_quickest_exchange_counts() {
        let exchange =
            |asked_ns, remote_ns, answered_ns| Exchange { asked_ns, remote_ns, answered_ns };
        let slow = exchange(1_000, 501_000, 101_000);
        let quick = exchange(200_000, 700_500, 201_000);
        let reading = Reading::of(&[slow, quick]).expect("there is one");
        assert_eq!((reading.offset_ns, reading.bound_ns), (500_000, 500));
        assert_eq!(reading.there(1_000_000), 1_500_000);
        // 10 ms later the clocks may be 1 us further apart.
        assert_eq!(reading.bound_at(10_201_000), 1_500);
        let other = Reading { bound_ns: 700, ..reading };
        assert_eq!(skew_bound_ns(&[reading, other, reading], 201_000), 1_200);
        assert_eq!(skew_bound_ns(&[reading], 201_000), 0);
        assert_eq!(Reading::of(&[exchange(5, 1, 4)]), None);
        assert_eq!(Reading::of(&[]), None);
    }

    proptest! {
        /// Whatever the ways take, the true offset is within the bound.
        #[test]
        fn the_bound_holds(
            offset in -1_000_000_000i64..1_000_000_000,
            ways in prop::collection::vec((1u64..1_000_000, 1u64..1_000_000), 1..10),
        ) {
            let mut now_ns = 2_000_000_000u64;
            let exchanges: Vec<Exchange> = ways
                .iter()
                .map(|(there, back)| {
                    let asked_ns = now_ns;
                    let remote_ns = (now_ns + there).saturating_add_signed(offset);
                    now_ns += there + back;
                    Exchange { asked_ns, remote_ns, answered_ns: now_ns }
                })
                .collect();
            let reading = Reading::of(&exchanges).expect("there is one");
            prop_assert!(reading.offset_ns.abs_diff(offset) <= reading.bound_ns);
        }
    }
}
