//! What hosts of a link say to each other of their link addresses: ARP (RFC 826) and neighbour discovery (RFC 4861),
//! as it is sent. `arp` and `nd` have what becomes of what is received.

use wire::icmpv6::Icmpv6Repr;
use wire::ipv6::{Ipv6Repr, multicast_mac, solicited_node};
use wire::{
    Address, ArpOperation, ArpRepr, EtherType, EthernetRepr, Ipv6Addr, MacAddr, Protocol, Sum,
};

use crate::config::StackConfig;

/// The hop limit of neighbour discovery: no router has forwarded what has it (RFC 4861 §7.1).
pub(crate) const HOP_LIMIT: u8 = 255;

/// A message of either kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LinkMessage {
    Arp(ArpRepr),
    /// A message, and the addresses of its packet.
    Discovery {
        message: Icmpv6Repr,
        src: Ipv6Addr,
        dst: Ipv6Addr,
    },
}

impl LinkMessage {
    /// Asks for the link address of `hop`, at `to` or of all who may have it; and the link address to which that goes.
    /// `None`: no address of ours has its version.
    pub fn asking(
        config: &StackConfig,
        hop: Address,
        to: Option<MacAddr>,
    ) -> Option<(Self, MacAddr)> {
        let own = config.source_for(hop)?;
        if let (Some(sender_ip), Some(target_ip)) = (own.v4(), hop.v4()) {
            let request = ArpRepr {
                operation: ArpOperation::Request,
                sender_mac: config.mac,
                sender_ip,
                target_mac: MacAddr([0; 6]),
                target_ip,
            };
            return Some((Self::Arp(request), to.unwrap_or(MacAddr::BROADCAST)));
        }
        let (src, target) = (own.v6()?, hop.v6()?);
        let group = solicited_node(target);
        let (dst, to) = to.map_or((group, multicast_mac(group)), |mac| (target, mac));
        let source_link = Some(config.mac);
        let message = Icmpv6Repr::NeighborSolicitation { target, source_link };
        Some((Self::Discovery { message, src, dst }, to))
    }

    /// Bytes of its frame.
    pub fn frame_len(&self) -> usize {
        EthernetRepr::HEADER_LEN
            + match self {
                Self::Arp(_) => ArpRepr::LEN,
                Self::Discovery { message, .. } => Ipv6Repr::HEADER_LEN + message.header_len(),
            }
    }

    /// Writes the frame into all of `out`.
    pub fn emit(&self, out: &mut [u8], own: MacAddr, to: MacAddr) {
        let (link, rest) = out.split_at_mut(EthernetRepr::HEADER_LEN);
        let ethertype = match self {
            Self::Arp(arp) => {
                arp.emit(rest);
                EtherType::ARP
            }
            Self::Discovery { message, src, dst } => {
                let (ip, icmp) = rest.split_at_mut(Ipv6Repr::HEADER_LEN);
                let plain = Ipv6Repr::new(*src, *dst, Protocol::ICMPV6, message.header_len());
                Ipv6Repr { hop_limit: HOP_LIMIT, ..plain }.emit(ip);
                message.emit(icmp, *src, *dst, (Sum::ZERO, 0));
                EtherType::IPV6
            }
        };
        EthernetRepr { dst: to, src: own, ethertype }.emit(link);
    }
}
