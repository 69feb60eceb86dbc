//! Single-threaded tests: both forms against the reference model, and the operations one by one.

#![cfg(not(loom))]

use alloc::sync::Arc;
use alloc::vec::Vec;

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

/// A set of the given form of bitmap, however many queues it has.
fn core(capacity: u32, two_level: bool) -> Arc<Core> {
    let make = if two_level { Bitmap::two_level } else { Bitmap::flat };
    Core::with_bitmap(capacity, make(capacity))
}

/// One consumer of either form.
enum Subject {
    Exclusive(ExclusiveSet),
    Shared(SharedSet, SharedConsumer),
}

impl Subject {
    fn new(form: Form, capacity: u32, policy: ServicePolicy, two_level: bool) -> Self {
        let core = core(capacity, two_level);
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
        1 => (queue, 1..4u32).prop_map(|(queue, weight)| Step::Weight(queue, weight)),
    ]
}

/// Runs one history on the library and on the model. Queues removed while owned leave the model's
/// scope (their visit ends on the old doorbell), so the visit is ended first.
fn agrees(form: Form, capacity: u32, policy: ServicePolicy, two_level: bool, steps: &[Step]) {
    let mut subject = Subject::new(form, capacity, policy, two_level);
    let mut model = Queues::new(capacity, policy, form);
    let mut producers: Vec<Option<Producer>> = (0..capacity).map(|_| None).collect();
    for step in steps {
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
                assert_eq!(subject.reconsider(id(queue), 0), model.reconsider(queue, 0));
                assert_eq!(subject.remove(id(queue)).is_ok(), model.remove(queue), "{step:?}");
                producers[queue as usize] = None;
            }
            Step::Ring(queue, items) => {
                if let Some(producer) = &producers[queue as usize] {
                    let edge = model.ring(queue, u32::from(items));
                    assert_eq!(producer.ring_many(items), edge, "{step:?}");
                    assert_eq!(producer.count(), model.count(queue));
                }
            }
            Step::Qwait => {
                assert_eq!(subject.try_qwait().map(QueueId::get), model.try_qwait(), "{step:?}");
            }
            Step::Visit(items) => {
                let queue = subject.try_qwait();
                assert_eq!(queue.map(QueueId::get), model.try_qwait(), "{step:?}");
                if let Some(queue) = queue {
                    assert_eq!(subject.verify(queue), model.verify(queue.get()), "{step:?}");
                    let left = model.reconsider(queue.get(), items);
                    assert_eq!(subject.reconsider(queue, items), left, "{step:?}");
                }
            }
            Step::Reconsider(queue, items) => {
                let left = model.reconsider(queue, items);
                assert_eq!(subject.reconsider(id(queue), items), left, "{step:?}");
            }
            Step::Verify(queue) => {
                assert_eq!(subject.verify(id(queue)), model.verify(queue), "{step:?}");
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

fn history() -> impl Strategy<Value = (u32, ServicePolicy, bool, Vec<Step>)> {
    use ServicePolicy::{RoundRobin, StrictPriority, WeightedRoundRobin};
    let policies =
        prop::sample::select(Vec::from([RoundRobin, WeightedRoundRobin, StrictPriority]));
    (prop::sample::select(Vec::from([1, 3, 64, 65, 130, 200])), policies, any::<bool>())
        .prop_flat_map(|(capacity, policy, two_level)| {
            let steps = prop::collection::vec(step(capacity), 1..200);
            (Just(capacity), Just(policy), Just(two_level), steps)
        })
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 })
    }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_exclusive_form_agrees_with_the_model((capacity, policy, two_level, steps) in history()) {
        agrees(Form::Exclusive, capacity, policy, two_level, &steps);
    }

    #[test]
    fn the_shared_form_agrees_with_the_model((capacity, policy, two_level, steps) in history()) {
        agrees(Form::Shared, capacity, policy, two_level, &steps);
    }
}
