//! What IPv4 and IPv6 packets have in common, for code that forwards either and ends neither.
//!
//! `mark_congestion(&mut frame[EthernetRepr::HEADER_LEN..])` marks a packet of either version, as the queue of a
//! simulated or real router does.

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
