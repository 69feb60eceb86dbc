//! Explicit congestion notification (RFC 3168): routers mark packets where they would soon drop them, the receiver echoes
//! the marks, and the sender slows down without a loss.
//!
//! A receiver echoes a mark until the sender says that it has slowed down (CWR); or, where congestion control is DCTCP,
//! in exactly the acknowledgments of what was marked (RFC 8257 §3.2), so that the sender sees how much was.

use mem::TxMeta;
use wire::TcpFlags;
use wire::ipv4::{ECN_ECT_0, ECN_NOT_ECT};

use super::congestion::CongestionAlgorithm;
use super::conn::{Conn, Flags};
use super::fields::Segment;
use crate::config::{Ecn, StackConfig};

/// Both flags of an ECN-setup SYN (RFC 3168 §6.1.1).
const SETUP: TcpFlags = TcpFlags::ECE.union(TcpFlags::CWR);

/// Whether a SYN asks for ECN, and we grant it.
pub(crate) fn is_granted(syn: TcpFlags, config: &StackConfig) -> bool {
    syn.contains(SETUP) && config.ecn != Ecn::Off
}

/// Whether the answer to a SYN of ours that asked for ECN grants it: one that mirrors the flags does not.
pub(crate) fn is_answered(syn_ack: TcpFlags) -> bool {
    syn_ack.intersects(TcpFlags::ECE) && !syn_ack.intersects(TcpFlags::CWR)
}

/// The flags of a segment of the send queue, and the codepoint of its packet. Once it has left, [`note_sent`] is to know.
#[inline]
pub(crate) fn stamp(conn: &mut Conn, flags: TcpFlags, meta: &TxMeta) -> (TcpFlags, u8) {
    match conn.flags.has(Flags::ECN) {
        true => stamp_agreed(conn, flags, meta),
        false => (flags, ECN_NOT_ECT),
    }
}

#[cold]
fn stamp_agreed(conn: &mut Conn, flags: TcpFlags, meta: &TxMeta) -> (TcpFlags, u8) {
    let is_first = meta.transmissions == 0;
    if flags.contains(TcpFlags::SYN) {
        // A peer whose SYN crossed ours is not asked.
        if flags.contains(TcpFlags::ACK) {
            conn.flags.clear(Flags::ECN);
        }
        // Nor a path that may drop what asks for ECN once more (RFC 3168 §6.1.1.1): a peer that has heard the first one says
        // so in its answer.
        let asks = is_first && conn.flags.has(Flags::ECN);
        return (if asks { flags.union(SETUP) } else { flags }, ECN_NOT_ECT);
    }
    let mut flags = flags.union(echo(conn));
    // §6.1.5: what is sent again is not marked, as a receiver may have it and ignore the mark.
    if !is_first || meta.len == 0 {
        return (flags, ECN_NOT_ECT);
    }
    if conn.flags.has(Flags::SLOWED) {
        flags = flags.union(TcpFlags::CWR);
    }
    (flags, ECN_ECT_0)
}

/// A segment with these flags has left.
#[inline]
pub(crate) fn note_sent(conn: &mut Conn, flags: TcpFlags) {
    if flags.contains(TcpFlags::CWR) {
        conn.flags.clear(Flags::SLOWED);
    }
}

/// What an acknowledgment says of marks.
#[inline]
pub(crate) fn echo(conn: &Conn) -> TcpFlags {
    if conn.flags.has(Flags::MARKED) { TcpFlags::ECE } else { TcpFlags::NONE }
}

/// Whether a segment with data differs from those before it in whether it was marked: DCTCP acknowledges those first, as
/// they came (RFC 8257 §3.2).
pub(crate) fn is_turn(conn: &Conn, segment: &Segment, config: &StackConfig) -> bool {
    is_precise(config) && segment.is_marked != conn.flags.has(Flags::MARKED)
}

fn is_precise(config: &StackConfig) -> bool {
    config.congestion == CongestionAlgorithm::Dctcp
}

/// Takes the mark of a segment with data, or what its sender says of ours.
pub(crate) fn arrive(conn: &mut Conn, segment: &Segment, config: &StackConfig) {
    let is_over = segment.flags.contains(TcpFlags::CWR) || is_precise(config);
    if segment.is_marked {
        // The first one is acknowledged at once.
        let is_first = !conn.flags.has(Flags::MARKED);
        conn.flags.set(if is_first { Flags::MARKED.and(Flags::ACK_NOW) } else { Flags::MARKED });
    } else if is_over {
        conn.flags.clear(Flags::MARKED);
    }
}

/// Whether a segment says that something of ours was marked. On a SYN the flag means another thing.
#[inline]
pub(crate) fn is_echo(conn: &Conn, segment: &Segment) -> bool {
    segment.flags.intersects(TcpFlags::ECE)
        && conn.flags.has(Flags::ECN)
        && !segment.flags.intersects(TcpFlags::SYN)
}

/// The congestion window has shrunk, for whatever reason: the peer is to know (RFC 3168 §6.1.2).
pub(crate) fn note_slowed(conn: &mut Conn) {
    if conn.flags.has(Flags::ECN) {
        conn.flags.set(Flags::SLOWED);
    }
}
