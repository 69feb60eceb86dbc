//! The two ends of a dialogue.

mod peer;
mod segment;
mod world;

pub use peer::{Open, Peer};
pub use segment::{Out, Seg, decode, ethernet_frame, icmp_frame, ip_frame, udp_frame};
pub use world::{Told, World, config};

use clock::Duration;
use wire::{Ipv4Addr, MacAddr};

/// The stack's address, on a network of 24 bits.
pub const STACK_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The stack's link address.
pub const STACK_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The usual peer.
pub const PEER_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// The link address of every peer.
pub const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// The port that the stack listens on.
pub const PORT: u16 = 80;
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
