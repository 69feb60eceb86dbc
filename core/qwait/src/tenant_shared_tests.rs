//! The shared form over tenants: one owner, nothing lost, and what a liar gets.

use super::*;
use crate::tenant::Tenant;
use crate::unsafe_region::Region;
use rustix::event::Timespec;
use std::sync::atomic::AtomicU32;
use std::time::Instant;

const CAPACITY: u32 = 8;

/// A set of two consumers, and a tenant of two queues in slot 0 and in slot 1.
struct Rig {
    set: SharedTenantSet,
    consumers: Vec<SharedTenantConsumer>,
    tenants: Vec<Tenant>,
    places: Vec<TenantPlace>,
}

fn place(queues: u32) -> TenantPlace {
    let region = Region::create(4 * 4096).expect("made");
    TenantPlace { region, ready: 0, idle: 128, doorbells: 256, stride: 128, queues }
}

fn rig() -> Rig {
    let set = SharedTenantSet::new(4).expect("made");
    let consumers = vec![set.consumer().expect("made"), set.consumer().expect("made")];
    let mut rig = Rig { set, consumers, tenants: Vec::new(), places: Vec::new() };
    rig.connect(0, 2);
    rig.connect(1, 2);
    rig
}

impl Rig {
    fn connect(&mut self, slot: u32, queues: u32) {
        let place = place(queues);
        let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        for consumer in &mut self.consumers {
            let wake = wake.try_clone().expect("duplicated");
            consumer.attach(slot, place.clone(), CAPACITY, wake).expect("attached");
        }
        self.tenants.push(Tenant::over(place.clone(), wake).expect("joined"));
        self.places.push(place);
    }
}

fn id(number: u32) -> QueueId {
    QueueId::new(number)
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_queue_has_one_owner_and_comes_back_with_what_is_left() {
    let mut rig = rig();
    rig.tenants[1].ring(1).expect("its queue");
    rig.tenants[1].ring(1).expect("its queue");
    let [one, two] = &mut rig.consumers[..] else { panic!("two") };
    assert_eq!(one.try_qwait(), Some(id(65)));
    assert_eq!((one.verify(id(65)), two.verify(id(65))), (2, 0));
    assert_eq!(two.try_qwait(), None);
    assert_eq!(two.reconsider(id(65), 2), 0, "not its own");
    assert_eq!(one.reconsider(id(65), 1), 1);
    assert_eq!(two.try_qwait(), Some(id(65)));
    assert_eq!((two.verify(id(65)), two.reconsider(id(65), 1)), (1, 0));
    assert_eq!((one.try_qwait(), two.try_qwait()), (None, None));
    // Rung for while it is owned.
    rig.tenants[0].ring(0).expect("its queue");
    assert_eq!(one.try_qwait(), Some(id(0)));
    one.reconsider_all(id(0));
    assert!(rig.tenants[0].ring(0).expect("its queue"), "an edge again");
    assert_eq!(two.try_qwait(), Some(id(0)));
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_liar_gets_a_visit_and_no_second_owner() {
    let mut rig = rig();
    let ready = rig.places[0].ready().expect("inside");
    let doorbell = rig.places[0].doorbell(0).expect("inside");
    let [one, two] = &mut rig.consumers[..] else { panic!("two") };
    ready.store(!0, Ordering::Relaxed);
    doorbell.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(one.try_qwait(), Some(id(0)));
    ready.store(!0, Ordering::Relaxed);
    // Only its other queue: the first is owned, and 62 bits are of no queue.
    assert_eq!(two.try_qwait(), Some(id(1)));
    assert_eq!(two.verify(id(1)), 0);
    assert_eq!((two.reconsider(id(1), 0), one.verify(id(0))), (0, CAPACITY));
    assert_eq!((one.lies(0), two.lies(0)), (1, 0));
    doorbell.store(0, Ordering::Relaxed);
    assert_eq!(one.reconsider(id(0), CAPACITY), 0, "taken back");
    assert_eq!(doorbell.load(Ordering::Relaxed), 0, "not wrapped around");
    rig.tenants[1].ring(0).expect("its queue");
    let found: Vec<_> = (0..4).filter_map(|_| two.try_qwait()).map(QueueId::get).collect();
    assert!(found.contains(&64), "the honest one, among {found:?}");
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn masks_hold_for_all_consumers_and_slots_are_used_again() {
    let mut rig = rig();
    rig.tenants[0].ring(0).expect("its queue");
    rig.consumers[0].disable(id(0));
    assert!(rig.consumers.iter_mut().all(|consumer| consumer.try_qwait().is_none()));
    assert!(rig.consumers[1].arm(), "nothing that may be served");
    rig.consumers[1].disarm();
    rig.consumers[1].enable(id(0));
    assert_eq!(rig.consumers[1].try_qwait(), Some(id(0)));
    rig.consumers[0].disable(id(1));
    rig.consumers.iter_mut().for_each(|consumer| consumer.detach(0));
    rig.set.reset(0);
    rig.tenants[0].ring(1).expect("its own memory still");
    assert!(rig.consumers.iter_mut().all(|consumer| consumer.try_qwait().is_none()));
    rig.connect(0, 64);
    rig.tenants[2].ring(1).expect("its queue");
    rig.tenants[2].ring(63).expect("its queue");
    assert_eq!(rig.consumers[0].try_qwait(), Some(id(1)));
    assert_eq!(rig.consumers[0].try_qwait(), Some(id(63)));
    let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
    assert!(matches!(rig.consumers[0].attach(0, place(1), 1, wake), Err(TenantError::Full)));
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn words_outside_the_memory_are_refused() {
    let bad = [
        TenantPlace { doorbells: 16_000, ..place(64) },
        TenantPlace { ready: 4, ..place(1) },
        TenantPlace { idle: 1 << 30, ..place(1) },
        TenantPlace { stride: 2, ..place(2) },
        TenantPlace { stride: usize::MAX, ..place(3) },
        TenantPlace { queues: 65, ..place(1) },
    ];
    for place in bad {
        let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        assert!(Tenant::over(place, wake).is_err());
    }
}

/// One consumer is busy, the other asleep: a ring wakes the sleeper.
#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_ring_wakes_a_sleeper_beside_a_busy_consumer() {
    let mut rig = rig();
    let [busy, asleep] = &mut rig.consumers[..] else { panic!("two") };
    let is_readable = |consumer: &SharedTenantConsumer| {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut fds = [PollFd::new(consumer, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).expect("polls") == 1
    };
    assert!(busy.arm() && asleep.arm(), "nothing to do");
    rig.tenants[0].ring(0).expect("its queue");
    busy.disarm();
    assert_eq!(busy.try_qwait(), Some(id(0)));
    asleep.clear();
    assert!(!is_readable(asleep), "it was woken, and sleeps again");
    assert!(asleep.arm(), "what is owned is no work");
    rig.tenants[1].ring(1).expect("its queue");
    assert!(is_readable(asleep));
    asleep.disarm();
    assert_eq!(asleep.try_qwait(), Some(id(65)));
    // What a busy one leaves behind wakes the other, too.
    asleep.reconsider(id(65), 1);
    asleep.clear();
    assert!(asleep.arm());
    rig.tenants[0].ring(0).expect("its queue");
    assert_eq!(busy.reconsider(id(0), 1), 1);
    assert!(is_readable(asleep));
}

/// Three threads, two of them consumers that sleep, and numbered items of four queues.
#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn sleeping_consumers_miss_nothing() {
    const ITEMS: u32 = 20_000;
    let rig = rig();
    let taken: Vec<AtomicU32> = (0..128).map(|_| AtomicU32::new(0)).collect();
    let done = |taken: &[AtomicU32]| {
        taken.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u32>() == ITEMS
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    std::thread::scope(|scope| {
        for mut consumer in rig.consumers {
            let taken = &taken;
            scope.spawn(move || {
                while !done(taken) && Instant::now() < deadline {
                    if let Some(queue) = consumer.try_qwait() {
                        let count = consumer.verify(queue);
                        // Not a read-modify-write: only the owner is here.
                        let place = &taken[queue.get() as usize];
                        place.store(place.load(Ordering::Relaxed) + count, Ordering::Relaxed);
                        consumer.reconsider(queue, count);
                    } else if consumer.arm() {
                        consumer.sleep(Duration::from_millis(200));
                        consumer.disarm();
                    }
                }
            });
        }
        let doorbell = |item: u32| rig.places[item as usize % 2].doorbell(item / 2 % 2);
        for item in 0..ITEMS {
            // As a queue does: no more items than it holds.
            while doorbell(item).expect("inside").load(Ordering::Acquire) >= CAPACITY {
                std::thread::yield_now();
            }
            rig.tenants[item as usize % 2].ring(item / 2 % 2).expect("its queue");
            if item % 1_000 == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert!(done(&taken), "{taken:?}");
}
