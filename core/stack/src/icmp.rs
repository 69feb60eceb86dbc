//! ICMP (RFC 792, RFC 1122 §3.2.2): answers echo requests, reports what cannot be delivered. `tcp::too_big` has the errors
//! that change what is sent.

use mem::Mbuf;
use wire::{IcmpRepr, IcmpView, Ipv4Addr, Protocol, UnreachableCode, copy_and_sum};

use crate::budget::Answer;
use crate::context::{Asker, Context};
use crate::input::quotation;

/// An ICMP message came; it stands at `at..at + len` of the frame.
#[cold]
pub(crate) fn arrive(mbuf: Mbuf, at: usize, len: usize, src: Ipv4Addr, ctx: &mut Context<'_>) {
    let message = mbuf.bytes().get(at..at + len).unwrap_or(&[]);
    match IcmpView::parse(message).map(|view| (view.repr(), view)) {
        Ok((IcmpRepr::EchoRequest { ident, seq }, view)) => {
            let is_sent = ctx.may_answer(Answer::Echo, src)
                && send(IcmpRepr::EchoReply { ident, seq }, view.data(), src, ctx);
            ctx.stats.icmp_echoes += u64::from(is_sent);
        }
        // Errors about our own packets are soft (RFC 5461): retransmission copes, or gives up.
        Ok((repr, _)) if repr.is_error() => ctx.stats.icmp_errors_in += 1,
        Ok(_) => ctx.stats.not_for_us += 1,
        Err(wire::WireError::Checksum) => ctx.stats.bad_checksum += 1,
        Err(_) => ctx.stats.malformed += 1,
    }
    ctx.pool.free(mbuf);
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
    if !ctx.may_answer(Answer::IcmpError, to) {
        return;
    }
    let quoted = quotation(frame.bytes());
    let is_sent = send(IcmpRepr::DestUnreachable { code, next_hop_mtu: 0 }, quoted, to, ctx);
    ctx.stats.icmp_errors_out += u64::from(is_sent);
}

/// Sends a message with a copy of `data`, and answers whether it could.
fn send(repr: IcmpRepr, data: &[u8], to: Ipv4Addr, ctx: &mut Context<'_>) -> bool {
    let Ok(mut mbuf) = ctx.alloc_frame() else { return false };
    let sum = mbuf.extend(data.len()).map(|room| copy_and_sum(data, room));
    let (Ok(sum), Ok(header)) = (sum, mbuf.prepend(IcmpRepr::HEADER_LEN)) else {
        ctx.pool.free(mbuf);
        return false;
    };
    repr.emit(header, sum);
    ctx.send_ip(mbuf, to, Protocol::ICMP, Asker::Stranger);
    true
}
