//! Models of every protocol, over all interleavings and all reorderings that loom knows, on the code
//! that runs; and the seeded mistakes, each of which a model must catch.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p qwait --lib loom --release`
//!
//! Models are kept to two or three threads and one or two queues: what goes wrong in a protocol of
//! bits goes wrong between two parties on one word.

#![expect(clippy::arc_with_non_send_sync, reason = "models run on one thread")]

use alloc::sync::Arc;
use core::time::Duration;

use handshake::models;
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::bitmap::Bitmap;
use crate::set::Core;
use crate::sync::{Mutant, mutate};
use crate::*;

const CONFIG: Config = Config { capacity: 2, policy: ServicePolicy::RoundRobin, spin_looks: 0 };

fn id(number: u32) -> QueueId {
    QueueId::new(number)
}

/// Sleeps for ever unless woken: a lost wake-up is then a deadlock, which loom reports.
#[derive(Debug)]
struct ModelSleeper(Mutex<u32>, Condvar);

impl ModelSleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(0), Condvar::new()))
    }
}

impl Sleeper for ModelSleeper {
    fn token(&self) -> u32 {
        *self.0.lock().expect("not poisoned")
    }

    fn sleep(&self, token: u32, _: Option<Duration>) {
        let mut now = self.0.lock().expect("not poisoned");
        while *now == token {
            now = self.1.wait(now).expect("not poisoned");
        }
    }

    fn wake(&self) {
        *self.0.lock().expect("not poisoned") += 1;
        self.1.notify_one();
    }
}

/// Where a set keeps what is ready.
#[derive(Clone, Copy)]
enum Bits {
    Flat,
    TwoLevel,
    /// In the doorbells alone.
    None,
}

fn core(bits: Bits) -> Arc<Core> {
    match bits {
        Bits::Flat => Core::make(CONFIG.capacity, Bitmap::flat(CONFIG.capacity), false),
        Bits::TwoLevel => Core::make(CONFIG.capacity, Bitmap::two_level(CONFIG.capacity), false),
        Bits::None => Core::make(CONFIG.capacity, Bitmap::flat(CONFIG.capacity), true),
    }
}

fn exclusive(bits: Bits) -> ExclusiveSet {
    ExclusiveSet::over(core(bits), CONFIG, ModelSleeper::new()).expect("joins")
}

fn shared() -> SharedSet {
    SharedSet::over(core(Bits::Flat), CONFIG)
}

/// Takes the activation that comes with adding.
fn settle(set: &mut ExclusiveSet) {
    while let Some(queue) = set.try_qwait() {
        assert_eq!(set.verify(queue), 0, "nothing was rung for yet");
    }
}

/// Something that only one thread at a time may touch, each after the last: loom reports it if not.
/// The pointer is not followed, the access is what counts.
#[derive(Debug)]
struct Touched(UnsafeCell<()>);

impl Touched {
    fn new() -> Self {
        Self(UnsafeCell::new(()))
    }

    fn touch(&self) {
        self.0.with_mut(|_| ());
    }
}

/// Visits one queue if one is ready, and takes all that is there, `items` at most.
fn visit(set: &mut ExclusiveSet, payload: &[Touched], seen: &mut [u32], items: u32) -> bool {
    let Some(queue) = set.try_qwait() else { return false };
    let count = set.verify(queue).min(items);
    if count > 0 {
        payload[queue.get() as usize].touch();
        seen[queue.get() as usize] += count;
        set.reconsider(queue, count);
    }
    true
}

/// One queue with items, one producer that rings for another as soon as there is room for one, and a consumer
/// that drains one at a time, so that bits are cleared while others set them; with three items and more the
/// first is counted down together with the second. In the end everything was seen, and once.
fn drain_against_ring(bits: Bits, items: u16) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        settle(&mut set);
        let payload = Arc::new([Touched::new()]);
        let mut seen = [0];
        producer.ring_many(items);
        let other = Arc::clone(&payload);
        let thread = thread::spawn(move || {
            // The payload is one place, free again only when all that came before are out.
            if producer.count() == 0 {
                other[0].touch();
            }
            producer.ring();
        });
        for _ in 0..items.max(2) {
            visit(&mut set, &payload[..], &mut seen, 1);
        }
        thread.join().expect("the producer finished");
        while visit(&mut set, &payload[..], &mut seen, 1) {}
        assert_eq!(seen, [u32::from(items) + 1], "work is left that nobody notices");
    });
}

/// Two queues with a producer each, in one word.
fn two_queues_in_a_word(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let zero = set.add(id(0), DoorbellRef::new()).expect("added");
        let one = set.add(id(1), DoorbellRef::new()).expect("added");
        settle(&mut set);
        let payload = Arc::new([Touched::new(), Touched::new()]);
        let mut seen = [0, 0];
        zero.ring();
        let other = Arc::clone(&payload);
        let thread = thread::spawn(move || {
            other[1].touch();
            one.ring();
        });
        // The second finds nothing, or the other queue, and tidies the summary.
        visit(&mut set, &payload[..], &mut seen, 2);
        visit(&mut set, &payload[..], &mut seen, 2);
        thread.join().expect("the producer finished");
        while visit(&mut set, &payload[..], &mut seen, 2) {}
        assert_eq!(seen, [1, 1], "work is left that nobody notices");
    });
}

#[test]
fn the_exclusive_form_loses_nothing() {
    drain_against_ring(Bits::Flat, 1);
    two_queues_in_a_word(Bits::Flat);
    drain_against_ring(Bits::Flat, 3);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_doorbell_counted_down_by_a_store_is_caught() {
    mutate(Some(Mutant::SettleByStore));
    drain_against_ring(Bits::Flat, 3);
}

#[test]
fn the_two_level_form_loses_nothing() {
    drain_against_ring(Bits::TwoLevel, 1);
    two_queues_in_a_word(Bits::TwoLevel);
}

#[test]
fn the_form_without_bits_loses_nothing() {
    drain_against_ring(Bits::None, 1);
    two_queues_in_a_word(Bits::None);
    drain_against_ring(Bits::None, 3);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_producer_that_skips_its_write_is_caught() {
    mutate(Some(Mutant::RelaxedSkip));
    drain_against_ring(Bits::Flat, 1);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_bit_cleared_by_a_store_is_caught() {
    mutate(Some(Mutant::ClearByStore));
    two_queues_in_a_word(Bits::Flat);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_missing_look_after_the_clear_is_caught() {
    mutate(Some(Mutant::MissingRecheck));
    drain_against_ring(Bits::Flat, 1);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_summary_cleared_without_another_look_at_the_leaf_is_caught() {
    mutate(Some(Mutant::MissingLeafRecheck));
    two_queues_in_a_word(Bits::TwoLevel);
}

/// One visit of a shared consumer: touches what only the owner may.
fn shared_visit(consumer: &mut SharedConsumer, payload: &[Touched]) -> u32 {
    let Some(queue) = consumer.try_qwait() else { return 0 };
    assert!(consumer.verify(queue) > 0, "a claimed queue has work");
    payload[queue.get() as usize].touch();
    consumer.reconsider(queue, 1);
    1
}

/// Two consumers and a producer on one queue: one owner at a time, each after the last, and nothing
/// is left. `stray` sets the ready bit once too often, as a late producer of a removed queue does.
fn two_consumers(stray: bool) {
    loom::model(move || {
        let set = shared();
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        let mut one = set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
        let mut two = set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
        assert_eq!(one.try_qwait(), None);
        let payload = Arc::new([Touched::new()]);
        let other = Arc::clone(&payload);
        producer.ring();
        let thread = thread::spawn(move || shared_visit(&mut two, &other[..]));
        if stray {
            set.core.activate(id(0));
        } else {
            producer.ring();
        }
        let mut seen = shared_visit(&mut one, &payload[..]);
        seen += thread.join().expect("the other finished");
        while one.try_qwait().is_some() {
            seen += one.verify(id(0));
            let left = one.reconsider(id(0), 9);
            assert_eq!(left, 0);
        }
        assert_eq!(seen, if stray { 1 } else { 2 }, "each item exactly once");
    });
}

#[test]
fn a_shared_queue_has_one_owner_at_a_time() {
    two_consumers(false);
}

#[test]
fn a_stray_activation_gives_no_second_owner() {
    two_consumers(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_owners_bit_a_stray_activation_is_caught() {
    mutate(Some(Mutant::MissingOwner));
    two_consumers(true);
}

/// A consumer that sleeps until work comes, which comes from another thread.
fn sleep_against_ring(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        settle(&mut set);
        let thread = thread::spawn(move || producer.ring());
        assert_eq!(set.qwait(), id(0));
        assert!(set.verify(id(0)) == 1 && set.reconsider(id(0), 1) == 0);
        assert!(thread.join().expect("the producer finished"), "it made the queue ready");
    });
}

#[test]
fn no_wake_up_is_lost() {
    sleep_against_ring(Bits::Flat);
    sleep_against_ring(Bits::TwoLevel);
    sleep_against_ring(Bits::None);
}

/// A queue was rung before its consumer first looks: it must not fall asleep over it.
fn sleep_over_a_rung_queue(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        settle(&mut set);
        producer.ring();
        assert!(!set.arm(), "it falls asleep over work that nobody notices");
        assert_eq!(set.try_qwait(), Some(id(0)));
    });
}

#[test]
fn nobody_falls_asleep_over_a_rung_queue() {
    sleep_over_a_rung_queue(Bits::Flat);
    sleep_over_a_rung_queue(Bits::None);
}

#[test]
#[should_panic(expected = "nobody notices")]
fn a_missing_look_at_the_doorbells_before_sleep_is_caught() {
    mutate(Some(Mutant::MissingDirectLook));
    sleep_over_a_rung_queue(Bits::None);
}

/// A consumer that may block, and whether the publication at the same time ends its sleep.
fn oversleeps(bits: Bits, publish: fn(Producer)) {
    let sleeper = ModelSleeper::new();
    let mut set = ExclusiveSet::over(core(bits), CONFIG, sleeper.clone()).expect("joins");
    let producer = set.add(id(0), DoorbellRef::new()).expect("added");
    settle(&mut set);
    let token = sleeper.token();
    let waker = thread::spawn(move || publish(producer));
    let asleep = set.arm();
    waker.join().expect("the waker ends");
    assert!(!asleep || sleeper.token() != token, "{OVERSLEPT}");
}

const OVERSLEPT: &str = "asleep over a ready queue, and not woken";

/// The mistakes of a sleeper that pairs by exchange.
const SLEEPERS: [(models::Mutant, &str); 3] = [
    (models::Mutant::LookByLoad, OVERSLEPT),
    (models::Mutant::LookWithoutRelease, OVERSLEPT),
    (models::Mutant::LookBeforeAnnouncement, OVERSLEPT),
];

/// Checks both sides of the handshake: a sleeper's mistakes, and a waker that does not acquire the announcement.
fn check_sleep(bits: Bits, without_acquire: Mutant, publish: fn(Producer)) {
    models::check(models::mutate, &SLEEPERS, move || oversleeps(bits, publish));
    let mistakes = [(without_acquire, OVERSLEPT)];
    models::check(mutate, &mistakes, move || oversleeps(bits, publish));
}

#[test]
fn no_consumer_sleeps_over_a_ring() {
    let ring: fn(Producer) = |producer| _ = producer.ring();
    check_sleep(Bits::Flat, Mutant::SetWithoutAcquire, ring);
    check_sleep(Bits::TwoLevel, Mutant::SetWithoutAcquire, ring);
    check_sleep(Bits::None, Mutant::RingWithoutAcquire, ring);
}

/// The queue is ready and disabled when the consumer falls asleep; enabling it is the publication.
fn oversleeps_enabling(bits: Bits) {
    let sleeper = ModelSleeper::new();
    let mut set = ExclusiveSet::over(core(bits), CONFIG, sleeper.clone()).expect("joins");
    let producer = set.add(id(0), DoorbellRef::new()).expect("added");
    settle(&mut set);
    let control = set.control();
    control.disable(id(0)).expect("disabled");
    producer.ring();
    let token = sleeper.token();
    let waker = thread::spawn(move || control.enable(id(0)).expect("enabled"));
    let asleep = set.arm();
    waker.join().expect("the waker ends");
    assert!(!asleep || sleeper.token() != token, "{OVERSLEPT}");
}

#[test]
fn no_consumer_sleeps_over_a_queue_that_is_enabled() {
    for bits in [Bits::Flat, Bits::None] {
        models::check(models::mutate, &SLEEPERS, move || oversleeps_enabling(bits));
        let mistakes = [(Mutant::EnableWithoutAcquire, OVERSLEPT)];
        models::check(mutate, &mistakes, move || oversleeps_enabling(bits));
    }
}

/// Two sleeping consumers, two items in two queues, one producer: both get up.
#[test]
fn every_sleeper_that_is_needed_gets_up() {
    loom::model(|| {
        let set = shared();
        let zero = set.add(id(0), DoorbellRef::new()).expect("added");
        let one = set.add(id(1), DoorbellRef::new()).expect("added");
        let mut first = set.consumer_with(ModelSleeper::new()).expect("joins");
        let mut second = set.consumer_with(ModelSleeper::new()).expect("joins");
        assert_eq!(first.try_qwait(), None);
        let thread = thread::spawn(move || {
            let queue = second.qwait();
            second.reconsider(queue, 1);
            queue
        });
        zero.ring();
        one.ring();
        let queue = first.qwait();
        first.reconsider(queue, 1);
        let other = thread.join().expect("the second finished");
        assert_ne!(queue, other, "each item exactly once");
    });
}

/// One queue, and what its owner leaves is for the consumer that sleeps.
#[test]
fn a_reactivation_wakes_a_sleeper() {
    loom::model(|| {
        let set = shared();
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        let mut first = set.consumer_with(ModelSleeper::new()).expect("joins");
        let mut second = set.consumer_with(ModelSleeper::new()).expect("joins");
        producer.ring_many(2);
        assert_eq!(first.try_qwait(), Some(id(0)));
        let thread = thread::spawn(move || {
            let queue = second.qwait();
            second.reconsider(queue, 1)
        });
        // The first goes away to process its item; the second must find the other one.
        assert_eq!(first.reconsider(id(0), 1), 1);
        assert_eq!(thread.join().expect("the second finished"), 0);
    });
}

/// A queue is removed and added again, with the same doorbell, while its producer rings.
#[test]
fn a_ring_during_remove_and_add_is_noticed() {
    ring_during_remove_and_add(Bits::Flat);
    ring_during_remove_and_add(Bits::None);
}

fn ring_during_remove_and_add(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let doorbell = DoorbellRef::new();
        let producer = set.add(id(0), doorbell.clone()).expect("added");
        settle(&mut set);
        let thread = thread::spawn(move || producer.ring());
        set.remove(id(0)).expect("removed");
        assert_eq!(set.try_qwait(), None, "removed queues are not returned");
        set.add(id(0), doorbell).expect("added anew");
        thread.join().expect("the producer finished");
        let mut seen = 0;
        while let Some(queue) = set.try_qwait() {
            seen += set.verify(queue);
            set.reconsider(queue, 1);
        }
        assert_eq!(seen, 1);
    });
}

/// The same in the shared form, where another consumer may meet the queue at any time.
#[test]
fn a_ring_during_a_shared_remove_and_add_is_noticed() {
    loom::model(|| {
        let set = shared();
        let doorbell = DoorbellRef::new();
        let producer = set.add(id(0), doorbell.clone()).expect("added");
        let mut one = set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
        let mut two = set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
        set.remove(id(0)).expect("removed");
        let ringer = thread::spawn(move || producer.ring());
        let visitor = thread::spawn(move || {
            two.try_qwait().map_or(0, |queue| {
                two.reconsider(queue, 1);
                1
            })
        });
        set.add(id(0), doorbell).expect("added anew");
        ringer.join().expect("the producer finished");
        let mut seen = visitor.join().expect("the visitor finished");
        while let Some(queue) = one.try_qwait() {
            seen += 1;
            one.reconsider(queue, 1);
        }
        assert_eq!(seen, 1, "the item is found once");
    });
}

/// A queue is rung and enabled at once while the consumer falls asleep over it.
#[test]
fn enabling_wakes_a_consumer_that_sleeps_over_ready_work() {
    enabling_wakes(Bits::Flat);
    enabling_wakes(Bits::None);
}

fn enabling_wakes(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        settle(&mut set);
        let control = set.control();
        control.disable(id(0)).expect("disabled");
        let ringer = thread::spawn(move || producer.ring());
        let timer = thread::spawn(move || control.enable(id(0)));
        assert_eq!(set.qwait(), id(0));
        ringer.join().expect("the producer finished");
        timer.join().expect("the timer finished").expect("enabled");
    });
}

#[test]
fn a_disabled_queue_is_not_returned_however_it_is_rung() {
    disabled_is_not_returned(Bits::Flat);
    disabled_is_not_returned(Bits::None);
}

fn disabled_is_not_returned(bits: Bits) {
    loom::model(move || {
        let mut set = exclusive(bits);
        let producer = set.add(id(0), DoorbellRef::new()).expect("added");
        settle(&mut set);
        let ringer = thread::spawn(move || producer.ring());
        set.control().disable(id(0)).expect("disabled");
        assert_eq!(set.try_qwait(), None);
        ringer.join().expect("the producer finished");
        assert_eq!(set.try_qwait(), None);
        set.control().enable(id(0)).expect("enabled");
        assert_eq!(set.try_qwait(), Some(id(0)));
    });
}
