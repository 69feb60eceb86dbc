//! One test for each line of the table: what a lying tenant can do, and to whom.

use super::*;
use crate::unsafe_region::Region;
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Where the words lie in a tenant's memory, in bytes.
const READY: usize = 0;
const IDLE: usize = 128;
const DOORBELLS: usize = 256;
const STRIDE: usize = 128;

/// A tenant with memory of its own, which both sides map.
fn connect(
    set: &mut TenantSet,
    slot: u32,
    queues: u32,
    capacity: u32,
) -> Result<Tenant, TenantError> {
    let region = Region::create(DOORBELLS + STRIDE * queues as usize)?;
    let theirs = Region::join(region.descriptor().expect("a duplicate"))?;
    let (ready, idle, doorbells, stride) = (READY, IDLE, DOORBELLS, STRIDE);
    let place = TenantPlace { region, ready, idle, doorbells, stride, queues };
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    set.connect_over(slot, place.clone(), capacity, wake.try_clone().expect("a duplicate"))?;
    Tenant::over(TenantPlace { region: theirs, ..place }, wake)
}

/// Two tenants of two queues: the first lies, the second is honest.
struct Rig {
    set: TenantSet,
    liar: Tenant,
    honest: Tenant,
}

fn rig() -> Rig {
    let mut set = TenantSet::new(4, ServicePolicy::RoundRobin).expect("made");
    let [liar, honest] = [0, 1].map(|slot| connect(&mut set, slot, 2, 8).expect("connected"));
    Rig { set, liar, honest }
}

fn id(number: u32) -> QueueId {
    QueueId::new(number)
}

/// The honest tenant's first queue.
const HONEST: u32 = 64;

impl Rig {
    fn ready_word(&self) -> &AtomicU64 {
        self.liar.place.region.word64(READY).expect("inside")
    }

    fn doorbell(&self, queue: usize) -> &AtomicU32 {
        self.liar.place.region.word32(DOORBELLS + STRIDE * queue).expect("inside")
    }

    /// Rings for the honest tenant and counts the visits until its item is found: others get at most
    /// `bound` before.
    fn honest_is_served_within(&mut self, bound: usize) {
        self.honest.ring(0).expect("its queue");
        for visit in 0..=bound {
            let queue = self.set.try_qwait().expect("the honest one is ready");
            let count = self.set.verify(queue);
            if queue == id(HONEST) {
                assert_eq!((count, self.set.reconsider(queue, 1)), (1, 0), "visit {visit}");
                return;
            }
        }
        panic!("not served within {bound} visits of others");
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn ringing_without_work_costs_a_visit_a_round_until_the_count_is_taken() {
    let mut rig = rig();
    rig.liar.ring(0).expect("its queue");
    // Noticed within a fold of each slot (4), and then one visit of the liar's lies between.
    for _ in 0..10 {
        rig.honest_is_served_within(5);
    }
    assert_eq!(rig.set.try_qwait(), Some(id(0)), "it still claims an item");
    rig.set.reconsider_all(id(0));
    assert_eq!(rig.set.try_qwait(), None);
    assert!(rig.liar.ring(0).expect("its queue"), "and the next ring is noticed");
    assert_eq!(rig.set.try_qwait(), Some(id(0)));
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn ready_bits_without_a_ring_are_verified_away() {
    let mut rig = rig();
    rig.ready_word().store(0b11, Ordering::Relaxed);
    for queue in [0, 1] {
        assert_eq!(rig.set.try_qwait(), Some(id(queue)));
        assert_eq!(rig.set.verify(id(queue)), 0);
    }
    assert_eq!(rig.set.try_qwait(), None);
    for _ in 0..10 {
        rig.ready_word().store(u64::MAX, Ordering::Relaxed);
        rig.honest_is_served_within(6);
    }
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn work_without_a_ring_waits_and_nobody_else_does() {
    let mut rig = rig();
    rig.doorbell(0).store(1, Ordering::Relaxed);
    assert_eq!(rig.set.try_qwait(), None, "nothing was said");
    rig.honest_is_served_within(0);
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_tenant_that_clears_its_own_words_loses_its_own_items_only() {
    let mut rig = rig();
    rig.liar.ring(0).expect("its queue");
    rig.honest.ring(1).expect("its queue");
    rig.ready_word().store(0, Ordering::Relaxed);
    assert_eq!(rig.set.try_qwait(), Some(id(HONEST + 1)));
    rig.set.reconsider(id(HONEST + 1), 1);
    assert_eq!(rig.set.try_qwait(), None);
    // Taken back between verify and reconsider.
    rig.doorbell(0).store(3, Ordering::Relaxed);
    rig.ready_word().store(1, Ordering::Relaxed);
    assert_eq!(rig.set.try_qwait().map(|queue| rig.set.verify(queue)), Some(3));
    rig.doorbell(0).store(0, Ordering::Relaxed);
    assert_eq!(rig.set.reconsider(id(0), 3), 0);
    assert_eq!((rig.set.lies(0), rig.set.lies(1)), (1, 0));
    assert_eq!(rig.doorbell(0).load(Ordering::Relaxed), 0, "not wrapped around");
    assert!(rig.liar.ring(0).expect("its queue"), "an honest ring works again");
    assert_eq!(rig.set.try_qwait(), Some(id(0)));
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn absurd_counts_are_cut_to_the_capacity_and_counted() {
    let mut rig = rig();
    rig.doorbell(1).store(u32::MAX, Ordering::Relaxed);
    rig.ready_word().store(0b10, Ordering::Relaxed);
    assert_eq!(rig.set.try_qwait().map(|queue| rig.set.verify(queue)), Some(8));
    assert_eq!(rig.set.reconsider(id(1), 8), 8);
    assert_eq!(rig.set.lies(0), 2);
    rig.honest_is_served_within(5);
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn bits_and_numbers_of_queues_that_it_has_not_reach_nobody() {
    let mut rig = rig();
    rig.ready_word().store(!0b11, Ordering::Relaxed);
    assert_eq!(rig.set.try_qwait(), None);
    let error = rig.liar.ring(2).expect_err("it has two");
    assert!(error.to_string().contains("queue 2 of a tenant with 2"), "{error}");
    assert!(rig.liar.ring(u32::MAX).is_err());
    for queue in [2, 63, HONEST + 2, 4 * 64, u32::MAX] {
        assert_eq!((rig.set.locate(id(queue)), rig.set.verify(id(queue))), (None, 0));
        assert_eq!(rig.set.reconsider(id(queue), 1), 0);
        rig.set.reconsider_all(id(queue));
        rig.set.disable(id(queue));
        rig.set.set_weight(id(queue), 0);
    }
    rig.honest_is_served_within(0);
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let timeout = Timespec::default();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).expect("polls") == 1
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_sleeper_is_woken_by_whoever_is_honest() {
    let mut rig = rig();
    assert!(rig.set.arm());
    rig.liar.place.region.word32(IDLE).expect("inside").store(0, Ordering::Relaxed);
    rig.liar.ring(0).expect("its queue");
    assert!(!is_readable(rig.set.as_fd()), "its own wake-up is lost");
    rig.honest.ring(0).expect("its queue");
    assert!(is_readable(rig.set.as_fd()), "the other's is not");
    rig.set.disarm();
    rig.set.clear();
    assert!(!is_readable(rig.set.as_fd()));
    assert!(!rig.set.arm(), "there is work");
    rig.honest.ring(1).expect("its queue");
    assert!(!is_readable(rig.set.as_fd()), "awake: nobody writes an eventfd");
    // Both are still found.
    let found: Vec<_> = (0..3).filter_map(|_| rig.set.try_qwait()).map(QueueId::get).collect();
    assert_eq!(found, [0, HONEST, HONEST + 1]);
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn needless_wake_ups_end_a_sleep_early_and_no_more() {
    let mut rig = rig();
    rustix::io::write(&rig.liar.wake, &7u64.to_ne_bytes()).expect("its own descriptor");
    assert_eq!(rig.set.qwait_timeout(Duration::from_secs(20)), None, "early, with nothing");
    let start = Instant::now();
    assert_eq!(rig.set.qwait_timeout(Duration::from_millis(5)), None);
    assert!(start.elapsed() >= Duration::from_millis(4), "the descriptor was cleared");
    // A tenant that reads its eventfd empty swallows what it wrote.
    assert!(rig.set.arm());
    rig.liar.ring(1).expect("its queue");
    rustix::io::read(&rig.liar.wake, &mut [0; 8]).expect("its own descriptor");
    rig.honest.ring(1).expect("its queue");
    assert!(is_readable(rig.set.as_fd()), "the other's stands");
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn a_sleeping_set_is_woken_from_another_thread() {
    let Rig { mut set, honest, .. } = rig();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            honest.ring(1).expect("its queue")
        });
        let start = Instant::now();
        let found = loop {
            if let Some(queue) = set.qwait_timeout(Duration::from_secs(20)) {
                break queue;
            }
            assert!(start.elapsed() < Duration::from_secs(15), "woken, not timed out");
        };
        assert_eq!(found, id(HONEST + 1));
    });
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn tenants_come_and_go() {
    let mut rig = rig();
    rig.liar.ring(0).expect("its queue");
    rig.set.disconnect(0);
    rig.set.disconnect(0);
    rig.set.disconnect(77);
    assert_eq!(rig.set.try_qwait(), None, "gone with its queues");
    let full = connect(&mut rig.set, 0, 64, 1).expect("connected");
    assert_eq!(rig.set.try_qwait(), None, "the slot begins empty");
    rig.liar.ring(1).expect("its own memory still");
    assert_eq!(rig.set.try_qwait(), None, "the old tenant's memory is not looked at");
    full.ring(63).expect("its last queue");
    assert_eq!(rig.set.try_qwait(), Some(id(63)));
    connect(&mut rig.set, 2, 1, 1).expect("a third");
    let error = connect(&mut rig.set, 3, 65, 1).expect_err("too many queues");
    assert!(matches!(error, TenantError::BadQueues { queues: 65, .. }), "{error}");
    let error = connect(&mut rig.set, 3, 1, 0).expect_err("queues without room");
    assert!(matches!(error, TenantError::BadQueues { capacity: 0, .. }), "{error}");
    connect(&mut rig.set, 3, 1, 1).expect("a fourth");
    for slot in 0..5 {
        let error = connect(&mut rig.set, slot, 1, 1).expect_err("taken, or not there");
        assert!(matches!(error, TenantError::Full), "{error}");
    }
    assert!(TenantSet::new(0, ServicePolicy::RoundRobin).is_err());
}

#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn masks_and_weights_are_kept_by_the_trusted_side() {
    let mut set = TenantSet::new(1, ServicePolicy::WeightedRoundRobin).expect("made");
    let tenant = connect(&mut set, 0, 2, 8).expect("connected");
    set.set_weight(id(0), 2);
    tenant.ring(0).expect("its queue");
    tenant.ring(1).expect("its queue");
    let order: Vec<_> = (0..4).filter_map(|_| set.try_qwait()).map(QueueId::get).collect();
    assert_eq!(order, [0, 0, 1, 0]);
    set.disable(id(0));
    assert_eq!((set.try_qwait(), set.try_qwait()), (Some(id(1)), Some(id(1))));
    set.enable(id(0));
    assert_eq!(set.try_qwait(), Some(id(0)));
}
