//! Neighbour discovery (RFC 4861): answers for our IPv6 addresses, learns neighbours.
//!
//! A host's part of it, with addresses and routes that are configured: advertisements of routers, redirects and
//! duplicate address detection are left to who configures them.

use wire::icmpv6::Icmpv6Repr;
use wire::ipv6::multicast_mac;
use wire::{Address, Ipv6Addr, MacAddr};

use crate::context::Context;
use crate::link_message::{HOP_LIMIT, LinkMessage};
use crate::neighbors::Neighbor;
use crate::pairs::Pair;

/// All nodes of the link (RFC 4291 §2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// A solicitation or an advertisement came, in a packet with this hop limit.
#[cold]
pub(crate) fn arrive(message: &Icmpv6Repr, hop_limit: u8, pair: Pair, ctx: &mut Context<'_>) {
    if hop_limit != HOP_LIMIT {
        ctx.stats.malformed += 1;
        return;
    }
    match *message {
        Icmpv6Repr::NeighborSolicitation { target, source_link } => {
            solicited(target, source_link, pair, ctx);
        }
        Icmpv6Repr::NeighborAdvertisement { target, override_, target_link, .. } => {
            advertised(target.into(), target_link, override_, ctx);
        }
        _ => ctx.stats.not_for_us += 1,
    }
}

/// RFC 4861 §7.2.3: who asks for one of our addresses is answered, and learned.
fn solicited(target: Ipv6Addr, link: Option<MacAddr>, pair: Pair, ctx: &mut Context<'_>) {
    let (asker, own) = (pair.remote, Address::from(target));
    // Whoever wants to have the address has none to be answered at (RFC 4862 §5.4.3), and names no link address.
    let is_unspecified = asker.is_unspecified();
    let is_valid = if is_unspecified { link.is_none() } else { !asker.is_martian() };
    if !ctx.shared.config.is_own(own) || !is_valid {
        ctx.stats.not_for_us += 1;
        return;
    }
    let mut to = link;
    if let Some(mac) = link {
        if !ctx.heard_of(asker, mac, true) {
            return;
        }
    } else if let Neighbor::Reachable(mac) | Neighbor::Stale(mac) =
        ctx.shared.neighbors.lookup(asker, ctx.now)
    {
        to = Some(mac);
    }
    let (dst, mac) = match (is_unspecified, to) {
        (false, Some(mac)) => (Ipv6Addr::from(asker.octets()), mac),
        (true, _) => (ALL_NODES, multicast_mac(ALL_NODES)),
        // Without a link address in the solicitation the asker knows that we know it: we do not.
        (false, None) => return,
    };
    let message = Icmpv6Repr::NeighborAdvertisement {
        target,
        router: false,
        solicited: !is_unspecified,
        override_: true,
        target_link: Some(ctx.shared.config.mac),
    };
    let is_sent = ctx.send_message(&LinkMessage::Discovery { message, src: target, dst }, mac);
    ctx.stats.neighbor_replies_out += u64::from(is_sent);
}

/// RFC 4861 §7.2.5: what was asked for is learned, and what is known refreshed.
fn advertised(target: Address, link: Option<MacAddr>, overrides: bool, ctx: &mut Context<'_>) {
    let known = match ctx.shared.neighbors.lookup(target, ctx.now) {
        Neighbor::Reachable(mac) | Neighbor::Stale(mac) => Some(mac),
        Neighbor::Unknown => None,
    };
    let Some(mac) = link.or(known) else { return };
    if target.is_ipv4() {
        ctx.stats.not_for_us += 1;
        return;
    }
    // Another link address that is not to replace the one that is known does not.
    if overrides || known.is_none_or(|known| known == mac) {
        ctx.heard_of(target, mac, false);
    }
}
