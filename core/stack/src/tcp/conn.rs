//! A connection's state: hot (touched by every segment, two cache lines) and cold.

use alloc::boxed::Box;

use domain::{Cookie, Handle};
use mem::{MbufQueue, RetainedQueue};
use wire::{FlowKey, SeqNumber};

use super::congestion::{Congestion, CongestionAlgorithm};
use super::reassembly::Reassembly;
use super::recovery::Recovery;
use crate::shared::FLOW_GROUPS;
use crate::wheel::TimerEntries;

/// States of RFC 9293 §3.3.2. LISTEN is not among them: a listening port is no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// The slot is free.
    #[default]
    Closed,
    /// We sent a SYN.
    SynSent,
    /// We answered a SYN.
    SynReceived,
    /// Data flows both ways.
    Established,
    /// The peer sent FIN, we did not.
    CloseWait,
    /// We sent FIN after the peer's.
    LastAck,
    /// We sent FIN, it is not acknowledged.
    FinWait1,
    /// We sent FIN, it is acknowledged; the peer may still send.
    FinWait2,
    /// Both sent FIN, ours is not acknowledged.
    Closing,
    /// All is done; late segments are still answered.
    TimeWait,
}

impl State {
    /// Whether a SYN has been exchanged in both directions.
    #[inline]
    pub fn is_synchronized(self) -> bool {
        self >= Self::Established
    }

    /// Whether the application may still send.
    #[inline]
    pub fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// Whether the peer may still send.
    #[inline]
    pub fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

/// One bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(u32);

impl Flags {
    /// Both ends agreed on timestamps (RFC 7323 §3).
    pub const TIMESTAMPS: Self = Self(1 << 0);
    /// The application has accepted the connection, or made it.
    pub const ACCEPTED: Self = Self(1 << 1);
    /// The retransmission (or persist, or state) timer runs: `rtx_at` is meaningful.
    pub const RTX_ARMED: Self = Self(1 << 2);
    /// A delayed acknowledgment is due at `ack_at`.
    pub const ACK_ARMED: Self = Self(1 << 3);
    /// Something is to be acknowledged, at the latest when the delay ends.
    pub const ACK_DUE: Self = Self(1 << 4);
    /// It is to be acknowledged at the end of this cycle.
    pub const ACK_NOW: Self = Self(1 << 5);
    /// The connection stands in the list of those to be looked at in step 6.
    pub const PENDING: Self = Self(1 << 6);
    /// Cold: `unsent` is not empty, or a FIN waits to be made.
    pub const UNSENT: Self = Self(1 << 7);
    /// Cold: `held` is not empty.
    pub const HELD: Self = Self(1 << 8);
    /// Cold: `undelivered` is not empty, or the peer's FIN was not told to the application.
    pub const UNDELIVERED: Self = Self(1 << 9);
    /// Cold: segments wait for a gap to be filled.
    pub const OUT_OF_ORDER: Self = Self(1 << 10);
    /// Fast recovery (RFC 6675 §5), up to `recover` of cold `recovery`.
    pub const RECOVERY: Self = Self(1 << 11);
    /// Recovery from a time-out, up to the same.
    pub const TIMEOUT_RECOVERY: Self = Self(1 << 12);
    /// The window is closed and probed (RFC 9293 §3.8.6.1).
    pub const PERSIST: Self = Self(1 << 13);
    /// The application called `close` and the FIN could not be made yet, for want of memory.
    pub const FIN_WANTED: Self = Self(1 << 14);
    /// The connection was opened by us.
    pub const ACTIVE: Self = Self(1 << 15);
    /// Cold: at `answered_at` a segment was answered that needed no answer for the connection's sake.
    pub const ANSWERED: Self = Self(1 << 16);
    /// `undo` of cold `recovery` has what a recovery changed, which may turn out to be spurious (RFC 3522).
    pub const UNDO: Self = Self(1 << 17);
    /// New data was sent after a time-out, to find out whether it was spurious (RFC 5682 §2.1, step 2b).
    pub const FRTO: Self = Self(1 << 18);
    /// A time-out found the window taken back: what was in flight is lost.
    pub const TAKEN_BACK: Self = Self(1 << 19);
    /// The application closed the connection: what comes for it is not read.
    pub const CLOSED: Self = Self(1 << 20);
    /// A silent peer is asked for a sign of life.
    pub const KEEPALIVE: Self = Self(1 << 21);
    /// Both ends agreed on selective acknowledgments (RFC 2018 §2).
    pub const SACK: Self = Self(1 << 22);
    /// Cold: what was sent is on the scoreboard of `recovery`, and `sent` is empty.
    pub const TRACKED: Self = Self(1 << 23);
    /// `rtx_at` is when a tail loss is probed for (RFC 8985 §7), before the retransmission timer.
    pub const PROBE: Self = Self(1 << 24);
    /// `rtx_at` is when segments that others overtook count as lost (RFC 8985 §6.2, step 5).
    pub const REORDER_TIMER: Self = Self(1 << 25);
    /// `rtx_at` is when the next new segment may go (`pacing`).
    pub const PACED: Self = Self(1 << 31);
    /// What `rtx_at` may be for before the retransmission timer.
    pub const EARLY: Self = Self::PROBE.and(Self::REORDER_TIMER).and(Self::PACED);
    /// The path has been seen to reorder segments (RFC 8985 §6.2, step 3).
    pub const REORDERS: Self = Self(1 << 26);
    /// A segment came in this batch that had come before: the next acknowledgment says which (RFC 2883).
    pub const DUPLICATE: Self = Self(1 << 27);

    /// Both ends agreed on explicit congestion notification (RFC 3168 §6.1.1); in SYN-SENT, it is asked for.
    pub const ECN: Self = Self(1 << 28);
    /// Data was marked: what is sent says so (RFC 3168 §6.1.3; RFC 8257 §3.2, DCTCP.CE).
    pub const MARKED: Self = Self(1 << 29);
    /// The congestion window has shrunk: the next new data says so (RFC 3168 §6.1.2).
    pub const SLOWED: Self = Self(1 << 30);

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether of the bits of `mask` exactly those of `other` are set.
    #[inline]
    pub const fn are(self, other: Self, mask: Self) -> bool {
        self.0 & mask.0 == other.0
    }

    /// Those of the bits that are in `mask`.
    #[inline]
    pub const fn only(self, mask: Self) -> Self {
        Self(self.0 & mask.0)
    }

    /// Sets the bits of `other`.
    #[inline]
    pub const fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears the bits of `other`.
    #[inline]
    pub const fn clear(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Both sets of bits.
    #[inline]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Payload bytes of the segments of a peer that names no other number (RFC 9293 §3.7.1).
pub(crate) const DEFAULT_MSS: u16 = 536;

/// Where a connection lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Place {
    /// Its flow group.
    pub group: u16,
    /// Its slot there.
    pub slot: u32,
}

impl Place {
    /// Both in a word, for the timing wheel.
    #[inline]
    pub const fn to_word(self) -> u32 {
        (self.group as u32 * Handle::MAX_SLOTS) | self.slot
    }

    /// What [`to_word`](Self::to_word) made.
    #[inline]
    pub const fn of_word(word: u32) -> Self {
        Self { group: (word / Handle::MAX_SLOTS) as u16, slot: word % Handle::MAX_SLOTS }
    }
}

const _: () = assert!(FLOW_GROUPS as u64 * Handle::MAX_SLOTS as u64 <= 1 << 32);

/// What every segment of an established connection touches: two cache lines (asserted below).
/// The first names the connection and receives, the second sends.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Conn {
    /// The application's name for it.
    pub cookie: Cookie,
    /// The peer's end and our port; the local address is the dataplane's.
    pub flow: FlowKey,
    /// Counts the connections that have had this slot.
    pub generation: u32,
    /// What is going on.
    pub flags: Flags,
    /// State of RFC 9293 §3.3.2.
    pub state: State,
    /// Doublings of the retransmission time-out.
    pub backoff: u8,
    /// Shift of the windows that the peer announces.
    pub snd_wscale: u8,
    /// Shift of the windows that we announce.
    pub rcv_wscale: u8,
    /// Segments in `sent`, at most [`MAX_LISTED`].
    pub listed: u8,
    /// Payload bytes of the largest segment received, in units of 64, rounded down; at first those of [`DEFAULT_MSS`].
    pub rcv_mss_64: u8,
    /// Payload bytes of a full segment.
    pub mss: u16,
    /// RCV.NXT.
    pub rcv_nxt: SeqNumber,
    /// Right edge of the window that was announced: never moves back.
    pub rcv_adv: SeqNumber,
    /// Bytes that the application has and has not given back.
    pub rcv_used: u32,
    /// TS.Recent (RFC 7323 §4.3).
    pub ts_recent: u32,
    /// Last.ACK.sent (RFC 7323 §4.3).
    pub last_ack_sent: SeqNumber,
    /// Its entries in the timing wheel.
    pub(crate) timer: TimerEntries,
    /// Low bits of the tick at which the acknowledgment is due.
    pub ack_at: u16,

    /// SND.UNA.
    pub snd_una: SeqNumber,
    /// SND.NXT, never moved back: what is sent again is found by other means.
    pub snd_nxt: SeqNumber,
    /// End of all that the application gave us, FIN included.
    pub snd_end: SeqNumber,
    /// SND.WND, scaled.
    pub snd_wnd: u32,
    /// SND.WL1.
    pub snd_wl1: SeqNumber,
    /// What the application was told that it may fill: never moves back.
    pub snd_edge: SeqNumber,
    /// Congestion window in bytes (RFC 5681).
    pub cwnd: u32,
    /// The retransmission time-out without back-off, in ticks (RFC 6298 §2).
    pub rto: u32,
    /// Smoothed round-trip time in units of 1,024 ns, times 8; zero: none yet (RFC 6298).
    pub srtt_8: u32,
    /// Its variation in the same units, times 4.
    pub rttvar_4: u32,
    /// Low bits of the tick at which the retransmission timer fires.
    pub rtx_at: u32,
    /// When the peer last sent an acceptable segment, in ticks of the timestamp clock.
    pub heard_at: u32,
    /// Segments sent and not acknowledged, in sequence: as long as they are few and none seems to be missing.
    pub(crate) sent: RetainedQueue,
}

/// Segments that are listed in [`Conn::sent`] at most: more are tracked on a scoreboard, whose bookkeeping lies together in
/// memory.
pub(crate) const MAX_LISTED: u8 = 64;

const _: () = assert!(size_of::<Conn>() == 128);
const _: () = assert!(core::mem::offset_of!(Conn, snd_una) == 64);

impl Conn {
    /// A slot's connection before its handshake.
    #[inline]
    pub fn new(generation: u32, flow: FlowKey) -> Self {
        // The peer's segments have 536 bytes where it does not tell otherwise (RFC 9293 §3.7.1).
        let rcv_mss_64 = (DEFAULT_MSS / 64) as u8;
        Self { generation, flow, mss: DEFAULT_MSS, rcv_mss_64, ..Self::default() }
    }
}

/// What only unusual segments touch.
#[derive(Debug, Default)]
pub struct Cold {
    /// Bytes of `held`.
    pub held_bytes: u32,
    /// Bytes of `undelivered`.
    pub undelivered_bytes: u32,
    /// Buffers in `held` and `undelivered`: small segments pin large buffers.
    pub held_buffers: u16,
    /// See [`Flags::ANSWERED`]; low bits of the timestamp clock.
    pub answered_at: u16,
    /// End of the data that the peer has left unacknowledged since `stalled_since`.
    pub stalled_until: SeqNumber,
    /// Low bits of the tick since which it has; meaningful while a timer that fired has found no progress.
    pub stalled_since: u32,
    /// Time-outs in a row that have brought no progress.
    pub retries: u8,
    /// The peer's FIN came and the application has not been told.
    pub eof_untold: bool,
    /// The connection has ended in order, and the application is told behind what it has not been
    /// told before.
    pub dead_untold: bool,
    /// The application asked to be told of it again: it stands in the list of those (`calls::again`).
    pub again: bool,
    /// Buffers that the application has and has not given back, oldest first.
    pub(crate) held: MbufQueue,
    /// In-order bytes that the application has not been told of.
    pub(crate) undelivered: MbufQueue,
    /// Segments accepted from the application that the window has had no room for.
    pub(crate) unsent: RetainedQueue,
    pub(crate) reassembly: Option<Box<Reassembly>>,
    /// Segments that were sent, where they are many or some seem to be missing ([`Flags::TRACKED`]).
    pub(crate) recovery: Option<Box<Recovery>>,
    /// What congestion control remembers, once the window has been in full use.
    pub(crate) congestion: Option<Box<Congestion>>,
}

impl Cold {
    /// What congestion control remembers.
    pub(crate) fn congestion(&mut self, algorithm: CongestionAlgorithm) -> &mut Congestion {
        self.congestion.get_or_insert_with(|| Box::new(Congestion::new(algorithm)))
    }

    /// The slow start threshold in bytes; before the window was in full use there is none.
    pub(crate) fn ssthresh(&self) -> u32 {
        self.congestion.as_ref().map_or(u32::MAX, |congestion| congestion.ssthresh)
    }
}

impl Conn {
    /// The application's handle of the connection that has this slot of this flow group.
    #[inline]
    pub fn handle(&self, place: Place) -> Handle {
        Handle::new(place.group, place.slot, self.generation)
    }

    /// Bytes in flight, SYN and FIN included.
    #[inline]
    pub fn flight(&self) -> u32 {
        (self.snd_nxt - self.snd_una) as u32
    }

    /// Bytes that the application may send now.
    #[inline]
    pub fn credit(&self) -> u32 {
        (self.snd_edge - self.snd_end).max(0) as u32
    }

    /// Moves the edge that the application was told of, which never goes back: what was promised
    /// is accepted even if the congestion window shrinks meanwhile. `arrived`: bytes in flight that do not count against
    /// the congestion window; `share`: those that memory has room for. Answers whether it moved.
    #[inline(always)]
    pub fn update_edge(&mut self, arrived: u32, share: u32) -> bool {
        let edge = self.snd_una + (self.cwnd + arrived).min(self.snd_wnd).min(share);
        let grew = edge.after(self.snd_edge);
        if grew {
            self.snd_edge = edge;
        }
        grew
    }
}
