//! Models of both pairings, over all interleavings and reorderings that loom knows, on the code that ships; and of
//! each seeded mistake, which must fail the assertion that states what it breaks.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p handshake --lib loom --release`

use core::sync::atomic::Ordering;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use crate::models::{self, Mutant};
use crate::{ByExchange, ByFence, Pairing, Sleepers, look, sources};

/// A sleeper blocks, and neither it nor a waker notices the work.
const OVERSLEPT: &str = "asleep over work, and no waker claimed the sleeper";
/// A claimed sleeper that withdraws does not see what it was claimed for.
const BLIND: &str = "claimed, and blind to the work";

fn check(mistakes: &[(Mutant, &str)], model: fn()) {
    models::check(models::mutate, mistakes, model);
}

sources! {
    enum Source {
        Mail,
        Ring,
    }
}

/// Two sources of work, written as wakers do: by a store, or by a read-modify-write.
struct World<P> {
    sleepers: Sleepers<AtomicU64, Source, P>,
    mail: AtomicU32,
    ring: AtomicU64,
}

impl<P: Pairing> World<P> {
    fn new() -> Arc<Self> {
        let sleepers = Sleepers::over(AtomicU64::new(0));
        Arc::new(Self { sleepers, mail: AtomicU32::new(0), ring: AtomicU64::new(0) })
    }

    /// Notifies the sleepers of a publication. Whether this waker claimed one.
    fn notify(&self, source: Source) -> bool {
        self.sleepers.claim_lowest(self.sleepers.notify(source)).is_some()
    }
}

impl World<ByFence> {
    fn publish(&self, source: Source) -> bool {
        match source {
            Source::Mail => self.mail.store(1, Ordering::Relaxed),
            Source::Ring => self.ring.store(1, Ordering::Relaxed),
        }
        self.notify(source)
    }

    fn has_work(&self, source: Source) -> bool {
        match source {
            Source::Mail => self.mail.load(Ordering::Relaxed) != 0,
            Source::Ring => self.ring.load(Ordering::Relaxed) != 0,
        }
    }
}

impl World<ByExchange> {
    fn publish(&self, source: Source) -> bool {
        match source {
            Source::Mail => _ = self.mail.fetch_add(1, Ordering::AcqRel),
            Source::Ring => _ = self.ring.fetch_or(1, Ordering::AcqRel),
        }
        self.notify(source)
    }

    fn has_work(&self, source: Source) -> bool {
        match source {
            Source::Mail => look(&self.mail) != 0,
            Source::Ring => look(&self.ring) != 0,
        }
    }
}

/// One sleeper, one waker that publishes to either source.
#[test]
fn a_sleeper_by_fence_misses_no_source() {
    let mistakes = [
        (Mutant::NoFenceBeforeLook, OVERSLEPT),
        (Mutant::NoFenceBeforeNotify, OVERSLEPT),
        (Mutant::LookBeforeAnnouncement, OVERSLEPT),
        (Mutant::ForgottenSource, OVERSLEPT),
    ];
    check(&mistakes, || {
        let world = World::<ByFence>::new();
        let waker = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.publish(Source::Mail))
        };
        let is_asleep = world.sleepers.arm(1, |source| world.has_work(source)).is_quiet();
        let woken = waker.join().expect("the waker ends");
        assert!(!is_asleep || woken, "{OVERSLEPT}");
    });
}

#[test]
fn a_sleeper_by_exchange_misses_no_source() {
    let mistakes = [
        (Mutant::LookByLoad, OVERSLEPT),
        (Mutant::LookWithoutRelease, OVERSLEPT),
        (Mutant::LookBeforeAnnouncement, OVERSLEPT),
        (Mutant::ForgottenSource, OVERSLEPT),
    ];
    check(&mistakes, || {
        let world = World::<ByExchange>::new();
        let waker = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.publish(Source::Mail))
        };
        let is_asleep = world.sleepers.arm(1, |source| world.has_work(source)).is_quiet();
        let woken = waker.join().expect("the waker ends");
        assert!(!is_asleep || woken, "{OVERSLEPT}");
    });
}

/// The look's acquire: what the waker wrote before its publication is seen with it.
#[test]
fn a_look_by_exchange_sees_what_stands_behind_the_publication() {
    check(&[(Mutant::LookWithoutAcquire, "published, and not written")], || {
        let world = World::<ByExchange>::new();
        let waker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.mail.store(7, Ordering::Relaxed);
                world.ring.fetch_or(1, Ordering::Release);
            })
        };
        if look(&world.ring) != 0 {
            assert_eq!(world.mail.load(Ordering::Relaxed), 7, "published, and not written");
        }
        waker.join().expect("the waker ends");
    });
}

/// Two wakers, one for each source: at least one claims the sleeper, and at most one makes the system call.
#[test]
fn two_wakers_wake_a_sleeper_once() {
    check(
        &[(Mutant::NoFenceBeforeLook, OVERSLEPT), (Mutant::NoFenceBeforeNotify, OVERSLEPT)],
        || {
            let world = World::<ByFence>::new();
            let wakers = [Source::Mail, Source::Ring].map(|source| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.publish(source))
            });
            let is_asleep = world.sleepers.arm(1, |source| world.has_work(source)).is_quiet();
            let woken = wakers.map(|waker| waker.join().expect("the waker ends"));
            assert!(!is_asleep || woken != [false; 2], "{OVERSLEPT}");
            assert_ne!(woken, [true; 2], "two wakers claimed one sleeper");
        },
    );
}

/// A sleeper that a waker claimed gives up at the same time (its timeout passes): it must see the work, since the
/// waker wakes no other. By exchange, as a waker's fence would release the publication without the claim's help.
#[test]
fn a_claimed_sleeper_sees_the_work() {
    check(&[(Mutant::RelaxedClaim, BLIND), (Mutant::RelaxedWithdrawal, BLIND)], || {
        let world = World::<ByExchange>::new();
        world.sleepers.announce(1);
        let waker = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.publish(Source::Mail))
        };
        if world.sleepers.disarm(1) {
            // A plain load, as of a thread that is awake.
            assert_eq!(world.mail.load(Ordering::Relaxed), 1, "{BLIND}");
        }
        waker.join().expect("the waker ends");
    });
}

/// Two sleepers in one word, and a piece of work: where both sleep, its waker finds one at least.
#[test]
fn one_of_two_sleepers_in_one_word_is_woken() {
    check(
        &[(Mutant::NoFenceBeforeLook, OVERSLEPT), (Mutant::NoFenceBeforeNotify, OVERSLEPT)],
        || {
            let world = World::<ByFence>::new();
            let other = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.sleepers.arm(2, |source| world.has_work(source)).is_quiet()
                })
            };
            let waker = {
                let world = Arc::clone(&world);
                thread::spawn(move || world.publish(Source::Mail))
            };
            let is_asleep = world.sleepers.arm(1, |source| world.has_work(source)).is_quiet();
            let both_asleep = other.join().expect("the other sleeper ends") && is_asleep;
            assert!(!both_asleep || waker.join().expect("the waker ends"), "{OVERSLEPT}");
        },
    );
}

/// Two handshakes in a row, as a core has them: a waker that finds the core's mark in the shared word goes on to
/// the core's own. The core announces itself at its own word first, then marks itself in the shared one.
#[test]
fn a_sleeper_behind_two_words_is_woken() {
    check(
        &[(Mutant::NoFenceBeforeLook, OVERSLEPT), (Mutant::NoFenceBeforeNotify, OVERSLEPT)],
        || {
            let (shared, own) = (World::<ByFence>::new(), World::<ByFence>::new());
            // Marked while it still looked for work by itself.
            shared.sleepers.announce(1);
            let waker = {
                let (shared, own) = (Arc::clone(&shared), Arc::clone(&own));
                thread::spawn(move || {
                    shared.mail.store(1, Ordering::Relaxed);
                    shared.sleepers.notify(Source::Mail) != 0 && own.notify(Source::Mail)
                })
            };
            let is_asleep = own
                .sleepers
                .arm(1, |source| match source {
                    Source::Mail => shared.sleepers.finds_work(|source| shared.has_work(source)),
                    Source::Ring => own.has_work(Source::Ring),
                })
                .is_quiet();
            let woken = waker.join().expect("the waker ends");
            assert!(!is_asleep || woken, "{OVERSLEPT}");
        },
    );
}
