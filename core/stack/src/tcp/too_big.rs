//! Routers' messages that a segment of ours was too big for the next hop: ICMP type 3, code 4 (RFC 1191), and ICMPv6 type 2
//! (RFC 8201).
//!
//! Anybody can send such a message. It counts where it quotes the first sequence number of a segment that is in flight and
//! larger than the MTU that it names, and then only once the segment is not acknowledged in time (RFC 5927 §7.2): `path_mtu`
//! decides. `input` forwards it to the core of the connection, as it does with the connection's own segments.

use wire::{Address, FlowKey, MAX_OPTIONS_LEN, SeqNumber};

use super::conn::{Conn, Flags};
use super::group::FlowGroup;
use super::recovery::TooBig;
use super::{loss, output};
use crate::budget::Answer;
use crate::config::StackConfig;
use crate::context::Context;

/// The fields of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    /// RSS hash of the segments that the connection receives.
    pub hash: u32,
    pub flow: FlowKey,
    pub seq: SeqNumber,
    /// Bytes of the largest packet that the next hop takes; zero from routers older than RFC 1191.
    pub mtu: u16,
}

/// The least MTU that a message may name: with less a forger could make a stream of tiny packets. Every host takes packets of
/// 576 bytes (RFC 1122 §3.3.2), and a tunnel takes some of them.
const LEAST_MTU: u16 = 552;
/// The same over IPv6, whose links all take so much (RFC 8200 §5, RFC 8201 §4).
const LEAST_MTU_V6: u16 = 1_280;
/// MTUs that are in use, largest first (RFC 1191 §7), for messages that name none.
const PLATEAUS: [u16; 8] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, LEAST_MTU];
/// The shortest round trip of two for which a message waits: devices and schedulers delay acknowledgments for about so long.
const LEAST_WAIT_NS: u64 = 1_000_000;

/// Notes a message about a segment that is in flight.
#[cold]
pub(crate) fn arrive(group: &mut FlowGroup, message: &Message, ctx: &mut Context<'_>) {
    ctx.stats.icmp_errors_in += 1;
    let pair = ctx.pairs.known(group.index, message.flow.pair());
    let remote = ctx.addresses(pair).remote;
    let Some(slot) = group.lookup(message.hash, message.flow.with_pair(pair)) else { return };
    let (place, conn, cold) = group.at(slot);
    let is_in_flight = message.seq.after_eq(conn.snd_una) && message.seq.before(conn.snd_nxt);
    // Guesses that hit nothing spend nothing of what honest messages may.
    if !conn.state.is_synchronized() || !is_in_flight || !ctx.may_answer(Answer::TooBig, remote) {
        return;
    }
    let recovery = loss::track(conn, cold);
    let about = recovery.board.find(message.seq).filter(|sent| !sent.is_sacked());
    let claim = about.and_then(|sent| {
        let mss = carried(conn, remote, message.mtu, sent.payload_len())?;
        let is_probe = recovery.size_probe.is_some_and(|probe| probe.seq == message.seq);
        // Else it is of a flight for which another message counted.
        (mss < conn.mss || is_probe).then_some((mss, sent.at_ns()?))
    });
    if let Some((mss, sent_at_ns)) = claim {
        let due_ns = ctx.now.as_nanos() + 2 * loss::srtt_ns(conn).max(LEAST_WAIT_NS);
        let new = TooBig { seq: message.seq, sent_at_ns, mss, due_ns, is_refuted: false };
        // Of several messages the largest MTU counts: a segment that is still too big brings another message.
        let noted = recovery.too_big.get_or_insert(new);
        noted.mss = noted.mss.max(mss);
    }
    loss::untrack(conn, cold);
    output::note_pending(conn, place, ctx);
}

/// Payload bytes of a full segment that a path with this MTU carries, where one of `sent` may have been too big for it.
fn carried(conn: &Conn, remote: Address, mtu: u16, sent: u16) -> Option<u16> {
    let options =
        if conn.flags.has(Flags::TIMESTAMPS) { output::TIMESTAMP_BYTES as u16 } else { 0 };
    let bare = StackConfig::headers_len(remote);
    let headers = bare + options;
    let packet = sent.saturating_add(headers);
    // It may have had more options than a full segment has (RFC 9293 §3.7.1).
    let longest = sent.saturating_add(bare + MAX_OPTIONS_LEN as u16);
    let mtu = match mtu {
        // RFC 8201 §4: less than every link carries is discarded.
        ..LEAST_MTU_V6 if !remote.is_ipv4() => return None,
        0 => PLATEAUS.into_iter().find(|&plateau| plateau < packet)?,
        _ => mtu.max(LEAST_MTU),
    };
    (mtu < longest).then(|| mtu - headers)
}
