//! Fragments on their way through the stack: in from the first pass, out as packets or as reports.

use mem::Mbuf;
use wire::ipv6::Ipv6View;
use wire::{EthernetRepr, Ipv4View, Protocol};

use crate::budget::class_of;
use crate::context::Context;
use crate::icmp::{self, Undelivered};
use crate::reassembly::{Expired, Fragment};

/// log2 of the seconds after which peers are classed anew: above the life of a slot, so that the slots of a peer are of two
/// classes at most.
const EPOCH_SHIFT: u32 = 6;

/// A fragment came. Answers the frame of its datagram, where that is whole now: no device has verified its checksums.
#[cold]
pub(crate) fn arrive(fragment: &Fragment, mbuf: Mbuf, ctx: &mut Context<'_>) -> Option<Mbuf> {
    let Context { now, tick, shared, pool, out, stats, .. } = ctx;
    stats.fragments_in += 1;
    let epoch = (now.as_millis() / 1000) >> EPOCH_SHIFT;
    let class = class_of(fragment.key.pair.remote, epoch, &shared.port_key);
    let whole = out.incomplete.take_in(fragment, mbuf.bytes(), (*tick, class), pool, stats);
    out.min_group_due = out.min_group_due.min(out.incomplete.next_due());
    pool.free(mbuf);
    whole
}

/// Gives up the datagrams whose time is over, and reports each of which the first fragment came (RFC 792, RFC 4443 §3.3),
/// but for ICMP: it may be an error (RFC 1122 §3.2.2, RFC 4443 §2.4). Answers when the next one is due, in ticks.
pub(crate) fn expire(ctx: &mut Context<'_>) -> u64 {
    while let Some(Expired { pair, has_first, chunk }) = ctx.out.incomplete.pop_expired(ctx.tick) {
        ctx.stats.reassembly_timeouts += 1;
        if has_first && !is_icmp(chunk.bytes()) {
            icmp::undelivered(Undelivered::Incomplete, &chunk, pair, ctx);
        }
        ctx.pool.unkeep();
        ctx.pool.free(chunk);
    }
    ctx.out.incomplete.next_due()
}

/// Whether a frame carries a message of either ICMP.
fn is_icmp(frame: &[u8]) -> bool {
    let packet = frame.get(EthernetRepr::HEADER_LEN..).unwrap_or(&[]);
    let v4 = Ipv4View::parse(packet).is_ok_and(|ip| ip.protocol() == Protocol::ICMP);
    v4 || Ipv6View::parse(packet).is_ok_and(|ip| ip.protocol() == Protocol::ICMPV6)
}
