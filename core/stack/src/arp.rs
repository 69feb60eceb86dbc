//! ARP (RFC 826): answers for our address, learns neighbours.

use mem::Mbuf;
use wire::{ArpOperation, ArpRepr, EthernetView, MacAddr};

use crate::context::Context;
use crate::neighbors::Neighbor;

/// An ARP packet came.
#[cold]
pub(crate) fn arrive(mbuf: Mbuf, ctx: &mut Context<'_>) {
    let parsed = EthernetView::parse(mbuf.bytes()).and_then(|link| ArpRepr::parse(link.payload()));
    ctx.pool.free(mbuf);
    let Ok(arp) = parsed else {
        ctx.stats.malformed += 1;
        return;
    };
    let ours = ctx.shared.config.address;
    let sender_is_sane = !arp.sender_mac.is_multicast()
        && arp.sender_mac != MacAddr([0; 6])
        && !arp.sender_ip.is_unspecified()
        && !arp.sender_ip.is_broadcast()
        && !arp.sender_ip.is_multicast()
        && arp.sender_ip != ours
        && ctx.shared.config.next_hop(arp.sender_ip) == Some(arp.sender_ip);
    if !sender_is_sane {
        ctx.stats.not_for_us += 1;
        return;
    }
    // RFC 826: refresh what is known; learn anew only from those who talk to us, so that chatter
    // on the link does not fill the table.
    let known = ctx.shared.neighbors.lookup(arp.sender_ip, ctx.now) != Neighbor::Unknown;
    if known || arp.target_ip == ours {
        ctx.shared.neighbors.learn(arp.sender_ip, arp.sender_mac, ctx.now);
        ctx.resolved(arp.sender_ip, arp.sender_mac);
    }
    if arp.operation == ArpOperation::Request && arp.target_ip == ours {
        let reply = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: ctx.shared.config.mac,
            sender_ip: ours,
            target_mac: arp.sender_mac,
            target_ip: arp.sender_ip,
        };
        if ctx.send_arp(&reply, arp.sender_mac) {
            ctx.stats.arp_replies_out += 1;
        }
    }
}
