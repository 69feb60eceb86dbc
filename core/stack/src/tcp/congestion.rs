//! Congestion control: how much may be in flight (RFC 5681). What is lost is found elsewhere, and sent again by
//! proportional rate reduction; an algorithm says how the window grows and how far it shrinks.

mod control;
mod cubic;
mod hystart;
mod newreno;

pub(crate) use self::control::{Arrival, UNIT_SHIFT, Window};
use self::control::{CongestionControl, SLOW_START_SEGMENTS};
use self::cubic::Cubic;
use self::hystart::HyStart;
use self::newreno::NewReno;

/// Keeps sums of windows inside the sequence space.
const MAX_CWND: u32 = 1 << 29;
/// The algorithms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CongestionAlgorithm {
    /// RFC 5681 and RFC 6582: a segment more each round trip, half of it after a loss.
    NewReno,
    /// RFC 9438, with RFC 9406 in slow start: grows with the time since the last loss, whatever the round trip takes.
    #[default]
    Cubic,
}

/// A connection's congestion control, once its window has been in full use.
#[derive(Debug)]
pub(crate) struct Congestion {
    algorithm: Algorithm,
    slow_start: HyStart,
}

#[derive(Debug)]
enum Algorithm {
    NewReno(NewReno),
    Cubic(Cubic),
}

impl Congestion {
    /// That of a connection that has lost nothing so far.
    pub fn new(algorithm: CongestionAlgorithm) -> Self {
        let algorithm = match algorithm {
            CongestionAlgorithm::NewReno => Algorithm::NewReno(NewReno),
            CongestionAlgorithm::Cubic => Algorithm::Cubic(Cubic::default()),
        };
        Self { algorithm, slow_start: HyStart::default() }
    }

    fn control(&mut self) -> &mut dyn CongestionControl {
        match &mut self.algorithm {
            Algorithm::NewReno(control) => control,
            Algorithm::Cubic(control) => control,
        }
    }

    /// Data arrived while the window was in full use and nothing was being recovered. Answers the new windows.
    pub fn grow(&mut self, window: Window, arrival: Arrival) -> Window {
        let Window { cwnd, ssthresh, mss } = window;
        let grown = if cwnd >= ssthresh {
            Window { cwnd: self.control().avoid(window, arrival), ..window }
        } else if ssthresh == u32::MAX && matches!(self.algorithm, Algorithm::Cubic(_)) {
            self.slow_start.grow(window, arrival)
        } else {
            let most = (SLOW_START_SEGMENTS * mss).min(ssthresh - cwnd);
            Window { cwnd: cwnd + arrival.acked.min(most), ..window }
        };
        Window { cwnd: grown.cwnd.min(MAX_CWND), ..grown }
    }

    /// See [`CongestionControl::reduce`].
    pub fn reduce(&mut self, window: Window, flight: u32) -> u32 {
        self.control().reduce(window, flight)
    }

    /// See [`CongestionControl::undo`].
    pub fn undo(&mut self, cwnd: u32) {
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

    #[test]
    fn slow_start_ends_at_the_threshold() {
        for algorithm in [CongestionAlgorithm::NewReno, CongestionAlgorithm::Cubic] {
            let mut congestion = Congestion::new(algorithm);
            let window = Window { cwnd: 10_000, ssthresh: 12_500, mss: MSS };
            assert_eq!(congestion.grow(window, arrival(2_000)).cwnd, 12_000);
            assert_eq!(congestion.grow(window, arrival(6_000)).cwnd, 12_500);
            let open = Window { ssthresh: u32::MAX, ..window };
            assert_eq!(congestion.grow(open, arrival(60_000)).cwnd, 18_000, "eight segments");
        }
    }

    #[test]
    fn newreno_adds_a_segment_a_round_and_halves() {
        let mut congestion = Congestion::new(CongestionAlgorithm::NewReno);
        let mut window = Window { cwnd: 10_000, ssthresh: 10_000, mss: MSS };
        for _ in 0..5 {
            window = congestion.grow(window, arrival(2_000));
        }
        assert!((10_900..=11_000).contains(&window.cwnd), "{}", window.cwnd);
        assert_eq!(congestion.reduce(window, 9_000), 4_500);
        assert_eq!(congestion.reduce(window, 1_000), 2_000);
    }
}
