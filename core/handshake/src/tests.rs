//! What both sides answer, one after the other; `loom_tests` checks them at the same time.

use core::sync::atomic::{AtomicU32, AtomicU64};
use std::vec::Vec;

use crate::{Armed, ByExchange, ByFence, One, Sleepers, Sources, look, sources};

sources! {
    enum Source {
        First,
        Second,
        Third,
    }
}

#[test]
fn a_sleeper_looks_at_every_source_in_order_until_one_has_work() {
    let sleepers = Sleepers::<AtomicU64, Source, ByFence>::default();
    let mut seen = Vec::new();
    let armed = sleepers.arm(1, |source| {
        seen.push(source);
        false
    });
    assert_eq!((armed, seen.as_slice()), (Armed::Quiet, Source::ALL));
    assert_eq!(sleepers.asleep(), 1);
    assert!(!sleepers.disarm(1), "no waker claimed it");
    let armed = sleepers.arm(1, |source| source == Source::Second);
    assert_eq!(armed, Armed::Work { was_claimed: false });
    assert_eq!(sleepers.asleep(), 0, "the announcement is withdrawn");
}

#[test]
fn a_waker_claims_one_sleeper_and_the_next_waker_another() {
    let sleepers = Sleepers::<AtomicU64, One, ByFence>::default();
    let bits = [1 << 3, 1 << 63];
    bits.iter().for_each(|&bit| assert!(sleepers.arm(bit, |One| false).is_quiet()));
    let seen = sleepers.notify(One);
    assert_eq!(seen, 1 << 3 | 1 << 63);
    assert_eq!(sleepers.claim_lowest(seen), Some(3));
    assert_eq!(sleepers.claim_lowest(seen), Some(63), "the first is taken");
    assert_eq!(sleepers.claim_lowest(seen), None);
    assert!(bits.iter().all(|&bit| sleepers.disarm(bit)), "both see that they were claimed");
}

#[test]
fn a_look_changes_no_word_in_shared_memory() {
    let (word, work) = (AtomicU32::new(0), AtomicU32::new(5));
    let sleepers = Sleepers::<_, One, ByExchange>::over(&word);
    assert!(!sleepers.arm(2, |One| look(&work) != 0).is_quiet());
    assert_eq!((work.into_inner(), word.into_inner()), (5, 0));
}
