//! How long one core waits for another's notification: a spinning look at every doorbell against a
//! ready set, by the number of queues.
//!
//! `cargo run --release -p qwait --example handover`
//!
//! Two threads pass a token to and fro; each waits for it by spinning, so a round is two
//! notifications. The token comes to a different queue each time. Needs two idle cores: windows in
//! which a thread was descheduled show as large values, so the fastest decile stands beside the
//! median.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use qwait::{
    Config, DoorbellRef, ExclusiveSet, Producer, QueueId, Region, ServicePolicy, SpinSleeper,
};

const WINDOWS: usize = 100;
const ROUNDS: u32 = 200;

/// Waits for one token and takes it.
trait Waiter: Send {
    fn wait(&mut self);
}

impl Waiter for ExclusiveSet {
    fn wait(&mut self) {
        loop {
            if let Some(queue) = self.try_qwait()
                && self.verify(queue) > 0
            {
                self.reconsider(queue, 1);
                return;
            }
            std::hint::spin_loop();
        }
    }
}

/// A spinning data plane: looks at every doorbell in turn. Each is taken by reconsidering it in a
/// set of one, which nobody looks at.
struct Spinner {
    doorbells: Vec<DoorbellRef>,
    takers: Vec<ExclusiveSet>,
    cursor: usize,
}

impl Waiter for Spinner {
    fn wait(&mut self) {
        loop {
            let at = self.cursor;
            self.cursor = if at + 1 == self.doorbells.len() { 0 } else { at + 1 };
            if self.doorbells[at].count() > 0 {
                self.takers[at].reconsider(QueueId::new(0), 1);
                return;
            }
        }
    }
}

fn doorbells(queues: u32, paged: bool) -> Vec<DoorbellRef> {
    let stride = if paged { 4096 } else { 128 };
    let region = Region::create(queues as usize * stride).expect("memory");
    region.doorbells(0, stride, queues as usize).expect("they fit")
}

fn set_of(queues: u32) -> ExclusiveSet {
    let config = Config { capacity: queues, policy: ServicePolicy::RoundRobin, spin_looks: 0 };
    ExclusiveSet::with_sleeper(config, Arc::new(SpinSleeper)).expect("a valid size")
}

type Side = (Box<dyn Waiter>, Vec<Producer>);

fn ready_set(queues: u32, paged: bool) -> Side {
    let mut set = set_of(queues);
    let add = |(queue, doorbell)| set.add(QueueId::new(queue), doorbell).expect("added");
    let producers = (0..).zip(doorbells(queues, paged)).map(add).collect();
    while let Some(queue) = set.try_qwait() {
        set.verify(queue);
    }
    (Box::new(set), producers)
}

fn spinner(queues: u32, paged: bool) -> Side {
    let doorbells = doorbells(queues, paged);
    let mut takers: Vec<_> = doorbells.iter().map(|_| set_of(1)).collect();
    let add = |(taker, doorbell): (&mut ExclusiveSet, &DoorbellRef)| {
        taker.add(QueueId::new(0), doorbell.clone()).expect("added")
    };
    let producers = takers.iter_mut().zip(&doorbells).map(add).collect();
    (Box::new(Spinner { doorbells, takers, cursor: 0 }), producers)
}

/// One-way nanoseconds of each window, sorted.
fn measure(side: fn(u32, bool) -> Side, queues: u32, paged: bool) -> Vec<f64> {
    let (mut near, to_near) = side(queues, paged);
    let (mut far, to_far) = side(queues, paged);
    // A stride that is prime to every size here: the token comes from everywhere.
    let pick = move |round: u32| (round as usize * 377) % queues as usize;
    let total = WINDOWS as u32 * ROUNDS;
    let mut windows: Vec<f64> = thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..total {
                far.wait();
                to_near[pick(round)].ring();
            }
        });
        (0..WINDOWS as u32)
            .map(|window| {
                let start = Instant::now();
                for round in 0..ROUNDS {
                    to_far[pick(window * ROUNDS + round)].ring();
                    near.wait();
                }
                start.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS)
            })
            .collect()
    });
    windows.sort_by(f64::total_cmp);
    windows
}

fn main() {
    println!("cores: {}", thread::available_parallelism().map_or(0, usize::from));
    println!(
        "build: {}",
        if cfg!(debug_assertions) { "debug: not a measurement" } else { "release" }
    );
    println!("one-way nanoseconds, {WINDOWS} windows of {ROUNDS} rounds; both sides spin\n");
    println!(
        "{:<12} {:<12} {:>6} {:>10} {:>10}",
        "waits by", "doorbells", "queues", "median", "decile"
    );
    for paged in [false, true] {
        let layout = if paged { "one a page" } else { "packed" };
        for queues in [1, 64, 1_000] {
            for (name, side) in
                [("spinning", spinner as fn(u32, bool) -> Side), ("ready set", ready_set)]
            {
                let windows = measure(side, queues, paged);
                let (median, decile) = (windows[WINDOWS / 2], windows[WINDOWS / 10]);
                println!("{name:<12} {layout:<12} {queues:>6} {median:>10.0} {decile:>10.0}");
            }
        }
    }
}
