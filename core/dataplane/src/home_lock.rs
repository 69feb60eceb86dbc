//! A lock with a home: one core that must have the value, and others that take it while the home does something else.
//!
//! The others try, and go on without it. The home waits where another core has the value, which is for a step of a
//! network layer, or for as long as that core is preempted there; it is the next to have it then, and lets others have
//! its processor meanwhile.

use core::sync::atomic::{AtomicBool, Ordering};

use shuffle::{Guard, TryLock};

/// Looks at a value that another core has before the home yields: more than a full batch takes there.
const LOOKS_BEFORE_YIELDING: u32 = 2_048;

/// See the module's comment.
pub(crate) struct HomeLock<T> {
    /// The home waits. A hint, which orders nothing: another core that has not seen it is one step ahead.
    wanted: AtomicBool,
    lock: TryLock<T>,
}

impl<T> HomeLock<T> {
    pub fn new(value: T) -> Self {
        Self { wanted: AtomicBool::new(false), lock: TryLock::new(value) }
    }

    /// The value for a core that is not its home, unless another has it or the home waits for it.
    #[inline]
    pub fn borrow(&self) -> Option<Guard<'_, T>> {
        if self.wanted.load(Ordering::Relaxed) { None } else { self.lock.try_lock() }
    }

    /// The value for its home, unless another core has it just now.
    #[inline]
    pub fn try_home(&self) -> Option<Guard<'_, T>> {
        self.lock.try_lock()
    }

    /// The value for its home, as soon as no other core has it.
    #[inline]
    pub fn home(&self) -> Guard<'_, T> {
        self.lock.try_lock().unwrap_or_else(|| self.wait(relax))
    }

    #[cold]
    fn wait(&self, mut relax: impl FnMut()) -> Guard<'_, T> {
        self.wanted.store(true, Ordering::Relaxed);
        let value = loop {
            let found = (0..LOOKS_BEFORE_YIELDING).find_map(|_| {
                core::hint::spin_loop();
                self.lock.try_lock()
            });
            match found {
                Some(value) => break value,
                None => relax(),
            }
        };
        self.wanted.store(false, Ordering::Relaxed);
        value
    }

    /// The value of a lock that is not shared any more.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

/// Lets others have the processor: the core that has the value may be waiting for this one.
fn relax() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_is_the_next_to_have_it() {
        let lock = HomeLock::new(0);
        std::thread::scope(|scope| {
            let mut guard = lock.borrow().expect("free");
            assert!(lock.borrow().is_none() && lock.try_home().is_none());
            let home = scope.spawn(|| *lock.home() += 1);
            while !lock.wanted.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            *guard += 1;
            drop(guard);
            // Others try as often as they like.
            while !home.is_finished() {
                let overtaken = lock.borrow().is_some_and(|value| *value == 1);
                assert!(!overtaken, "the home waits");
                std::thread::yield_now();
            }
        });
        assert!(lock.borrow().is_some(), "the home waits no more");
        assert_eq!(lock.into_inner(), 2);
    }

    /// One thread is both: the borrower goes on only while the home yields.
    #[test]
    fn the_home_yields_to_a_borrower_that_waits_for_its_processor() {
        let lock = HomeLock::new(0);
        let mut borrowed = lock.borrow();
        let mut yields = 0;
        let home = lock.wait(|| {
            assert!(lock.borrow().is_none(), "the home is the next");
            yields += 1;
            if yields == 2 {
                borrowed = None;
            }
        });
        assert_eq!((*home, yields), (0, 2), "it has the lock with the first look after that");
        drop(home);
        assert!(borrowed.is_none() && lock.borrow().is_some());
    }
}
