//! Claims: which of several trusted consumers serves a tenant's queue. One word's worth of queues.
//!
//! ```text
//! fold      F1  taken = swap(tenant's ready, 0) & valid       the tenant's memory
//!           F2  ready |= taken                                ours from here on
//! look          ready & !owned & !mask
//! claim     C1  owned |= bit; if it was set: somebody else's
//!           C2  ready &= !bit; if it was clear: owned &= !bit, spurious
//! visit         the doorbell, the queue, and whatever else belongs to the owner
//! finish    D1  left = doorbell -= k                          the tenant's memory
//!           D2  if left > 0: ready |= bit
//!           D3  owned &= !bit
//! ```
//!
//! *One owner.* Owner is who set the bit of `owned` by a read-modify-write (C1). No tenant can write
//! that word, so nothing that a tenant does gives a queue two owners. The owner's state passes to the
//! next through the release of D3 and the acquire of C1.
//!
//! *Nothing is lost.* Only an owner clears a ready bit, and it does so (C2) before it looks at the
//! doorbell. A ring is an edge, and sets the tenant's bit, when the doorbell said zero. If that is
//! before C2 in the order of the ready word, C2 read what F2 wrote, so the visit sees the count; if it
//! is after, the bit stays set beside `owned`, and whoever looks after D3 finds it. A ring that is no
//! edge is counted in D1, which sets the bit. (In a set of one consumer the private bit stays set while
//! the queue has work; here it cannot, as only `owned` keeps others away.)
//!
//! *Who wakes.* An owner is awake and looks once more before it sleeps, so what it leaves behind is
//! never forgotten; that others sleep meanwhile costs concurrency, for which `finish` tells whether
//! the queue is ready again.
//!
//! *Who rings aloud.* A sleeper S sets its bit among the sleepers (S1), then the idle word of each tenant (S2), and
//! looks then. The last consumer that is awake clears the idle words (W1) and reads the sleepers by an exchange (W2).
//! Where W1 clears what S2 set, W1 acquired S1, so W2 finds the sleeper: the consumer sets the idle words again, and
//! folds what tenants rang for between the two in silence.

use handshake::{ByExchange, One, Sleepers, look};

use crate::sync::{AtomicU64, Mutant, Ordering, mutated, publishing};

/// Trusted words of 64 queues of one tenant. They have two lines to themselves.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Claims {
    ready: AtomicU64,
    owned: AtomicU64,
    mask: AtomicU64,
}

impl Claims {
    /// Adds ready bits that were taken from the tenant's word.
    #[inline]
    pub(crate) fn add(&self, taken: u64) {
        if taken != 0 {
            self.ready.fetch_or(taken, publishing(Mutant::SetWithoutAcquire));
        }
    }

    /// Queues that are ready, enabled, and nobody's.
    #[inline]
    pub(crate) fn candidates(&self) -> u64 {
        let ready = self.ready.load(Ordering::Acquire);
        if ready == 0 {
            return 0;
        }
        ready & !self.owned.load(Ordering::Acquire) & !self.mask.load(Ordering::Acquire)
    }

    /// Takes a queue. False: another consumer has it, or has just served it.
    #[inline]
    pub(crate) fn claim(&self, bit: u64) -> bool {
        if mutated(Mutant::ClaimByStore) {
            let owned = self.owned.load(Ordering::Acquire);
            self.owned.store(owned | bit, Ordering::Release);
            return owned & bit == 0 && self.ready.fetch_and(!bit, Ordering::AcqRel) & bit != 0;
        }
        if self.owned.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        if mutated(Mutant::ClearAfterLook) {
            return true;
        }
        if self.ready.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
            // Served between our look and our claim.
            self.owned.fetch_and(!bit, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Gives a queue back, ready where it has work `left`. True where it is ready afterwards.
    #[inline]
    pub(crate) fn finish(&self, bit: u64, left: bool) -> bool {
        if left {
            self.ready.fetch_or(bit, Ordering::AcqRel);
        } else if mutated(Mutant::ClearAfterLook) {
            self.ready.fetch_and(!bit, Ordering::AcqRel);
        }
        self.owned.fetch_and(!bit, publishing(Mutant::FinishWithoutAcquire));
        left || self.ready.load(Ordering::Relaxed) & bit != 0
    }

    /// Before a look at the candidates, by a consumer that announced its sleep: whoever gives a queue back or adds
    /// ready bits later sees the announcement, and what was done before is seen by the look.
    pub(crate) fn exchange(&self) {
        look(&self.owned);
        look(&self.ready);
    }

    /// Disables or enables a queue.
    #[cfg_attr(loom, expect(dead_code, reason = "masks are not modelled: one more bit to look at"))]
    pub(crate) fn set_mask(&self, bit: u64, masked: bool) {
        if masked {
            self.mask.fetch_or(bit, Ordering::AcqRel);
        } else {
            self.mask.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// As new. Only while no consumer looks here.
    #[cfg_attr(loom, expect(dead_code, reason = "not part of the protocol"))]
    pub(crate) fn reset(&self) {
        self.ready.store(0, Ordering::Relaxed);
        self.owned.store(0, Ordering::Relaxed);
        self.mask.store(0, Ordering::Release);
    }
}

/// Has `withdraw` take the announcements to the tenants back, unless a consumer sleeps: the next ring is to wake that
/// one, as the caller may be busy for long. One may fall asleep meanwhile: `announce` announces again then, and folds
/// what the tenants rang for. Answers whether that is anything, for which a sleeper is to be woken.
pub(crate) fn withdraw_unless_asleep(
    sleepers: &Sleepers<AtomicU64, One, ByExchange>,
    withdraw: impl FnOnce(),
    announce: impl FnOnce() -> bool,
) -> bool {
    if sleepers.asleep() != 0 {
        return false;
    }
    withdraw();
    if mutated(Mutant::MissingSleeperRecheck) || sleepers.look_asleep() == 0 {
        return false;
    }
    announce() && !mutated(Mutant::MissingSilentRings)
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::{AtomicU32, mutate};
    use crate::tenant_words as words;
    use alloc::sync::Arc;
    use handshake::models;
    use loom::cell::UnsafeCell;
    use loom::thread;

    /// A tenant's words, ours, and something that only an owner may touch.
    #[derive(Default)]
    struct Model {
        doorbell: AtomicU32,
        tenant_ready: AtomicU64,
        claims: Claims,
        queue: UnsafeCell<u32>,
    }

    /// One consumer's visit: how many items it took, one at most.
    fn visit(model: &Model) -> u32 {
        model.claims.add(words::fold(&model.tenant_ready, 1));
        if model.claims.candidates() & 1 == 0 || !model.claims.claim(1) {
            return 0;
        }
        // Loom reports it where two are here at once, or one without having seen the other's end.
        model.queue.with_mut(|_| ());
        let count = model.doorbell.load(Ordering::Acquire).min(1);
        let left = if count == 0 { 0 } else { words::take(&model.doorbell, count, 2).left };
        model.claims.finish(1, left > 0);
        count
    }

    /// A tenant that rings once more while two consumers serve its queue.
    fn served_by_two(stray: bool) {
        loom::model(move || {
            let model = Arc::new(Model::default());
            words::ring(&model.doorbell, &model.tenant_ready, 1);
            let (other, tenant) = (Arc::clone(&model), Arc::clone(&model));
            let consumer = thread::spawn(move || visit(&other));
            let tenant = thread::spawn(move || {
                if stray {
                    // A lie: the bit without a ring; and a third consumer folds it.
                    tenant.tenant_ready.fetch_or(1, Ordering::SeqCst);
                    tenant.claims.add(words::fold(&tenant.tenant_ready, 1));
                } else {
                    words::ring(&tenant.doorbell, &tenant.tenant_ready, 1);
                }
            });
            let mut seen = visit(&model);
            seen += consumer.join().expect("the other finished");
            tenant.join().expect("the tenant finished");
            seen += (0..3).map(|_| visit(&model)).sum::<u32>();
            assert_eq!(seen, if stray { 1 } else { 2 }, "work is left that nobody notices");
        });
    }

    /// A tenant rings between one consumer's look at the doorbell and the end of its visit; items
    /// are found by whoever looks afterwards.
    fn rung_during_a_visit() {
        loom::model(|| {
            let model = Arc::new(Model::default());
            words::ring(&model.doorbell, &model.tenant_ready, 1);
            let tenant = Arc::clone(&model);
            let tenant = thread::spawn(move || {
                words::ring(&tenant.doorbell, &tenant.tenant_ready, 1);
            });
            let other = Arc::clone(&model);
            // Folds what the tenant rings for, whoever owns the queue.
            let folder = thread::spawn(move || {
                other.claims.add(words::fold(&other.tenant_ready, 1));
            });
            let mut seen = visit(&model);
            tenant.join().expect("the tenant finished");
            folder.join().expect("the folder finished");
            seen += (0..3).map(|_| visit(&model)).sum::<u32>();
            assert_eq!(seen, 2, "work is left that nobody notices");
        });
    }

    #[test]
    fn a_tenants_queue_has_one_owner_and_loses_nothing() {
        served_by_two(false);
        rung_during_a_visit();
    }

    #[test]
    fn a_tenants_stray_bit_gives_no_second_owner() {
        served_by_two(true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_claim_by_a_store_is_caught() {
        mutate(Some(Mutant::ClaimByStore));
        served_by_two(true);
    }

    /// One consumer gives a queue back with work left, or adds a ready bit and goes on elsewhere, while another
    /// falls asleep.
    #[test]
    fn no_consumer_sleeps_over_a_queue_that_another_left() {
        const OVERSLEPT: &str = "asleep over a queue, and not to be woken";
        fn left(leave: fn(&Claims)) {
            let model = Arc::new(Model::default());
            assert!(!model.claims.claim(1), "it is not ready");
            model.claims.add(3);
            assert!(model.claims.claim(1) && model.claims.claim(2), "they are nobody's");
            let sleepers =
                Arc::new(Sleepers::<AtomicU64, One, ByExchange>::over(AtomicU64::new(0)));
            let other = (Arc::clone(&model), Arc::clone(&sleepers));
            let sleeper = thread::spawn(move || {
                let (Model { claims, .. }, sleepers) = (&*other.0, &other.1);
                let has_work = || {
                    claims.exchange();
                    claims.candidates() != 0
                };
                sleepers.arm(1, |One| has_work()).is_quiet()
            });
            leave(&model.claims);
            let woken = sleepers.notify(One) != 0;
            let asleep = sleeper.join().expect("the sleeper ends");
            assert!(!asleep || woken, "{OVERSLEPT}");
        }
        let exchange = [
            (models::Mutant::LookByLoad, OVERSLEPT),
            (models::Mutant::LookWithoutRelease, OVERSLEPT),
            (models::Mutant::LookBeforeAnnouncement, OVERSLEPT),
        ];
        let finishes = || left(|claims| _ = claims.finish(1, true));
        models::check(models::mutate, &exchange, finishes);
        models::check(mutate, &[(Mutant::FinishWithoutAcquire, OVERSLEPT)], finishes);
        let adds = || left(|claims| claims.add(4));
        models::check(models::mutate, &exchange, adds);
        models::check(mutate, &[(Mutant::SetWithoutAcquire, OVERSLEPT)], adds);
    }

    /// A consumer that is awake withdraws the announcements and visits some queue for long, while another one falls
    /// asleep and a tenant rings.
    #[test]
    fn no_consumer_sleeps_over_a_ring_in_silence() {
        const OVERSLEPT: &str = "asleep over a ring, and not to be woken";
        let mistakes =
            [(Mutant::MissingSleeperRecheck, OVERSLEPT), (Mutant::MissingSilentRings, OVERSLEPT)];
        models::check(mutate, &mistakes, || {
            let model = Arc::new((Model::default(), AtomicU32::new(0)));
            let sleepers = Sleepers::<AtomicU64, One, ByExchange>::over(AtomicU64::new(0));
            let sleepers = Arc::new(sleepers);
            fn announce((model, idle): &(Model, AtomicU32)) -> bool {
                words::announce(idle);
                model.claims.add(words::fold_before_sleep(&model.tenant_ready, 1));
                model.claims.exchange();
                model.claims.candidates() != 0
            }
            let other = (Arc::clone(&model), Arc::clone(&sleepers));
            let sleeper = thread::spawn(move || {
                let (model, sleepers) = other;
                sleepers.arm(2, |One| announce(&model)).is_quiet()
            });
            let other = Arc::clone(&model);
            let tenant = thread::spawn(move || {
                let (Model { doorbell, tenant_ready, .. }, idle) = &*other;
                words::ring(doorbell, tenant_ready, 1) && words::must_wake(idle)
            });
            let withdraw = || words::withdraw(&model.1);
            let woken = withdraw_unless_asleep(&sleepers, withdraw, || announce(&model));
            let asleep = sleeper.join().expect("the sleeper ends");
            let aloud = tenant.join().expect("the tenant ends");
            assert!(!asleep || woken || aloud, "{OVERSLEPT}");
        });
    }

    #[test]
    #[should_panic(expected = "nobody notices")]
    fn a_bit_cleared_after_the_look_is_caught() {
        mutate(Some(Mutant::ClearAfterLook));
        rung_during_a_visit();
    }

    #[test]
    #[should_panic(expected = "nobody notices")]
    fn a_fold_by_a_store_is_caught() {
        mutate(Some(Mutant::FoldByStore));
        rung_during_a_visit();
    }
}
