//! The exit of a tunnel: what [`Encapsulation`](crate::Encapsulation) made is taken apart again, strictly.
//!
//! Request: a whole IPv6 packet, from its header on. Reply: the IPv4 packet, with the congestion that the outer header
//! met (RFC 6040) and, in a uniform tunnel, with the outer codepoint.

use std::net::Ipv6Addr;

use wire::{Ipv4View, checksum::update_u16};

use crate::ecn::{self, DscpModel};
use crate::encapsulation::TunnelError;
use crate::refused::{Layer, Refused};
use crate::service::{Service, room};
use crate::{gre, ipv6};

/// Offset of the checksum in an IPv4 header (RFC 791 §3.1).
const IPV4_CHECKSUM: usize = 10;

/// How a tunnel's exit is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecapsulationConfig {
    /// This end's address: only packets to it are taken.
    pub local: Ipv6Addr,
    /// The other end's address: only packets from it are taken. Anybody can forge it: GRE protects from nothing.
    pub remote: Ipv6Addr,
    /// The key that every packet must carry; `None`: it must carry none (RFC 2890 §2.1).
    pub key: Option<u32>,
    /// Whether packets must be numbered in order. Late ones and copies are refused (RFC 2890 §2.2); if false, numbers
    /// are not looked at.
    pub sequence: bool,
    /// What happens to the differentiated services codepoint.
    pub dscp: DscpModel,
}

impl DecapsulationConfig {
    /// A plain tunnel: no key, numbers ignored, uniform codepoint.
    pub fn new(local: Ipv6Addr, remote: Ipv6Addr) -> Self {
        Self { local, remote, key: None, sequence: false, dscp: DscpModel::Uniform }
    }
}

/// The exit of a tunnel.
#[derive(Debug)]
pub struct Decapsulation {
    config: DecapsulationConfig,
    /// Number of the last packet that was taken.
    last: Option<u32>,
}

impl Decapsulation {
    /// A tunnel's exit.
    ///
    /// # Errors
    /// [`TunnelError`] for a codepoint out of range.
    pub fn new(config: DecapsulationConfig) -> Result<Self, TunnelError> {
        TunnelError::check_dscp(config.dscp)?;
        Ok(Self { config, last: None })
    }

    /// Whether a packet's number is one that comes next.
    fn check_sequence(&self, found: Option<u32>) -> Result<(), Refused> {
        if !self.config.sequence {
            return Ok(());
        }
        let in_order = match (found, self.last) {
            (None, _) => false,
            (Some(_), None) => true,
            // "Out of sequence" is what lies up to 2^31 - 1 behind the last one, itself included (RFC 2890 §2.2).
            (Some(found), Some(last)) => found != last && found.wrapping_sub(last) <= 1 << 31,
        };
        if in_order { Ok(()) } else { Err(Refused::Sequence { found, last: self.last }) }
    }
}

impl Service for Decapsulation {
    fn name(&self) -> &'static str {
        "decapsulation"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let (outer, upper, payload) = ipv6::parse(request)?;
        if (outer.src, outer.dst) != (self.config.remote, self.config.local) {
            return Err(Refused::Address { layer: Layer::Ipv6 });
        }
        if upper != ipv6::NEXT_GRE {
            return Err(Refused::Protocol { layer: Layer::Ipv6, found: upper.into() });
        }
        let (gre, packet) = gre::parse(payload)?;
        if gre.protocol != gre::PROTOCOL_IPV4 {
            return Err(Refused::Protocol { layer: Layer::Gre, found: gre.protocol });
        }
        if gre.key != self.config.key {
            return Err(Refused::TunnelKey { found: gre.key, expected: self.config.key });
        }
        self.check_sequence(gre.sequence)?;

        let inner = Ipv4View::parse(packet).map_err(Refused::at(Layer::Ipv4))?;
        if inner.total_len() != packet.len() {
            return Err(Refused::Malformed { layer: Layer::Ipv4, field: "total length" });
        }
        if !inner.verify_checksum() {
            return Err(Refused::Checksum { layer: Layer::Ipv4 });
        }
        let old_class = inner.dscp() << 2 | inner.ecn();
        let class = ecn::decapsulate(old_class, outer.traffic_class, self.config.dscp)?;
        let out = room(reply, packet.len())?;
        out.copy_from_slice(packet);
        if class != old_class {
            let old = u16::from_be_bytes([packet[0], old_class]);
            let new = u16::from_be_bytes([packet[0], class]);
            let checksum = [packet[IPV4_CHECKSUM], packet[IPV4_CHECKSUM + 1]];
            let checksum = update_u16(u16::from_be_bytes(checksum), old, new);
            out[1] = class;
            out[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        if self.config.sequence {
            self.last = gre.sequence;
        }
        Ok(packet.len())
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len.saturating_sub(ipv6::HEADER_LEN + 4)
    }
}
