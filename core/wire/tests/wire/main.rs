//! Tests of the public interface: hand-written packets, round trips, oracles (smoltcp, etherparse) and arithmetic.

mod bytes;
mod checksum;
mod established;
mod icmpv6;
mod ipv6;
mod long_segment;
mod oracles;
mod oracles_v6;
mod roundtrip;
mod strategies;
mod toeplitz;
