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

use crate::pseudo_header::pseudo_header_sum;
use crate::{
    Address, EtherType, EthernetRepr, EthernetView, Ipv4View, Ipv6Repr, Ipv6View, Protocol,
    SeqNumber, Sum, TcpFlags, TcpView, WireError,
};

/// The largest headers of IPv4 and of TCP.
const IP_AND_TCP_MAX: usize = 60 + 60;
const LINK: usize = EthernetRepr::HEADER_LEN;
/// Offsets in an IPv4 header (RFC 791 §3.1).
const TOTAL_LEN: usize = 2;
const IP_CHECKSUM: usize = 10;
/// Offset in an IPv6 header, whose length it does not count (RFC 8200 §3).
const PAYLOAD_LEN: usize = 4;
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
    is_v4: bool,
    /// Bytes of the IP header.
    ip_len: usize,
    /// Bytes of the TCP header.
    tcp_len: usize,
    /// Bytes of the payload in all buffers.
    payload_len: usize,
    src: Address,
    dst: Address,
    seq: SeqNumber,
    flags: TcpFlags,
}

impl LongSegment {
    /// Reads the headers, which lie in the first buffer; all buffers together have `frame_len` bytes.
    ///
    /// # Errors
    /// `Unsupported` for what is no TCP over IPv4 or directly over IPv6, is a fragment, or opens or resets a connection;
    /// `Truncated` where the first buffer ends before the headers do; `Malformed` where lengths contradict each other.
    pub fn parse(first: &[u8], frame_len: usize) -> Result<Self, WireError> {
        let link = EthernetView::parse(first)?;
        let packet = link.payload();
        let byte = |at: usize| packet.get(at).copied().ok_or(WireError::Truncated);
        let (is_v4, ip_len) = match link.ethertype() {
            EtherType::IPV4 => (true, usize::from(byte(0)? & 0x0f) * 4),
            EtherType::IPV6 => (false, Ipv6Repr::HEADER_LEN),
            _ => return Err(WireError::Unsupported),
        };
        let tcp_len = usize::from(byte(ip_len + DATA_OFFSET)? >> 4) * 4;
        let len = LINK + ip_len + tcp_len;
        let mut headers = [0; LINK + IP_AND_TCP_MAX];
        headers[..len].copy_from_slice(first.get(..len).ok_or(WireError::Truncated)?);
        let (len_at, uncounted) = if is_v4 { (TOTAL_LEN, 0) } else { (PAYLOAD_LEN, ip_len) };
        let counted = u16::from_be_bytes([byte(len_at)?, byte(len_at + 1)?]);
        if LINK + uncounted + usize::from(counted) != frame_len || frame_len < len {
            return Err(WireError::Malformed);
        }
        // The views check the rest, of a packet that has the headers alone.
        let mut alone = headers;
        let alone_len = ((ip_len + tcp_len - uncounted) as u16).to_be_bytes();
        alone[LINK + len_at..][..2].copy_from_slice(&alone_len);
        let (src, dst) = ends(&alone[LINK..len], is_v4)?;
        let tcp = TcpView::parse(&alone[LINK + ip_len..len])?;
        if tcp.flags().intersects(TcpFlags::SYN | TcpFlags::RST) {
            return Err(WireError::Unsupported);
        }
        Ok(Self {
            headers,
            is_v4,
            ip_len,
            tcp_len,
            payload_len: frame_len - len,
            src,
            dst,
            seq: tcp.seq(),
            flags: tcp.flags(),
        })
    }

    /// Bytes of all headers, the link's included: where the payload begins in the first buffer, and what
    /// [`emit`](Self::emit) writes.
    pub fn headers_len(&self) -> usize {
        LINK + self.ip_len + self.tcp_len
    }

    /// Whether all checksums are right, given the sum of the whole payload.
    pub fn is_valid(&self, payload: Sum) -> bool {
        let (ip, tcp) = self.headers[LINK..self.headers_len()].split_at(self.ip_len);
        let len = self.tcp_len + self.payload_len;
        let segment = pseudo_header_sum(self.src, self.dst, Protocol::TCP, len).add(Sum::of(tcp));
        (!self.is_v4 || Sum::of(ip).is_valid()) && segment.add(payload).is_valid()
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
        let segment_len = self.tcp_len + len;
        if self.is_v4 {
            let total_len = (self.ip_len + segment_len) as u16;
            ip[TOTAL_LEN..][..2].copy_from_slice(&total_len.to_be_bytes());
            ip[IP_CHECKSUM..][..2].fill(0);
            let checksum = Sum::of(ip).finish();
            ip[IP_CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
        } else {
            ip[PAYLOAD_LEN..][..2].copy_from_slice(&(segment_len as u16).to_be_bytes());
        }

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

/// Source and destination of a packet of TCP's first bytes.
fn ends(packet: &[u8], is_v4: bool) -> Result<(Address, Address), WireError> {
    let (ends, is_tcp) = if is_v4 {
        let ip = Ipv4View::parse(packet)?;
        let is_tcp = ip.protocol() == Protocol::TCP && !ip.is_fragment();
        ((ip.src().into(), ip.dst().into()), is_tcp)
    } else {
        let ip = Ipv6View::parse(packet)?;
        let is_direct = ip.header_len() == Ipv6Repr::HEADER_LEN;
        ((ip.src().into(), ip.dst().into()), ip.protocol() == Protocol::TCP && is_direct)
    };
    if is_tcp { Ok(ends) } else { Err(WireError::Unsupported) }
}
