//! Passive open (RFC 9293 §3.10.7.2).

use mem::Want;
use wire::{Endpoint, SeqNumber, Sum, TcpFlags};

use super::conn::{Conn, DEFAULT_MSS, Flags, State};
use super::fields::Segment;
use super::group::FlowGroup;
use super::newreno::initial_window;
use super::output::{self, TIMESTAMP_BYTES};
use super::reset::send_reset;
use crate::context::Context;
use crate::policy::{Direction, Transport};
use crate::shared::Shared;

/// Between the numbers of an old connection and those of the one that takes its place out of
/// TIME-WAIT: more than a window without scale.
const REUSE_GAP: u32 = 1 << 17;
/// Below this a peer asks for nothing but work (RFC 9293 §3.7.1 allows a floor).
const MIN_MSS: u16 = 64;

/// A segment for which there is no connection. `before`: the last number that an earlier connection
/// between the same ends used; a new one begins beyond it (RFC 9293 §3.6.1).
#[cold]
pub(crate) fn arrive(
    group: &mut FlowGroup,
    segment: &Segment,
    before: Option<SeqNumber>,
    ctx: &mut Context<'_>,
) {
    if segment.flags.contains(TcpFlags::RST) {
        return;
    }
    let listening = ctx.shared.config.tcp_listen.contains(&segment.flow.local_port());
    let opens = segment.flags.contains(TcpFlags::SYN)
        && !segment.flags.intersects(TcpFlags::ACK.union(TcpFlags::FIN));
    if !listening || !opens || ctx.census.leaving {
        return send_reset(segment, ctx);
    }
    let (peer, port) = (segment.remote(), segment.flow.local_port());
    // Before there is a connection: one that the policy denies has no handle that could be guessed.
    if !ctx.shared.access.permits(Direction::In, Transport::Tcp, peer, port, ctx.now) {
        ctx.stats.policy_denied_in += 1;
        return send_reset(segment, ctx);
    }
    if ctx.census.embryonic >= ctx.shared.config.backlog {
        ctx.stats.tcp_syn_dropped += 1;
        return;
    }
    let spare = ctx.pool.allows(Want::OutOfOrder).then(|| ctx.pool.alloc().ok());
    let Some(mbuf) = spare.flatten() else {
        ctx.stats.tcp_syn_dropped += 1;
        return;
    };
    let created = group.create(segment.hash, segment.flow, ctx);
    let Some(slot) = created else {
        ctx.stats.tcp_syn_dropped += 1;
        return ctx.pool.free(mbuf);
    };
    group.embryonic += 1;
    ctx.census.embryonic += 1;
    let local = Endpoint::new(ctx.shared.config.address, segment.flow.local_port());
    let mut iss = ctx.shared.isn.generate(ctx.now, local, segment.remote());
    if let Some(before) = before {
        // The clock behind the numbers is slower than a fast connection.
        iss = iss.max(before + REUSE_GAP);
    }
    let (place, conn, cold) = group.at(slot);
    conn.state = State::SynReceived;
    adopt_options(conn, segment, ctx.shared);
    conn.rcv_nxt = segment.seq + 1;
    conn.last_ack_sent = conn.rcv_nxt;
    conn.heard_at = ctx.clock();
    conn.snd_wl1 = segment.seq;
    conn.snd_wnd = segment.window as u32;
    cold.iss = iss;
    (conn.snd_una, conn.snd_nxt, conn.snd_end, conn.snd_edge) = (iss, iss, iss, iss);
    output::enqueue(place, conn, cold, mbuf, TcpFlags::SYN, Sum::ZERO, ctx);
}

/// Takes over what a peer's SYN says of it.
pub(crate) fn adopt_options(conn: &mut Conn, segment: &Segment, shared: &Shared) {
    let offered = segment.syn.mss.unwrap_or(DEFAULT_MSS).max(MIN_MSS);
    conn.mss = offered.min(shared.config.mss());
    if let Some(stamp) = segment.timestamp {
        conn.flags.set(Flags::TIMESTAMPS);
        conn.ts_recent = stamp.value;
        conn.mss -= TIMESTAMP_BYTES as u16;
    }
    if let Some(scale) = segment.syn.window_scale {
        conn.snd_wscale = scale;
        conn.rcv_wscale = shared.window_scale;
    }
    conn.cwnd = initial_window(conn.mss);
}
