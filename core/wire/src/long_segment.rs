//! A TCP segment that a device left in several buffers (AF_XDP multi-buffer: frames longer than one chunk), cut into
//! segments of one buffer each. A receiver that knows only whole segments in one piece takes these: they carry the
//! same bytes at the same sequence numbers, as if the sender had had a smaller MTU.
//!
//! ```
//! use wire::{LongSegment, Sum};
//! # use wire::*;
//! # fn frame() -> Vec<u8> {
//! #     let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
//! #     let payload = [7u8; 100];
//! #     let tcp = TcpRepr { src_port: 1, dst_port: 2, seq: SeqNumber(5), ack: SeqNumber(6), flags: TcpFlags::ACK,
//! #         window: 9, options: TcpOptions::default() };
//! #     let mut frame = vec![0; 54];
//! #     EthernetRepr { dst: MacAddr::default(), src: MacAddr::default(), ethertype: EtherType::IPV4 }.emit(&mut frame);
//! #     Ipv4Repr { src, dst, protocol: Protocol::TCP, ttl: 64, ident: 1, dscp_ecn: 0, dont_fragment: true,
//! #         payload_len: 120 }.emit(&mut frame[14..]);
//! #     tcp.emit(&mut frame[34..], src, dst, 100, Sum::of(&payload));
//! #     frame.extend(payload);
//! #     frame
//! # }
//! let frame = frame();
//! let (first, second) = frame.split_at(80);
//! let long = LongSegment::parse(first, frame.len())?;
//! let headers = long.headers_len();
//! let sums = [Sum::of(&first[headers..]), Sum::of(second)];
//! let at = first.len() - headers;
//! assert!(long.is_valid(sums[0].add_at(sums[1], at)));
//! let mut other = vec![0; headers + second.len()];
//! other[headers..].copy_from_slice(second);
//! long.emit(&mut other, at, second.len(), sums[1]);
//! # let ip = Ipv4View::parse(&other[14..])?;
//! # let tcp = TcpView::parse(ip.payload())?;
//! # assert!(ip.verify_checksum() && tcp.verify_checksum(ip.src(), ip.dst()));
//! # assert_eq!(tcp.seq(), SeqNumber(5 + at as u32));
//! # Ok::<(), WireError>(())
//! ```

use crate::ipv4::pseudo_header_sum;
use crate::{
    EtherType, EthernetRepr, EthernetView, Ipv4Addr, Ipv4View, Protocol, SeqNumber, Sum, TcpFlags,
    TcpView, WireError,
};

/// The largest headers of IPv4 and of TCP.
const IP_AND_TCP_MAX: usize = 60 + 60;
const LINK: usize = EthernetRepr::HEADER_LEN;
/// Offsets in an IPv4 header (RFC 791 §3.1).
const TOTAL_LEN: usize = 2;
const IP_CHECKSUM: usize = 10;
/// Offsets in a TCP header (RFC 9293 §3.1).
const SEQ: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const URGENT: usize = 18;

/// The headers of such a segment.
#[derive(Clone, Debug)]
pub struct LongSegment {
    /// As they came.
    headers: [u8; LINK + IP_AND_TCP_MAX],
    /// Bytes of the IPv4 header.
    ip_len: usize,
    /// Bytes of the TCP header.
    tcp_len: usize,
    /// Bytes of the payload in all buffers.
    payload_len: usize,
    src: Ipv4Addr,
    dst: Ipv4Addr,
    seq: SeqNumber,
    flags: TcpFlags,
}

impl LongSegment {
    /// Reads the headers, which lie in the first buffer; all buffers together have `frame_len` bytes.
    ///
    /// # Errors
    /// `Unsupported` for what is no TCP over IPv4, is a fragment, or opens or resets a connection; `Truncated` where
    /// the first buffer ends before the headers do; `Malformed` where lengths contradict each other.
    pub fn parse(first: &[u8], frame_len: usize) -> Result<Self, WireError> {
        let link = EthernetView::parse(first)?;
        if link.ethertype() != EtherType::IPV4 {
            return Err(WireError::Unsupported);
        }
        let packet = link.payload();
        let byte = |at: usize| packet.get(at).copied().ok_or(WireError::Truncated);
        let ip_len = usize::from(byte(0)? & 0x0f) * 4;
        let tcp_len = usize::from(byte(ip_len + DATA_OFFSET)? >> 4) * 4;
        let len = LINK + ip_len + tcp_len;
        let mut headers = [0; LINK + IP_AND_TCP_MAX];
        headers[..len].copy_from_slice(first.get(..len).ok_or(WireError::Truncated)?);
        let total_len = u16::from_be_bytes([byte(TOTAL_LEN)?, byte(TOTAL_LEN + 1)?]);
        if LINK + usize::from(total_len) != frame_len || frame_len < len {
            return Err(WireError::Malformed);
        }
        // The views check the rest, of a packet that has the headers alone.
        let mut alone = headers;
        let alone_len = ((ip_len + tcp_len) as u16).to_be_bytes();
        alone[LINK + TOTAL_LEN..][..2].copy_from_slice(&alone_len);
        let ip = Ipv4View::parse(&alone[LINK..len])?;
        if ip.protocol() != Protocol::TCP || ip.is_fragment() {
            return Err(WireError::Unsupported);
        }
        let tcp = TcpView::parse(ip.payload())?;
        if tcp.flags().intersects(TcpFlags::SYN | TcpFlags::RST) {
            return Err(WireError::Unsupported);
        }
        Ok(Self {
            headers,
            ip_len,
            tcp_len,
            payload_len: frame_len - len,
            src: ip.src(),
            dst: ip.dst(),
            seq: tcp.seq(),
            flags: tcp.flags(),
        })
    }

    /// Bytes of all headers, the link's included: where the payload begins in the first buffer, and what
    /// [`emit`](Self::emit) writes.
    pub fn headers_len(&self) -> usize {
        LINK + self.ip_len + self.tcp_len
    }

    /// Whether both checksums are right, given the sum of the whole payload.
    pub fn is_valid(&self, payload: Sum) -> bool {
        let (ip, tcp) = self.headers[LINK..self.headers_len()].split_at(self.ip_len);
        let len = self.tcp_len + self.payload_len;
        let segment = pseudo_header_sum(self.src, self.dst, Protocol::TCP, len).add(Sum::of(tcp));
        Sum::of(ip).is_valid() && segment.add(payload).is_valid()
    }

    /// Writes the headers of the segment that carries `len` bytes from the payload's byte `at` on, whose sum is `sum`.
    /// FIN and PSH go with the last byte.
    ///
    /// # Panics
    /// When `out` has fewer than [`headers_len`](Self::headers_len) bytes.
    pub fn emit(&self, out: &mut [u8], at: usize, len: usize, sum: Sum) {
        let out = &mut out[..self.headers_len()];
        out.copy_from_slice(&self.headers[..self.headers_len()]);
        let (ip, tcp) = out[LINK..].split_at_mut(self.ip_len);
        let total_len = (self.ip_len + self.tcp_len + len) as u16;
        ip[TOTAL_LEN..][..2].copy_from_slice(&total_len.to_be_bytes());
        ip[IP_CHECKSUM..][..2].fill(0);
        let checksum = Sum::of(ip).finish();
        ip[IP_CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());

        let mut flags = self.flags;
        if at + len < self.payload_len {
            flags = flags.difference(TcpFlags::FIN | TcpFlags::PSH);
        }
        if at > 0 {
            // Both speak of the first byte.
            flags = flags.difference(TcpFlags::CWR | TcpFlags::URG);
            tcp[URGENT..][..2].fill(0);
        }
        tcp[FLAGS] = flags.0;
        let seq = self.seq + at as u32;
        tcp[SEQ..][..4].copy_from_slice(&seq.0.to_be_bytes());
        tcp[TCP_CHECKSUM..][..2].fill(0);
        let segment = pseudo_header_sum(self.src, self.dst, Protocol::TCP, self.tcp_len + len)
            .add(Sum::of(tcp));
        let checksum = segment.add(sum).finish();
        tcp[TCP_CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
}
