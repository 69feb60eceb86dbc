//! A probe: a frame that a device's table puts into a receive queue behind all that the queue was given before,
//! and by which the queue's owner knows, when it comes out of the ring, that all of that has come out, too.
//!
//! ```
//! use nic::probe;
//! use wire::{Ipv4Addr, MacAddr};
//! let own = Ipv4Addr::new(10, 77, 0, 2);
//! let frame = probe::frame(MacAddr([2, 0, 0, 0, 0, 1]), own, 7);
//! assert_eq!(probe::token_of(&frame, own), Some(7));
//! assert_eq!(probe::token_of(&frame, Ipv4Addr::LOCALHOST), None);
//! ```
//!
//! It is an IPv4 packet from the dataplane's address to itself, so that what passes the dataplane's packets passes
//! it, and no honest packet is one (RFC 1122 §3.2.1.3). One that nobody waits for is dropped as such a packet is.
//! Its token is for whoever waits to recognize it by: unguessable where strangers can send such frames, since who
//! believes a forged probe may reorder a flow.

use wire::{
    EtherType, EthernetRepr, EthernetView, Ipv4Addr, Ipv4Repr, Ipv4View, MacAddr, Protocol,
};

/// Bytes of the frame: an Ethernet frame's least, without the check sequence.
pub const FRAME_BYTES: usize = 60;

/// For experiments (RFC 3692 §2.1): nobody else's.
const PROTOCOL: Protocol = Protocol(253);
const IP: usize = EthernetRepr::HEADER_LEN;
const TOKEN: usize = IP + Ipv4Repr::HEADER_LEN;
const TOKEN_BYTES: usize = size_of::<u64>();

/// The probe with a token, to the device `to` of the dataplane at `own`.
pub fn frame(to: MacAddr, own: Ipv4Addr, token: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    EthernetRepr { dst: to, src: to, ethertype: EtherType::IPV4 }.emit(&mut frame);
    // It is not to be routed.
    let header = Ipv4Repr { ttl: 1, ..Ipv4Repr::new(own, own, PROTOCOL, TOKEN_BYTES) };
    header.emit(&mut frame[IP..]);
    frame[TOKEN..TOKEN + TOKEN_BYTES].copy_from_slice(&token.to_be_bytes());
    frame
}

/// The token of a frame that is a probe for the dataplane at `own`.
pub fn token_of(frame: &[u8], own: Ipv4Addr) -> Option<u64> {
    let link = EthernetView::parse(frame).ok()?;
    if link.ethertype() != EtherType::IPV4 {
        return None;
    }
    let packet = Ipv4View::parse(link.payload()).ok()?;
    let is_probe = packet.protocol() == PROTOCOL
        && (packet.src(), packet.dst()) == (own, own)
        && !packet.is_fragment();
    let token = packet.payload().try_into().ok()?;
    is_probe.then_some(u64::from_be_bytes(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn a_probe_is_a_sound_packet_from_us_to_us() {
        let frame = frame(MAC, OWN, 0x0102_0304_0506_0708);
        let link = EthernetView::parse(&frame).expect("a header");
        let packet = Ipv4View::parse(link.payload()).expect("a packet");
        assert_eq!((packet.src(), packet.dst()), (OWN, OWN));
        assert!(packet.protocol() == PROTOCOL && packet.verify_checksum());
        assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn what_is_not_all_of_a_probe_is_none() {
        let good = frame(MAC, OWN, 9);
        assert_eq!(token_of(&good, OWN), Some(9));
        for at in [12, 14, 23, 26, 30] {
            let mut other = good;
            other[at] ^= 1;
            assert_eq!(token_of(&other, OWN), None, "byte {at}");
        }
        // Behind the token is padding.
        for len in 0..TOKEN + TOKEN_BYTES {
            assert_eq!(token_of(&good[..len], OWN), None, "{len} bytes");
        }
    }
}
