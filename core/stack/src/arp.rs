//! ARP (RFC 826): answers for our IPv4 addresses, learns neighbours.

use mem::Mbuf;
use wire::{Address, ArpOperation, ArpRepr, EthernetView};

use crate::context::Context;
use crate::link_message::LinkMessage;

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
    let is_for_us = ctx.shared.config.is_own(target);
    let is_heard = ctx.heard_of(sender, arp.sender_mac, is_for_us);
    if arp.operation == ArpOperation::Request && is_for_us && is_heard {
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
