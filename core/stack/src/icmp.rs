//! ICMP (RFC 792, RFC 1122 §3.2.2) and ICMPv6 (RFC 4443): answers echo requests, reports what cannot be delivered.
//! `tcp::too_big` has the errors that change what is sent, `nd` neighbour discovery.

use mem::Mbuf;
use wire::icmpv6::{Icmpv6Repr, Icmpv6View};
use wire::ipv6::Ipv6View;
use wire::{
    Address, EthernetRepr, IcmpRepr, IcmpView, Ipv4Repr, ParameterProblemCode, Protocol, Sum,
    TimeExceededCode, UnreachableCode, UnreachableCodeV6, WireError, copy_and_sum,
};

use crate::budget::Answer;
use crate::context::{Asker, Context, link_and_ip_len};
use crate::nd;
use crate::pairs::Pair;

/// An ICMP message came; it stands at `at..at + len` of the frame.
#[cold]
pub(crate) fn arrive(mbuf: Mbuf, at: usize, len: usize, pair: Pair, ctx: &mut Context<'_>) {
    let message = mbuf.bytes().get(at..at + len).unwrap_or(&[]);
    let parsed = match pair.remote.is_ipv4() {
        true => arrive_v4(message, pair, ctx),
        false => arrive_v6(&mbuf, message, pair, ctx),
    };
    match parsed {
        Ok(()) => {}
        Err(WireError::Checksum) => ctx.stats.bad_checksum += 1,
        Err(_) => ctx.stats.malformed += 1,
    }
    ctx.pool.free(mbuf);
}

fn arrive_v4(message: &[u8], pair: Pair, ctx: &mut Context<'_>) -> Result<(), WireError> {
    let view = IcmpView::parse(message)?;
    match view.repr() {
        IcmpRepr::EchoRequest { ident, seq } => {
            echo(Message::V4(IcmpRepr::EchoReply { ident, seq }), view.data(), pair, ctx);
        }
        // Errors about our own packets are soft (RFC 5461): retransmission copes, or gives up.
        repr if repr.is_error() => ctx.stats.icmp_errors_in += 1,
        _ => ctx.stats.not_for_us += 1,
    }
    Ok(())
}

fn arrive_v6(
    mbuf: &Mbuf,
    message: &[u8],
    pair: Pair,
    ctx: &mut Context<'_>,
) -> Result<(), WireError> {
    let ip = Ipv6View::parse(mbuf.bytes().get(EthernetRepr::HEADER_LEN..).unwrap_or(&[]))?;
    let view = Icmpv6View::parse(message, ip.src(), ip.dst())?;
    match view.repr() {
        repr @ (Icmpv6Repr::NeighborSolicitation { .. }
        | Icmpv6Repr::NeighborAdvertisement { .. }) => {
            if ip.is_atomic_fragment() {
                // RFC 6980 §5: no fragments of neighbour discovery.
                return Err(WireError::Malformed);
            }
            nd::arrive(&repr, ip.hop_limit(), pair, ctx);
        }
        Icmpv6Repr::EchoRequest { ident, seq } if !ip.dst().is_multicast() => {
            echo(Message::V6(Icmpv6Repr::EchoReply { ident, seq }), view.data(), pair, ctx);
        }
        repr if repr.is_error() => ctx.stats.icmp_errors_in += 1,
        _ => ctx.stats.not_for_us += 1,
    }
    Ok(())
}

fn echo(reply: Message, data: &[u8], pair: Pair, ctx: &mut Context<'_>) {
    let is_sent = ctx.may_answer(Answer::Echo, pair.remote) && send(&reply, data, pair, ctx);
    ctx.stats.icmp_echoes += u64::from(is_sent);
}

/// Why a packet was not delivered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Undelivered {
    /// The port is not bound.
    Port,
    /// Not all of its fragments came in time.
    Incomplete,
    /// We do not speak the protocol. Over IPv6 its number stands in a header of the packet, at this place (RFC 8200 §4).
    Protocol { at: u16 },
}

impl Undelivered {
    fn message(self, to: Address) -> Message {
        let unreachable = |code| IcmpRepr::DestUnreachable { code, next_hop_mtu: 0 };
        let code = TimeExceededCode::REASSEMBLY;
        if to.is_ipv4() {
            return Message::V4(match self {
                Self::Port => unreachable(UnreachableCode::PORT),
                Self::Protocol { .. } => unreachable(UnreachableCode::PROTOCOL),
                Self::Incomplete => IcmpRepr::TimeExceeded { code },
            });
        }
        Message::V6(match self {
            // RFC 4443 §3.1, §3.3 and §3.4.
            Self::Incomplete => Icmpv6Repr::TimeExceeded { code },
            Self::Port => Icmpv6Repr::DestUnreachable { code: UnreachableCodeV6::PORT },
            Self::Protocol { at } => {
                let code = ParameterProblemCode::NEXT_HEADER;
                Icmpv6Repr::ParameterProblem { code, pointer: at.into() }
            }
        })
    }
}

/// Reports to its sender that the packet in `frame` was not delivered (RFC 1122 §3.2.2, RFC 4443 §3), within
/// the limit on replies to strays. Never about multicast, broadcast or ICMP errors: the caller has
/// dropped these before.
#[cold]
pub(crate) fn undelivered(why: Undelivered, frame: &Mbuf, pair: Pair, ctx: &mut Context<'_>) {
    if !ctx.may_answer(Answer::IcmpError, pair.remote) {
        return;
    }
    let quoted = quotation(frame.bytes(), pair.remote);
    let is_sent = send(&why.message(pair.remote), quoted, pair, ctx);
    ctx.stats.icmp_errors_out += u64::from(is_sent);
}

/// The part of a frame's packet that an error quotes: over IPv4 the header and eight bytes (RFC 792), over IPv6 as much as
/// fits the least MTU (RFC 4443 §2.4 c).
fn quotation(frame: &[u8], to: Address) -> &[u8] {
    const MOST_V4: usize = Ipv4Repr::HEADER_LEN + 40 + 8;
    const MOST_V6: usize = 1280 - 40 - 8;
    let most = if to.is_ipv4() { MOST_V4 } else { MOST_V6 };
    let packet = frame.get(EthernetRepr::HEADER_LEN..).unwrap_or(&[]);
    packet.get(..most).unwrap_or(packet)
}

/// A message of either version.
enum Message {
    V4(IcmpRepr),
    V6(Icmpv6Repr),
}

/// Sends a message with a copy of `data`, and answers whether it could: no fragments are sent.
fn send(message: &Message, data: &[u8], pair: Pair, ctx: &mut Context<'_>) -> bool {
    let headers = link_and_ip_len(pair.remote) - EthernetRepr::HEADER_LEN + IcmpRepr::HEADER_LEN;
    if headers + data.len() > usize::from(ctx.shared.config.mtu_bytes) {
        ctx.stats.tx_dropped += 1;
        return false;
    }
    let Ok(mut mbuf) = ctx.alloc_frame() else { return false };
    let sum = mbuf.extend(data.len()).map(|room| copy_and_sum(data, room));
    let (Ok(sum), Ok(header)) = (sum, mbuf.prepend(IcmpRepr::HEADER_LEN)) else {
        ctx.pool.free(mbuf);
        return false;
    };
    let protocol = emit(message, header, (sum, data.len()), pair);
    ctx.send_ip(mbuf, pair, protocol, Asker::Stranger);
    true
}

fn emit(message: &Message, header: &mut [u8], data: (Sum, usize), pair: Pair) -> Protocol {
    let Pair { local, remote } = pair;
    match message {
        Message::V4(repr) => {
            repr.emit(header, data.0);
            Protocol::ICMP
        }
        Message::V6(repr) => {
            repr.emit(header, local.octets().into(), remote.octets().into(), data);
            Protocol::ICMPV6
        }
    }
}
