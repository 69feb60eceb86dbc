//! The two ends of a dialogue.

mod fragment;
mod peer;
mod segment;
mod world;

#[allow(unused_imports, reason = "the fuzz targets send some of them")]
pub use fragment::{fragment, fragments, with_options};
pub use peer::{Open, Peer};
#[allow(unused_imports, reason = "each suite sends messages of one version of IP")]
pub use segment::{
    Out, Seg, decode, ethernet_frame, icmp_frame, icmpv6_frame, ip_frame, ping_frame,
    too_big_frame, udp_frame,
};
pub use world::{Told, World, config};

use clock::Duration;
use wire::{Address, EtherType, Ipv4Addr, Ipv6Addr, MacAddr};

/// A host of the stack's network.
pub const fn host(last: u8) -> Address {
    match crate::V6 {
        false => Address::of_v4(Ipv4Addr::new(10, 0, 0, last)),
        true => Address::of_v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last as u16)),
    }
}

/// A host of another network.
pub const fn far(last: u8) -> Address {
    match crate::V6 {
        false => Address::of_v4(Ipv4Addr::new(192, 0, 2, last)),
        true => Address::of_v6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, last as u16)),
    }
}

/// Bits of the stack's network.
pub const PREFIX_BITS: u8 = if crate::V6 { 64 } else { 24 };
/// What frames carry.
pub const ETHERTYPE: EtherType = if crate::V6 { EtherType::IPV6 } else { EtherType::IPV4 };
/// Bytes of an IP header.
pub const IP_LEN: usize = if crate::V6 { 40 } else { 20 };
/// Bytes of the largest packet: with either version segments have the same size.
pub const MTU: u16 = 1_480 + IP_LEN as u16;

/// The stack's address.
pub const STACK_IP: Address = host(1);
/// The stack's link address.
pub const STACK_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// What else it may have.
pub const MORE_IPS: [Address; 3] = [
    host(200),
    Address::of_v4(Ipv4Addr::new(172, 16, 0, 1)),
    Address::of_v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
];
/// The usual peer.
pub const PEER_IP: Address = host(2);
/// The link address of every peer.
pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The port that the stack listens on.
pub const PORT: u16 = 80;
/// A port that no configuration lists.
pub const OTHER_PORT: u16 = 8_000;
/// The port that the stack receives datagrams on.
pub const UDP_PORT: u16 = 53;

/// A millisecond count as a duration.
pub const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A time-out of so many milliseconds has passed: no earlier, and no later than the wheel's slots are
/// long, an eighth of it.
#[track_caller]
pub fn near(waited: Duration, millis: u64) {
    // Ticks of 16 us, rounded down at one end.
    let latest = ms(millis) + ms(millis) / 7 + ms(2);
    assert!(waited + ms(1) > ms(millis) && waited < latest, "{waited:?} for {millis} ms");
}

/// Bytes `from..from + len` of the stream that both ends send.
pub fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|offset| (offset % 251) as u8).collect()
}
