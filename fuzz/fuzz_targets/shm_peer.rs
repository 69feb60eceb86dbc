//! Bytes become what a peer of the `shm` driver writes, and the driver's looks at it: see `peer` among the tests of
//! `nic`, which also says what must hold.
#![no_main]

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../core/nic/tests/shm_peer/peer.rs"]
mod peer;

libfuzzer_sys::fuzz_target!(|script: &[u8]| peer::run(script));
