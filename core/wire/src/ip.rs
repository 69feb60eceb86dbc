//! What IPv4 and IPv6 packets have in common, for code that forwards either and ends neither.
//!
//! `mark_congestion(&mut frame[EthernetRepr::HEADER_LEN..])` marks a packet of either version, as the queue of a
//! simulated or real router does.

use core::ops::Range;

use crate::{ipv4, ipv6};

/// Marks the IP packet that `packet` begins with, as a router does before it has to drop packets: where the sender
/// takes marks, the ECN codepoint becomes CE (RFC 3168 §5). The first four bits select the version. Returns whether the
/// packet is marked now; bytes that are no IP packet stay as they are.
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::mark_congestion(packet),
        Some(6) => ipv6::mark_congestion(packet),
        _ => false,
    }
}

/// Makes the headers of a first fragment those of the whole packet, which `packet` is: [`ipv4::reassemble`] or
/// [`ipv6::reassemble`]. `header_len` counts the bytes before the fragment's payload.
pub fn reassemble(packet: &mut [u8], header_len: usize) {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::reassemble(packet),
        _ => ipv6::reassemble(packet, header_len),
    }
}

/// Writes a fragment of the whole packet `packet`: [`ipv4::emit_fragment`] or [`ipv6::emit_fragment`]. The stack sends none;
/// simulated networks do.
///
/// # Panics
/// When `out` or the packet is too short.
pub fn emit_fragment(
    packet: &[u8],
    ident: u32,
    bytes: Range<usize>,
    more: bool,
    out: &mut [u8],
) -> usize {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::emit_fragment(packet, ident as u16, bytes, more, out),
        _ => ipv6::emit_fragment(packet, ident, bytes, more, out),
    }
}
