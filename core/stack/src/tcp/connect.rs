//! Active open, and ephemeral ports that lead the reply back to this core (IX §4.4).

use domain::{ConnectError, Cookie, EventRecord};
use mem::Want;
use wire::{Endpoint, FlowKey, Sum, TcpFlags};

use super::congestion::initial_window;
use super::conn::{Flags, State};
use super::group::FlowGroup;
use super::isn::keyed_hash;
use super::{close, listen, send_queue};
use crate::config::Ecn;
use crate::context::Context;
use crate::pairs::Pair;
use crate::shared::Shared;

/// Ephemeral ports: all that are registered to nobody's service in practice.
pub(crate) const EPHEMERAL: core::ops::RangeInclusive<u16> = 10_000..=65_535;
/// Ports that one `connect` looks at before it gives up: a bound on the time that it takes.
const MAX_PROBES: u32 = 8_192;

/// A port from which the peer's packets come back to a flow group of core `core`, and its hash.
///
/// RSS cannot be inverted, so ports are probed, in the order of RFC 6056 §3.3.3 ("simple
/// hash-based"): nobody who does not know the key can tell the next one. `in_use` answers for
/// ports that already lead to this peer.
pub(crate) fn choose_port(
    shared: &Shared,
    core: u8,
    Pair { local, remote }: Pair,
    peer_port: u16,
    counter: &mut u32,
    mut in_use: impl FnMut(u16, u32, u16) -> bool,
) -> Option<(u16, u32)> {
    let (first, last) = (*EPHEMERAL.start() as u32, *EPHEMERAL.end() as u32);
    let count = last - first + 1;
    let addresses = shared.addresses_hash(local, remote);
    let (local, peer) = (Endpoint::new(local, 0), Endpoint::new(remote, peer_port));
    let offset = keyed_hash(&shared.port_key, local, peer) as u32;
    let is_v4 = remote.is_ipv4();
    for _ in 0..MAX_PROBES.min(count) {
        let port = (first + offset.wrapping_add(*counter) % count) as u16;
        *counter = counter.wrapping_add(1);
        let hash = addresses ^ shared.ports_hash(is_v4, peer_port, port);
        let group = Shared::group_of(hash);
        if shared.home_of(group) == core && !in_use(group, hash, port) {
            return Some((port, hash));
        }
    }
    None
}

/// A port that the caller has chosen, and its hash, unless `in_use` answers for it: the flow group is at home elsewhere,
/// or the port already leads to this peer.
pub(crate) fn given_port(
    shared: &Shared,
    Pair { local, remote }: Pair,
    peer_port: u16,
    port: u16,
    in_use: impl FnOnce(u16, u32, u16) -> bool,
) -> Option<(u16, u32)> {
    let (local, peer) = (Endpoint::new(local, port), Endpoint::new(remote, peer_port));
    let hash = shared.flow_hash(local, peer);
    (!in_use(Shared::group_of(hash), hash, port)).then_some((port, hash))
}

/// Sends the SYN of a connection; the outcome comes as an event.
pub(crate) fn open(
    group: &mut FlowGroup,
    hash: u32,
    flow: FlowKey,
    cookie: Cookie,
    ctx: &mut Context<'_>,
) {
    let fail = |error, ctx: &mut Context<'_>| {
        ctx.event(EventRecord::ConnectFailed { cookie, error });
    };
    let spare = ctx.pool.allows(Want::Send).then(|| ctx.pool.alloc().ok());
    let Some(mbuf) = spare.flatten() else { return fail(ConnectError::NoMemory, ctx) };
    // A connection in TIME-WAIT that stands there may be replaced: the caller has looked.
    let before = group.lookup(hash, flow).map(|slot| close::replace(group, slot, ctx));
    let Some(slot) = group.create(hash, flow, ctx) else {
        ctx.pool.free(mbuf);
        return fail(ConnectError::NoMemory, ctx);
    };
    let ends = ctx.ends(flow);
    let iss = listen::initial_number(before, ends, ctx);
    let (place, conn, cold) = group.at(slot);
    conn.state = State::SynSent;
    conn.cookie = cookie;
    conn.flags.set(Flags::ACTIVE);
    if ctx.shared.config.ecn == Ecn::Ask {
        conn.flags.set(Flags::ECN);
    }
    conn.mss = ctx.shared.config.mss(ends.remote.addr);
    conn.cwnd = initial_window(conn.mss);
    (conn.snd_una, conn.snd_nxt, conn.snd_end, conn.snd_edge) = (iss, iss, iss, iss);
    send_queue::enqueue(place, conn, cold, mbuf, TcpFlags::SYN, Sum::ZERO, ctx);
}
