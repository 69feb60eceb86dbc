//! The words between an untrusted tenant and the trusted side, and the protocol on them.
//!
//! ```text
//! tenant:   doorbell += 1; if it was 0: ready |= bit; if idle: write its eventfd
//! trusted:  fold: taken = swap(ready, 0) & the bits that the tenant has, into private words
//!           visit: take from the doorbell; if nothing is left: clear the private bit
//! ```
//!
//! The private bit is nobody else's, so the lazy clear needs no second look here: whatever a tenant
//! rings after the doorbell went to zero is an edge, and sets its own word, which is folded later.

use handshake::{ByExchange, One, Sleepers};

use crate::sync::{AtomicU32, AtomicU64, Mutant, Ordering, mutated, publishing};

/// The tenant's ring. True where the queue became ready.
#[inline]
pub(crate) fn ring(doorbell: &AtomicU32, ready: &AtomicU64, bit: u64) -> bool {
    let edge = doorbell.fetch_add(1, Ordering::AcqRel) == 0;
    if edge {
        ready.fetch_or(bit, publishing(Mutant::SetWithoutAcquire));
    }
    edge
}

/// The bit of the trusted side, in the idle word of each tenant.
const TRUSTED: u64 = 1;

/// The trusted side as a sleeper that one tenant may have to wake.
#[inline]
fn sleepers(idle: &AtomicU32) -> Sleepers<&AtomicU32, One, ByExchange> {
    Sleepers::over(idle)
}

/// Whether the tenant has to wake the trusted side, after a ring that was an edge. At most one of
/// several threads of a tenant does.
#[inline]
pub(crate) fn must_wake(idle: &AtomicU32) -> bool {
    let sleepers = sleepers(idle);
    sleepers.notify(One) & TRUSTED != 0 && sleepers.claim(TRUSTED)
}

/// The trusted side takes a tenant's ready bits. One load where there are none.
#[inline]
pub(crate) fn fold(ready: &AtomicU64, valid: u64) -> u64 {
    if ready.load(Ordering::Acquire) == 0 {
        return 0;
    }
    if mutated(Mutant::FoldByStore) {
        let taken = ready.load(Ordering::Acquire);
        ready.store(0, Ordering::Release);
        return taken & valid;
    }
    ready.swap(0, Ordering::AcqRel) & valid
}

/// The trusted side announces to a tenant that it is about to sleep; then it
/// [folds once more](fold_before_sleep).
#[inline]
pub(crate) fn announce(idle: &AtomicU32) {
    sleepers(idle).announce(TRUSTED);
}

/// The trusted side withdraws its announcement.
#[inline]
pub(crate) fn withdraw(idle: &AtomicU32) {
    sleepers(idle).disarm(TRUSTED);
}

/// As [`fold`], after an announcement: by an exchange also where nothing is ready, so that a tenant that rings
/// later sees the announcement.
#[inline]
pub(crate) fn fold_before_sleep(ready: &AtomicU64, valid: u64) -> u64 {
    if mutated(Mutant::FoldByLoad) {
        return fold(ready, valid);
    }
    ready.swap(0, Ordering::AcqRel) & valid
}

/// What the trusted side found when it took items off a tenant's doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Items left, at most the queue's capacity.
    pub(crate) left: u32,
    /// The doorbell said something impossible.
    pub(crate) lied: bool,
}

/// Takes `items` off the doorbell of a queue that holds at most `capacity`.
#[inline]
pub(crate) fn take(doorbell: &AtomicU32, items: u32, capacity: u32) -> Taken {
    let before = doorbell.fetch_sub(items, Ordering::AcqRel);
    if before < items {
        // Taken back from under us. From zero the next honest ring is an edge again.
        doorbell.store(0, Ordering::Release);
        return Taken { left: 0, lied: true };
    }
    let left = before - items;
    Taken { left: left.min(capacity), lied: left > capacity }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::mutate;
    use alloc::sync::Arc;
    use handshake::models;
    use loom::thread;

    #[derive(Default)]
    struct Words {
        doorbell: AtomicU32,
        ready: AtomicU64,
        idle: AtomicU32,
    }

    #[test]
    fn a_tenants_ring_is_never_lost() {
        loom::model(|| {
            let words = Arc::new(Words::default());
            let other = Arc::clone(&words);
            let tenant = thread::spawn(move || {
                ring(&other.doorbell, &other.ready, 1);
                ring(&other.doorbell, &other.ready, 1);
            });
            let (mut private, mut seen) = (0, 0);
            let mut visit = |private: &mut u64| {
                *private |= fold(&words.ready, 1);
                if *private != 0 && words.doorbell.load(Ordering::Acquire) > 0 {
                    seen += 1;
                    if take(&words.doorbell, 1, 2).left == 0 {
                        *private = 0;
                    }
                }
            };
            visit(&mut private);
            visit(&mut private);
            tenant.join().expect("the tenant finished");
            for _ in 0..2 {
                visit(&mut private);
            }
            assert_eq!(seen, 2, "each item exactly once");
        });
    }

    const OVERSLEPT: &str = "asleep, with work and no wake-up";

    #[test]
    fn a_tenants_wake_up_is_never_lost() {
        let mistakes = [(Mutant::SetWithoutAcquire, OVERSLEPT), (Mutant::FoldByLoad, OVERSLEPT)];
        models::check(mutate, &mistakes, || {
            let words = Arc::new(Words::default());
            let other = Arc::clone(&words);
            let tenant = thread::spawn(move || {
                ring(&other.doorbell, &other.ready, 1) && must_wake(&other.idle)
            });
            announce(&words.idle);
            let sleeps = fold_before_sleep(&words.ready, 1) == 0;
            let woke = tenant.join().expect("the tenant finished");
            assert!(!sleeps || woke, "{OVERSLEPT}");
        });
    }
}
