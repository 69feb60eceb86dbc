//! Packet encapsulation (HyperPlane §V-A): an IPv4 packet in GRE (RFC 2784) in IPv6 (RFC 7676, RFC 2473).
//!
//! Request: an IPv4 packet from its header on; bytes behind its total length are link padding and dropped. Reply: IPv6
//! header (40 bytes), GRE header (4 to 16 bytes), the packet.
//!
//! ```
//! use services::{Encapsulation, TunnelConfig, Service};
//!
//! let mut config = TunnelConfig::new("2001:db8::1".parse()?, "2001:db8::2".parse()?);
//! config.key = Some(7);
//! let mut tunnel = Encapsulation::new(config)?;
//!
//! let mut packet = [0u8; 28];
//! let header = wire::Ipv4Repr {
//!     src: [10, 0, 0, 1].into(),
//!     dst: [10, 0, 0, 2].into(),
//!     protocol: wire::Protocol::UDP,
//!     ttl: 64,
//!     ident: 0,
//!     dscp_ecn: 0,
//!     dont_fragment: true,
//!     payload_len: 8,
//! };
//! header.emit(&mut packet);
//! let mut reply = [0u8; 128];
//! assert_eq!(tunnel.serve(&packet, &mut reply)?, 40 + 8 + 28);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A packet above the tunnel's MTU is refused, not fragmented: the caller tells its sender. No tunnel encapsulation limit
//! option is sent (RFC 2473 §4.1.1): an entry takes IPv4 alone, so never its own packets.

use std::net::Ipv6Addr;

use wire::{EtherType, EthernetRepr, EthernetView, Ipv4View, Sum, checksum::update_u16};

use crate::ecn::{self, DscpModel};
use crate::refused::{Layer, Refused};
use crate::service::{Service, room};
use crate::{gre, ipv6};

/// Offset of time to live and protocol in an IPv4 header (RFC 791 §3.1).
const IPV4_TTL: usize = 8;
/// Offset of the checksum in an IPv4 header.
const IPV4_CHECKSUM: usize = 10;
/// The smallest MTU of a link that carries IPv6 (RFC 8200 §5).
const IPV6_MTU_MIN: usize = 1_280;
/// The largest packet that an IPv6 header can describe.
const IPV6_PACKET_MAX: usize = ipv6::HEADER_LEN + u16::MAX as usize;

/// How an end of a tunnel is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelConfig {
    /// This end's address.
    pub local: Ipv6Addr,
    /// The other end's address.
    pub remote: Ipv6Addr,
    /// The key that every packet carries; `None`: none does (RFC 2890 §2.1).
    pub key: Option<u32>,
    /// Whether packets are numbered, from zero (RFC 2890 §2.2). If not, an exit does not look at numbers.
    pub sequence: bool,
    /// Whether the GRE checksum is sent (RFC 2784 §2.5). It covers the packet: costs a pass over it.
    pub checksum: bool,
    /// What happens to the differentiated services codepoint.
    pub dscp: DscpModel,
    /// Hop limit of the outer packets (RFC 2473 §6.3).
    pub hop_limit: u8,
    /// Flow label of the outer packets, 20 bits (RFC 6438); zero for none.
    pub flow_label: u32,
    /// Most bytes of an outer packet, its header included: the path's MTU, 1,280 to 65,575.
    pub mtu: usize,
    /// Whether this node forwards the packets, and so takes one from their time to live (RFC 2473).
    pub forwarding: bool,
}

impl TunnelConfig {
    /// A plain tunnel: no key, no numbers, no checksum, uniform codepoint, hop limit 64, MTU 1,500, not forwarding.
    pub fn new(local: Ipv6Addr, remote: Ipv6Addr) -> Self {
        Self {
            local,
            remote,
            key: None,
            sequence: false,
            checksum: false,
            dscp: DscpModel::Uniform,
            hop_limit: 64,
            flow_label: 0,
            mtu: 1_500,
            forwarding: false,
        }
    }
}

/// A tunnel's configuration that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tunnel was configured with {field} = {found}: {expected}")]
pub struct TunnelError {
    field: &'static str,
    found: usize,
    expected: &'static str,
}

impl TunnelError {
    /// Fails where `dscp` is a pipe of a codepoint that does not exist.
    pub(crate) fn check_dscp(dscp: DscpModel) -> Result<(), TunnelError> {
        let found = match dscp {
            DscpModel::Pipe(codepoint) if codepoint > 0x3f => codepoint.into(),
            DscpModel::Pipe(_) | DscpModel::Uniform => return Ok(()),
        };
        Err(TunnelError { field: "dscp", found, expected: "a codepoint has six bits, 0 to 63" })
    }
}

/// The entry of a tunnel.
#[derive(Debug)]
pub struct Encapsulation {
    config: TunnelConfig,
    /// Number of the next packet.
    next: u32,
}

impl Encapsulation {
    /// A tunnel's entry.
    ///
    /// # Errors
    /// [`TunnelError`] for an MTU, a flow label, a hop limit or a codepoint out of range.
    pub fn new(config: TunnelConfig) -> Result<Self, TunnelError> {
        let error = |field, found, expected| Err(TunnelError { field, found, expected });
        TunnelError::check_dscp(config.dscp)?;
        if !(IPV6_MTU_MIN..=IPV6_PACKET_MAX).contains(&config.mtu) {
            return error("mtu", config.mtu, "IPv6 links carry 1280 to 65575 bytes");
        }
        if config.flow_label >> 20 != 0 {
            return error("flow_label", config.flow_label as usize, "a flow label has 20 bits");
        }
        if config.hop_limit == 0 {
            return error("hop_limit", 0, "a packet without hops goes nowhere; use 64");
        }
        Ok(Self { config, next: 0 })
    }

    /// Most bytes of an IPv4 packet that this tunnel carries: the MTU of the tunnel as a link (RFC 2473 §6.7).
    pub fn mtu(&self) -> usize {
        self.config.mtu - self.overhead()
    }

    /// Encapsulates the packet of an Ethernet frame into an Ethernet frame. The reply's header carries `src` and `dst`.
    ///
    /// # Errors
    /// As [`Service::serve`]; `Protocol` where the frame holds no IPv4.
    pub fn serve_frame(
        &mut self,
        src: wire::MacAddr,
        dst: wire::MacAddr,
        frame: &[u8],
        reply: &mut [u8],
    ) -> Result<usize, Refused> {
        let view = EthernetView::parse(frame).map_err(Refused::at(Layer::Ethernet))?;
        if view.ethertype() != EtherType::IPV4 {
            let found = view.ethertype().0;
            return Err(Refused::Protocol { layer: Layer::Ethernet, found });
        }
        let link_len = EthernetRepr::HEADER_LEN;
        let needed = link_len + self.reply_len_max(view.payload().len().min(self.mtu()));
        let room = reply.len();
        let (link, packet) =
            reply.split_at_mut_checked(link_len).ok_or(Refused::ReplyRoom { needed, room })?;
        let length = self.serve(view.payload(), packet)?;
        EthernetRepr { src, dst, ethertype: EtherType::IPV6 }.emit(link);
        Ok(link_len + length)
    }

    /// The GRE header of the next packet.
    fn gre_header(&self) -> gre::Header {
        gre::Header {
            protocol: gre::PROTOCOL_IPV4,
            checksum: self.config.checksum,
            key: self.config.key,
            sequence: self.config.sequence.then_some(self.next),
        }
    }

    /// Bytes before the packet.
    fn overhead(&self) -> usize {
        ipv6::HEADER_LEN + self.gre_header().len()
    }
}

impl Service for Encapsulation {
    fn name(&self) -> &'static str {
        "encapsulation"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let inner = Ipv4View::parse(request).map_err(Refused::at(Layer::Ipv4))?;
        if !inner.verify_checksum() {
            return Err(Refused::Checksum { layer: Layer::Ipv4 });
        }
        if self.config.forwarding && inner.ttl() <= 1 {
            return Err(Refused::HopLimit);
        }
        let length = inner.total_len();
        if length > self.mtu() {
            return Err(Refused::TooBig { length, mtu: self.mtu() });
        }
        let gre = self.gre_header();
        let overhead = self.overhead();
        let out = room(reply, overhead + length)?;
        let (outer, packet) = out.split_at_mut(overhead);
        packet.copy_from_slice(&request[..length]);
        if self.config.forwarding {
            // Time to live is the upper byte.
            let word = u16::from_be_bytes([inner.ttl() - 1, packet[IPV4_TTL + 1]]);
            set_header_word(packet, IPV4_TTL, word);
        }
        let header = ipv6::Header {
            traffic_class: ecn::encapsulate(inner.dscp() << 2 | inner.ecn(), self.config.dscp),
            flow_label: self.config.flow_label,
            // At most the MTU, which was checked when the tunnel was made.
            payload_len: (gre.len() + length) as u16,
            next_header: ipv6::NEXT_GRE,
            hop_limit: self.config.hop_limit,
            src: self.config.local,
            dst: self.config.remote,
        };
        let Some((ipv6, gre_out)) = outer.split_first_chunk_mut() else {
            return Err(Refused::Truncated { layer: Layer::Ipv6 });
        };
        header.emit(ipv6);
        let sum = if gre.checksum { Sum::of(packet) } else { Sum::ZERO };
        gre.emit(gre_out, sum);
        self.next = self.next.wrapping_add(1);
        Ok(overhead + length)
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        self.overhead() + request_len.min(self.mtu())
    }
}

/// Sets the word at `at` of an IPv4 header, and updates the header's checksum (RFC 1141, RFC 1624).
pub(crate) fn set_header_word(packet: &mut [u8], at: usize, new: u16) {
    let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let checksum = update_u16(word(IPV4_CHECKSUM), word(at), new);
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    packet[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}
