//! HyStart++ (RFC 9406): slow start slows down when round trips become longer, before its doubling overflows a queue, and
//! ends where they stay long.

use wire::SeqNumber;

use super::control::{Arrival, SLOW_START_SEGMENTS, Window};

/// Samples of a round before it counts.
const SAMPLES: u8 = 8;
/// How much longer a round has to be, in nanoseconds: an eighth, within these.
const THRESHOLD_NS: core::ops::RangeInclusive<u64> = 4_000_000..=16_000_000;
/// By how much the window grows more slowly in conservative slow start.
const DIVISOR: u32 = 4;
/// Rounds of it that end slow start.
const ROUNDS: u8 = 5;

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct HyStart {
    /// What ends the round when it is acknowledged; `None` before the first one.
    round_end: Option<SeqNumber>,
    /// The shortest round trips of the last round and of this one.
    last_min_ns: u64,
    min_ns: u64,
    samples: u8,
    conservative: Option<Conservative>,
}

/// Conservative slow start.
#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// The shortest round trip of the round that began it: below this it was a mistake.
    baseline_ns: u64,
    rounds: u8,
}

impl Default for HyStart {
    fn default() -> Self {
        let (last_min_ns, min_ns) = (u64::MAX, u64::MAX);
        Self { round_end: None, last_min_ns, min_ns, samples: 0, conservative: None }
    }
}

impl HyStart {
    /// Whether slow start has ended.
    pub fn is_over(&self) -> bool {
        self.conservative.is_some_and(|conservative| conservative.rounds >= ROUNDS)
    }

    /// Data arrived in the first slow start. Answers the new window.
    pub fn grow(&mut self, window: Window, arrival: Arrival) -> u32 {
        let Window { cwnd, mss } = window;
        let divisor = if self.conservative.is_some() { DIVISOR } else { 1 };
        let cwnd = cwnd + arrival.acked.min(SLOW_START_SEGMENTS * mss) / divisor;
        if let Some(rtt_ns) = arrival.rtt_ns {
            self.min_ns = self.min_ns.min(rtt_ns);
            self.samples = self.samples.saturating_add(1);
        }
        self.judge();
        if self.round_end.is_none_or(|end| arrival.una.after_eq(end)) {
            self.round_end = Some(arrival.nxt);
            (self.last_min_ns, self.min_ns, self.samples) = (self.min_ns, u64::MAX, 0);
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
            }
        }
        cwnd
    }

    fn judge(&mut self) {
        if self.samples < SAMPLES {
            return;
        }
        match self.conservative {
            Some(Conservative { baseline_ns, .. }) if self.min_ns < baseline_ns => {
                self.conservative = None;
            }
            Some(_) => {}
            None => {
                let longer_ns =
                    (self.last_min_ns / 8).clamp(*THRESHOLD_NS.start(), *THRESHOLD_NS.end());
                if self.min_ns >= self.last_min_ns.saturating_add(longer_ns)
                    && self.min_ns < u64::MAX
                {
                    let baseline_ns = self.min_ns;
                    self.conservative = Some(Conservative { baseline_ns, rounds: 0 });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MSS: u32 = 1000;

    /// The windows after rounds whose segments each took as long as given, in milliseconds, in segments.
    fn rounds(rtts_ms: &[u64]) -> (HyStart, Vec<u32>) {
        let mut hystart = HyStart::default();
        let mut window = Window { cwnd: 16 * MSS, mss: MSS };
        let (mut una, mut windows) = (SeqNumber(0), Vec::new());
        for rtt_ms in rtts_ms {
            let segments = window.cwnd / MSS;
            for _ in 0..segments {
                una += MSS;
                let nxt = una + (segments - 1) * MSS;
                let rtt_ns = Some(rtt_ms * 1_000_000);
                let arrival = Arrival { acked: MSS, una, nxt, rtt_ns, srtt_ns: 0, at: 0 };
                window.cwnd = hystart.grow(window, arrival);
            }
            windows.push(window.cwnd / MSS);
        }
        (hystart, windows)
    }

    #[test]
    fn doubles_while_round_trips_are_equal() {
        let (hystart, windows) = rounds(&[20, 20, 21, 23]);
        assert_eq!((windows.last(), hystart.is_over()), (Some(&256), false));
    }

    #[test]
    fn ends_after_five_rounds_that_are_longer() {
        let (hystart, windows) = rounds(&[20, 20, 30, 30, 30, 30, 30, 30, 30]);
        assert!(
            hystart.is_over() && windows[1] >= 63 && windows[3] < windows[2] * 4 / 3,
            "{windows:?}"
        );
        assert!(!rounds(&[20, 20, 30, 30, 30, 30]).0.is_over());
    }

    #[test]
    fn a_mistake_is_seen() {
        let (hystart, windows) = rounds(&[20, 20, 30, 20, 20]);
        assert!(!hystart.is_over() && windows[4] > windows[3] * 19 / 10, "{windows:?}");
    }
}
