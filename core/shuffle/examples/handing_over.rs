//! What handing a turn over costs, in each form of the shuffle queues.
//!
//! ```text
//! cargo run --release -p shuffle --example handing_over
//! ```
//!
//! *alone*: one core publishes a turn, announces it, and takes it itself, all lines in its cache. *handed
//! over*: one core publishes and another takes, both as fast as they can, which includes moving the lines
//! from core to core. The least of several rounds; both cores must be there, and otherwise idle.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use shuffle::{MAX_CLASSES, ReadySet, ServicePolicy, ShuffleLayer, Taker, Turn};

const ROUNDS: usize = 15;
const TURNS: u32 = 200_000;

#[derive(Debug, Default)]
struct Small(u64);

impl Turn for Small {
    fn connection(&self) -> u64 {
        self.0
    }
    fn begin(&mut self, connection: u64) {
        self.0 = connection;
    }
    fn class(&self) -> usize {
        self.0 as usize % MAX_CLASSES
    }
}

/// ShuffleLayer of two cores, and the second core's place in the set where there is one.
fn shuffle(classes: usize) -> (ShuffleLayer<Small>, Option<Taker>) {
    if classes == 0 {
        return (ShuffleLayer::new(2, 4_096), None);
    }
    let weights = [1; MAX_CLASSES];
    let set = ReadySet::new(classes, ServicePolicy::StrictPriority, &weights, 4_096);
    let set = set.expect("classes in range");
    let taker = set.taker().expect("one of few");
    (ShuffleLayer::by_class(2, 4_096, set), Some(taker))
}

fn alone(classes: usize) -> f64 {
    let (shuffle, mut taker) = shuffle(classes);
    let began = Instant::now();
    let mut turn = Box::new(Small(1));
    for _ in 0..TURNS {
        shuffle.publish(0, turn).expect("room");
        shuffle.announce(0);
        black_box(shuffle.call(0));
        turn = match &mut taker {
            None => shuffle.take(0),
            Some(taker) => shuffle.take_shared(taker),
        }
        .expect("it was just published");
    }
    began.elapsed().as_nanos() as f64 / f64::from(TURNS)
}

fn handed_over(classes: usize) -> f64 {
    let (shuffle, mut taker) = shuffle(classes);
    let go = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (shuffle, go) = (&shuffle, &go);
        let thief = scope.spawn(move || {
            let mut taken = 0;
            let began = Instant::now();
            go.store(true, Ordering::Release);
            while taken < TURNS {
                let turn = match &mut taker {
                    None => shuffle.steal(1, 0),
                    Some(taker) => shuffle.take_shared(taker),
                };
                taken += u32::from(black_box(turn).is_some());
            }
            began.elapsed().as_nanos() as f64 / f64::from(TURNS)
        });
        while !go.load(Ordering::Acquire) {}
        for number in 0..TURNS {
            let mut turn = Box::new(Small(number.into()));
            while let Err(back) = shuffle.publish(0, turn) {
                turn = back;
                std::hint::spin_loop();
            }
            shuffle.announce(0);
            black_box(shuffle.call(0));
        }
        thief.join().expect("no panic")
    })
}

fn least(measure: impl Fn() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(f64::MAX, f64::min)
}

fn main() {
    println!("ns a turn; {TURNS} turns, the least of {ROUNDS} rounds");
    println!("{:<28}{:>8}{:>14}", "shuffle queues", "alone", "handed over");
    for (name, classes) in
        [("of each core", 0), ("shared, 1 class", 1), ("shared, 8 classes", MAX_CLASSES)]
    {
        println!(
            "{name:<28}{:>8.1}{:>14.1}",
            least(|| alone(classes)),
            least(|| handed_over(classes))
        );
    }
}
