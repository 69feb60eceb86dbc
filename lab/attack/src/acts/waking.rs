//! Attacks on how the two wake each other, and on time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use process::layout;
use rand::RngExt;
use rustix::thread::futex;

use super::Attacker;
use crate::lies::odd;

/// Sets and clears its flag at random, and wakes a dataplane that does not sleep.
pub fn lies(attacker: &mut Attacker) -> anyhow::Result<()> {
    let calls = Arc::clone(&attacker.joined.calls);
    let events = Arc::clone(&attacker.joined.events);
    std::thread::spawn(move || {
        loop {
            for flag in [0, 1, 2, u32::MAX] {
                if let Some(asleep) = calls.word(layout::ASLEEP) {
                    asleep.store(flag, Ordering::Relaxed);
                }
                for word in [calls.word(layout::BATCH), events.word(layout::BATCH)] {
                    for _ in 0..250 {
                        if let Some(word) = word {
                            let _ = futex::wake(word, futex::Flags::empty(), u32::MAX >> 1);
                        }
                    }
                }
            }
        }
    });
    attacker.serve_turned(|_, _| {})
}

/// Moves whoever sleeps on the dataplane's word to another one, that nobody wakes.
pub fn requeue(attacker: &mut Attacker) -> anyhow::Result<()> {
    static ELSEWHERE: AtomicU32 = AtomicU32::new(0);
    attacker.serve(50);
    let calls = Arc::clone(&attacker.joined.calls);
    // While a batch is with this application the dataplane's thread goes to sleep.
    attacker.hear();
    loop {
        if let Some(done) = calls.word(layout::BATCH) {
            // None sleeps there at this moment: the next time, perhaps.
            let _ = futex::requeue(done, futex::Flags::empty(), 0, u32::MAX >> 1, &ELSEWHERE);
        }
        std::thread::yield_now();
    }
}

/// Makes the word a lock, of the kind that the kernel keeps the owner of, and waits for it: whoever is to wake
/// those who wait there is told that this is no such word.
pub fn owner(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve(50);
    // A batch is at hand, so that the dataplane's thread sleeps.
    attacker.hear();
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let calls = Arc::clone(&attacker.joined.calls);
    std::thread::spawn(move || {
        while let Some(done) = calls.word(layout::BATCH) {
            // Refused while the dataplane sleeps there: it is woken, and until it sleeps again there is time.
            let _ = futex::wake(done, futex::Flags::empty(), u32::MAX >> 1);
            done.store(own as u32, Ordering::Relaxed);
            let _ = futex::lock_pi(done, futex::Flags::empty(), None);
        }
    });
    // The owner has to be there.
    loop {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Wishes to be run at every odd time.
pub fn wishes(attacker: &mut Attacker) -> anyhow::Result<()> {
    while attacker.hear() {
        let calls = attacker.liar.answers();
        let now = attacker.joined.events.word64(layout::NOW);
        let now = now.map_or(0, |now| now.load(Ordering::Relaxed));
        let wish = match attacker.liar.random.random_range(0..6) {
            0 => 0,
            1 => now,
            2 => now + 1,
            3 => u64::MAX - 1,
            4 => 1 << 63,
            _ => odd(&mut attacker.liar.random, now),
        };
        attacker.hand_over(&calls, calls.len() as u32, 0, wish);
    }
    Ok(())
}
