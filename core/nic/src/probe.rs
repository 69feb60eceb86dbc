//! A probe: a frame that a device's table puts into a receive queue behind all that the queue was given before,
//! and by which the queue's owner knows, when it comes out of the ring, that all of that has come out, too.
//!
//! ```
//! use nic::probe;
//! use wire::{Ipv4Addr, MacAddr};
//! let own = Ipv4Addr::new(10, 77, 0, 2).into();
//! let frame = probe::frame(MacAddr([2, 0, 0, 0, 0, 1]), own, 7);
//! assert_eq!(probe::token_of(&frame, own), Some(7));
//! assert_eq!(probe::token_of(&frame, Ipv4Addr::LOCALHOST.into()), None);
//! ```
//!
//! It is a packet from the dataplane's address to itself, so that what passes the dataplane's packets passes
//! it, and no honest packet is one (RFC 1122 §3.2.1.3). One that nobody waits for is dropped as such a packet is.
//! Its token is for whoever waits to recognize it by: unguessable where strangers can send such frames, since who
//! believes a forged probe may reorder a flow.

use wire::{
    Address, EtherType, EthernetRepr, EthernetView, Ipv4Repr, Ipv4View, Ipv6Repr, Ipv6View,
    MacAddr, Protocol,
};

/// Bytes of the frame: the headers of either version, and the token.
pub const FRAME_BYTES: usize = IP + Ipv6Repr::HEADER_LEN + TOKEN_BYTES;

/// For experiments (RFC 3692 §2.1): nobody else's.
const PROTOCOL: Protocol = Protocol(253);
const IP: usize = EthernetRepr::HEADER_LEN;
const TOKEN_BYTES: usize = size_of::<u64>();

/// The probe with a token, to the device `to` of the dataplane at `own`.
pub fn frame(to: MacAddr, own: Address, token: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    // It is not to be routed.
    let (ethertype, ip_len) = match own.v4() {
        Some(own) => {
            let plain = Ipv4Repr::new(own, own, PROTOCOL, TOKEN_BYTES);
            Ipv4Repr { ttl: 1, ..plain }.emit(&mut frame[IP..]);
            (EtherType::IPV4, Ipv4Repr::HEADER_LEN)
        }
        None => {
            let own = own.octets().into();
            let plain = Ipv6Repr::new(own, own, PROTOCOL, TOKEN_BYTES);
            Ipv6Repr { hop_limit: 1, ..plain }.emit(&mut frame[IP..]);
            (EtherType::IPV6, Ipv6Repr::HEADER_LEN)
        }
    };
    EthernetRepr { dst: to, src: to, ethertype }.emit(&mut frame);
    frame[IP + ip_len..][..TOKEN_BYTES].copy_from_slice(&token.to_be_bytes());
    frame
}

/// The token of a frame that is a probe for the dataplane at `own`.
pub fn token_of(frame: &[u8], own: Address) -> Option<u64> {
    let link = EthernetView::parse(frame).ok()?;
    let (src, dst, protocol, payload) = match (link.ethertype(), own.is_ipv4()) {
        (EtherType::IPV4, true) => {
            let ip = Ipv4View::parse(link.payload()).ok().filter(|ip| !ip.is_fragment())?;
            (Address::from(ip.src()), Address::from(ip.dst()), ip.protocol(), ip.payload())
        }
        (EtherType::IPV6, false) => {
            let ip = Ipv6View::parse(link.payload()).ok()?;
            ip.fragment().is_none().then_some(())?;
            (ip.src().into(), ip.dst().into(), ip.protocol(), ip.payload())
        }
        _ => return None,
    };
    let token = payload.try_into().ok()?;
    (protocol == PROTOCOL && (src, dst) == (own, own)).then_some(u64::from_be_bytes(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn owns() -> [Address; 2] {
        ["10.1.2.3", "2001:db8::9"].map(|own| own.parse().expect("an address"))
    }

    #[test]
    fn a_probe_is_a_sound_packet_from_us_to_us() {
        let [v4, v6] = owns();
        let frame_v4 = frame(MAC, v4, 0x0102_0304_0506_0708);
        let link = EthernetView::parse(&frame_v4).expect("a header");
        let packet = Ipv4View::parse(link.payload()).expect("a packet");
        assert_eq!([packet.src(), packet.dst()].map(Address::from), [v4; 2]);
        assert!(packet.protocol() == PROTOCOL && packet.verify_checksum());
        assert_eq!(packet.payload(), [1, 2, 3, 4, 5, 6, 7, 8]);
        let frame_v6 = frame(MAC, v6, 0x0102_0304_0506_0708);
        let link = EthernetView::parse(&frame_v6).expect("a header");
        let packet = Ipv6View::parse(link.payload()).expect("a packet");
        assert_eq!([packet.src(), packet.dst()].map(Address::from), [v6; 2]);
        assert_eq!(
            (packet.protocol(), packet.payload()),
            (PROTOCOL, &[1, 2, 3, 4, 5, 6, 7, 8][..])
        );
    }

    #[test]
    fn what_is_not_all_of_a_probe_is_none() {
        for (own, fields) in owns().into_iter().zip([[12, 14, 23, 26, 30], [12, 13, 20, 22, 38]]) {
            let good = frame(MAC, own, 9);
            assert_eq!(token_of(&good, own), Some(9));
            assert!(owns().into_iter().filter(|&of| token_of(&good, of).is_some()).count() == 1);
            for at in fields {
                let mut other = good;
                other[at] ^= 1;
                assert_eq!(token_of(&other, own), None, "byte {at}");
            }
            // Behind the token is padding.
            let padding = if own.is_ipv4() { 20 } else { 0 };
            for len in 0..FRAME_BYTES - padding {
                assert_eq!(token_of(&good[..len], own), None, "{len} bytes");
            }
        }
    }
}
