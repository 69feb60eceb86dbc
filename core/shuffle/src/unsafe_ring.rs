//! A bounded queue, first in, first out, that any thread may fill and any may take from, without a lock.
//!
//! Each place counts the hand-overs that it has seen (Vyukov's bounded queue): a producer claims a place by
//! moving the tail, fills it, and then says so in the place's own word; a consumer likewise with the head.
//! A thread that is stopped between the two holds up its own place and those behind it, for as long as it is
//! stopped, and nothing else.
//!
//! `unsafe` because a place is written and read through a shared reference: the place's word says whose it is.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::mem::MaybeUninit;

use crate::sync::{AtomicUsize, Mutant, Ordering, mutated, unless};

#[cfg(not(loom))]
use core::cell::UnsafeCell;
#[cfg(loom)]
use loom::cell::UnsafeCell;

/// A word on two cache lines of its own: x86 fetches lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Alone(AtomicUsize);

struct Place<T> {
    /// `n`: free for the producer of number `n`. `n + 1`: holds what that producer put there.
    turn: AtomicUsize,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// See the module's comment.
pub struct Ring<T> {
    head: Alone,
    tail: Alone,
    places: Box<[Place<T>]>,
}

// SAFETY: a value is moved in by one thread and out by another, so it must be `Send`; nobody gets a
// reference to one that stands in the ring.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// A ring with room for at least `capacity` values: the next power of two, and two at least.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two().max(2);
        let place = |number| Place {
            turn: AtomicUsize::new(number),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        };
        Self {
            head: Alone(AtomicUsize::new(0)),
            tail: Alone(AtomicUsize::new(0)),
            places: (0..capacity).map(place).collect(),
        }
    }

    #[inline(always)]
    fn place(&self, number: usize) -> &Place<T> {
        &self.places[number & (self.places.len() - 1)]
    }

    /// Appends a value.
    ///
    /// # Errors
    /// The value comes back where the ring is full.
    #[inline]
    pub fn push(&self, value: T) -> Result<(), T> {
        let mut number = self.tail.0.load(Ordering::Relaxed);
        let place = loop {
            let place = self.place(number);
            // Acquire: whoever emptied the place has read it before we write.
            let turn = place.turn.load(unless(Mutant::RelaxedRoom, Ordering::Acquire));
            match turn.wrapping_sub(number) as isize {
                0 => {
                    let next = number.wrapping_add(1);
                    if mutated(Mutant::FillWithoutClaim) {
                        self.tail.0.store(next, Ordering::Relaxed);
                        break place;
                    }
                    // Relaxed: the hand-over is by the place's own word.
                    match self.tail.0.compare_exchange_weak(
                        number,
                        next,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => break place,
                        Err(now) => number = now,
                    }
                }
                // The one that stood here a round ago is still there.
                ..0 => return Err(value),
                _ => number = self.tail.0.load(Ordering::Relaxed),
            }
        };
        // SAFETY: the tail moved over this place by our exchange alone, and its word said that it is free:
        // it is ours until we say otherwise.
        unsafe { write(&place.value, value) };
        let hand_over = unless(Mutant::RelaxedHandOver, Ordering::Release);
        place.turn.store(number.wrapping_add(1), hand_over);
        Ok(())
    }

    /// Takes the oldest value; `None` where there is none, or it is just being put there.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        let mut number = self.head.0.load(Ordering::Relaxed);
        let place = loop {
            let place = self.place(number);
            // Acquire: what was written there is seen.
            let turn = place.turn.load(unless(Mutant::RelaxedTake, Ordering::Acquire));
            match turn.wrapping_sub(number.wrapping_add(1)) as isize {
                0 => {
                    let next = number.wrapping_add(1);
                    if mutated(Mutant::TakeWithoutClaim) {
                        self.head.0.store(next, Ordering::Relaxed);
                        break place;
                    }
                    match self.head.0.compare_exchange_weak(
                        number,
                        next,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => break place,
                        Err(now) => number = now,
                    }
                }
                ..0 => return None,
                _ => number = self.head.0.load(Ordering::Relaxed),
            }
        };
        // SAFETY: the head moved over this place by our exchange alone, and its word said that a value
        // stands there: it is ours until we say otherwise, and nobody reads it again.
        let value = unsafe { read(&place.value) };
        let give_back = unless(Mutant::RelaxedReturn, Ordering::Release);
        place.turn.store(number.wrapping_add(self.places.len()), give_back);
        Some(value)
    }

    /// Whether there was nothing to take a moment ago.
    #[inline]
    pub fn is_empty(&self) -> bool {
        let number = self.head.0.load(Ordering::Relaxed);
        let turn = self.place(number).turn.load(Ordering::Acquire);
        (turn.wrapping_sub(number.wrapping_add(1)) as isize) < 0
    }

    /// How many values there were a moment ago, those included that are just being put there.
    pub fn len(&self) -> usize {
        let head = self.head.0.load(Ordering::Relaxed);
        self.tail.0.load(Ordering::Relaxed).wrapping_sub(head).min(self.places.len())
    }

    /// Values that fit.
    pub fn capacity(&self) -> usize {
        self.places.len()
    }
}

/// # Safety
/// The cell is the caller's alone.
#[inline(always)]
unsafe fn write<T>(cell: &UnsafeCell<MaybeUninit<T>>, value: T) {
    #[cfg(not(loom))]
    // SAFETY: by the contract.
    unsafe {
        (*cell.get()).write(value);
    }
    #[cfg(loom)]
    // SAFETY: by the contract, which loom checks.
    cell.with_mut(|cell| unsafe {
        (*cell).write(value);
    });
}

/// # Safety
/// The cell is the caller's alone and holds a value, which nobody reads again.
#[inline(always)]
unsafe fn read<T>(cell: &UnsafeCell<MaybeUninit<T>>) -> T {
    #[cfg(not(loom))]
    // SAFETY: by the contract.
    unsafe {
        (*cell.get()).assume_init_read()
    }
    #[cfg(loom)]
    // SAFETY: by the contract, whose first half loom checks.
    cell.with_mut(|cell| unsafe { (*cell).assume_init_read() })
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

impl<T> core::fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ring")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .finish()
    }
}
