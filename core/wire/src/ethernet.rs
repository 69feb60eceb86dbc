//! Ethernet II frames without their frame check sequence (IEEE 802.3 §3; RFC 894).
//!
//! Received: `EthernetView::parse(frame)?.payload()`. Sent: `EthernetRepr { .. }.emit(&mut frame)` writes the first
//! 14 bytes. Padding to the 60-byte minimum is the device's affair; padding on receive is trimmed by the IPv4 view.

use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, big_endian::U16};

use crate::{MacAddr, WireError};

/// The header as it lies in the frame.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    dst: [u8; 6],
    src: [u8; 6],
    ethertype: U16,
}

/// What the payload of a frame is.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub enum EtherType {
    /// 0x0800
    Ipv4,
    /// 0x0806
    Arp,
    /// 0x86dd
    Ipv6,
    /// Anything else, VLAN tags and 802.3 lengths included.
    Other(u16),
}

impl From<u16> for EtherType {
    #[inline]
    fn from(value: u16) -> Self {
        match value {
            0x0800 => EtherType::Ipv4,
            0x0806 => EtherType::Arp,
            0x86dd => EtherType::Ipv6,
            other => EtherType::Other(other),
        }
    }
}

impl From<EtherType> for u16 {
    #[inline]
    fn from(value: EtherType) -> Self {
        match value {
            EtherType::Ipv4 => 0x0800,
            EtherType::Arp => 0x0806,
            EtherType::Ipv6 => 0x86dd,
            EtherType::Other(other) => other,
        }
    }
}

/// A received frame that is long enough to have a header.
#[derive(Copy, Clone)]
pub struct EthernetView<'a> {
    raw: &'a Raw,
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// Checks that the header is complete.
    ///
    /// # Errors
    /// `Truncated` when `frame` has fewer than 14 bytes.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, WireError> {
        let (raw, payload) = Raw::ref_from_prefix(frame).map_err(|_| WireError::Truncated)?;
        Ok(EthernetView { raw, payload })
    }

    /// The station this frame is for.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(self.raw.dst)
    }

    /// The station that sent this frame.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(self.raw.src)
    }

    /// What the payload is.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        self.raw.ethertype.get().into()
    }

    /// The bytes after the header, link padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of an Ethernet II header.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct EthernetRepr {
    /// The station this frame is for.
    pub dst: MacAddr,
    /// The station that sends this frame.
    pub src: MacAddr,
    /// What the payload is.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// Bytes that `emit` writes.
    pub const HEADER_LEN: usize = size_of::<Raw>();

    /// The meaning of a received header.
    #[inline]
    pub fn from_view(view: &EthernetView<'_>) -> Self {
        EthernetRepr { dst: view.dst(), src: view.src(), ethertype: view.ethertype() }
    }

    /// Writes the header into the first 14 bytes of `out`.
    ///
    /// # Panics
    /// When `out` has fewer than 14 bytes.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        // Field by field: a header put together on the stack would be loaded in wider pieces than it was stored.
        let out = &mut out[..Self::HEADER_LEN];
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..].copy_from_slice(&u16::from(self.ethertype).to_be_bytes());
    }
}
