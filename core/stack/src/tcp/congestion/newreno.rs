//! RFC 5681 §3.1: a segment more for each window that arrives, half of what is in flight after a loss.

use super::control::{Arrival, Cause, CongestionControl, Window, threshold};

/// See the module's comment. Remembers nothing.
#[derive(Debug)]
pub(super) struct NewReno;

impl CongestionControl for NewReno {
    fn avoid(&mut self, Window { cwnd, mss }: Window, arrival: Arrival) -> u32 {
        let more = u64::from(mss) * u64::from(arrival.acked) / u64::from(cwnd.max(1));
        cwnd + (more as u32).clamp(1, mss)
    }

    fn reduce(&mut self, window: Window, flight: u32, _cause: Cause) -> u32 {
        threshold(flight / 2, window.mss)
    }

    fn undo(&mut self, _cwnd: u32) {}
}
