//! Threads against each other through the public API: every item is seen exactly once and in order,
//! and no wake-up is lost. Under loom there is nothing to run here.
//!
//! The long one: `cargo test --release -p qwait --test stress -- --ignored`

#![cfg(all(feature = "std", not(loom)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use qwait::{
    Config, DoorbellRef, ExclusiveSet, FutexSleeper, Producer, QueueId, Region, ServicePolicy,
    SharedSet, Sleeper, Tenant, TenantPlace, TenantSet,
};
use rustix::event::{EventfdFlags, eventfd};

const SLOTS: u32 = 8;

/// A bounded queue whose doorbell is its length. Slots and the consumer's index are relaxed on
/// purpose: the doorbell must order them.
#[derive(Default)]
struct Ring {
    slots: [AtomicU64; SLOTS as usize],
    head: AtomicU32,
    /// Set while a consumer is in here: there may be one.
    busy: AtomicBool,
}

impl Ring {
    /// Takes up to `count` items, which must go on where the last visit ended. How many.
    fn take(&self, count: u32) -> u32 {
        assert!(!self.busy.swap(true, Ordering::Relaxed), "two owners");
        let head = self.head.load(Ordering::Relaxed);
        for item in head..head + count {
            let value = self.slots[(item % SLOTS) as usize].load(Ordering::Relaxed);
            assert_eq!(value, u64::from(item) + 1, "out of order, lost or twice");
        }
        self.head.store(head + count, Ordering::Relaxed);
        self.busy.store(false, Ordering::Relaxed);
        count
    }
}

struct Queue {
    ring: Ring,
}

/// Puts `items` numbered items into each queue, a few at a time, as there is room.
fn produce(queues: &[(Arc<Queue>, Producer)], items: u32, seed: u64) {
    let mut sent = vec![0u32; queues.len()];
    let mut random = seed;
    while sent.iter().any(|&sent| sent < items) {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pick = (random >> 33) as usize % queues.len();
        let (queue, producer) = &queues[pick];
        let room = SLOTS - producer.count();
        let batch = room.min(items - sent[pick]).min(1 + (random >> 60) as u32 % 3);
        if batch == 0 {
            thread::yield_now();
            continue;
        }
        for item in sent[pick]..sent[pick] + batch {
            let slot = &queue.ring.slots[(item % SLOTS) as usize];
            slot.store(u64::from(item) + 1, Ordering::Relaxed);
        }
        producer.ring_many(batch as u16);
        sent[pick] += batch;
    }
}

fn queues(count: u32) -> Vec<Arc<Queue>> {
    (0..count).map(|_| Arc::new(Queue { ring: Ring::default() })).collect()
}

fn config(capacity: u32, spin_looks: u32) -> Config {
    Config { capacity, policy: ServicePolicy::RoundRobin, spin_looks }
}

const LIMIT: Duration = Duration::from_secs(60);

/// How much to do: little under Miri.
fn scaled(items: u32) -> u32 {
    if cfg!(miri) { items / 2_000 + 5 } else { items }
}

fn exclusive_stress(capacity: u32, active: u32, items: u32, spin_looks: u32) {
    let mut set = ExclusiveSet::new(config(capacity, spin_looks)).expect("made");
    let queues = queues(active);
    let number = |index: u32| QueueId::new(index * (capacity / active));
    let mut produced: Vec<Vec<_>> = vec![Vec::new(), Vec::new()];
    for (index, queue) in queues.iter().enumerate() {
        let producer = set.add(number(index as u32), DoorbellRef::new()).expect("added");
        produced[index % 2].push((Arc::clone(queue), producer));
    }
    let (total, start) = (active * items, Instant::now());
    thread::scope(|scope| {
        for (seed, queues) in produced.iter().enumerate() {
            scope.spawn(move || produce(queues, items, seed as u64));
        }
        let (mut seen, mut turn) = (0, 0);
        while seen < total {
            assert!(start.elapsed() < LIMIT, "stuck at {seen} of {total}: a wake-up was lost");
            let queue = set.qwait_timeout(Duration::from_secs(20)).expect("a wake-up was lost");
            let count = set.verify(queue);
            turn += 1;
            let take = count.min(1 + turn % 3);
            if take > 0 {
                seen += queues[(queue.get() / (capacity / active)) as usize].ring.take(take);
                set.reconsider(queue, take);
            }
        }
        assert_eq!(seen, total);
    });
}

#[test]
fn exclusive_flat_busy() {
    exclusive_stress(64, 6, scaled(20_000), 1_000);
}

#[test]
fn exclusive_flat_sleeping_at_once() {
    exclusive_stress(64, 6, scaled(3_000), 0);
}

/// So few that the set has no ready bits.
#[test]
fn exclusive_without_bits_busy() {
    exclusive_stress(qwait::DIRECT_MAX, 6, scaled(20_000), 1_000);
}

#[test]
fn exclusive_without_bits_sleeping_at_once() {
    exclusive_stress(qwait::DIRECT_MAX, 6, scaled(3_000), 0);
}

#[test]
fn exclusive_two_level() {
    exclusive_stress(if cfg!(miri) { 1_200 } else { 8_192 }, 8, scaled(10_000), 100);
}

/// Two consumers and a producer over `active` queues.
fn shared_stress(config: Config, active: u32, items: u32) {
    let set = SharedSet::new(config).expect("made");
    let consumers = [set.consumer().expect("joins"), set.consumer().expect("joins")];
    let queues = queues(active);
    let add = |(number, queue): (u32, &Arc<_>)| {
        let producer = set.add(QueueId::new(number), DoorbellRef::new()).expect("added");
        (Arc::clone(queue), producer)
    };
    let produced: Vec<_> = (0..).zip(&queues).map(add).collect();
    let total = items * active;
    let (seen, start) = (AtomicU32::new(0), Instant::now());
    thread::scope(|scope| {
        for mut consumer in consumers {
            scope.spawn(|| {
                let mut consumer_turn = 0;
                // The last item may be the other's: a short sleep, then another look at the total.
                while seen.load(Ordering::Relaxed) < total {
                    assert!(start.elapsed() < LIMIT, "stuck: a wake-up was lost");
                    let wait = Duration::from_millis(50);
                    let Some(id) = consumer.qwait_timeout(wait) else { continue };
                    let count = consumer.verify(id);
                    assert!(count > 0, "an owned queue has work");
                    consumer_turn += 1;
                    let take = count.min(1 + consumer_turn % 2);
                    let queue = &queues[id.get() as usize];
                    seen.fetch_add(queue.ring.take(take), Ordering::Relaxed);
                    consumer.reconsider(id, take);
                }
                drop(consumer);
            });
        }
        scope.spawn(|| produce(&produced, items, 7));
    });
    assert_eq!(seen.load(Ordering::Relaxed), total);
}

#[test]
fn shared_flat() {
    shared_stress(config(16, 50), 6, scaled(10_000));
}

#[test]
fn shared_two_level_sleeping_at_once() {
    shared_stress(config(2_000, 0), 4, scaled(2_000));
}

/// A futex that counts the sleeps that it was asked for.
#[derive(Debug, Default)]
struct Counting {
    futex: FutexSleeper,
    sleeps: AtomicU32,
    wakes: AtomicU32,
}

impl Sleeper for Counting {
    fn token(&self) -> u32 {
        self.futex.token()
    }
    fn sleep(&self, token: u32, timeout: Option<Duration>) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
        self.futex.sleep(token, timeout);
    }
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        self.futex.wake();
    }
}

/// Two threads ring for each other and sleep in turn: each round is two sleeps, two wake-ups and the
/// races between them. A lost one is a timeout.
fn ping_pong(rounds: u32) {
    let sleepers = [(); 2].map(|()| Arc::new(Counting::default()));
    let [mut near, mut far] = sleepers
        .clone()
        .map(|sleeper| ExclusiveSet::with_sleeper(config(1, 0), sleeper).expect("made"));
    let to_near = near.add(QueueId::new(0), DoorbellRef::new()).expect("added");
    let to_far = far.add(QueueId::new(0), DoorbellRef::new()).expect("added");
    let take = |set: &mut ExclusiveSet, round: u32| {
        // Moments of different length before the sleep, so that every place is hit.
        for _ in 0..round.wrapping_mul(2_654_435_761) >> 24 {
            std::hint::spin_loop();
        }
        loop {
            let queue = set.qwait_timeout(Duration::from_secs(20)).expect("a wake-up was lost");
            if set.verify(queue) > 0 {
                return set.reconsider(queue, 1);
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..rounds {
                assert_eq!(take(&mut far, round ^ 0x5555), 0);
                assert!(to_near.ring());
            }
        });
        for round in 0..rounds {
            assert!(to_far.ring());
            assert_eq!(take(&mut near, round), 0);
        }
    });
    let sum = |count: fn(&Counting) -> &AtomicU32| -> u32 {
        sleepers.iter().map(|sleeper| count(sleeper).load(Ordering::Relaxed)).sum()
    };
    let counts = [sum(|sleeper| &sleeper.sleeps), sum(|sleeper| &sleeper.wakes)];
    println!("{rounds} rounds: {} sleeps, {} wake-ups", counts[0], counts[1]);
    assert!(counts[0] > rounds / 100, "they slept too seldom to show anything: {counts:?}");
}

#[test]
fn sleeping_and_waking_races() {
    ping_pong(scaled(20_000));
}

#[test]
#[ignore = "a million rounds, in most of which somebody sleeps: a minute or so"]
fn sleeping_and_waking_races_at_length() {
    ping_pong(1_000_000);
}

/// Queues come and go, and are disabled and enabled, while they are rung.
#[test]
fn queues_that_change_under_load_lose_nothing() {
    let set = SharedSet::new(config(8, 0)).expect("made");
    let doorbells: Vec<_> = (0..4).map(|_| DoorbellRef::new()).collect();
    let add = |queue: usize| set.add(QueueId::new(queue as u32), doorbells[queue].clone());
    let producers: Vec<_> = (0..4).map(|queue| add(queue).expect("added")).collect();
    let (total, seen) = (scaled(40_000), AtomicU32::new(0));
    let mut consumer = set.consumer().expect("joins");
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while seen.load(Ordering::Relaxed) < total {
                assert!(start.elapsed() < LIMIT, "stuck: a wake-up was lost");
                if let Some(queue) = consumer.qwait_timeout(Duration::from_millis(100)) {
                    let count = consumer.verify(queue);
                    seen.fetch_add(count, Ordering::Relaxed);
                    consumer.reconsider(queue, count);
                }
            }
        });
        scope.spawn(|| {
            let control = set.control();
            let mut queue = 0;
            while seen.load(Ordering::Relaxed) < total {
                queue = (queue + 1) % 4;
                let id = QueueId::new(queue as u32);
                control.disable(id).expect("in range");
                set.remove(id).expect("there");
                thread::yield_now();
                add(queue).expect("free");
                control.enable(id).expect("in range");
            }
        });
        for item in 0..total {
            producers[item as usize % 4].ring();
            if item % 64 == 0 {
                thread::yield_now();
            }
        }
    });
    assert_eq!(seen.load(Ordering::Relaxed), total);
}

/// Honest tenants, each on a thread, against the trusted side, which sleeps at once: all that they
/// ring for is counted, once.
#[test]
#[cfg_attr(miri, ignore = "makes memory files and eventfds")]
fn tenants_lose_nothing() {
    const QUEUES: u32 = 3;
    let rounds = 10_000;
    let mut set = TenantSet::new(8, ServicePolicy::RoundRobin).expect("made");
    let tenants = [0, 1].map(|slot| {
        let region = Region::create(4_096).expect("memory");
        let (ready, idle, doorbells, stride, queues) = (0, 128, 256, 128, QUEUES);
        let place = TenantPlace { region, ready, idle, doorbells, stride, queues };
        let wake = eventfd(0, EventfdFlags::NONBLOCK).expect("an eventfd");
        let ours = wake.try_clone().expect("a duplicate");
        set.connect_over(slot, place.clone(), rounds, ours).expect("connected");
        Tenant::over(place, wake).expect("joined")
    });
    let start = Instant::now();
    let mut seen = [[0; QUEUES as usize]; 2];
    thread::scope(|scope| {
        for tenant in tenants {
            scope.spawn(move || {
                for round in 0..rounds * QUEUES {
                    tenant.ring(round % QUEUES).expect("its own queue");
                    if round % 16 == 0 {
                        thread::yield_now();
                    }
                }
            });
        }
        while seen.as_flattened().iter().any(|&seen| seen < rounds) {
            assert!(start.elapsed() < LIMIT, "stuck: a ring or a wake-up was lost: {seen:?}");
            let Some(queue) = set.qwait_timeout(Duration::from_secs(20)) else { continue };
            let count = set.verify(queue);
            set.reconsider(queue, count);
            let (slot, index) = set.locate(queue).expect("its number came from the set");
            seen[slot as usize][index as usize] += count;
        }
    });
    assert_eq!(seen, [[rounds; QUEUES as usize]; 2]);
    assert_eq!((set.lies(0), set.lies(1), set.try_qwait()), (0, 0, None));
}
