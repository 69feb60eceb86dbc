//! The exit of a tunnel: what [`Encapsulation`](crate::Encapsulation) made is taken apart again, strictly.
//!
//! Request: a whole IPv6 packet, from its header on. Reply: the IPv4 packet, with the congestion that the outer header
//! met (RFC 6040) and, in a uniform tunnel, with the outer codepoint.

use wire::Ipv4View;

use crate::ecn;
use crate::encapsulation::{TunnelConfig, TunnelError, set_header_word};
use crate::refused::{Layer, Refused};
use crate::service::{Service, room};
use crate::{gre, ipv6};

/// The exit of a tunnel.
#[derive(Debug)]
pub struct Decapsulation {
    config: TunnelConfig,
    /// Number of the last packet that was taken.
    last: Option<u32>,
}

impl Decapsulation {
    /// A tunnel's exit, which takes packets to its `local` from its `remote` address alone (anybody can forge that: GRE
    /// protects from nothing), with exactly this key, and where they are to be numbered only in order (RFC 2890 §2). It
    /// does not look at what concerns sending.
    ///
    /// # Errors
    /// [`TunnelError`] for a codepoint out of range.
    pub fn new(config: TunnelConfig) -> Result<Self, TunnelError> {
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
            // The class is the lower byte of the first word.
            set_header_word(out, 0, u16::from_be_bytes([packet[0], class]));
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
