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

/// What the payload of a frame is: a number above 1,535, else an 802.3 length.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
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
        EtherType(self.raw.ethertype.get())
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
        out[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
    }
}
