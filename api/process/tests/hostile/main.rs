//! The dataplane's side of the domain against an application that answers and writes whatever it likes.
//!
//! `make fuzz` runs the same scripts for longer (`fuzz/fuzz_targets/domain_join.rs` and `domain_arrays.rs`).

mod application;

use std::sync::atomic::{AtomicUsize, Ordering};

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn script(seed: u64, bytes: usize) -> Vec<u8> {
    let mut script = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut script);
    script
}

/// A failing seed is named, with what replays it.
fn each(seeds: std::ops::Range<u64>, what: &str, body: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| body(seed));
        assert!(outcome.is_ok(), "again: application::{what} of script({seed}, ..)");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn only_what_was_agreed_upon_is_joined() {
    let joined = AtomicUsize::new(0);
    each(0..1_500, "join", |seed| {
        let is_joined = application::join(&script(seed, 32));
        joined.fetch_add(usize::from(is_joined), Ordering::Relaxed);
    });
    let joined = joined.into_inner();
    assert!((10..750).contains(&joined), "{joined} of 1,500: the scripts are one-sided");
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn whatever_is_written_before_a_batch_is_done_is_a_call_or_nothing() {
    let issued = AtomicUsize::new(0);
    each(0..300, "arrays", |seed| {
        issued.fetch_add(application::arrays(&script(seed, 4_096)), Ordering::Relaxed);
    });
    let issued = issued.into_inner();
    assert!(issued > 300, "{issued} calls: most of the scripts are no calls at all");
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn whatever_is_written_while_calls_are_read_is_a_call_or_nothing() {
    each(0..4, "race", |seed| application::race(&script(seed, 16_384), 5_000));
}
