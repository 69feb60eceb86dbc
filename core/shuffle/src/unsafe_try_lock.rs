//! A lock that is tried for, never waited for: who does not get it does something else.
//!
//! `unsafe` because the value is reached through a shared reference: the flag says whose it is.
#![allow(unsafe_code)]

use core::ops::{Deref, DerefMut};

use crate::sync::{AtomicBool, Mutant, Ordering, unless};

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;

/// See the module's comment.
pub struct TryLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is given to one thread at a time, so sharing the lock only moves it.
unsafe impl<T: Send> Sync for TryLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for TryLock<T> {}

impl<T> TryLock<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// The value, unless somebody has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // A look first: a thread that tries often does not take the line from the holder.
        if self.held.load(Ordering::Relaxed) {
            return None;
        }
        let take = unless(Mutant::RelaxedLock, Ordering::Acquire);
        self.held
            .compare_exchange(false, true, take, Ordering::Relaxed)
            .ok()
            .map(|_| Guard::new(self))
    }

    /// Whether somebody had it a moment ago.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    /// The value of a lock that is not shared any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

/// The value, until this is dropped.
pub struct Guard<'a, T> {
    lock: &'a TryLock<T>,
    /// Tells the checker from when to when the value is used.
    #[cfg(loom)]
    value: Option<loom::cell::MutPtr<T>>,
}

impl<'a, T> Guard<'a, T> {
    #[inline(always)]
    fn new(lock: &'a TryLock<T>) -> Self {
        Self {
            lock,
            #[cfg(loom)]
            value: Some(lock.value.get_mut()),
        }
    }

    #[inline(always)]
    fn pointer(&self) -> *mut T {
        #[cfg(not(loom))]
        return self.lock.value.get();
        #[cfg(loom)]
        return match &self.value {
            // SAFETY: only the address is asked for.
            Some(value) => unsafe { value.deref() as *mut T },
            None => unreachable!("it is taken when the guard is dropped"),
        };
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the flag was clear and is set by our exchange, so nobody else has the value until the
        // guard is dropped; the borrow of the guard bounds that of the value.
        unsafe { &*self.pointer() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.pointer() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.value.take());
        self.lock.held.store(false, unless(Mutant::RelaxedUnlock, Ordering::Release));
    }
}

impl<T> core::fmt::Debug for TryLock<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TryLock").field("held", &self.is_held()).finish_non_exhaustive()
    }
}
