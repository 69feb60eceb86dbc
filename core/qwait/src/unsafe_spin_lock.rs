//! A lock that spins, for builds without `std`, where there is nothing to block on.
//!
//! It is held for a few instructions, when queues are added or removed and when a sleeper is looked
//! up to be woken. A real-time thread must not spin on a thread that it has preempted on the same
//! core: with `std` a mutex of the operating system is used instead.
#![allow(unsafe_code)]

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: `with` gives the value to one thread at a time, so sharing the lock only moves it.
unsafe impl<T: Send> Sync for SpinLock<T> {}

/// Gives the lock back, also when the closure unwinds.
struct Held<'a>(&'a AtomicBool);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl<T> SpinLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        while self
            .held
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            core::hint::spin_loop();
        }
        let _held = Held(&self.held);
        // SAFETY: `held` was false and is true by our exchange, so nobody else is in here; the
        // release in `Held::drop` comes after the last use.
        change(unsafe { &mut *self.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time_is_let_in() {
        let lock = SpinLock::new(0u32);
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        lock.with(|value| *value += 1);
                        std::thread::yield_now();
                    }
                });
            }
        });
        assert_eq!(lock.with(|value| *value), 2 * rounds);
    }
}
