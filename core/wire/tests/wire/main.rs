//! Tests of the public interface: hand-written packets, round trips, oracles (smoltcp, etherparse) and arithmetic.

mod bytes;
mod checksum;
mod established;
mod long_segment;
mod oracles;
mod roundtrip;
mod strategies;
mod toeplitz;
