//! The parts on real threads: nothing is lost, doubled or out of order.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

#[test]
fn a_ring_is_bounded_and_keeps_order() {
    let ring = Ring::new(3);
    assert_eq!((ring.capacity(), ring.is_empty(), ring.pop()), (4, true, None));
    for round in 0..10 {
        for value in 0..4 {
            assert_eq!(ring.push(4 * round + value), Ok(()));
        }
        assert_eq!((ring.push(99), ring.len(), ring.is_empty()), (Err(99), 4, false));
        for value in 0..4 {
            assert_eq!(ring.pop(), Some(4 * round + value));
        }
    }
    assert_eq!((ring.len(), ring.is_empty()), (0, true));
}

#[test]
fn values_left_in_a_ring_are_dropped() {
    let value = alloc::sync::Arc::new(());
    let ring = Ring::new(2);
    ring.push(alloc::sync::Arc::clone(&value)).expect("room");
    drop(ring);
    assert_eq!(alloc::sync::Arc::strong_count(&value), 1);
}

#[test]
fn many_producers_and_consumers_lose_nothing() {
    const EACH: usize = if cfg!(miri) { 30 } else { 50_000 };
    let ring = Ring::new(16);
    let (producing, taken) = (AtomicUsize::new(2), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for producer in 0..2 {
            let (ring, producing) = (&ring, &producing);
            scope.spawn(move || {
                for number in 0..EACH {
                    let mut value = producer * EACH + number;
                    while let Err(back) = ring.push(value) {
                        value = back;
                        std::thread::yield_now();
                    }
                }
                producing.fetch_sub(1, Ordering::Release);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut mine: Vec<usize> = Vec::new();
                loop {
                    let over = producing.load(Ordering::Acquire) == 0;
                    match ring.pop() {
                        Some(value) => mine.push(value),
                        None if over => break,
                        None => std::thread::yield_now(),
                    }
                }
                // Of each producer in the order in which it put them there.
                for of in 0..2 {
                    let of: Vec<_> = mine.iter().filter(|&&value| value / EACH == of).collect();
                    assert!(of.is_sorted());
                }
                taken.lock().expect("no panic before").append(&mut mine);
            });
        }
    });
    let mut taken = taken.into_inner().expect("no panic before");
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..2 * EACH));
}

#[test]
fn a_lock_that_is_held_is_not_given() {
    let lock = TryLock::new(1);
    let mut guard = lock.try_lock().expect("free");
    *guard += 1;
    assert!(lock.try_lock().is_none() && lock.is_held());
    drop(guard);
    assert_eq!(lock.try_lock().as_deref().copied(), Some(2));
    assert_eq!(lock.into_inner(), 2);
}

/// A turn that carries numbers.
#[derive(Debug, Default)]
struct Numbers {
    connection: u64,
    numbers: Vec<u32>,
}

impl Turn for Numbers {
    fn connection(&self) -> u64 {
        self.connection
    }
    fn begin(&mut self, connection: u64) {
        self.connection = connection;
        self.numbers.clear();
    }
    fn class(&self) -> usize {
        self.connection as usize % 2
    }
}

#[test]
fn thieves_take_what_is_ready_and_leave_what_is_anothers_own() {
    let shuffle = ShuffleLayer::new(3, 4);
    assert!(shuffle.steal(0, 0).is_none());
    let turn = |connection| Box::new(Numbers { connection, numbers: Vec::new() });
    shuffle.publish(1, turn(5)).expect("room");
    shuffle.publish_own(1, turn(6)).expect("room");
    shuffle.announce(1);
    assert_eq!(shuffle.call(1), 0, "nobody is idle");
    assert!(shuffle.steal(1, 0).is_none(), "one does not steal from oneself");
    for random in [0, 1, 2, 63, u32::MAX] {
        let stolen = shuffle.steal(2, random).expect("there is one");
        assert_eq!(stolen.connection, 5);
        assert!(shuffle.steal(2, random).is_none(), "the other is not to be stolen");
        shuffle.publish(1, stolen).expect("room");
        shuffle.announce(1);
    }
    assert_eq!(shuffle.take(1).map(|turn| turn.connection), Some(6), "its own first");
    assert!(!shuffle.declare_idle(0), "there is something to steal");
    assert_eq!(shuffle.take(1).map(|turn| turn.connection), Some(5));
    assert!(shuffle.declare_idle(0) && shuffle.declare_idle(2));
    assert!(shuffle.somebody_idle(0) && shuffle.somebody_idle(1));
    assert!(!shuffle.declare_busy(2), "no turn waits for which another counted upon it");
    assert!(!shuffle.somebody_idle(0) && shuffle.somebody_idle(1));
    shuffle.mark_idle(2);
    shuffle.publish(1, turn(7)).expect("room");
    assert!(shuffle.declare_busy(2) && !shuffle.declare_busy(2), "one waits, and it is busy once");
}

/// As many idle cores are called as turns wait, none of them by itself, whichever form the queues have.
#[test]
fn as_many_are_called_as_turns_wait() {
    let turn = |connection| Box::new(Numbers { connection, numbers: Vec::new() });
    let set = || {
        let policy = ServicePolicy::RoundRobin;
        ReadySet::new(2, policy, &[1; MAX_CLASSES], 8).expect("two classes")
    };
    for shuffle in [ShuffleLayer::new(5, 8), ShuffleLayer::by_class(5, 8, set())] {
        for core in [0, 2, 3, 4] {
            shuffle.mark_idle(core);
        }
        assert_eq!(shuffle.call(1), 0, "no turn waits");
        shuffle.publish_own(1, turn(1)).expect("room");
        shuffle.announce(1);
        assert_eq!(shuffle.call(1), 0, "another core cannot take it");
        shuffle.publish(1, turn(2)).expect("room");
        shuffle.publish(1, turn(3)).expect("room");
        shuffle.announce(1);
        assert_eq!(shuffle.call(1), 0b01100, "those after the caller first");
        assert_eq!(shuffle.call(3), 0b10001, "a thief does not wake itself");
        for connection in 4..8 {
            shuffle.publish(1, turn(connection)).expect("room");
        }
        shuffle.announce(1);
        assert_eq!(shuffle.call(1), 0b11101);
        assert_eq!(shuffle.call(2), 0b11001);
    }
}

#[test]
fn two_cores_see_each_connection_in_order() {
    some_stolen(|| two_cores(&ShuffleLayer::new(2, 8), [None, None]));
}

/// Where the machine has other things to do, the two may hardly ever run at the same time.
fn some_stolen(run: impl Fn() -> usize) {
    assert!((0..50).any(|_| run() > 0), "nothing was stolen: the test shows nothing");
}

#[test]
fn they_do_so_where_they_share_a_ready_set() {
    use ServicePolicy::{RoundRobin, StrictPriority, WeightedRoundRobin};
    for (policy, classes) in [(StrictPriority, 1), (RoundRobin, 3), (WeightedRoundRobin, 8)] {
        some_stolen(|| {
            let set = ReadySet::new(classes, policy, &[3; MAX_CLASSES], 8).expect("few classes");
            let takers = [(); 2].map(|()| Some(set.taker().expect("two")));
            two_cores(&ShuffleLayer::by_class(2, 8, set), takers)
        });
    }
}

#[test]
fn a_shared_turn_is_anybodys_and_wakes_whoever_is_idle() {
    let policy = ServicePolicy::StrictPriority;
    let set = ReadySet::new(2, policy, &[1; MAX_CLASSES], 2).expect("two classes");
    let mut takers = [(); 2].map(|()| set.taker().expect("two"));
    let shuffle = ShuffleLayer::by_class(2, 4, set);
    assert!(shuffle.is_by_class() && shuffle.declare_idle(1));
    let turn = |connection| Box::new(Numbers { connection, numbers: Vec::new() });
    // Odd numbers are of class 1.
    for connection in [7, 8, 9] {
        shuffle.publish(0, turn(connection)).expect("room");
    }
    assert!(shuffle.publish(0, turn(11)).is_err(), "two of a class have room");
    shuffle.publish_own(0, turn(2)).expect("room");
    shuffle.announce(0);
    assert_eq!((shuffle.call(0), shuffle.call(1)), (0b10, 0), "three turns, one idle core");
    assert!(
        !shuffle.declare_idle(1) && shuffle.steal(1, 0).is_none() && shuffle.take_own(1).is_none()
    );
    let mut taken = Vec::new();
    for core in [1, 0, 1, 0] {
        taken.extend(shuffle.take_shared(&mut takers[core]).map(|turn| turn.connection));
    }
    assert_eq!(taken, [8, 7, 9]);
    assert_eq!(shuffle.take_own(0).map(|turn| turn.connection), Some(2));
    assert!(shuffle.declare_idle(0) && shuffle.declare_idle(1));
}

/// Two cores, whose connections' numbers come at random; each runs its own turns and steals. What is seen
/// of a connection stands in a place without a lock, as an application's state would. Answers how many turns
/// were not run at home.
fn two_cores(shuffle: &ShuffleLayer<Numbers>, takers: [Option<Taker>; 2]) -> usize {
    const CONNECTIONS: u64 = 8;
    const EACH: u32 = if cfg!(miri) { 8 } else { 20_000 };
    // Of a connection: the next number, and whether somebody is at it.
    let seen: Vec<(AtomicUsize, AtomicBool)> =
        (0..2 * CONNECTIONS).map(|_| Default::default()).collect();
    let over = AtomicUsize::new(0);
    let run = |turn: &mut Numbers| {
        let (next, busy) = &seen[turn.connection as usize];
        assert!(!busy.swap(true, Ordering::Relaxed), "two cores have a connection");
        for number in turn.numbers.drain(..) {
            // Relaxed on purpose: only the hand-over orders it.
            assert_eq!(next.load(Ordering::Relaxed), number as usize);
            next.store(number as usize + 1, Ordering::Relaxed);
        }
        busy.store(false, Ordering::Relaxed);
    };
    let stolen = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (core, mut taker) in takers.into_iter().enumerate() {
            let (over, run, stolen) = (&over, &run, &stolen);
            scope.spawn(move || {
                let mut home = Home::new(Numbers::default);
                let mut outbox: Vec<(usize, Box<Numbers>)> = Vec::new();
                let (mut random, mut came) = (core as u32 + 1, [0u32; CONNECTIONS as usize]);
                let mut told = false;
                while over.load(Ordering::Acquire) < 2 {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let at = (random >> 16) as usize % CONNECTIONS as usize;
                    // One core has much to do, and the other little.
                    let some = if core == 0 { 4 } else { 1 };
                    for offset in 0..some {
                        let at = (at + offset) % CONNECTIONS as usize;
                        let number = came[at];
                        if number < EACH {
                            came[at] += 1;
                            let connection = core as u64 * CONNECTIONS + at as u64;
                            home.arrive(connection, |turn| turn.numbers.push(number));
                        }
                    }
                    while let Some(turn) = shuffle.pop_remote_calls(core) {
                        home.finish(turn);
                    }
                    home.hand_out(|turn| shuffle.publish(core, turn));
                    shuffle.announce(core);
                    let turn = match &mut taker {
                        None => shuffle.take(core).or_else(|| shuffle.steal(core, random)),
                        Some(taker) => shuffle.take_shared(taker),
                    };
                    match turn {
                        None => std::thread::yield_now(),
                        Some(mut turn) => {
                            run(&mut turn);
                            if turn.connection / CONNECTIONS == core as u64 {
                                home.finish(turn);
                            } else {
                                stolen.fetch_add(1, Ordering::Relaxed);
                                outbox.push((1 - core, turn));
                            }
                        }
                    }
                    while let Some((home, turn)) = outbox.pop() {
                        if let Err(turn) = shuffle.push_remote_calls(home, turn) {
                            outbox.push((home, turn));
                            break;
                        }
                    }
                    if !told && home.is_idle() && came.iter().all(|&came| came == EACH) {
                        told = true;
                        over.fetch_add(1, Ordering::Release);
                    }
                }
            });
        }
    });
    assert!(seen.iter().all(|(next, _)| next.load(Ordering::Relaxed) == EACH as usize));
    stolen.into_inner()
}
