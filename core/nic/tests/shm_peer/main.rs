//! The `shm` driver against a peer that writes whatever it likes, whenever it likes.
//!
//! `make fuzz` runs the same scripts for longer (`fuzz/fuzz_targets/shm_peer.rs`).

mod peer;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bytes of a random script.
const SCRIPT_BYTES: usize = 600;

fn script(seed: u64) -> Vec<u8> {
    let mut script = vec![0; SCRIPT_BYTES];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut script);
    script
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn whatever_a_peer_writes_is_a_frame_or_nothing() {
    for seed in 0..300 {
        let outcome = std::panic::catch_unwind(|| peer::run(&script(seed)));
        assert!(outcome.is_ok(), "again: peer::run(&script({seed}))");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn whatever_a_peer_writes_meanwhile_is_a_frame_or_nothing() {
    for seed in 0..8 {
        let outcome = std::panic::catch_unwind(|| peer::race(&script(seed), 20_000));
        assert!(outcome.is_ok(), "perhaps again: peer::race(&script({seed}), 20_000)");
    }
}
