//! ARP (RFC 826): answers for our IPv4 addresses, learns neighbours.

use mem::Mbuf;
use wire::{Address, ArpOperation, ArpRepr, EthernetView, MacAddr};

use crate::context::Context;
use crate::link_message::LinkMessage;
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
    let (sender, target) = (Address::from(arp.sender_ip), Address::from(arp.target_ip));
    let config = &ctx.shared.config;
    let sender_is_sane = !arp.sender_mac.is_multicast()
        && arp.sender_mac != MacAddr([0; 6])
        && !sender.is_martian()
        && !config.is_own(sender)
        && config.is_neighbor(sender);
    if !sender_is_sane {
        ctx.stats.not_for_us += 1;
        return;
    }
    let is_for_us = config.is_own(target);
    // RFC 826: refresh what is known; learn anew only from those who talk to us, so that chatter
    // on the link does not fill the table.
    let known = ctx.shared.neighbors.lookup(sender, ctx.now) != Neighbor::Unknown;
    if known || is_for_us {
        ctx.shared.neighbors.learn(sender, arp.sender_mac, ctx.now);
        ctx.resolved(sender, arp.sender_mac);
    }
    if arp.operation == ArpOperation::Request && is_for_us {
        let reply = ArpRepr {
            operation: ArpOperation::Reply,
            sender_mac: ctx.shared.config.mac,
            sender_ip: arp.target_ip,
            target_mac: arp.sender_mac,
            target_ip: arp.sender_ip,
        };
        let is_sent = ctx.send_message(&LinkMessage::Arp(reply), arp.sender_mac);
        ctx.stats.neighbor_replies_out += u64::from(is_sent);
    }
}
