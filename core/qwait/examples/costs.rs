//! What a notification costs on one thread: nanoseconds per operation, with the conditions.
//!
//! `cargo run --release -p qwait --example costs`
//!
//! Each figure is the median of `WINDOWS` windows, with the fastest beside it; nothing else should
//! run. Lines that move between cores are not in it: this is the floor, not a round trip.

use std::hint::black_box;
use std::time::Instant;

use qwait::{
    Config, DoorbellRef, ExclusiveSet, MAX_QUEUES, Producer, QueueId, Region, ServicePolicy,
    SharedConsumer, SharedSet,
};

const WINDOWS: usize = 21;
const ROUNDS: u32 = 20_000;
/// Most doorbells that are measured at one a page.
const PAGES_MAX: u32 = 4_096;
const SIZES: [u32; 4] = [1, 64, 1_000, MAX_QUEUES];

/// Median and minimum nanoseconds of one call of `operation`.
fn measure(mut operation: impl FnMut(u32)) -> (f64, f64) {
    let mut windows: Vec<f64> = (0..WINDOWS)
        .map(|_| {
            let start = Instant::now();
            for round in 0..ROUNDS {
                operation(round);
            }
            start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
        })
        .collect();
    windows.sort_by(f64::total_cmp);
    (windows[WINDOWS / 2], windows[0])
}

fn print(name: &str, queues: u32, (median, fastest): (f64, f64)) {
    println!("{name:<56} {queues:>6} {median:>9.1} {fastest:>9.1}");
}

fn config(capacity: u32) -> Config {
    Config { capacity, policy: ServicePolicy::RoundRobin, spin_looks: 0 }
}

fn exclusive(queues: u32) -> (ExclusiveSet, Vec<Producer>) {
    let mut set = ExclusiveSet::new(config(queues)).expect("a valid size");
    let producers = (0..queues)
        .map(|queue| set.add(QueueId::new(queue), DoorbellRef::new()).expect("added"))
        .collect();
    while let Some(queue) = set.try_qwait() {
        set.verify(queue);
    }
    (set, producers)
}

fn shared(queues: u32) -> (SharedConsumer, Vec<Producer>) {
    let set = SharedSet::new(config(queues)).expect("a valid size");
    let producers = (0..queues)
        .map(|queue| set.add(QueueId::new(queue), DoorbellRef::new()).expect("added"))
        .collect();
    let mut consumer = set.consumer().expect("the first");
    assert!(consumer.try_qwait().is_none());
    (consumer, producers)
}

/// Sixteen queues spread over the set: few active among many, so that their doorbells stay cached.
fn spread(producers: &[Producer], round: u32) -> &Producer {
    &producers[(round % 16) as usize * producers.len() / 16]
}

fn exclusive_costs(queues: u32) {
    let (mut set, producers) = exclusive(queues);
    print(
        "exclusive: empty try_qwait",
        queues,
        measure(|_| {
            black_box(set.try_qwait());
        }),
    );
    print(
        "exclusive: is_empty_hint",
        queues,
        measure(|_| {
            black_box(set.is_empty_hint());
        }),
    );
    print(
        "exclusive: ring + qwait + verify + reconsider",
        queues,
        measure(|round| {
            spread(&producers, round).ring();
            let queue = set.try_qwait().expect("rung");
            black_box(set.verify(queue));
            set.reconsider(queue, 1);
        }),
    );
    for producer in &producers {
        producer.ring_many(2);
    }
    print(
        "exclusive: qwait + verify, every queue ready",
        queues,
        measure(|_| {
            let queue = set.try_qwait().expect("ready");
            black_box(set.verify(queue));
        }),
    );
    print(
        "ring() on a queue that has work",
        queues,
        measure(|round| {
            spread(&producers, round).ring();
        }),
    );
}

fn shared_costs(queues: u32) {
    let (mut consumer, producers) = shared(queues);
    print(
        "shared: empty try_qwait",
        queues,
        measure(|_| {
            black_box(consumer.try_qwait());
        }),
    );
    print(
        "shared: ring + qwait (owns) + reconsider",
        queues,
        measure(|round| {
            spread(&producers, round).ring();
            let queue = consumer.try_qwait().expect("rung");
            consumer.reconsider(queue, 1);
        }),
    );
}

/// What the ready set saves: one look at every doorbell, as a spinning data plane does.
fn spin_costs(queues: u32) {
    let packed: Vec<_> = (0..queues).map(|_| DoorbellRef::new()).collect();
    let mut layouts = vec![("packed", packed)];
    // Beyond this it would measure how much memory there is.
    if queues <= PAGES_MAX {
        let region = Region::create(queues as usize * 4096).expect("memory");
        layouts.push(("one a page", region.doorbells(0, 4096, queues as usize).expect("they fit")));
    }
    for (name, doorbells) in layouts {
        // Large sweeps need no repetition to be measured.
        let every = (queues / 64).max(1);
        let (median, fastest) = measure(|round| {
            if round % every == 0 {
                black_box(doorbells.iter().filter(|doorbell| doorbell.count() > 0).count());
            }
        });
        let name = format!("for comparison: a sweep over the doorbells, {name}");
        print(&name, queues, (median * f64::from(every), fastest * f64::from(every)));
    }
}

fn first_line_with(path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(key)).unwrap_or("unknown");
    line.rsplit(':').next().unwrap_or(line).trim().to_owned()
}

fn main() {
    println!("processor: {}", first_line_with("/proc/cpuinfo", "model name"));
    println!("kernel:    {}", first_line_with("/proc/version", "Linux"));
    println!(
        "build:     {}",
        if cfg!(debug_assertions) { "debug: not a measurement" } else { "release" }
    );
    println!("one thread; median and fastest of {WINDOWS} windows of {ROUNDS} operations\n");
    println!(
        "{:<56} {:>6} {:>9} {:>9}",
        "nanoseconds per operation", "queues", "median", "fastest"
    );
    for queues in SIZES {
        exclusive_costs(queues);
        shared_costs(queues);
        spin_costs(queues);
    }
}
