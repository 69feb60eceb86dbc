//! Congestion control: how much may be in flight (RFC 5681). What is lost is found elsewhere, and sent again by
//! proportional rate reduction; an algorithm says how the window grows and how far it shrinks.

mod control;
mod cubic;
mod dctcp;
mod hystart;
mod newreno;

pub(crate) use self::control::{Arrival, Cause, UNIT_SHIFT, Window};
use self::control::{CongestionControl, SLOW_START_SEGMENTS};
use self::cubic::Cubic;
use self::dctcp::Dctcp;
use self::hystart::HyStart;
use self::newreno::NewReno;
use wire::SeqNumber;

/// Keeps sums of windows inside the sequence space.
const MAX_CWND: u32 = 1 << 29;
/// The shortest time for which a window that was in full use is what the path holds.
const USED_FOR_NS: u64 = 1_000_000_000;

/// The algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CongestionAlgorithm {
    /// RFC 5681 and RFC 6582: a segment more each round trip, half of it after a loss.
    NewReno,
    /// RFC 9438, with RFC 9406 in slow start: grows with the time since the last loss, whatever the round trip takes.
    #[default]
    Cubic,
    /// RFC 8257: the window shrinks by as much as routers mark. For networks whose routers mark at a short queue.
    Dctcp,
}

/// What is known of a path that carries less than both ends would take (`path_mtu`), in payload bytes of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathMtu {
    /// What the ends would take; zero: the path carries that, as far as is known.
    pub full: u16,
    /// The smallest size that the path did not carry; above `full`: none is known.
    pub failed: u16,
    /// When a larger size is tried, in ticks of the timestamp clock.
    pub try_at: u32,
}

/// A connection's congestion control, once its window has been in full use or its path has been found to be narrow.
#[derive(Debug)]
pub(crate) struct Congestion {
    /// The slow start threshold, in bytes.
    pub ssthresh: u32,
    /// When the window was last in full use, in units of [`Arrival::at`].
    used_at: Option<u32>,
    /// The most bytes in flight since it is, and since it last shrank.
    used: u32,
    /// What had been sent when it last was.
    used_until: Option<SeqNumber>,
    /// What had been sent when the window last shrank for a mark: until it is acknowledged marks are of before.
    slowed_until: Option<SeqNumber>,
    /// When the next new segment may go, in nanoseconds (`pacing`).
    pub paced_ns: u64,
    /// What that was before time-outs whose reason may be the size of segments (`path_mtu`).
    pub doubted: Option<u32>,
    pub path_mtu: PathMtu,
    algorithm: Algorithm,
    slow_start: HyStart,
}

#[derive(Debug)]
enum Algorithm {
    NewReno(NewReno),
    Cubic(Cubic),
    Dctcp(Dctcp),
}

impl Congestion {
    /// That of a connection that has lost nothing so far.
    pub fn new(algorithm: CongestionAlgorithm) -> Self {
        let algorithm = match algorithm {
            CongestionAlgorithm::NewReno => Algorithm::NewReno(NewReno),
            CongestionAlgorithm::Cubic => Algorithm::Cubic(Cubic::default()),
            CongestionAlgorithm::Dctcp => Algorithm::Dctcp(Dctcp::default()),
        };
        Self {
            ssthresh: u32::MAX,
            used_at: None,
            used: 0,
            used_until: None,
            slowed_until: None,
            paced_ns: 0,
            doubted: None,
            path_mtu: PathMtu::default(),
            algorithm,
            slow_start: HyStart::default(),
        }
    }

    fn control(&mut self) -> &mut dyn CongestionControl {
        match &mut self.algorithm {
            Algorithm::NewReno(control) => control,
            Algorithm::Cubic(control) => control,
            Algorithm::Dctcp(control) => control,
        }
    }

    /// Whether all that an acknowledgment covers was sent before the window last shrank for a mark.
    fn is_of_before(&self, arrival: Arrival) -> bool {
        arrival.is_within(self.slowed_until)
    }

    /// Whether all that an acknowledgment covers was sent while the window was in full use.
    pub fn was_full(&self, arrival: Arrival) -> bool {
        arrival.is_within(self.used_until)
    }

    /// What arrived was marked, with `flight` bytes in flight; `None`: a recovery has shrunk the window. Answers the new
    /// window, once for all that was sent before (RFC 3168 §6.1.2).
    pub fn mark(&mut self, window: Window, flight: Option<u32>, arrival: Arrival) -> Option<u32> {
        self.control().arrived(arrival, true);
        if self.is_of_before(arrival) {
            return None;
        }
        self.slowed_until = Some(arrival.nxt);
        self.ssthresh = self.reduce(window, flight?, Cause::Mark, arrival).min(window.cwnd);
        Some(self.ssthresh)
    }

    /// Data arrived while the window was in full use and nothing was being recovered. Answers the new window.
    pub fn grow(&mut self, window: Window, arrival: Arrival) -> u32 {
        let (Window { cwnd, mss }, ssthresh) = (window, self.ssthresh);
        self.control().arrived(arrival, false);
        // After a time-out it grows from less than what marks left.
        if self.is_of_before(arrival) && cwnd >= ssthresh {
            return cwnd;
        }
        let grown = if cwnd >= ssthresh {
            self.control().avoid(window, arrival)
        } else if ssthresh == u32::MAX && matches!(self.algorithm, Algorithm::Cubic(_)) {
            let grown = self.slow_start.grow(window, arrival);
            if self.slow_start.is_over() {
                self.ssthresh = grown;
            }
            grown
        } else {
            cwnd + arrival.acked.min(SLOW_START_SEGMENTS * mss).min(ssthresh - cwnd)
        };
        grown.min(MAX_CWND)
    }

    /// Something was lost, with `flight` bytes in flight. Answers the new threshold: that of before, where a mark of the same
    /// window has lowered it (RFC 3168 §6.1.2); DCTCP counts losses beside marks (RFC 8257 §3.5).
    pub fn lose(&mut self, window: Window, flight: u32, arrival: Arrival) -> u32 {
        let is_dctcp = matches!(self.algorithm, Algorithm::Dctcp(_));
        // Below the threshold a mark has changed nothing: it came while the window grew again.
        if self.is_of_before(arrival) && self.ssthresh <= window.cwnd && !is_dctcp {
            return self.ssthresh;
        }
        self.reduce(window, flight, Cause::Loss, arrival)
    }

    /// The window is in full use, with `flight` bytes in flight.
    pub fn note_used(&mut self, flight: u32, arrival: Arrival) {
        let before = if self.was_used(arrival) { self.used } else { 0 };
        self.used = flight.max(before);
        (self.used_at, self.used_until) = (Some(arrival.at), Some(arrival.nxt));
    }

    /// The path holds less than was sent, with `flight` bytes in flight: see [`CongestionControl::reduce`]. Where the window
    /// was in full use lately, what was in flight then counts: at the end of a message hardly anything is (RFC 7661 §4.4.1;
    /// RFC 9438 §4.6).
    pub fn reduce(&mut self, window: Window, flight: u32, cause: Cause, arrival: Arrival) -> u32 {
        let used = if self.was_used(arrival) { self.used.min(window.cwnd) } else { 0 };
        self.used = 0;
        self.ssthresh = self.control().reduce(window, flight.max(used), cause);
        self.ssthresh
    }

    /// Whether the window was in full use in the last second, or three round trips (RFC 7661 §4.2).
    fn was_used(&self, Arrival { at, srtt_ns, .. }: Arrival) -> bool {
        let lately = (3 * srtt_ns).max(USED_FOR_NS) >> UNIT_SHIFT;
        // A core that a connection comes to may be a little behind the one that it left.
        let since = |used_at: u32| i64::from(at.wrapping_sub(used_at).cast_signed());
        self.used_at.is_some_and(|used_at| (-1..=lately as i64).contains(&since(used_at)))
    }

    /// What reduced the window was a mistake: it was `cwnd` bytes, and slow start leads to `ssthresh`.
    pub fn undo(&mut self, cwnd: u32, ssthresh: u32) {
        self.ssthresh = ssthresh;
        self.control().undo(cwnd);
    }
}

/// The initial window (RFC 6928): ten segments.
pub(crate) fn initial_window(mss: u16) -> u32 {
    10 * mss as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::SeqNumber;

    const MSS: u32 = 1000;

    fn arrival(acked: u32) -> Arrival {
        let (una, nxt) = (SeqNumber(0), SeqNumber(1));
        Arrival { acked, una, nxt, rtt_ns: None, srtt_ns: 10_000_000, at: 0 }
    }

    fn congestion(algorithm: CongestionAlgorithm, ssthresh: u32) -> Congestion {
        Congestion { ssthresh, ..Congestion::new(algorithm) }
    }

    #[test]
    fn slow_start_ends_at_the_threshold() {
        let window = Window { cwnd: 10_000, mss: MSS };
        for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
            let mut control = congestion(algorithm, 12_500);
            assert_eq!(control.grow(window, arrival(2_000)), 12_000);
            assert_eq!(control.grow(window, arrival(6_000)), 12_500);
            let mut control = Congestion::new(algorithm);
            assert_eq!(control.grow(window, arrival(60_000)), 18_000, "eight segments");
        }
    }

    #[test]
    fn a_loss_counts_unless_a_mark_of_its_window_did() {
        let window = Window { cwnd: 10_000, mss: MSS };
        let mut control = Congestion::new(CongestionAlgorithm::NewReno);
        assert_eq!(control.mark(window, Some(10_000), arrival(1_000)), Some(5_000));
        let after = Window { cwnd: 5_000, mss: MSS };
        assert_eq!(control.lose(after, 8_000, arrival(1_000)), 5_000);
        // One that changed nothing, as something was being recovered.
        let mut control = Congestion::new(CongestionAlgorithm::NewReno);
        assert_eq!(control.mark(window, None, arrival(1_000)), None);
        assert_eq!(control.lose(window, 8_000, arrival(1_000)), 4_000);
    }

    #[test]
    fn newreno_adds_a_segment_a_round_and_halves() {
        let mut control = congestion(CongestionAlgorithm::NewReno, 10_000);
        let mut window = Window { cwnd: 10_000, mss: MSS };
        for _ in 0..5 {
            window.cwnd = control.grow(window, arrival(2_000));
        }
        assert!((10_900..=11_000).contains(&window.cwnd), "{}", window.cwnd);
        // 1.1 s later: the window is not in use any more.
        let late = Arrival { at: 1_100, ..arrival(0) };
        assert_eq!(control.reduce(window, 9_000, Cause::Loss, late), 4_500);
        assert_eq!(control.reduce(window, 1_000, Cause::TimeOut, late), 2_000);
        assert_eq!(control.ssthresh, 2_000);
    }

    /// The end of a message is lost: little is in flight, and the path has held the window.
    #[test]
    fn a_window_that_was_in_use_is_what_shrinks() {
        let window = Window { cwnd: 40_000, mss: MSS };
        for (algorithm, expected) in
            [(CongestionAlgorithm::NewReno, 20_000), (CongestionAlgorithm::Cubic, 28_000)]
        {
            let mut control = congestion(algorithm, 10_000);
            control.note_used(40_000, arrival(0));
            let soon = Arrival { at: 900, ..arrival(0) };
            assert_eq!(control.lose(window, 3_000, soon), expected);
            // Where no more than half of it ever was in flight, that is what the path has held.
            control.note_used(22_000, soon);
            assert_eq!(control.lose(window, 3_000, soon), expected * 22 / 40);
        }
    }
}
