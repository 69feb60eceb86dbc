//! The order of service against the reference model, and classes against tenants that lie.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use super::*;
use crate::QueueId;
use crate::model::TenantQueues;
use crate::tenant::{Tenant, TenantSet};
use crate::tenant_error::TenantError;
use crate::tenant_place::TenantPlace;
use crate::tenant_shared::{SharedTenantConsumer, SharedTenantSet};
use crate::unsafe_region::Region;

const TENANTS: u32 = 5;
const CAPACITY: u32 = 1_000;
const BYTES: usize = 16 << 10;

/// Words of a tenant with so many queues, and its eventfd.
fn place(queues: u32) -> (TenantPlace, OwnedFd) {
    let region = Region::create(BYTES).expect("made");
    let place = TenantPlace { region, ready: 0, idle: 128, doorbells: 256, stride: 128, queues };
    (place, eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd"))
}

/// A set of either form, with one consumer, and the tenants' sides.
struct Subject {
    form: Form,
    tenants: Vec<Option<(Tenant, TenantPlace)>>,
}

enum Form {
    Exclusive(TenantSet),
    Shared(SharedTenantSet, SharedTenantConsumer),
}

/// The same call on either form.
macro_rules! on {
    ($subject:expr, $set:ident => $call:expr) => {
        match &mut $subject.form {
            Form::Exclusive($set) => $call,
            Form::Shared(_, $set) => $call,
        }
    };
}

impl Subject {
    fn new(policy: Option<ServicePolicy>) -> Self {
        let form = match policy {
            Some(policy) => Form::Exclusive(TenantSet::new(TENANTS, policy).expect("made")),
            None => {
                let set = SharedTenantSet::new(TENANTS).expect("made");
                let consumer = set.consumer().expect("made");
                Form::Shared(set, consumer)
            }
        };
        Self { form, tenants: (0..TENANTS).map(|_| None).collect() }
    }

    fn connect(&mut self, slot: u32, queues: u32) {
        let (place, wake) = place(queues);
        let theirs = wake.try_clone().expect("duplicated");
        let attached = match &mut self.form {
            Form::Exclusive(set) => set.connect_over(slot, place.clone(), CAPACITY, theirs),
            Form::Shared(_, set) => set.attach(slot, place.clone(), CAPACITY, theirs),
        };
        attached.expect("the slot is free");
        let tenant = Tenant::over(place.clone(), wake).expect("joined");
        self.tenants[slot as usize] = Some((tenant, place));
    }

    fn disconnect(&mut self, slot: u32) {
        match &mut self.form {
            Form::Exclusive(set) => set.disconnect(slot),
            Form::Shared(all, set) => {
                set.detach(slot);
                all.reset(slot);
            }
        }
        self.tenants[slot as usize] = None;
    }

    fn tenant(&self, queue: u32) -> Option<&(Tenant, TenantPlace)> {
        self.tenants[(queue / 64) as usize].as_ref()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Connect(u32, u32),
    Disconnect(u32),
    Class(u32, u8),
    Ring(u32),
    Lie(u32),
    /// Select, verify, and take so many.
    Visit(u32),
    Mask(u32, bool),
    Weight(u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..TENANTS;
    let queue = (0..TENANTS, 0..64u32).prop_map(|(slot, index)| {
        // Few queues, so that they meet; the last one of a slot among them.
        64 * slot + if index < 62 { index % 4 } else { index }
    });
    prop_oneof![
        2 => (slot.clone(), prop_oneof![1..5u32, Just(64)]).prop_map(|(s, n)| Step::Connect(s, n)),
        1 => slot.clone().prop_map(Step::Disconnect),
        2 => (slot, prop_oneof![Just(0u8), Just(3), Just(7)]).prop_map(|(s, c)| Step::Class(s, c)),
        10 => queue.clone().prop_map(Step::Ring),
        2 => queue.clone().prop_map(Step::Lie),
        10 => (0..3u32).prop_map(Step::Visit),
        1 => (queue.clone(), any::<bool>()).prop_map(|(queue, masked)| Step::Mask(queue, masked)),
        2 => (queue, 1..4u32).prop_map(|(queue, weight)| Step::Weight(queue, weight)),
    ]
}

/// Runs one history on the set and on the model.
fn agrees(policy: Option<ServicePolicy>, steps: &[Step]) {
    let mut subject = Subject::new(policy);
    let mut model = TenantQueues::new(TENANTS, policy.unwrap_or_default());
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Connect(slot, queues) => {
                if subject.tenants[slot as usize].is_none() {
                    subject.connect(slot, queues);
                    model.connect(slot, queues);
                }
            }
            Step::Disconnect(slot) => {
                subject.disconnect(slot);
                model.disconnect(slot);
            }
            Step::Class(slot, class) => {
                let is_there = subject.tenants[slot as usize].is_some();
                let done = on!(subject, set => set.set_class(slot, class));
                assert_eq!(done.is_ok(), is_there);
                model.set_class(slot, class);
                let found = on!(subject, set => set.class(slot));
                assert_eq!(found, is_there.then_some(class));
            }
            Step::Ring(queue) => {
                if let Some((tenant, _)) = subject.tenant(queue) {
                    let _ = tenant.ring(queue % 64);
                }
                model.ring(queue);
            }
            Step::Lie(queue) => {
                if let Some((_, place)) = subject.tenant(queue) {
                    let ready = place.ready().expect("inside");
                    ready.fetch_or(1 << (queue % 64), Ordering::Relaxed);
                }
                model.lie(queue);
            }
            Step::Visit(items) => {
                let found = on!(subject, set => set.try_qwait()).map(QueueId::get);
                assert_eq!(found, model.select(), "step {number} of {steps:?}");
                let Some(queue) = found else { continue };
                let id = QueueId::new(queue);
                let count = on!(subject, set => set.verify(id));
                assert_eq!(count, model.verify(queue));
                let taken = items.min(count);
                // Also where nothing is taken: it ends the ownership in the shared form.
                let left = on!(subject, set => set.reconsider(id, taken));
                assert_eq!(left, model.reconsider(queue, taken));
            }
            Step::Mask(queue, masked) if masked => {
                if subject.tenant(queue).is_some_and(|(_, place)| queue % 64 < place.queues) {
                    on!(subject, set => set.disable(QueueId::new(queue)));
                }
                model.set_mask(queue, true);
            }
            Step::Mask(queue, _) => {
                on!(subject, set => set.enable(QueueId::new(queue)));
                model.set_mask(queue, false);
            }
            Step::Weight(queue, weight) => {
                if let Form::Exclusive(set) = &mut subject.form
                    && set.locate(QueueId::new(queue)).is_some()
                {
                    set.set_weight(QueueId::new(queue), weight);
                }
                model.set_weight(queue, weight);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "makes memory files and eventfds")]
    fn the_exclusive_set_agrees_with_the_model(
        steps in proptest::collection::vec(step(), 1..200),
        policy in prop_oneof![
            Just(ServicePolicy::RoundRobin),
            Just(ServicePolicy::WeightedRoundRobin),
            Just(ServicePolicy::StrictPriority),
        ],
    ) {
        agrees(Some(policy), &steps);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes memory files and eventfds")]
    fn the_shared_set_agrees_with_the_model(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        agrees(None, &steps);
    }

    /// Two consumers in any order: neither gets a queue while a higher class has one that is nobody's.
    #[test]
    #[cfg_attr(miri, ignore = "makes memory files and eventfds")]
    fn no_consumer_passes_over_a_higher_class(
        steps in proptest::collection::vec((0..3u8, 0..4u32, 0..3u32), 1..200),
    ) {
        let set = SharedTenantSet::new(4).expect("made");
        let mut consumers = [set.consumer().expect("made"), set.consumer().expect("made")];
        let mut tenants = Vec::new();
        for slot in 0..4 {
            let (place, wake) = place(3);
            for consumer in &mut consumers {
                let wake = wake.try_clone().expect("duplicated");
                consumer.attach(slot, place.clone(), CAPACITY, wake).expect("attached");
                // Two tenants in class 1, two in class 4.
                consumer.set_class(slot, [4, 1, 4, 1][slot as usize]).expect("a class");
            }
            tenants.push(Tenant::over(place, wake).expect("joined"));
        }
        let class = |queue: u32| [4, 1, 4, 1][(queue / 64) as usize];
        let (mut counts, mut held) = ([0u32; 256], [None; 2]);
        for (what, slot, index) in steps {
            let who = slot as usize % 2;
            match (what, held[who]) {
                (0, _) => {
                    tenants[slot as usize].ring(index).expect("its queue");
                    counts[(64 * slot + index) as usize] += 1;
                }
                (_, None) => {
                    let found = consumers[who].try_qwait().map(QueueId::get);
                    let free = |queue: &u32| {
                        counts[*queue as usize] > 0 && held.iter().all(|held| held != &Some(*queue))
                    };
                    let best = (0..256).filter(free).map(class).min();
                    prop_assert_eq!(found.map(class), best);
                    held[who] = found;
                }
                (_, Some(queue)) => {
                    let taken = consumers[who].verify(QueueId::new(queue)).min(index);
                    consumers[who].reconsider(QueueId::new(queue), taken);
                    counts[queue as usize] -= taken;
                    held[who] = None;
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_tenant_begins_lowest_and_cannot_raise_itself() {
    let mut set = TenantSet::new(2, ServicePolicy::RoundRobin).expect("made");
    let ((liar, wake), (other, other_wake)) = (place(2), place(2));
    set.connect_over(0, liar.clone(), 8, wake).expect("connected");
    let theirs = other_wake.try_clone().expect("duplicated");
    set.connect_over(1, other.clone(), 8, theirs).expect("connected");
    assert_eq!(
        (set.class(0), set.class(1)),
        (Some(TENANT_CLASS_LOWEST), Some(TENANT_CLASS_LOWEST))
    );
    set.set_class(1, 2).expect("a class");
    let other = Tenant::over(other, other_wake).expect("joined");
    for junk in [1, 0x0000_0001_0000_0001, u64::MAX, 0] {
        // All that it can reach.
        for at in (0..BYTES).step_by(8) {
            liar.region.word64(at).expect("inside").store(junk, Ordering::Relaxed);
        }
        other.ring(1).expect("its queue");
        other.ring(1).expect("its queue");
        for left in [1, 0] {
            assert_eq!(set.try_qwait(), Some(QueueId::new(65)), "before all of the liar's");
            assert_eq!(set.reconsider(QueueId::new(65), 1), left);
        }
        assert_eq!(set.class(0), Some(TENANT_CLASS_LOWEST));
    }
    // A slot's next tenant begins lowest again.
    set.disconnect(1);
    assert!(matches!(set.set_class(1, 0), Err(TenantError::NoTenant { slot: 1 })));
    let (next, wake) = place(1);
    set.connect_over(1, next, 8, wake).expect("connected");
    assert_eq!(set.class(1), Some(TENANT_CLASS_LOWEST));
    for class in [TENANT_CLASSES, u8::MAX] {
        assert!(matches!(set.set_class(0, class), Err(TenantError::BadClass { .. })));
    }
    assert!(matches!(set.set_class(7, 0), Err(TenantError::NoTenant { slot: 7 })));
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_disabled_class_gives_way_and_a_ring_of_a_higher_one_is_seen_at_once() {
    let mut set = TenantSet::new(64, ServicePolicy::RoundRobin).expect("made");
    let mut tenants: Vec<Tenant> = (0..64)
        .map(|slot| {
            let (place, wake) = place(1);
            let theirs = wake.try_clone().expect("duplicated");
            set.connect_over(slot, place.clone(), 8, theirs).expect("connected");
            set.set_class(slot, if slot >= 60 { 1 } else { 5 }).expect("a class");
            Tenant::over(place, wake).expect("joined")
        })
        .collect();
    let ring = |tenants: &mut Vec<Tenant>, slot: usize| tenants[slot].ring(0).expect("its queue");
    (0..64).for_each(|slot| _ = ring(&mut tenants, slot));
    let id = |slot: u32| QueueId::new(64 * slot);
    for slot in [60, 61, 62, 63, 60] {
        assert_eq!(set.try_qwait(), Some(id(slot)), "in turn among themselves");
    }
    (60..64).for_each(|slot| set.disable(id(slot)));
    assert_eq!((set.try_qwait(), set.try_qwait()), (Some(id(0)), Some(id(1))));
    set.enable(id(63));
    assert_eq!(set.try_qwait(), Some(id(63)));
    (60..64).for_each(|slot| set.reconsider_all(id(slot)));
    (60..64).for_each(|slot| set.enable(id(slot)));
    assert_eq!(set.try_qwait(), Some(id(2)));
    ring(&mut tenants, 62);
    // In the next visit, whichever tenant's word is due.
    assert_eq!(set.try_qwait(), Some(id(62)));
    assert!(!set.arm(), "there is work");
    set.reconsider_all(id(62));
    (0..60).for_each(|slot| set.reconsider_all(id(slot)));
    assert!(set.arm(), "nothing is left");
    set.disarm();
}
