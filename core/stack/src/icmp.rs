//! ICMP (RFC 792, RFC 1122 §3.2.2): answers echo requests, reports what cannot be delivered.

use mem::Mbuf;
use wire::{IcmpRepr, IcmpView, Ipv4Addr, Protocol, Sum, UnreachableCode, copy_and_sum};

use crate::context::Context;
use crate::input::quotation;

/// An ICMP message came; it stands at `at..at + len` of the frame.
#[cold]
pub(crate) fn arrive(mbuf: Mbuf, at: usize, len: usize, src: Ipv4Addr, ctx: &mut Context<'_>) {
    let message = mbuf.bytes().get(at..at + len).unwrap_or(&[]);
    match IcmpView::parse(message).map(|view| (view.repr(), view)) {
        Ok((IcmpRepr::EchoRequest { ident, seq }, view)) => {
            reply_to_echo(ident, seq, view.data(), src, ctx);
        }
        // Errors about our own packets are soft (RFC 5461): retransmission copes, or gives up.
        Ok((repr, _)) if repr.is_error() => ctx.stats.icmp_errors_in += 1,
        Ok(_) => ctx.stats.not_for_us += 1,
        Err(wire::WireError::Checksum) => ctx.stats.bad_checksum += 1,
        Err(_) => ctx.stats.malformed += 1,
    }
    ctx.pool.free(mbuf);
}

fn reply_to_echo(ident: u16, seq: u16, data: &[u8], to: Ipv4Addr, ctx: &mut Context<'_>) {
    let Ok(mut mbuf) = ctx.alloc_frame() else { return };
    let sum = match mbuf.extend(data.len()) {
        Ok(room) => copy_and_sum(data, room),
        Err(mem::NoRoom) => return ctx.pool.free(mbuf),
    };
    if send(IcmpRepr::EchoReply { ident, seq }, sum, mbuf, to, ctx) {
        ctx.stats.icmp_echoes += 1;
    }
}

/// Reports to its sender that the packet in `frame` was not delivered (RFC 1122 §3.2.2.1), within
/// the limit on replies to strays. Never about multicast, broadcast or ICMP errors: the caller has
/// dropped these before.
#[cold]
pub(crate) fn unreachable(
    code: UnreachableCode,
    frame: &Mbuf,
    to: Ipv4Addr,
    ctx: &mut Context<'_>,
) {
    if !ctx.may_answer_stray() {
        return;
    }
    let Ok(mut mbuf) = ctx.alloc_frame() else { return };
    let quoted = quotation(frame.bytes());
    let sum = match mbuf.extend(quoted.len()) {
        Ok(room) => copy_and_sum(quoted, room),
        Err(mem::NoRoom) => return ctx.pool.free(mbuf),
    };
    if send(IcmpRepr::DestUnreachable { code, next_hop_mtu: 0 }, sum, mbuf, to, ctx) {
        ctx.stats.icmp_errors_out += 1;
    }
}

fn send(
    repr: IcmpRepr,
    data_sum: Sum,
    mut mbuf: Mbuf,
    to: Ipv4Addr,
    ctx: &mut Context<'_>,
) -> bool {
    match mbuf.prepend(IcmpRepr::HEADER_LEN) {
        Ok(out) => repr.emit(out, data_sum),
        Err(mem::NoRoom) => {
            ctx.pool.free(mbuf);
            return false;
        }
    }
    ctx.send_ip(mbuf, to, Protocol::Icmp);
    true
}
