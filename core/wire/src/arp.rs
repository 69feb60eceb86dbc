//! ARP for IPv4 over Ethernet (RFC 826).
//!
//! `ArpRepr::parse(ethernet.payload())?` on receive, `ArpRepr { .. }.emit(&mut frame[14..])` on send. A packet is so
//! small and so rare that it is read at once into its meaning; there is no view.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{Ipv4Addr, MacAddr, WireError};

/// The packet as it lies in the frame.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    hardware: U16,
    protocol: U16,
    hardware_len: u8,
    protocol_len: u8,
    operation: U16,
    sender_mac: [u8; 6],
    sender_ip: [u8; 4],
    target_mac: [u8; 6],
    target_ip: [u8; 4],
}

const HARDWARE_ETHERNET: u16 = 1;
const PROTOCOL_IPV4: u16 = 0x0800;

/// What an ARP packet does.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub enum ArpOperation {
    /// Asks who has the target address.
    Request = 1,
    /// Tells the sender's address.
    Reply = 2,
}

/// The meaning of an ARP packet.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct ArpRepr {
    /// Request or reply.
    pub operation: ArpOperation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender; unspecified (0.0.0.0) in a probe (RFC 5227 §1.1).
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; without meaning in a request.
    pub target_mac: MacAddr,
    /// Protocol address of the target.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Bytes that `emit` writes.
    pub const LEN: usize = size_of::<Raw>();

    /// Reads a packet; bytes after it (link padding) are ignored.
    ///
    /// # Errors
    /// `Truncated` below 28 bytes; `Unsupported` for other hardware, protocols or operations.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (raw, _padding) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let ethernet_ipv4 = raw.hardware.get() == HARDWARE_ETHERNET
            && raw.protocol.get() == PROTOCOL_IPV4
            && raw.hardware_len == 6
            && raw.protocol_len == 4;
        if !ethernet_ipv4 {
            return Err(WireError::Unsupported);
        }
        let operation = match raw.operation.get() {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(WireError::Unsupported),
        };
        Ok(ArpRepr {
            operation,
            sender_mac: MacAddr(raw.sender_mac),
            sender_ip: raw.sender_ip.into(),
            target_mac: MacAddr(raw.target_mac),
            target_ip: raw.target_ip.into(),
        })
    }

    /// Writes the packet into the first 28 bytes of `out`.
    ///
    /// # Panics
    /// When `out` has fewer than 28 bytes.
    pub fn emit(&self, out: &mut [u8]) {
        let raw = Raw {
            hardware: HARDWARE_ETHERNET.into(),
            protocol: PROTOCOL_IPV4.into(),
            hardware_len: 6,
            protocol_len: 4,
            operation: (self.operation as u16).into(),
            sender_mac: self.sender_mac.0,
            sender_ip: self.sender_ip.octets(),
            target_mac: self.target_mac.0,
            target_ip: self.target_ip.octets(),
        };
        out[..Self::LEN].copy_from_slice(raw.as_bytes());
    }
}
