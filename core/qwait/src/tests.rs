//! Single-threaded tests: both forms against the reference model, and the operations one by one.

#![cfg(all(feature = "std", not(loom)))]

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use proptest::prelude::*;

use crate::bitmap::Bitmap;
use crate::model::{Form, Queues};
use crate::set::Core;
use crate::*;

fn id(number: u32) -> QueueId {
    QueueId::new(number)
}

fn config(capacity: u32, policy: ServicePolicy) -> Config {
    Config { capacity, policy, spin_looks: 0 }
}

/// Where a set keeps what is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bits {
    Flat,
    TwoLevel,
    /// In the doorbells alone: exclusive sets only.
    None,
}

/// A set of the given form of bits, however many queues it has.
fn core(capacity: u32, bits: Bits) -> Arc<Core> {
    match bits {
        Bits::Flat => Core::make(capacity, Bitmap::flat(capacity), false),
        Bits::TwoLevel => Core::make(capacity, Bitmap::two_level(capacity), false),
        Bits::None => Core::make(capacity, Bitmap::flat(capacity), true),
    }
}

/// One consumer of either form.
enum Subject {
    Exclusive(ExclusiveSet),
    Shared(SharedSet, SharedConsumer),
}

impl Subject {
    fn new(form: Form, capacity: u32, policy: ServicePolicy, bits: Bits) -> Self {
        let core = core(capacity, bits);
        let sleeper = Arc::new(SpinSleeper);
        let config = config(capacity, policy);
        match form {
            Form::Exclusive => {
                Self::Exclusive(ExclusiveSet::over(core, config, sleeper).expect("joins"))
            }
            Form::Shared => {
                let set = SharedSet::over(core, config);
                let consumer = set.consumer_with(sleeper).expect("joins");
                Self::Shared(set, consumer)
            }
        }
    }

    fn add(&mut self, queue: QueueId) -> Result<Producer, SetError> {
        match self {
            Self::Exclusive(set) => set.add(queue, DoorbellRef::new()),
            Self::Shared(set, _) => set.add(queue, DoorbellRef::new()),
        }
    }

    fn remove(&mut self, queue: QueueId) -> Result<(), SetError> {
        match self {
            Self::Exclusive(set) => set.remove(queue),
            Self::Shared(set, _) => set.remove(queue),
        }
    }

    fn control(&self) -> Control {
        match self {
            Self::Exclusive(set) => set.control(),
            Self::Shared(set, _) => set.control(),
        }
    }

    fn try_qwait(&mut self) -> Option<QueueId> {
        match self {
            Self::Exclusive(set) => set.try_qwait(),
            Self::Shared(_, consumer) => consumer.try_qwait(),
        }
    }

    fn verify(&mut self, queue: QueueId) -> u32 {
        match self {
            Self::Exclusive(set) => set.verify(queue),
            Self::Shared(_, consumer) => consumer.verify(queue),
        }
    }

    fn reconsider(&mut self, queue: QueueId, items: u32) -> u32 {
        match self {
            Self::Exclusive(set) => set.reconsider(queue, items),
            Self::Shared(_, consumer) => consumer.reconsider(queue, items),
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(u32),
    Remove(u32),
    Ring(u32, u16),
    Qwait,
    /// A whole visit: verify, take this many.
    Visit(u32),
    Reconsider(u32, u32),
    Verify(u32),
    Mask(u32, bool),
    Weight(u32, u32),
}

fn step(capacity: u32) -> impl Strategy<Value = Step> {
    let queue = 0..capacity;
    prop_oneof![
        2 => queue.clone().prop_map(Step::Add),
        1 => queue.clone().prop_map(Step::Remove),
        8 => (queue.clone(), 1..4u16).prop_map(|(queue, items)| Step::Ring(queue, items)),
        4 => Just(Step::Qwait),
        8 => (0..4u32).prop_map(Step::Visit),
        2 => (queue.clone(), 0..4u32).prop_map(|(queue, items)| Step::Reconsider(queue, items)),
        2 => queue.clone().prop_map(Step::Verify),
        2 => (queue.clone(), any::<bool>()).prop_map(|(queue, masked)| Step::Mask(queue, masked)),
        3 => (queue, 1..5u32).prop_map(|(queue, weight)| Step::Weight(queue, weight)),
    ]
}

/// What is told to be left is never more than there is, and nothing only where there is nothing.
fn assert_left(told: u32, left: u32, step: &Step) {
    assert!(told <= left && (told == 0) == (left == 0), "{step:?}: {told} of {left}");
}

/// Runs one history on the library and on the model. Queues removed while owned leave the model's
/// scope (their visit ends on the old doorbell), so the visit is ended first.
fn agrees(form: Form, capacity: u32, policy: ServicePolicy, bits: Bits, steps: &[Step]) {
    let mut subject = Subject::new(form, capacity, policy, bits);
    let mut model = Queues::new(capacity, policy, form);
    let mut producers: Vec<Option<Producer>> = (0..capacity).map(|_| None).collect();
    // All queues are there at first, so that even short histories serve some.
    let adds: Vec<Step> = (0..capacity).map(Step::Add).collect();
    for step in adds.iter().chain(steps) {
        match *step {
            Step::Add(queue) => {
                let added = subject.add(id(queue));
                assert_eq!(added.is_ok(), model.add(queue), "{step:?}");
                if let Ok(producer) = added {
                    producers[queue as usize] = Some(producer);
                    model.set_mut().set_weight(queue, 1);
                }
            }
            Step::Remove(queue) => {
                assert_left(subject.reconsider(id(queue), 0), model.reconsider(queue, 0), step);
                assert_eq!(subject.remove(id(queue)).is_ok(), model.remove(queue), "{step:?}");
                producers[queue as usize] = None;
            }
            Step::Ring(queue, items) => {
                if let Some(producer) = &producers[queue as usize] {
                    let edge = model.ring(queue, u32::from(items));
                    assert_eq!(producer.ring_many(items), edge, "{step:?}");
                    // An exclusive set counts down late: never by half of what is there.
                    let (says, has) = (producer.count(), model.count(queue));
                    let most =
                        if form == Form::Exclusive { (2 * has).saturating_sub(1) } else { has };
                    assert!((has..=most.max(has)).contains(&says), "{step:?}: {says} of {has}");
                }
            }
            Step::Qwait => {
                assert_eq!(subject.try_qwait().map(QueueId::get), model.try_qwait(), "{step:?}");
            }
            Step::Visit(items) => {
                let queue = subject.try_qwait();
                assert_eq!(queue.map(QueueId::get), model.try_qwait(), "{step:?}");
                if let Some(queue) = queue {
                    assert_left(subject.verify(queue), model.verify(queue.get()), step);
                    let left = model.reconsider(queue.get(), items);
                    assert_left(subject.reconsider(queue, items), left, step);
                }
            }
            Step::Reconsider(queue, items) => {
                let left = model.reconsider(queue, items);
                assert_left(subject.reconsider(id(queue), items), left, step);
            }
            Step::Verify(queue) => {
                assert_left(subject.verify(id(queue)), model.verify(queue), step);
            }
            Step::Mask(queue, masked) => {
                let control = subject.control();
                let done = if masked {
                    model.set_mut().disable(queue);
                    control.disable(id(queue))
                } else {
                    model.set_mut().enable(queue);
                    control.enable(id(queue))
                };
                assert_eq!((done, control.is_disabled(id(queue))), (Ok(()), masked));
            }
            Step::Weight(queue, weight) => {
                model.set_mut().set_weight(queue, weight);
                assert_eq!(subject.control().set_weight(id(queue), weight), Ok(()));
            }
        }
    }
}

fn history() -> impl Strategy<Value = (u32, ServicePolicy, Bits, Vec<Step>)> {
    use ServicePolicy::{RoundRobin, StrictPriority, WeightedRoundRobin};
    let policies =
        prop::sample::select(Vec::from([RoundRobin, WeightedRoundRobin, StrictPriority]));
    let sizes: &[u32] = if cfg!(miri) { &[1, 3, 65] } else { &[1, 2, 3, 5, 64, 65, 130, 200] };
    let bits = prop::sample::select(Vec::from([Bits::Flat, Bits::TwoLevel, Bits::None]));
    (prop::sample::select(sizes.to_vec()), policies, bits).prop_flat_map(
        |(capacity, policy, bits)| {
            let steps = prop::collection::vec(step(capacity), 1..if cfg!(miri) { 40 } else { 200 });
            (Just(capacity), Just(policy), Just(bits), steps)
        },
    )
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 })
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_exclusive_form_agrees_with_the_model((capacity, policy, bits, steps) in history()) {
        agrees(Form::Exclusive, capacity, policy, bits, &steps);
    }

    #[test]
    fn the_shared_form_agrees_with_the_model((capacity, policy, bits, steps) in history()) {
        let bits = if bits == Bits::None { Bits::Flat } else { bits };
        agrees(Form::Shared, capacity, policy, bits, &steps);
    }
}

/// An exclusive set that never sleeps, with all its queues added and settled.
fn exclusive(capacity: u32, policy: ServicePolicy) -> (ExclusiveSet, Vec<Producer>) {
    let sleeper = Arc::new(SpinSleeper);
    let mut set = ExclusiveSet::with_sleeper(config(capacity, policy), sleeper).expect("made");
    let add = |queue| set.add(id(queue), DoorbellRef::new()).expect("added");
    let producers = (0..capacity).map(add).collect();
    while let Some(queue) = set.try_qwait() {
        assert_eq!(set.verify(queue), 0);
    }
    (set, producers)
}

#[test]
fn sizes_and_numbers_out_of_range_are_refused_in_words() {
    let make = |capacity| {
        let config = config(capacity, ServicePolicy::RoundRobin);
        ExclusiveSet::with_sleeper(config, Arc::new(SpinSleeper)).map(drop)
    };
    for capacity in [0, MAX_QUEUES + 1, u32::MAX] {
        assert_eq!(make(capacity), Err(SetError::BadCapacity { capacity }));
    }
    let (mut set, _producers) = exclusive(3, ServicePolicy::RoundRobin);
    let beyond = SetError::OutOfRange { queue: id(3), capacity: 3 };
    assert_eq!(set.add(id(3), DoorbellRef::new()).map(drop), Err(beyond));
    assert_eq!((set.remove(id(3)), set.control().disable(id(3))), (Err(beyond), Err(beyond)));
    assert_eq!(set.control().set_weight(id(3), 1), Err(beyond));
    let zero = SetError::ZeroWeight { queue: id(0) };
    assert_eq!(set.control().set_weight(id(0), 0), Err(zero));
    let again = SetError::AlreadyAdded { queue: id(0) };
    assert_eq!(set.add(id(0), DoorbellRef::new()).map(drop), Err(again));
    assert_eq!(set.remove(id(0)), Ok(()));
    assert_eq!(set.remove(id(0)), Err(SetError::NotAdded { queue: id(0) }));
    for queue in [id(0), id(3), id(u32::MAX)] {
        let nothing = (set.verify(queue), set.reconsider(queue, 1), set.reconsider_all(queue));
        assert_eq!(nothing, (0, 0, 0), "queue {queue}");
    }
    assert!(!set.control().is_disabled(id(u32::MAX)));
    let text = beyond.to_string();
    assert!(text.contains("queue 3 of a set of 3"), "{text}");
}

#[test]
fn a_set_has_a_bound_on_its_consumers_and_takes_new_ones_for_old() {
    let set = SharedSet::new(config(2, ServicePolicy::RoundRobin)).expect("made");
    let join = || set.consumer_with(Arc::new(SpinSleeper));
    let mut consumers: Vec<_> = (0..MAX_CONSUMERS).map(|_| join().expect("a place")).collect();
    assert_eq!(join().map(drop).map_err(|error| error.to_string().contains("64")), Err(true));
    consumers.remove(17);
    assert!(join().is_ok());
}

/// Largest number of selections of others before a queue that is ready all the time gets its own.
fn longest_wait(capacity: u32, policy: ServicePolicy, weights: &[u32]) -> u32 {
    let (mut set, producers) = exclusive(capacity, policy);
    for (queue, &weight) in weights.iter().enumerate() {
        set.control().set_weight(id(queue as u32), weight).expect("in range");
    }
    assert!(producers.iter().all(|producer| producer.ring_many(60_000)));
    let mut since = Vec::from_iter((0..capacity).map(|_| 0));
    let mut longest = 0;
    for _ in 0..capacity * 40 {
        let queue = set.try_qwait().expect("all are ready");
        since.iter_mut().for_each(|waited| *waited += 1);
        longest = longest.max(core::mem::take(&mut since[queue.get() as usize]) - 1);
        set.reconsider(queue, 1);
    }
    longest
}

#[test]
fn the_bounds_on_fairness_hold_and_are_tight() {
    assert_eq!(longest_wait(7, ServicePolicy::RoundRobin, &[]), 6);
    let weights = [1, 5, 2, 1];
    // The queue of weight 1 waits for all others' weights: 5 + 2 + 1.
    assert_eq!(longest_wait(4, ServicePolicy::WeightedRoundRobin, &weights), 8);
}

#[test]
fn strict_priority_serves_the_lowest_number() {
    let (mut set, producers) = exclusive(70, ServicePolicy::StrictPriority);
    for queue in [69, 3, 64] {
        producers[queue].ring();
    }
    let mut order = Vec::new();
    while let Some(queue) = set.try_qwait() {
        order.push(queue.get());
        set.reconsider(queue, 1);
        if queue == id(3) && order.len() == 1 {
            producers[1].ring();
        }
    }
    assert_eq!(order, [3, 1, 64, 69]);
}

#[test]
fn a_doorbell_stops_at_its_limit() {
    let doorbell = DoorbellRef::new();
    let rings = if cfg!(miri) { 2 } else { (MAX_COUNT >> 15) + 3 };
    for _ in 0..rings {
        doorbell.ring(1 << 15);
    }
    let expected = if cfg!(miri) { 2 << 15 } else { MAX_COUNT };
    assert_eq!(doorbell.count(), expected);
    assert!(doorbell.own(), "the owner's bit was not run over");
    assert!(!doorbell.own(), "it has an owner");
    doorbell.ring(u16::MAX);
    assert!(!doorbell.own(), "it still has");
    assert_eq!(doorbell.release(u32::MAX), 0);
}

#[test]
fn a_queue_that_counts_for_itself_is_armed_before_it_is_emptied() {
    let (mut set, producers) = exclusive(2, ServicePolicy::RoundRobin);
    producers[1].ring_many(5);
    assert_eq!(set.try_qwait(), Some(id(1)));
    assert_eq!(set.reconsider_all(id(1)), 5);
    assert_eq!(set.try_qwait(), None);
    assert!(producers[1].ring(), "the next ring is an edge");
    assert_eq!(set.try_qwait(), Some(id(1)));
}

#[test]
fn a_doorbell_is_counted_down_late_and_exact_where_that_matters() {
    for capacity in [2, 70] {
        let (mut set, producers) = exclusive(capacity, ServicePolicy::RoundRobin);
        producers[1].ring_many(9);
        let says = |items| {
            assert_eq!(set.try_qwait(), Some(id(1)));
            assert!(set.verify(id(1)) > 0);
            (set.reconsider(id(1), items), producers[1].count())
        };
        // Five of nine are more than half; then two of four, and one of two, and the last one.
        let told: Vec<(u32, u32)> = [1, 1, 1, 1, 1, 1, 1, 1, 1].into_iter().map(says).collect();
        let expected = [(8, 9), (7, 9), (6, 9), (5, 9), (4, 4), (3, 4), (2, 2), (1, 1), (0, 0)];
        assert_eq!(told, expected);
        assert!(producers[1].ring(), "the queue was empty: an edge");

        // A doorbell that leaves its set, or whose set ends, says what is left.
        producers[1].ring_many(8);
        assert_eq!((set.verify(id(1)), set.reconsider(id(1), 2)), (9, 7));
        assert_eq!(producers[1].count(), 9);
        set.remove(id(1)).expect("there");
        assert_eq!(producers[1].count(), 7);
        producers[0].ring_many(9);
        assert_eq!((set.verify(id(0)), set.reconsider(id(0), 1)), (9, 8));
        drop(set);
        assert_eq!(producers[0].count(), 8);
    }
}

#[test]
fn a_queue_that_counts_for_itself_tells_what_was_not_told_before() {
    let (mut set, producers) = exclusive(70, ServicePolicy::RoundRobin);
    producers[3].ring_many(9);
    assert_eq!((set.verify(id(3)), set.reconsider(id(3), 2)), (9, 7));
    producers[3].ring();
    assert_eq!((set.reconsider_all(id(3)), producers[3].count()), (8, 0));
}

#[test]
fn reconsidering_more_than_was_rung_for_counts_as_all_of_it() {
    let (mut set, producers) = exclusive(1, ServicePolicy::RoundRobin);
    producers[0].ring_many(2);
    assert_eq!(set.reconsider(id(0), u32::MAX), 0);
    assert!(!producers[0].ring_many(0) && producers[0].ring());
    assert_eq!(set.verify(id(0)), 1, "nothing wrapped");
}

#[test]
fn only_the_owner_reconsiders_and_a_dropped_consumer_gives_back() {
    let set = SharedSet::new(config(2, ServicePolicy::RoundRobin)).expect("made");
    let producer = set.add(id(0), DoorbellRef::new()).expect("added");
    let join = || set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
    let (mut one, mut two) = (join(), join());
    producer.ring_many(3);
    assert_eq!((one.try_qwait(), two.try_qwait()), (Some(id(0)), None));
    assert!(one.owns(id(0)) && !two.owns(id(0)));
    assert_eq!((two.verify(id(0)), two.reconsider(id(0), 1)), (0, 0), "not its own");
    assert_eq!(one.verify(id(0)), 3);
    drop(one);
    assert_eq!(two.try_qwait(), Some(id(0)), "given back with its work");
    assert_eq!(two.reconsider(id(0), 1), 2);
}

/// A queue is removed and its number reused while its owner still serves the old one.
#[test]
fn a_number_reused_during_a_visit_gives_nobody_the_wrong_queue() {
    let set = SharedSet::new(config(2, ServicePolicy::RoundRobin)).expect("made");
    let old = set.add(id(0), DoorbellRef::new()).expect("added");
    let join = || set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
    let (mut one, mut two) = (join(), join());
    old.ring_many(2);
    assert_eq!(one.try_qwait(), Some(id(0)));
    set.remove(id(0)).expect("there");
    let new = set.add(id(0), DoorbellRef::new()).expect("free again");
    new.ring();
    // The owner of the old one cannot take the new one too; its activation is not lost.
    assert_eq!(one.try_qwait(), None);
    assert_eq!(one.verify(id(0)), 2, "the old one's count");
    assert_eq!(one.reconsider(id(0), 1), 1);
    assert_eq!(two.try_qwait(), Some(id(0)));
    assert_eq!(two.verify(id(0)), 1, "the new one's count");
    assert_eq!(one.try_qwait(), None, "the old one's rest activates nothing");
    assert_eq!(two.reconsider(id(0), 1), 0);
    assert!(!old.ring(), "a late producer");
    assert_eq!((one.try_qwait(), two.try_qwait()), (None, None));
}

#[test]
fn the_hint_is_never_empty_while_something_is_ready() {
    let large = if cfg!(miri) { [70, 130] } else { [1000, 5000] };
    for capacity in [1, 64].into_iter().chain(large) {
        let (mut set, producers) = exclusive(capacity, ServicePolicy::RoundRobin);
        assert_eq!(set.try_qwait(), None);
        assert!(set.is_empty_hint(), "{capacity}");
        producers[capacity as usize - 1].ring();
        assert!(!set.is_empty_hint(), "{capacity}");
        assert_eq!(set.try_qwait(), Some(id(capacity - 1)));
        set.reconsider(id(capacity - 1), 1);
        assert_eq!(set.try_qwait(), None);
        assert!(set.is_empty_hint(), "{capacity}");
    }
}

#[test]
fn the_largest_set_finds_each_of_its_queues() {
    let capacity = if cfg!(miri) { FLAT_MAX + 1 } else { MAX_QUEUES };
    let (mut set, producers) = exclusive(capacity, ServicePolicy::RoundRobin);
    for queue in (0..capacity).rev().step_by(997) {
        assert!(producers[queue as usize].ring());
        assert_eq!(set.try_qwait(), Some(id(queue)));
        assert_eq!((set.reconsider(id(queue), 1), set.try_qwait()), (0, None));
    }
}

#[test]
fn a_timed_wait_ends_with_and_without_work() {
    let (mut set, producers) = exclusive(2, ServicePolicy::RoundRobin);
    let timeout = Duration::from_millis(1);
    assert_eq!(set.qwait_timeout(timeout), None);
    producers[1].ring();
    assert_eq!(set.qwait_timeout(timeout), Some(id(1)));
    assert_eq!(set.qwait_timeout(Duration::MAX), Some(id(1)), "not reconsidered: still ready");
}

/// A doorbell in memory that takes until it is permitted to be unmapped.
struct SlowMemory {
    doorbell: Doorbell,
    unmapping: Sender<()>,
    permitted: Mutex<Receiver<()>>,
}

impl Drop for SlowMemory {
    fn drop(&mut self) {
        let _ = self.unmapping.send(());
        let permitted = self.permitted.lock().expect("not poisoned");
        let _ = permitted.recv_timeout(PATIENCE);
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_wake_up_does_not_wait_for_memory_that_a_removal_unmaps() {
    let set = SharedSet::new(config(2, ServicePolicy::RoundRobin)).expect("made");
    let producer = set.add(id(0), DoorbellRef::new()).expect("added");
    // It arms without a sleep: the test needs no futex, which Miri refuses.
    let mut consumer = set.consumer_with(Arc::new(SpinSleeper)).expect("joins");
    assert_eq!(consumer.try_qwait(), None);
    // Disabled, so that the set has the only reference to it.
    set.control().disable(id(1)).expect("inside");
    let ((unmapping, begins), (permit, permitted)) = (channel(), channel());
    let memory = SlowMemory { doorbell: Doorbell::new(), unmapping, permitted: permitted.into() };
    let memory = Arc::new(memory);
    drop(set.add(id(1), DoorbellRef::project(&memory, |memory| &memory.doorbell)));
    drop(memory);
    assert!(consumer.arm(), "nothing is ready");
    let (rung, has_rung) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| set.remove(id(1)).expect("there"));
        begins.recv_timeout(PATIENCE).expect("the removal unmaps");
        scope.spawn(move || rung.send(producer.ring()));
        let woken = has_rung.recv_timeout(PATIENCE / 4);
        permit.send(()).expect("the removal waits for it");
        assert_eq!(woken, Ok(true), "a producer waits for the removal");
    });
    consumer.disarm();
    assert_eq!(consumer.try_qwait(), Some(id(0)));
}
