//! Models of every protocol, over all interleavings and all reorderings that loom knows, on the code
//! that runs; and the seeded mistakes, each of which a model must catch.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test -p tailplane-qwait --lib loom --release`
//!
//! Models are kept to two or three threads and one or two queues: what goes wrong in a protocol of
//! bits goes wrong between two parties on one word.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use loom::thread;

use crate::bitmap::Bitmap;
use crate::set::Core;
use crate::sync::{Mutant, mutate};
use crate::*;

const CONFIG: Config = Config { capacity: 2, policy: ServicePolicy::RoundRobin, spin_looks: 0 };

fn id(number: u32) -> QueueId {
    QueueId::new(number)
}

/// Sleeps for ever unless woken: a lost wake-up is then a deadlock, which loom reports.
#[derive(Debug)]
struct ModelSleeper(Mutex<u32>, Condvar);

impl ModelSleeper {
    fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(0), Condvar::new()))
    }
}

impl Sleeper for ModelSleeper {
    fn token(&self) -> u32 {
        *self.0.lock().expect("not poisoned")
    }

    fn sleep(&self, token: u32, _: Option<Duration>) {
        let mut now = self.0.lock().expect("not poisoned");
        while *now == token {
            now = self.1.wait(now).expect("not poisoned");
        }
    }

    fn wake(&self) {
        *self.0.lock().expect("not poisoned") += 1;
        self.1.notify_one();
    }
}

fn core(two_level: bool) -> Arc<Core> {
    let make = if two_level { Bitmap::two_level } else { Bitmap::flat };
    Core::with_bitmap(CONFIG.capacity, make(CONFIG.capacity))
}

fn exclusive(two_level: bool) -> ExclusiveSet {
    ExclusiveSet::over(core(two_level), CONFIG, ModelSleeper::new()).expect("joins")
}

fn shared() -> SharedSet {
    SharedSet::over(core(false), CONFIG)
}

/// Takes the activation that comes with adding.
fn settle(set: &mut ExclusiveSet) {
    while let Some(queue) = set.try_qwait() {
        assert_eq!(set.verify(queue), 0, "nothing was rung for yet");
    }
}

/// An item of the payload, checked by loom for races.
#[derive(Debug)]
struct Slot(UnsafeCell<u32>);

// SAFETY is loom's to check: it reports any two accesses that are not ordered.
fn slots(count: usize) -> Arc<Vec<Slot>> {
    Arc::new((0..count).map(|_| Slot(UnsafeCell::new(0))).collect())
}
