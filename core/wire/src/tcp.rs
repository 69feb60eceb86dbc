//! TCP segments (RFC 9293 §3.1) and sequence arithmetic (§3.4).
//!
//! Received: `TcpView::parse(ip.payload())?`, then `verify_checksum`, then the accessors; options are read only when
//! asked for. Sent: the payload is copied behind the header with `copy_and_sum`, then `TcpRepr::emit` writes header,
//! options and checksum.

use core::fmt;
use core::ops::{Add, AddAssign, BitOr, BitOrAssign, Sub};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian::U16, big_endian::U32,
};

use crate::pseudo_header::pseudo_header_words;
use crate::tcp_options::{ALIGNED_TIMESTAMP, ALIGNED_TIMESTAMP_LEN};
use crate::{Address, Protocol, Sum, TcpOptions, Timestamp, WireError, pseudo_header_sum};

/// The header without options as it lies in the segment (RFC 9293 §3.1).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    src_port: U16,
    dst_port: U16,
    seq: U32,
    ack: U32,
    /// Header length in 32-bit words in the upper four bits; the lower four are reserved.
    data_offset: u8,
    flags: u8,
    window: U16,
    checksum: U16,
    urgent: U16,
}

/// The header of an established segment: `NOP NOP TIMESTAMP` and nothing else (RFC 7323 appendix A).
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct RawWithTimestamp {
    header: Raw,
    kind: U32,
    value: U32,
    echo: U32,
}

const _: () = assert!(size_of::<RawWithTimestamp>() == size_of::<Raw>() + ALIGNED_TIMESTAMP_LEN);

/// A sequence number: a position in a byte stream modulo 2^32 (RFC 9293 §3.4).
///
/// There is no total order, so there is no `Ord`; the comparisons are right for numbers less than 2^31 apart.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Whether this comes before `other`.
    #[inline]
    pub const fn before(self, other: SeqNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this is `other` or comes before it.
    #[inline]
    pub const fn before_eq(self, other: SeqNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) <= 0
    }

    /// Whether this comes after `other`.
    #[inline]
    pub const fn after(self, other: SeqNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Whether this is `other` or comes after it.
    #[inline]
    pub const fn after_eq(self, other: SeqNumber) -> bool {
        (self.0.wrapping_sub(other.0) as i32) >= 0
    }

    /// The later of two numbers.
    #[inline]
    pub const fn max(self, other: SeqNumber) -> SeqNumber {
        if self.after(other) { self } else { other }
    }

    /// The earlier of two numbers.
    #[inline]
    pub const fn min(self, other: SeqNumber) -> SeqNumber {
        if self.before(other) { self } else { other }
    }
}

impl fmt::Display for SeqNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Add<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline]
    fn add(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = SeqNumber;

    #[inline]
    fn sub(self, bytes: u32) -> SeqNumber {
        SeqNumber(self.0.wrapping_sub(bytes))
    }
}

impl Sub<SeqNumber> for SeqNumber {
    type Output = i32;

    /// Bytes from `other` to `self`, negative when `self` comes before it.
    #[inline]
    fn sub(self, other: SeqNumber) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

/// The control bits (RFC 9293 §3.1, RFC 3168 §6.1).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No bit.
    pub const NONE: TcpFlags = TcpFlags(0);
    /// The sender has sent everything.
    pub const FIN: TcpFlags = TcpFlags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: TcpFlags = TcpFlags(0x02);
    /// Reset the connection.
    pub const RST: TcpFlags = TcpFlags(0x04);
    /// Push what is buffered to the application.
    pub const PSH: TcpFlags = TcpFlags(0x08);
    /// The acknowledgement field counts.
    pub const ACK: TcpFlags = TcpFlags(0x10);
    /// The urgent pointer counts.
    pub const URG: TcpFlags = TcpFlags(0x20);
    /// ECN echo.
    pub const ECE: TcpFlags = TcpFlags(0x40);
    /// Congestion window reduced.
    pub const CWR: TcpFlags = TcpFlags(0x80);

    /// Whether every bit of `other` is set.
    #[inline]
    pub const fn contains(self, other: TcpFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn intersects(self, other: TcpFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both.
    #[inline]
    #[must_use]
    pub const fn union(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[inline]
    #[must_use]
    pub const fn difference(self, other: TcpFlags) -> TcpFlags {
        TcpFlags(self.0 & !other.0)
    }

    /// Whether no bit is set.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for TcpFlags {
    type Output = TcpFlags;

    #[inline]
    fn bitor(self, other: TcpFlags) -> TcpFlags {
        self.union(other)
    }
}

impl BitOrAssign for TcpFlags {
    #[inline]
    fn bitor_assign(&mut self, other: TcpFlags) {
        *self = self.union(other);
    }
}

impl fmt::Display for TcpFlags {
    /// The set bits' names with `|` between them, `-` for none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        if self.is_empty() {
            return f.write_str("-");
        }
        let mut separator = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 >> bit & 1 != 0 {
                write!(f, "{separator}{name}")?;
                separator = "|";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A received segment whose data offset holds.
#[derive(Copy, Clone)]
pub struct TcpView<'a> {
    raw: &'a Raw,
    segment: &'a [u8],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// Checks the data offset. `bytes` is exactly the datagram's payload: TCP has no length of its own.
    ///
    /// # Errors
    /// `Truncated` when the buffer ends before the header or its options; `Malformed` when the data offset does not
    /// cover the header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (raw, rest) = Raw::ref_from_prefix(bytes).map_err(|_| WireError::Truncated)?;
        let header_len = usize::from(raw.data_offset >> 4) * 4;
        let options_len = header_len.checked_sub(size_of::<Raw>()).ok_or(WireError::Malformed)?;
        let (options, payload) = rest.split_at_checked(options_len).ok_or(WireError::Truncated)?;
        Ok(TcpView { raw, segment: bytes, options, payload })
    }

    /// Whether the checksum over pseudo-header and segment is right (RFC 9293 §3.1).
    #[inline]
    pub fn verify_checksum(&self, src: impl Into<Address>, dst: impl Into<Address>) -> bool {
        pseudo_header_sum(src, dst, Protocol::TCP, self.segment.len())
            .add(Sum::of(self.segment))
            .is_valid()
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        self.raw.src_port.get()
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        self.raw.dst_port.get()
    }

    /// Sequence number of the first payload byte, or of the SYN (SEG.SEQ).
    #[inline]
    pub fn seq(&self) -> SeqNumber {
        SeqNumber(self.raw.seq.get())
    }

    /// The next sequence number that the sender expects (SEG.ACK); without meaning unless ACK is set.
    #[inline]
    pub fn ack(&self) -> SeqNumber {
        SeqNumber(self.raw.ack.get())
    }

    /// The receive window, not scaled (SEG.WND).
    #[inline]
    pub fn window(&self) -> u16 {
        self.raw.window.get()
    }

    /// The control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.raw.flags)
    }

    /// The urgent pointer; without meaning unless URG is set.
    #[inline]
    pub fn urgent(&self) -> u16 {
        self.raw.urgent.get()
    }

    /// Bytes of header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        size_of::<Raw>() + self.options.len()
    }

    /// The options as bytes.
    #[inline]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// The options, read.
    #[inline]
    pub fn options(&self) -> TcpOptions {
        TcpOptions::parse(self.options)
    }

    /// The timestamp when it is the only option and laid out as usual; the question of header prediction.
    #[inline]
    pub fn aligned_timestamp(&self) -> Option<Timestamp> {
        TcpOptions::parse_aligned_timestamp(self.options)
    }

    /// The bytes after header and options.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// How much sequence space the segment takes: payload, SYN and FIN (SEG.LEN).
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        let control = u32::from(self.flags().contains(TcpFlags::SYN))
            + u32::from(self.flags().contains(TcpFlags::FIN));
        // A segment is the payload of an IPv4 datagram; in any other buffer the length is taken modulo 2^32 as all
        // sequence arithmetic is.
        (self.payload.len() as u32).wrapping_add(control)
    }
}

/// The meaning of a TCP header. The urgent pointer is not among it: new applications should not use it (RFC 6093
/// §5), and it is sent as zero.
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct TcpRepr {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number of the first payload byte, or of the SYN.
    pub seq: SeqNumber,
    /// The next sequence number expected; zero without ACK.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: TcpFlags,
    /// The receive window, already shifted by the scale in force.
    pub window: u16,
    /// The options.
    pub options: TcpOptions,
}

impl TcpRepr {
    /// Bytes of a header without options.
    pub const HEADER_LEN: usize = size_of::<Raw>();
    /// Where the checksum lies in a header, in bytes.
    pub const CHECKSUM_AT: usize = core::mem::offset_of!(Raw, checksum);

    /// The meaning of a received header, options read.
    pub fn from_view(view: &TcpView<'_>) -> Self {
        TcpRepr {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            seq: view.seq(),
            ack: view.ack(),
            flags: view.flags(),
            window: view.window(),
            options: view.options(),
        }
    }

    /// Bytes that `emit` writes: 20 to 60, a multiple of 4.
    #[inline]
    pub fn header_len(&self) -> usize {
        Self::HEADER_LEN + self.options.len()
    }

    /// Writes header and options, checksum included, into the first `header_len()` bytes of `out`. `payload_len` bytes
    /// of payload follow the header, and `payload_sum` is their sum.
    ///
    /// # Panics
    /// When `out` has fewer than `header_len()` bytes.
    // Always inlined: a caller that has just built the options knows which branch it takes.
    #[inline(always)]
    pub fn emit(
        &self,
        out: &mut [u8],
        src: impl Into<Address>,
        dst: impl Into<Address>,
        payload_len: usize,
        payload_sum: Sum,
    ) {
        let (src, dst) = (src.into(), dst.into());
        match self.options.only_timestamp() {
            Some(timestamp) => {
                const LEN: usize = size_of::<RawWithTimestamp>();
                // Summed from the values, not from the bytes just stored: a wide load behind narrow stores would
                // stall.
                let words = pseudo_header_words(src, dst, Protocol::TCP, LEN + payload_len)
                    + u64::from(ALIGNED_TIMESTAMP.to_be())
                    + u64::from(timestamp.value.to_be())
                    + u64::from(timestamp.echo.to_be());
                let raw = RawWithTimestamp {
                    header: self.raw(LEN, words, payload_sum),
                    kind: ALIGNED_TIMESTAMP.into(),
                    value: timestamp.value.into(),
                    echo: timestamp.echo.into(),
                };
                out[..LEN].copy_from_slice(raw.as_bytes());
            }
            None => self.emit_any(out, src, dst, payload_len, payload_sum),
        }
    }

    /// As [`emit`](Self::emit), for a device that completes the checksum ([`complete_checksum`](crate::complete_checksum)):
    /// its field gets the sum of the pseudo-header.
    pub fn emit_partial(
        &self,
        out: &mut [u8],
        src: impl Into<Address>,
        dst: impl Into<Address>,
        payload_len: usize,
    ) {
        let (src, dst) = (src.into(), dst.into());
        self.emit(out, src, dst, payload_len, Sum::ZERO);
        let len = self.header_len() + payload_len;
        // What is complemented once more is the sum itself.
        let sum = !pseudo_header_sum(src, dst, Protocol::TCP, len).finish();
        out[Self::CHECKSUM_AT..][..2].copy_from_slice(&sum.to_be_bytes());
    }

    /// Any options.
    #[inline(never)]
    fn emit_any(
        &self,
        out: &mut [u8],
        src: Address,
        dst: Address,
        payload_len: usize,
        payload_sum: Sum,
    ) {
        let len = self.header_len();
        let (header, options) = out[..len].split_at_mut(Self::HEADER_LEN);
        self.options.emit(options);
        // Options have a length of a multiple of four, so the payload starts at an even offset.
        let rest = payload_sum.add(Sum::of(options));
        let words = pseudo_header_words(src, dst, Protocol::TCP, len + payload_len);
        header.copy_from_slice(self.raw(len, words, rest).as_bytes());
    }

    /// The header proper, with the checksum over it, `words` (in memory order, below 2^40) and `rest`.
    #[inline(always)]
    fn raw(&self, header_len: usize, words: u64, rest: Sum) -> Raw {
        // At most 60 bytes, 15 words: fits the four bits.
        let data_offset = (header_len as u8 / 4) << 4;
        // Every term is below 2^32: no carry leaves 64 bits, so there is none to bring back at each step.
        let words = words
            + u64::from(self.src_port.to_be())
            + u64::from(self.dst_port.to_be())
            + u64::from(self.seq.0.to_be())
            + u64::from(self.ack.0.to_be())
            + u64::from(u16::from_ne_bytes([data_offset, self.flags.0]))
            + u64::from(self.window.to_be());
        let checksum = Sum::from_words(words).add(rest).finish();
        Raw {
            src_port: self.src_port.into(),
            dst_port: self.dst_port.into(),
            seq: self.seq.0.into(),
            ack: self.ack.0.into(),
            data_offset,
            flags: self.flags.0,
            window: self.window.into(),
            checksum: checksum.into(),
            urgent: 0.into(),
        }
    }
}
