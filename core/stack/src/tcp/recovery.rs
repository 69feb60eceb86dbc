//! What is kept of a connection while much is in flight, or some of it seems to be missing.

use wire::SeqNumber;

use super::prr::Prr;
use super::rack::Rack;
use super::scoreboard::{Scoreboard, Sent};

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// Segments that were sent and are not acknowledged.
    pub board: Scoreboard,
    pub rack: Rack,
    pub prr: Prr,
    /// All that had been sent when the last recovery began (RFC 6582); `None`: there was none.
    pub recover: Option<SeqNumber>,
    /// Duplicate acknowledgments of a peer that does not say which segments caused them: as many have arrived.
    pub duplicates: u32,
    /// What the last recovery changed, as long as it may turn out to be spurious.
    pub undo: Option<Undo>,
    /// The last tail loss probe, while it is not known what became of it.
    pub probe: Option<Probe>,
    /// When a segment that others overtook counts as lost, in nanoseconds.
    pub late_at_ns: Option<u64>,
    /// A router's message that waits for confirmation.
    pub too_big: Option<TooBig>,
    /// The probe of a larger size, until it is acknowledged or lost.
    pub size_probe: Option<SizeProbe>,
}

/// A router's message that a segment of ours was too big (RFC 1191), to be believed once the segment is not acknowledged in
/// time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooBig {
    /// Where the segment begins.
    pub seq: SeqNumber,
    /// When it was sent, in nanoseconds.
    pub sent_at_ns: u64,
    /// Payload bytes that the path carries.
    pub mss: u16,
    /// When it should have been acknowledged, in nanoseconds.
    pub due_ns: u64,
    /// A larger segment that was sent later has arrived.
    pub is_refuted: bool,
}

/// A segment of data that is larger than the path is known to carry (RFC 4821 §7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeProbe {
    pub seq: SeqNumber,
    pub end: SeqNumber,
}

/// What a recovery has changed, to be restored where it was spurious.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undo {
    /// The congestion window before.
    pub cwnd: u32,
    /// Slow start threshold before, at least what was in flight (RFC 4015 §3.2, pipe_prev).
    pub ssthresh: u32,
    /// Our timestamp in the first segment that was sent again (RFC 3522 §3.2, RetransmitTS).
    pub timestamp: u32,
    /// Bytes that were sent again and that the peer has not said to have twice (RFC 3708), and between which sequence
    /// numbers they are.
    pub again: u32,
    pub range: Option<(SeqNumber, SeqNumber)>,
    /// Whether it began with a time-out.
    pub is_timeout: bool,
    /// The recovery is over: once this is acknowledged too, nothing more will be known.
    pub until: Option<SeqNumber>,
}

/// A tail loss probe (RFC 8985 §7).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// All that had been sent then, the probe included (TLP.end_seq).
    pub end: SeqNumber,
    /// Whether it was an old segment, not a new one (TLP.is_retrans).
    pub is_old: bool,
    /// What was in flight before it.
    pub flight: u32,
}

impl Recovery {
    /// When the retransmission timer has to look at it before a time-out, in nanoseconds.
    pub fn look_at_ns(&self) -> Option<u64> {
        let due_ns = self.too_big.map(|message| message.due_ns);
        self.late_at_ns.into_iter().chain(due_ns).min()
    }

    /// A segment has arrived at the peer that was last sent at `at_ns`.
    pub fn refute(too_big: &mut Option<TooBig>, sent: &Sent, at_ns: u64) {
        if let Some(message) = too_big {
            let is_later = at_ns >= message.sent_at_ns && sent.seq.after_eq(message.seq);
            message.is_refuted |= is_later && sent.payload_len() > message.mss;
        }
    }

    /// Bytes of a flight that have arrived at a peer that lacks what is before them.
    pub fn arrived(&self, flight: u32, mss: u16) -> u32 {
        if self.duplicates == 0 {
            return self.board.sacked();
        }
        // What the first duplicate waits for has not arrived.
        let most = flight.saturating_sub(self.board.lost() + u32::from(mss));
        (self.duplicates * u32::from(mss)).min(most)
    }

    /// Bytes of a flight that are on their way (RFC 6675 §4, pipe).
    pub fn pipe(&self, flight: u32, mss: u16) -> u32 {
        flight.saturating_sub(self.arrived(flight, mss) + self.board.lost())
    }
}
