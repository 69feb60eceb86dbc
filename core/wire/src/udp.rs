//! UDP (RFC 768).
//!
//! Received: `UdpView::parse(ip.payload())?`, then `verify_checksum`. Sent: the payload is copied into the frame with
//! `copy_and_sum`, then `UdpRepr::emit` writes the header with the payload's sum.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16};

use crate::{Address, Endpoint, Ipv4Repr, Ipv6Repr, Protocol, Sum, WireError, pseudo_header_sum};

/// The header as it lies in the datagram.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    src_port: U16,
    dst_port: U16,
    len: U16,
    checksum: U16,
}

/// A received datagram whose length field holds.
#[derive(Copy, Clone)]
pub struct UdpView<'a> {
    raw: &'a Raw,
    payload: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Checks the length field; bytes after it are dropped.
    ///
    /// # Errors
    /// `Truncated` when the buffer ends before the header or before the length field's end; `Malformed` when that
    /// field does not cover the header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let payload_len =
            usize::from(raw.len.get()).checked_sub(size_of::<Raw>()).ok_or(WireError::Malformed)?;
        let payload = rest.get(..payload_len).ok_or(WireError::Truncated)?;
        Ok(UdpView { raw, payload })
    }

    /// Whether the checksum is right, or absent: zero says that the sender made none (RFC 768), which over IPv6 none may
    /// (RFC 8200 §8.1).
    #[inline]
    pub fn verify_checksum(&self, src: impl Into<Address>, dst: impl Into<Address>) -> bool {
        let dst = dst.into();
        if self.has_no_checksum() {
            return dst.is_ipv4();
        }
        let len = size_of::<Raw>() + self.payload.len();
        pseudo_header_sum(src, dst, Protocol::UDP, len)
            .add(Sum::of(self.raw.as_bytes()))
            .add(Sum::of(self.payload))
            .is_valid()
    }

    /// Whether the sender made no checksum.
    #[inline]
    pub fn has_no_checksum(&self) -> bool {
        self.raw.checksum.get() == 0
    }

    /// Source port; zero when no reply is wanted.
    #[inline]
    pub fn src_port(&self) -> u16 {
        self.raw.src_port.get()
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        self.raw.dst_port.get()
    }

    /// The checksum as received; zero when the sender made none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        self.raw.checksum.get()
    }

    /// Exactly the datagram's payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The meaning of a UDP header.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct UdpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Bytes after the header; at most [`UdpRepr::MAX_PAYLOAD_LEN`].
    pub payload_len: usize,
}

impl UdpRepr {
    /// Bytes that `emit` writes.
    pub const HEADER_LEN: usize = size_of::<Raw>();

    /// Most bytes that the length field can say behind the header. IPv4 leaves room for 20 fewer.
    pub const MAX_PAYLOAD_LEN: usize = u16::MAX as usize - Self::HEADER_LEN;

    /// The meaning of a received header.
    #[inline]
    pub fn from_view(view: &UdpView<'_>) -> Self {
        UdpRepr {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            payload_len: view.payload.len(),
        }
    }

    /// Writes the header, checksum included, into the first 8 bytes of `out`. `payload_sum` is the sum of the
    /// `payload_len` bytes that follow. A `payload_len` above `MAX_PAYLOAD_LEN` is the caller's mistake: the length
    /// field cannot say it, and the receiver drops the datagram.
    ///
    /// # Panics
    /// When `out` has fewer than 8 bytes.
    #[inline]
    pub fn emit(
        &self,
        out: &mut [u8],
        src: impl Into<Address>,
        dst: impl Into<Address>,
        payload_sum: Sum,
    ) {
        let len = Self::HEADER_LEN + self.payload_len;
        let checksum = pseudo_header_sum(src, dst, Protocol::UDP, len)
            .add_u16(self.src_port)
            .add_u16(self.dst_port)
            .add_u16(len as u16)
            .add(payload_sum)
            .finish();
        let raw = Raw {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            len: (len as u16).into(),
            // Zero would say "no checksum"; its ones'-complement equal does not (RFC 768).
            checksum: if checksum == 0 { 0xffff } else { checksum }.into(),
        };
        out[..Self::HEADER_LEN].copy_from_slice(raw.as_bytes());
    }
}

/// Writes a whole packet around a datagram: time to live 64, not to be fragmented, all checksums right; over IPv6 if one
/// of the ends is. For tools and tests, which have no buffer with headroom. Answers its length in bytes.
///
/// # Panics
/// When `out` has fewer bytes than the payload and 28, over IPv6 48.
pub fn emit_udp_packet(out: &mut [u8], from: Endpoint, to: Endpoint, payload: &[u8]) -> usize {
    let datagram_len = UdpRepr::HEADER_LEN + payload.len();
    let ip_len = match (from.addr.v4(), to.addr.v4()) {
        (Some(from), Some(to)) => {
            Ipv4Repr::new(from, to, Protocol::UDP, datagram_len).emit(out);
            Ipv4Repr::HEADER_LEN
        }
        _ => {
            let [from, to] = [from, to].map(|end| end.addr.octets().into());
            Ipv6Repr::new(from, to, Protocol::UDP, datagram_len).emit(out);
            Ipv6Repr::HEADER_LEN
        }
    };
    let (udp, rest) = out[ip_len..].split_at_mut(UdpRepr::HEADER_LEN);
    rest[..payload.len()].copy_from_slice(payload);
    let repr = UdpRepr { src_port: from.port, dst_port: to.port, payload_len: payload.len() };
    repr.emit(udp, from.addr, to.addr, Sum::of(payload));
    ip_len + datagram_len
}
