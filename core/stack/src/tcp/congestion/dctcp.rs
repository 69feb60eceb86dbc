//! DCTCP (RFC 8257), for networks whose routers mark packets at a short queue: the window shrinks by half of the share that
//! was marked, so that the queue stays short and never runs dry. Elsewhere it is NewReno.

use wire::SeqNumber;

use super::control::{Arrival, Cause, CongestionControl, Window, threshold};
use super::newreno::NewReno;

/// log2 of what a share of one is, in units of `alpha`.
const ONE_SHIFT: u32 = 20;
/// The estimation gain g, 1/16 (RFC 8257 §4.2), as a shift.
const GAIN_SHIFT: u32 = 4;

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dctcp {
    /// The share of bytes that is marked, smoothed over windows (DCTCP.Alpha), in 2^-20.
    alpha: u32,
    /// The present window: where it began, where it ends (DCTCP.WindowEnd), and bytes of it that were marked.
    window: Option<(SeqNumber, SeqNumber)>,
    marked: u32,
}

impl Default for Dctcp {
    /// Before anything is known all is taken for marked (RFC 8257 §3.3).
    fn default() -> Self {
        Self { alpha: 1 << ONE_SHIFT, window: None, marked: 0 }
    }
}

impl CongestionControl for Dctcp {
    fn avoid(&mut self, window: Window, arrival: Arrival) -> u32 {
        NewReno.avoid(window, arrival)
    }

    fn reduce(&mut self, window: Window, flight: u32, cause: Cause) -> u32 {
        if cause != Cause::Mark {
            return NewReno.reduce(window, flight, cause);
        }
        // RFC 8257 §3.3, step 9.
        let less = (u64::from(window.cwnd) * u64::from(self.alpha)) >> (ONE_SHIFT + 1);
        threshold(window.cwnd - less as u32, window.mss)
    }

    fn arrived(&mut self, Arrival { acked, una, nxt, .. }: Arrival, is_marked: bool) {
        let (from, end) = *self.window.get_or_insert((una - acked, nxt));
        if is_marked {
            self.marked = self.marked.saturating_add(acked);
        }
        // One whose end is far off is of a time before the sequence numbers turned round.
        let is_on = end.after(una) && end.before_eq(nxt);
        if is_on || una == from {
            return;
        }
        let all = ((una - from) as u32).max(1);
        let share = (u64::from(self.marked.min(all)) << ONE_SHIFT) / u64::from(all);
        self.alpha = self.alpha - (self.alpha >> GAIN_SHIFT) + (share as u32 >> GAIN_SHIFT);
        (self.window, self.marked) = (Some((una, nxt)), 0);
    }

    fn undo(&mut self, _cwnd: u32) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const WINDOW: Window = Window { cwnd: 40 * MSS, mss: MSS };

    /// So many windows of 40 segments, of which the first `marked` were marked each time.
    fn windows(dctcp: &mut Dctcp, una: &mut SeqNumber, count: u32, marked: u32) {
        for segment in 0..count * 40 {
            *una += MSS;
            let nxt = *una + 39 * MSS;
            let arrival = Arrival { acked: MSS, una: *una, nxt, rtt_ns: None, srtt_ns: 0, at: 0 };
            dctcp.arrived(arrival, segment % 40 < marked);
        }
    }

    #[test]
    fn the_window_shrinks_by_half_of_the_share_that_is_marked() {
        let (mut dctcp, mut una) = (Dctcp::default(), SeqNumber(u32::MAX - 100_000));
        assert_eq!(dctcp.reduce(WINDOW, 40 * MSS, Cause::Mark), 20 * MSS, "the first mark halves");
        windows(&mut dctcp, &mut una, 200, 8);
        let fifth = dctcp.reduce(WINDOW, 40 * MSS, Cause::Mark);
        assert!((35_900..=36_200).contains(&fifth), "{fifth}");
        windows(&mut dctcp, &mut una, 200, 40);
        let all = dctcp.reduce(WINDOW, 40 * MSS, Cause::Mark);
        assert!((20_000..=20_100).contains(&all), "{all}");
        // One acknowledgment a window, of all that is in flight, after which the window is asked for once more.
        for _ in 0..200 {
            una += 40 * MSS;
            let arrival =
                Arrival { acked: 40 * MSS, una, nxt: una, rtt_ns: None, srtt_ns: 0, at: 0 };
            dctcp.arrived(arrival, true);
            dctcp.arrived(arrival, false);
        }
        let all = dctcp.reduce(WINDOW, 40 * MSS, Cause::Mark);
        assert!((20_000..=20_100).contains(&all), "{all}");
        windows(&mut dctcp, &mut una, 200, 0);
        let none = dctcp.reduce(WINDOW, 40 * MSS, Cause::Mark);
        assert!(none >= 39_900, "{none}");
        assert_eq!(dctcp.reduce(WINDOW, 40 * MSS, Cause::Loss), 20 * MSS, "a loss halves");
    }
}
