//! The protocol under the model checker, and the mistakes that it must find.
//!
//! Run by `scripts/loom.sh`. A connection's state is a cell of the checker's: two cores that have it at a
//! time, or one after the other without an order between them, are an error by themselves. `unsafe` because
//! such a cell gives out pointers.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use handshake::{ByFence, One, Sleepers, models};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use super::*;
use crate::sync::{Mutant, mutate, mutated};

/// What loom says where two threads have a cell at a time, or one after the other without an order between them.
const UNORDERED: &str = "Causality violation";
/// A core sleeps, and the core that left work for it does not know.
const OVERSLEPT: &str = "asleep over a turn, and not to be woken";

/// Checks `body` as it is, and that with each of `mutants` the assertion fails that the mistake breaks.
fn check(mutants: &[(Mutant, &str)], body: fn()) {
    models::check(mutate, mutants, body);
}

/// Thieves stay away from a queue that has a turn.
const OVERLOOKED: &str = "no thief looks at a queue that has a turn";

/// The same for mistakes in the handshake.
fn check_handshake(body: fn()) {
    let mistakes = [
        (models::Mutant::NoFenceBeforeLook, OVERSLEPT),
        (models::Mutant::NoFenceBeforeNotify, OVERSLEPT),
    ];
    models::check(models::mutate, &mistakes, body);
}

/// A turn with the numbers of the events in it.
#[derive(Debug, Default)]
struct Numbers {
    connection: u64,
    numbers: Vec<usize>,
}

impl Turn for Numbers {
    fn connection(&self) -> u64 {
        self.connection
    }
    fn begin(&mut self, connection: u64) {
        self.connection = connection;
        self.numbers.clear();
    }
}

/// A connection: what the application has seen of it, and what was executed for it at home.
struct Connection {
    seen: UnsafeCell<usize>,
    executed: UnsafeCell<usize>,
}

// SAFETY: the cells are the checker's, which finds every access that is not ordered.
unsafe impl Sync for Connection {}
// SAFETY: as above.
unsafe impl Send for Connection {}

impl Connection {
    fn new() -> Self {
        Self { seen: UnsafeCell::new(0), executed: UnsafeCell::new(0) }
    }

    /// The application runs a turn.
    fn run(&self, turn: &Numbers) {
        // SAFETY: the checker tells where it is not.
        let before = self.executed.with(|executed| unsafe { *executed });
        self.seen.with_mut(|seen| {
            // SAFETY: as above.
            let seen = unsafe { &mut *seen };
            assert_eq!(before, *seen, "a reply was still to be sent");
            for &number in &turn.numbers {
                assert_eq!(number, *seen, "out of order");
                *seen += 1;
            }
        });
    }

    /// The home core executes what the application asked for.
    fn execute(&self, turn: &Numbers) {
        // SAFETY: as above.
        self.executed.with_mut(|executed| unsafe { *executed += turn.numbers.len() });
    }
}

/// Announces what was published for `home`. Answers who is to be woken for it.
fn called(shuffle: &ShuffleLayer<Numbers>, home: usize) -> u64 {
    shuffle.announce(home);
    shuffle.call(home)
}

struct World {
    shuffle: ShuffleLayer<Numbers>,
    home: TryLock<Home<Numbers>>,
    connection: Connection,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            shuffle: ShuffleLayer::new(2, 2),
            home: TryLock::new(Home::new(Numbers::default)),
            connection: Connection::new(),
        })
    }

    fn arrive(&self, home: &mut Home<Numbers>, number: usize) {
        home.arrive(0, |turn| turn.numbers.push(number));
        self.hand_out(home);
    }

    fn hand_out(&self, home: &mut Home<Numbers>) {
        home.hand_out(|turn| self.shuffle.publish(0, turn));
        self.shuffle.announce(0);
    }

    fn come_home(&self, home: &mut Home<Numbers>, turn: Box<Numbers>) {
        if mutated(Mutant::ReleaseBeforeCalls) {
            let numbers = Numbers { connection: 0, numbers: turn.numbers.clone() };
            home.finish(turn);
            self.hand_out(home);
            self.connection.execute(&numbers);
            return;
        }
        self.connection.execute(&turn);
        home.finish(turn);
        self.hand_out(home);
    }

    /// What a core does as the home core, once.
    fn home_cycle(&self) -> bool {
        let Some(mut home) = self.home.try_lock() else { return false };
        while let Some(turn) = self.shuffle.pop_remote_calls(0) {
            self.come_home(&mut home, turn);
        }
        let idle = home.is_idle();
        drop(home);
        if let Some(turn) = self.shuffle.take(0) {
            self.connection.run(&turn);
            loop {
                if let Some(mut home) = self.home.try_lock() {
                    self.come_home(&mut home, turn);
                    return home.is_idle();
                }
                thread::yield_now();
            }
        }
        idle
    }

    fn steal_once(&self) {
        if let Some(turn) = self.shuffle.steal(1, 0) {
            self.run_away(turn);
        }
    }

    /// Runs a turn away from home.
    fn run_away(&self, turn: Box<Numbers>) {
        self.connection.run(&turn);
        assert!(
            self.shuffle.push_remote_calls(0, turn).is_ok(),
            "a turn of each connection has room"
        );
    }
}

#[test]
fn a_connection_is_seen_in_order_whoever_takes_its_turns() {
    let mistakes = [(Mutant::ReleaseBeforeCalls, UNORDERED), (Mutant::RelaxedHandOver, UNORDERED)];
    check(&mistakes, || {
        let world = World::new();
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.steal_once();
                world.steal_once();
            })
        };
        for number in 0..2 {
            loop {
                if let Some(mut home) = world.home.try_lock() {
                    world.arrive(&mut home, number);
                    break;
                }
                thread::yield_now();
            }
        }
        while !world.home_cycle() {
            thread::yield_now();
        }
        thief.join().expect("no panic");
        // SAFETY: the other thread has ended.
        let seen = world.connection.seen.with(|seen| unsafe { *seen });
        assert_eq!(seen, 2, "lost");
    });
}

#[test]
fn another_core_may_run_the_network_layer_in_its_homes_stead() {
    let mistakes = [
        (Mutant::RelaxedLock, UNORDERED),
        (Mutant::RelaxedUnlock, UNORDERED),
        (Mutant::TurnWhileHeld, UNORDERED),
    ];
    check(&mistakes, || {
        let world = World::new();
        if let Some(mut home) = world.home.try_lock() {
            world.arrive(&mut home, 0);
        }
        let borrower = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                if let Some(mut home) = world.home.try_lock() {
                    // A packet comes while the home core is in the application.
                    world.arrive(&mut home, 1);
                    drop(home);
                    world.steal_once();
                    return true;
                }
                false
            })
        };
        let mut idle = world.home_cycle();
        let came = borrower.join().expect("no panic");
        while !idle || !world.shuffle.is_empty_at(0) {
            idle = world.home_cycle();
        }
        // SAFETY: the other thread has ended.
        let seen = world.connection.seen.with(|seen| unsafe { *seen });
        assert_eq!(seen, 1 + usize::from(came));
    });
}

#[test]
fn a_ring_gives_each_value_to_one() {
    let mistakes = [
        (Mutant::TakeWithoutClaim, UNORDERED),
        (Mutant::RelaxedHandOver, UNORDERED),
        (Mutant::RelaxedTake, UNORDERED),
    ];
    check(&mistakes, || {
        let ring = Arc::new(Ring::new(2));
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let ring = Arc::clone(&ring);
                thread::spawn(move || ring.pop())
            })
            .collect();
        for value in 0..2 {
            assert_eq!(ring.push(value), Ok(()));
        }
        let mut taken: Vec<usize> =
            takers.into_iter().filter_map(|taker| taker.join().expect("no panic")).collect();
        taken.extend(core::iter::from_fn(|| ring.pop()));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn a_place_of_a_ring_is_filled_again_after_it_was_read() {
    check(&[(Mutant::RelaxedRoom, UNORDERED), (Mutant::RelaxedReturn, UNORDERED)], || {
        let ring = Arc::new(Ring::new(2));
        assert_eq!((ring.push(0usize), ring.push(1)), (Ok(()), Ok(())));
        let taker = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.pop())
        };
        while ring.push(2).is_err() {
            thread::yield_now();
        }
        assert_eq!(taker.join().expect("no panic"), Some(0));
        assert_eq!((ring.pop(), ring.pop(), ring.pop()), (Some(1), Some(2), None));
    });
}

#[test]
fn two_that_fill_a_ring_do_not_hinder_each_other() {
    check(&[(Mutant::FillWithoutClaim, UNORDERED)], || {
        let ring = Arc::new(Ring::new(2));
        let other = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || ring.push(1usize).is_ok())
        };
        assert_eq!(ring.push(0), Ok(()));
        let first = ring.pop();
        assert!(other.join().expect("no panic"), "there is room for two");
        let mut taken: Vec<usize> =
            first.into_iter().chain(core::iter::from_fn(|| ring.pop())).collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

#[test]
fn no_core_falls_idle_over_a_turn_that_is_ready() {
    check_handshake(|| {
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::new(2, 2));
        let idler = {
            let shuffle = Arc::clone(&shuffle);
            thread::spawn(move || shuffle.declare_idle(1))
        };
        shuffle.publish(0, Box::default()).expect("room");
        let woken = called(&shuffle, 0) & 1 << 1 != 0;
        let asleep = idler.join().expect("no panic");
        assert!(!asleep || woken, "{OVERSLEPT}");
    });
}

/// A core that finds something else to do may have been counted upon for a turn: it calls the next one.
#[test]
fn no_turn_is_left_to_a_core_that_has_something_else_to_do() {
    check_handshake(|| {
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::new(3, 2));
        shuffle.mark_idle(1);
        shuffle.mark_idle(2);
        let busy = {
            let shuffle = Arc::clone(&shuffle);
            thread::spawn(move || if shuffle.declare_busy(1) { shuffle.call(1) } else { 0 })
        };
        shuffle.publish(0, Box::default()).expect("room");
        let by_home = called(&shuffle, 0);
        let by_other = busy.join().expect("no panic");
        assert!((by_home | by_other) & 1 << 2 != 0, "{OVERSLEPT}");
    });
}

/// The whole way of a sleep: a core that is marked idle announces itself at its bell, looks into the shuffle as
/// one of the bell's sources, and blocks; a core that publishes finds the mark, and rings that bell.
#[test]
fn no_core_blocks_at_its_bell_over_a_turn() {
    check_handshake(|| {
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::new(2, 2));
        let bell = Arc::new(Sleepers::<AtomicU64, One, ByFence>::over(AtomicU64::new(0)));
        shuffle.mark_idle(1);
        let idler = {
            let (shuffle, bell) = (Arc::clone(&shuffle), Arc::clone(&bell));
            thread::spawn(move || bell.arm(1, |One| !shuffle.declare_idle(1)).is_quiet())
        };
        shuffle.publish(0, Box::default()).expect("room");
        let rung = called(&shuffle, 0) & 1 << 1 != 0 && bell.notify(One) != 0;
        let asleep = idler.join().expect("no panic");
        assert!(!asleep || rung, "{OVERSLEPT}");
    });
}

#[test]
fn a_bit_that_a_thief_clears_is_set_again_where_something_came() {
    let model = || {
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::new(2, 2));
        // The home core took back what it had published: the bit is left over.
        shuffle.publish(0, Box::default()).expect("room");
        shuffle.announce(0);
        assert!(shuffle.take(0).is_some());
        let taken = Arc::new(AtomicBool::new(false));
        let thief = {
            let (shuffle, taken) = (Arc::clone(&shuffle), Arc::clone(&taken));
            thread::spawn(move || {
                taken.store(shuffle.steal(1, 0).is_some(), Ordering::Relaxed);
            })
        };
        shuffle.publish(0, Box::default()).expect("room");
        shuffle.announce(0);
        thief.join().expect("no panic");
        assert!(taken.load(Ordering::Relaxed) || shuffle.steal(1, 0).is_some(), "{OVERLOOKED}");
    };
    check(&[(Mutant::MissingQueueRecheck, OVERLOOKED)], model);
    let mistakes = [
        (models::Mutant::NoFenceBeforeLook, OVERLOOKED),
        (models::Mutant::NoFenceBeforeNotify, OVERLOOKED),
        (models::Mutant::LookBeforeAnnouncement, OVERLOOKED),
    ];
    models::check(models::mutate, &mistakes, model);
}

/// The shared form, with a taker for each of two cores, all queues added and met before.
fn ready_set(classes: usize, policy: ServicePolicy) -> (ReadySet<Numbers>, [Taker; 2]) {
    let set = ReadySet::new(classes, policy, &[1; MAX_CLASSES], 2).expect("few classes");
    let mut takers = [set.taker().expect("two"), set.taker().expect("two")];
    for taker in &mut takers {
        for class in 0..classes {
            set.publish(class, Box::default()).expect("room");
        }
        for _ in 0..classes {
            assert!(set.take(taker).is_some());
        }
    }
    (set, takers)
}

#[test]
fn two_cores_share_a_class_and_no_turn_is_forgotten() {
    check(&[(Mutant::CountsUntaken, "a turn is forgotten")], || {
        let (set, [mut one, mut two]) = ready_set(1, ServicePolicy::StrictPriority);
        let set = Arc::new(set);
        // Two network layers make turns of one class at a time; both cores take.
        let other = {
            let set = Arc::clone(&set);
            thread::spawn(move || {
                set.publish(0, Box::default()).expect("room");
                usize::from(set.take(&mut two).is_some())
            })
        };
        set.publish(0, Box::default()).expect("room");
        let mut taken = usize::from(set.take(&mut one).is_some());
        taken += other.join().expect("no panic");
        while set.take(&mut one).is_some() {
            taken += 1;
        }
        assert_eq!((taken, set.is_empty()), (2, true), "a turn is forgotten");
    });
}

#[test]
fn no_core_falls_asleep_over_a_shared_turn() {
    check_handshake(|| {
        let (set, _) = ready_set(2, ServicePolicy::RoundRobin);
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::by_class(2, 2, set));
        let idler = {
            let shuffle = Arc::clone(&shuffle);
            thread::spawn(move || shuffle.declare_idle(1))
        };
        shuffle.publish(0, Box::default()).expect("room");
        let woken = called(&shuffle, 0) & 1 << 1 != 0;
        let asleep = idler.join().expect("no panic");
        assert!(!asleep || woken, "{OVERSLEPT}");
    });
}

/// Two cores fill a class's queue at a time: the later place may be full before the first.
#[test]
fn whoever_fills_the_first_place_announces_last() {
    check_handshake(|| {
        let (set, _) = ready_set(1, ServicePolicy::StrictPriority);
        let shuffle = Arc::new(ShuffleLayer::<Numbers>::by_class(3, 2, set));
        let publish = |shuffle: &ShuffleLayer<Numbers>, home| {
            shuffle.publish(home, Box::default()).expect("room");
            called(shuffle, home) & 1 << 2 != 0
        };
        let other = {
            let shuffle = Arc::clone(&shuffle);
            thread::spawn(move || publish(&shuffle, 1))
        };
        let idler = {
            let shuffle = Arc::clone(&shuffle);
            thread::spawn(move || shuffle.declare_idle(2))
        };
        let mut woken = publish(&shuffle, 0);
        woken |= other.join().expect("no panic");
        let asleep = idler.join().expect("no panic");
        assert!(!asleep || woken, "{OVERSLEPT}");
    });
}

/// As `a_connection_is_seen_in_order_whoever_takes_its_turns`, where the home core competes for its own.
#[test]
fn a_connection_is_seen_in_order_out_of_the_shared_set() {
    let mistakes = [(Mutant::TurnWhileHeld, UNORDERED), (Mutant::RelaxedHandOver, UNORDERED)];
    check(&mistakes, || {
        let (set, [mut one, mut two]) = ready_set(1, ServicePolicy::StrictPriority);
        let shuffle = ShuffleLayer::by_class(2, 2, set);
        let home = TryLock::new(Home::new(Numbers::default));
        let world = Arc::new(World { shuffle, home, connection: Connection::new() });
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let turn = world.shuffle.take_shared(&mut two);
                turn.into_iter().for_each(|turn| world.run_away(turn));
            })
        };
        for number in 0..2 {
            let mut home = world.home.try_lock().expect("nobody borrows it");
            world.arrive(&mut home, number);
        }
        let mut thief = Some(thief);
        loop {
            let mut home = world.home.try_lock().expect("nobody borrows it");
            while let Some(turn) = world.shuffle.pop_remote_calls(0) {
                world.come_home(&mut home, turn);
            }
            if let Some(turn) = world.shuffle.take_shared(&mut one) {
                world.connection.run(&turn);
                world.come_home(&mut home, turn);
            } else if home.is_idle() {
                break;
            } else if let Some(thief) = thief.take() {
                // It has what is missing.
                drop(home);
                thief.join().expect("no panic");
            }
        }
        if let Some(thief) = thief {
            thief.join().expect("no panic");
        }
        // SAFETY: the other thread has ended.
        let seen = world.connection.seen.with(|seen| unsafe { *seen });
        assert_eq!(seen, 2, "lost");
    });
}
