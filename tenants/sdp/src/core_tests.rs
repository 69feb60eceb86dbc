//! A core turned by hand, on virtual time: what each strategy serves, weights, rate limits, and what a
//! liar costs the others.

use std::sync::atomic::AtomicU8;
use std::sync::mpsc::{SyncSender, sync_channel};

use clock::VirtualClock;
use qwait::{Region, SharedTenantSet};

use super::*;
use crate::bucket::{Limiter, RateLimit};
use crate::class::CLASS_LOWEST;
use crate::client::Tenant;
use crate::geometry::Shape;
use crate::handler::Echo;
use crate::join::Offered;
use crate::limits::Usage;
use crate::link::Peer;
use crate::notify::Notify;
use crate::queue_pair::{PlanePair, SubmitError};
use memfile::Memory;

/// Every strategy: alone, and in a group.
const FORMS: [(Notify, bool); 6] = [
    (Notify::Qwait, false),
    (Notify::Qwait, true),
    (Notify::Spin, false),
    (Notify::Spin, true),
    (Notify::SpinDpdk, false),
    (Notify::SpinDpdk, true),
];
const BATCH: u32 = 4;
const SLOTS: u32 = 8;

struct Rig {
    cores: Vec<(Core, SyncSender<Mail>)>,
    notify: Notify,
    clock: VirtualClock,
    links: Vec<Arc<Link>>,
    next_slot: u32,
}

/// One core, or a group of two.
fn rig((notify, shared): (Notify, bool)) -> Rig {
    let set = shared.then(|| SharedTenantSet::new(SLOTS).expect("made"));
    let core = |number| {
        let notifier = Notifier::new(notify, SLOTS, set.as_ref()).expect("made");
        let config = CoreConfig { number, set: 0, batch: BATCH, spin_looks: 0 };
        let (mail, letters) = sync_channel(8);
        let letterbox = Arc::new(Letterbox::new().expect("an eventfd"));
        (Core::new(config, SLOTS, notifier, Box::new(Echo), letters, letterbox), mail)
    };
    let cores = (0..1 + usize::from(shared)).map(core).collect();
    Rig { cores, notify, clock: VirtualClock::default(), links: Vec::new(), next_slot: 0 }
}

impl Rig {
    /// A tenant of so many queues, as control lets one in.
    fn connect(&mut self, queues: u32) -> Tenant {
        let shape = Shape { queues, depth: 32, slot_bytes: 64, ..Shape::default() };
        let geometry = shape.check().expect("allowed");
        let memory = Memory::create("tailplane-sdp", geometry.memory_bytes()).expect("made");
        let region = Region::join(memory.descriptor().expect("duplicated")).expect("joined");
        let flags = EventfdFlags::NONBLOCK;
        let wakes = vec![eventfd(0, flags).expect("an eventfd")];
        let (near, far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let id = 100 + u64::from(self.next_slot);
        let accepted = Offered { id, sets: 1, ready_bits: self.notify == Notify::Qwait };
        let file = memory.descriptor().expect("duplicated");
        let theirs = wakes.iter().map(|wake| wake.try_clone().expect("duplicated")).collect();
        let tenant = Tenant::over(far.into(), accepted, geometry, file, theirs).expect("mapped");
        let words = geometry.words();
        let link = Arc::new(Link {
            id,
            peer: Peer { pid: 1, uid: 1 },
            usage: Usage::default(),
            geometry,
            memory,
            region,
            queues: (0..queues).map(|queue| PlanePair::new(&geometry, queue, 1)).collect(),
            wakes,
            slots: (self.next_slot..self.next_slot + words).collect(),
            socket: near.into(),
            limiter: Limiter::default(),
            class: AtomicU8::new(CLASS_LOWEST),
            counters: (0..2).map(|_| Counters::default()).collect(),
        });
        self.next_slot += words;
        self.tell(|| Mail::Attach(Arc::clone(&link)));
        self.links.push(link);
        tenant
    }

    fn tell(&mut self, letter: impl Fn() -> Mail) {
        for (core, mail) in &mut self.cores {
            mail.try_send(letter()).expect("room");
            core.letterbox.ring();
            core.turn(&self.clock);
        }
    }

    /// One turn of each core; true where one had something to do.
    fn turn(&mut self) -> bool {
        self.cores.iter_mut().fold(false, |any, (core, _)| core.turn(&self.clock) | any)
    }

    /// Turns until nothing is left to do; how many.
    fn settle(&mut self) -> u32 {
        let mut turns = 0;
        while self.turn() {
            turns += 1;
            assert!(turns < 100_000, "it comes to an end");
        }
        turns
    }

    fn counts(&self, tenant: usize) -> Counts {
        self.links[tenant].counts()
    }

    /// As `Plane::set_class` does it.
    fn set_class(&mut self, tenant: usize, class: u8) {
        self.links[tenant].class.store(class, Ordering::Relaxed);
        for (core, _) in &self.cores {
            core.letterbox.classes_changed.store(true, Ordering::Release);
            core.letterbox.ring();
        }
    }
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn every_strategy_serves_everything_once_and_in_order() {
    for form in FORMS {
        let mut rig = rig(form);
        let mut tenants = [rig.connect(3), rig.connect(70)];
        let mut sent = vec![[0_u32; 70]; 2];
        let mut got = sent.clone();
        for round in 0..200_u32 {
            for (index, tenant) in tenants.iter_mut().enumerate() {
                for queue in 0..tenant.geometry().shape().queues {
                    // More here, fewer there, sometimes none.
                    for _ in 0..(round * 7 + queue * 3) % 5 {
                        let next = sent[index][queue as usize];
                        if tenant.submit(queue, &next.to_le_bytes()).is_ok() {
                            sent[index][queue as usize] += 1;
                        }
                    }
                }
            }
            for _ in 0..round % 50 {
                rig.turn();
            }
            for (index, tenant) in tenants.iter_mut().enumerate() {
                while let Some(queue) = tenant.ready() {
                    let reply = tenant.poll(queue).expect("ready");
                    assert_eq!(number(reply.bytes), got[index][queue as usize], "{form:?}");
                    got[index][queue as usize] += 1;
                }
            }
        }
        rig.settle();
        for (index, tenant) in tenants.iter_mut().enumerate() {
            while let Some(queue) = tenant.ready() {
                let reply = tenant.poll(queue).expect("ready");
                assert_eq!(number(reply.bytes), got[index][queue as usize], "{form:?}");
                got[index][queue as usize] += 1;
            }
            let all: u32 = sent[index].iter().sum();
            assert_eq!(u64::from(all), rig.counts(index).served, "{form:?}");
            assert_eq!(rig.counts(index).lies, 0, "{form:?}");
        }
        assert_eq!(sent, got, "{form:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn queues_are_served_by_weight() {
    for form in FORMS {
        let mut rig = rig(form);
        let mut tenant = rig.connect(2);
        rig.links[0].queues[1].set_weight(3);
        let mut served = [0_u32; 2];
        for _ in 0..400 {
            for queue in [0, 1] {
                while tenant.submit(queue, b"x").is_ok() {}
            }
            rig.turn();
            for queue in [0, 1] {
                while tenant.poll(queue).is_some() {
                    served[queue as usize] += 1;
                }
            }
        }
        let ratio = f64::from(served[1]) / f64::from(served[0]);
        // Two cores of a group can be at both queues at once: then a turn of each is one of each.
        assert!((2.9..=3.1).contains(&ratio), "{form:?}: {served:?}");
    }
}

/// The last tenant's requests first, whenever they come; then by class; and a class changes at once.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn classes_are_served_in_strict_priority() {
    for form in FORMS {
        let mut rig = rig(form);
        let mut tenants = [rig.connect(2), rig.connect(2), rig.connect(2)];
        rig.set_class(1, 3);
        rig.set_class(2, 1);
        // What each turn, of each core, served of each tenant.
        let turn = |rig: &mut Rig, core: usize| -> [u64; 3] {
            let before = [0, 1, 2].map(|tenant| rig.counts(tenant).served);
            let Rig { cores, clock, .. } = rig;
            cores[core].0.turn(clock);
            let after = [0, 1, 2].map(|tenant| rig.counts(tenant).served);
            [0, 1, 2].map(|tenant| after[tenant] - before[tenant])
        };
        let cores = rig.cores.len();
        for round in 0..200_usize {
            for tenant in &mut tenants[..2] {
                (0..2).for_each(|queue| while tenant.submit(queue, b"greedy").is_ok() {});
            }
            let first = round % 3 == 0;
            if first {
                tenants[2].submit(round as u32 % 2, b"urgent").expect("it is always served");
            }
            let [lowest, middle, highest] = turn(&mut rig, round % cores);
            assert_eq!(highest, u64::from(first), "{form:?}: seen in the next visit");
            assert_eq!(middle > 0, !first, "{form:?}");
            assert_eq!(lowest, 0, "{form:?}: starved, as the policy says");
            for tenant in &mut tenants {
                (0..2).for_each(|queue| while tenant.poll(queue).is_some() {});
            }
        }
        rig.set_class(0, 0);
        let served = turn(&mut rig, 0);
        assert!(served[0] > 0 && served[1] == 0, "{form:?}: {served:?}");
        // One over its rate gives way: nothing is lost to those below.
        let slow = RateLimit { requests_per_s: 1, burst_requests: 1, ..RateLimit::NONE };
        rig.links[0].limiter.set(slow);
        (0..4).for_each(|_| _ = rig.turn());
        let before = rig.counts(1).served;
        (0..2).for_each(|_| _ = rig.turn());
        assert!(rig.counts(1).served > before, "{form:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn a_rate_limit_holds_and_costs_the_others_nothing() {
    for form in FORMS {
        let mut rig = rig(form);
        let mut tenants = [rig.connect(4), rig.connect(1)];
        let limit = RateLimit { requests_per_s: 10_000, burst_requests: 8, ..RateLimit::NONE };
        rig.links[0].limiter.set(limit);
        let (mut answered, mut free) = (0, 0);
        // A second, in steps of 10 us: the first tenant would take all it could get.
        for _ in 0..100_000 {
            for queue in 0..4 {
                while tenants[0].submit(queue, b"greedy").is_ok() {}
            }
            tenants[1].submit(0, b"modest").expect("it is always served");
            rig.turn();
            rig.turn();
            rig.turn();
            for queue in 0..4 {
                while tenants[0].poll(queue).is_some() {
                    answered += 1;
                }
            }
            while tenants[1].poll(0).is_some() {
                free += 1;
            }
            rig.clock.advance(Duration::from_micros(10));
        }
        assert!((9_500..=10_010).contains(&answered), "{form:?}: {answered} in a second");
        assert!(free >= 99_990, "{form:?}: {free} of the other's 100,000");
        let counts = rig.counts(0);
        // At most one deferral for each queue in each 100 us.
        assert!(counts.deferred > 0 && counts.deferred <= 4 * 10_000 + 8, "{form:?}: {counts:?}");
        // Without the limit it gets all it wants.
        rig.links[0].limiter.set(RateLimit::NONE);
        rig.clock.advance(RATE_RETRY_MAX);
        rig.settle();
        assert_eq!(rig.counts(0).served, answered + 4 * 32, "{form:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn a_limit_on_bytes_holds() {
    let mut rig = rig((Notify::Qwait, false));
    let mut tenant = rig.connect(1);
    let limit = RateLimit { bytes_per_s: 640_000, burst_bytes: 640, ..RateLimit::NONE };
    rig.links[0].limiter.set(limit);
    for _ in 0..100_000 {
        while tenant.submit(0, &[0; 64]).is_ok() {}
        rig.turn();
        while tenant.poll(0).is_some() {}
        rig.clock.advance(Duration::from_micros(10));
    }
    let served = rig.counts(0).bytes_in;
    assert!((600_000..=641_000).contains(&served), "{served} bytes in a second");
}

/// Completions that nobody consumes: the queue is left aside, and served again when there is room.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn who_consumes_nothing_waits_alone() {
    for form in FORMS {
        let mut rig = rig(form);
        let mut tenants = [rig.connect(2), rig.connect(1)];
        // A second queue pair over the same memory, which pretends to have credits.
        let geometry = tenants[0].geometry();
        let memory = Arc::clone(&rig.links[0].memory);
        let header = |number: u32| {
            let at = geometry.submissions(0) + (number as usize % 32) * geometry.slot_stride();
            memory.word64(at).expect("inside").store(u64::from(number), Ordering::Release);
        };
        for request in 1..=50 {
            header(request);
            tenants[0].ring(0);
            rig.turn();
        }
        assert_eq!(rig.counts(0).served, 32, "{form:?}: as many as fit");
        let (before, mut visits) = (rig.counts(0), 0);
        for _ in 0..1_000 {
            tenants[1].submit(0, b"x").expect("it is always served");
            visits += rig.settle();
            assert!(tenants[1].poll(0).is_some(), "{form:?}");
            rig.clock.advance(Duration::from_micros(10));
        }
        // Ten milliseconds: some ten looks at the queue without room.
        let looks = rig.counts(0).no_room - before.no_room;
        assert!((1..=24).contains(&looks), "{form:?}: {looks} looks, {visits} turns");
        memory.word(geometry.consumed(0)).expect("inside").store(32, Ordering::Release);
        rig.clock.advance(ROOM_RETRY);
        rig.settle();
        assert_eq!(rig.counts(0).served, 50, "{form:?}: served again");
    }
}

/// Each of these is done by the liar before every turn; `0..5` are its ways.
fn lie(way: u32, liar: &mut Tenant, turn: u32) {
    let (geometry, memory) = (liar.geometry(), Arc::clone(&liar.memory));
    let words = || (0..geometry.words()).filter_map(|word| geometry.word(word));
    let doorbell = |queue| memory.word(geometry.doorbell(queue)).expect("inside");
    let ready = |bits: u64| {
        for word in words() {
            memory.word64(word.ready).expect("inside").store(bits, Ordering::SeqCst);
        }
    };
    match way {
        // Rings without work, on all queues.
        0 => (0..geometry.shape().queues).for_each(|queue| liar.ring(queue)),
        // Sets every ready bit there is.
        1 => ready(!0),
        // Huge counts, and the bits to have them looked at.
        2 => {
            (0..geometry.shape().queues)
                .for_each(|queue| doorbell(queue).store(!0, Ordering::SeqCst));
            ready(!0);
        }
        // Clears its bits and doorbells over and over, with work in its queues.
        3 => {
            let _ = liar.submit(turn % geometry.shape().queues, b"work");
            (0..geometry.shape().queues)
                .for_each(|queue| doorbell(queue).store(0, Ordering::SeqCst));
            ready(0);
        }
        // Garbage in every word of its queues: lengths, numbers, consumed counts; and rings.
        _ => {
            let mut noise = u64::from(turn).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            for at in (geometry.consumed(0)..geometry.memory_bytes()).step_by(64) {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                // Often a number that is expected next, with an impossible length.
                let word =
                    if noise & 1 == 0 { noise } else { noise << 32 | u64::from(turn / 2 % 64) };
                memory.word64(at).expect("inside").store(word, Ordering::Relaxed);
            }
            (0..geometry.shape().queues).for_each(|queue| liar.ring(queue));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn a_liar_costs_the_others_a_bounded_number_of_visits() {
    const QUEUES: u32 = 8;
    for form in FORMS {
        for way in 0..5 {
            let mut rig = rig(form);
            let (mut liar, mut honest) = (rig.connect(QUEUES), rig.connect(2));
            rig.settle();
            for turn in 0..2_000 {
                lie(way, &mut liar, turn);
                let queue = turn % 2;
                honest.submit(queue, &turn.to_le_bytes()).expect("it is always served");
                let mut turns = 0;
                while !honest.is_ready(queue) {
                    rig.turn();
                    turns += 1;
                    // A visit of each of the liar's queues, and a fold of each slot.
                    assert!(turns <= QUEUES + SLOTS, "{form:?}, lie {way}: not served by {turns}");
                }
                let reply = honest.poll(queue).expect("ready");
                assert_eq!(number(reply.bytes), turn, "{form:?}, lie {way}");
                rig.clock.advance(Duration::from_micros(1));
            }
            let counts = rig.counts(1);
            assert_eq!((counts.served, counts.lies, counts.refused), (2_000, 0, 0), "{form:?}");
            let lies = rig.counts(0).lies;
            let expected = matches!(way, 0 | 2 | 4) && (form.0 != Notify::SpinDpdk || way == 4);
            assert!(
                lies > 0 || !expected,
                "{form:?}, lie {way}: nobody noticed {:?}",
                rig.counts(0)
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn who_leaves_is_forgotten_and_the_place_is_used_again() {
    for form in FORMS {
        let mut rig = rig(form);
        let (mut gone, mut stays) = (rig.connect(3), rig.connect(3));
        // In the middle of everything: work, a deferral and a timer.
        let slow = RateLimit { requests_per_s: 1, burst_requests: 1, ..RateLimit::NONE };
        rig.links[0].limiter.set(slow);
        for queue in 0..3 {
            gone.submit(queue, b"late").expect("room");
            stays.submit(queue, b"here").expect("room");
        }
        rig.turn();
        rig.tell(|| Mail::Detach(100));
        let link = rig.links.remove(0);
        rig.settle();
        assert_eq!(Arc::strong_count(&link), 1, "{form:?}: no core has it any more");
        assert_eq!(rig.counts(0).served, 3, "{form:?}");
        assert!(rig.cores.iter().all(|(core, _)| core.timers.is_empty()), "{form:?}");
        gone.submit(0, b"into the void").expect("its own memory still");
        assert_eq!(rig.settle(), 0, "{form:?}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn a_request_that_is_too_long_is_refused_and_order_is_kept() {
    let mut rig = rig((Notify::Qwait, false));
    let mut tenant = rig.connect(1);
    assert!(matches!(tenant.submit(0, &[0; 65]), Err(SubmitError::TooLong { len: 65, .. })));
    tenant.submit(0, b"one").expect("room");
    tenant.submit(0, b"two").expect("room");
    // The tenant's own library would not: a length that no slot has.
    let at = tenant.geometry().submissions(0) + tenant.geometry().slot_stride();
    tenant.memory.word64(at).expect("inside").store(4096 << 32 | 1, Ordering::Release);
    rig.settle();
    assert_eq!(tenant.poll(0).map(|reply| (reply.bytes.len(), reply.refused)), Some((0, true)));
    assert_eq!(tenant.poll(0).map(|reply| reply.bytes.to_vec()), Some(b"two".to_vec()));
    let counts = rig.counts(0);
    assert_eq!((counts.served, counts.refused, counts.lies), (1, 1, 1));
}
