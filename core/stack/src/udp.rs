//! UDP (RFC 768).

use domain::{CallError, CallKind, Cookie, Handle, LocalEndpoint};
use mem::Mbuf;
use wire::{Endpoint, EthernetRepr, Protocol, Sum, UdpRepr, UdpView};

use crate::config::NoSource;
use crate::context::{Asker, Context, link_and_ip_len};
use crate::icmp::{self, Undelivered};
use crate::pairs::Pair;
use crate::policy::{Direction, Transport};
use crate::tcp::calls::fail;

/// A datagram came; it stands at `at..at + len` of the frame. `verified`: its checksum is.
pub(crate) fn arrive(
    mut mbuf: Mbuf,
    (at, len): (usize, usize),
    pair: Pair,
    verified: bool,
    ctx: &mut Context<'_>,
) {
    let datagram = mbuf.bytes().get(at..at + len).unwrap_or(&[]);
    let Ok(udp) = UdpView::parse(datagram) else {
        ctx.stats.malformed += 1;
        return ctx.pool.free(mbuf);
    };
    // Where none is allowed, the device had none to verify.
    let is_verified = verified && !udp.has_no_checksum();
    if !is_verified && !udp.verify_checksum(pair.remote, pair.local) {
        ctx.stats.bad_checksum += 1;
        return ctx.pool.free(mbuf);
    }
    let (local_port, peer) = (udp.dst_port(), Endpoint::new(pair.remote, udp.src_port()));
    if !ctx.shared.udp_ports.is_open(local_port) {
        icmp::undelivered(Undelivered::Port, &mbuf, pair, ctx);
        return ctx.pool.free(mbuf);
    }
    if !ctx.shared.access.permits(Direction::In, Transport::Udp, peer, local_port, ctx.now) {
        ctx.stats.policy_denied_in += 1;
        return ctx.pool.free(mbuf);
    }
    let payload_len = udp.payload().len();
    ctx.stats.udp_in += 1;
    mbuf.advance(at + UdpRepr::HEADER_LEN);
    mbuf.truncate(payload_len);
    let local = ctx.shared.config.name_of(Endpoint::new(pair.local, local_port));
    if let Err(mbuf) = ctx.events.push_datagram(local, peer, mbuf) {
        // UDP promises nothing; TCP's events come first.
        ctx.stats.tx_dropped += 1;
        ctx.pool.free(mbuf);
    }
}

/// `udp_sendv`: one datagram in one frame, from the address that the application names or the stack chooses (RFC 1122
/// §4.1.3.5).
pub(crate) fn send(
    local: LocalEndpoint,
    peer: Endpoint,
    mut payloads: impl Iterator<Item = (Mbuf, Sum)>,
    ctx: &mut Context<'_>,
) {
    if !ctx.shared.access.permits(Direction::Out, Transport::Udp, peer, local.port(), ctx.now) {
        ctx.stats.policy_denied_out += 1;
        payloads.for_each(|(mbuf, _)| ctx.pool.free(mbuf));
        return refuse(CallError::Forbidden, ctx);
    }
    let first = payloads.next();
    let mut whole = true;
    for (rest, _) in payloads {
        whole = false;
        ctx.pool.free(rest);
    }
    let ip = link_and_ip_len(peer.addr) - EthernetRepr::HEADER_LEN;
    let headers = ip + UdpRepr::HEADER_LEN;
    let limit = (ctx.shared.config.mtu_bytes as usize).saturating_sub(headers);
    let (mut mbuf, sum) = match first {
        Some(staged) => staged,
        None => match ctx.pool.alloc() {
            Ok(empty) => (empty, Sum::ZERO),
            Err(mem::Exhausted) => return unsendable(ctx),
        },
    };
    let is_sendable = whole && ctx.can_send() && mbuf.len() <= limit && !peer.addr.is_martian();
    let source = match ctx.shared.config.named_source(local, peer.addr) {
        Ok(source) if is_sendable => source,
        refused => {
            ctx.pool.free(mbuf);
            if refused == Err(NoSource::BadAddress) {
                ctx.stats.bad_local_addresses += 1;
                return refuse(CallError::BadAddress, ctx);
            }
            return unsendable(ctx);
        }
    };
    let repr = UdpRepr { src_port: local.port(), dst_port: peer.port, payload_len: mbuf.len() };
    match mbuf.prepend(UdpRepr::HEADER_LEN) {
        Ok(out) => repr.emit(out, source, peer.addr, sum),
        Err(mem::NoRoom) => {
            ctx.pool.free(mbuf);
            return unsendable(ctx);
        }
    }
    ctx.stats.udp_out += 1;
    ctx.send_ip(mbuf, Pair { local: source, remote: peer.addr }, Protocol::UDP, Asker::Ours);
}

fn unsendable(ctx: &mut Context<'_>) {
    refuse(CallError::Unsendable, ctx);
}

fn refuse(error: CallError, ctx: &mut Context<'_>) {
    let no_connection = Handle::from_bits(u64::MAX);
    fail(CallKind::UdpSendv, no_connection, Cookie(0), error, ctx);
}
