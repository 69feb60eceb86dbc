//! Copies between private memory and memory that another process may write to at any time.
//!
//! This module holds `unsafe` because of what an ordinary copy permits: the compiler may assume that no other
//! process writes meanwhile, and so read a place once more later, in place of the copy: a length after it was checked, bytes
//! after they were summed. Here each shared byte is read once, by a volatile access, which the compiler neither repeats
//! nor leaves out. What other processes do beside is not part of the program, as with a device's memory; threads of
//! one process that share words use atomics.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

/// The widest word that is read at once.
#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m128i;
/// See above.
#[cfg(not(target_arch = "x86_64"))]
type Wide = u64;

const WIDE: usize = size_of::<Wide>();
/// Bytes of one round of a long copy.
const ROUND: usize = 4 * WIDE;

/// A word at any address: volatile accesses want an aligned one, and what is packed is aligned everywhere.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Anywhere<T>(T);

/// Copies one word.
///
/// # Safety
/// Both addresses are valid for a `T`, of which any bits are one.
#[inline(always)]
unsafe fn copy_word<T: Copy>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise; a packed word is aligned at any address.
    unsafe { to.cast::<Anywhere<T>>().write(from.cast::<Anywhere<T>>().read_volatile()) }
}

/// Copies `len` bytes, each of which is read once.
///
/// # Safety
/// Both are valid for `len` bytes, and do not overlap.
#[inline(always)]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    // SAFETY: `at` plus the size of what is copied next is never more than `len`.
    unsafe {
        while len - at >= ROUND {
            for word in 0..ROUND / WIDE {
                copy_word::<Wide>(from.add(at + word * WIDE), to.add(at + word * WIDE));
            }
            at += ROUND;
        }
        while len - at >= WIDE {
            copy_word::<Wide>(from.add(at), to.add(at));
            at += WIDE;
        }
        while len - at >= 8 {
            copy_word::<u64>(from.add(at), to.add(at));
            at += 8;
        }
        if len - at >= 4 {
            copy_word::<u32>(from.add(at), to.add(at));
            at += 4;
        }
        if len - at >= 2 {
            copy_word::<u16>(from.add(at), to.add(at));
            at += 2;
        }
        if at < len {
            copy_word::<u8>(from.add(at), to.add(at));
        }
    }
    // What follows reads the copy from memory. Else the compiler keeps it in vector registers where it can, and takes
    // those apart for a sum: twice as many instructions.
    compiler_fence(Ordering::AcqRel);
}

/// Copies shared bytes into private memory, of any length.
///
/// # Safety
/// `from` is valid for as many bytes as `to` has. Another process may write there meanwhile: the copy is then a mix of
/// what was there before and after.
#[inline]
pub unsafe fn copy_from_shared(from: NonNull<u8>, to: &mut [u8]) {
    // SAFETY: the caller's promise; a private buffer does not overlap shared memory.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), to.len()) }
}

/// Copies so many shared bytes as are known where the program is compiled: no branches.
///
/// # Safety
/// As for [`copy_from_shared`].
#[inline(always)]
pub unsafe fn copy_array_from_shared<const N: usize>(from: NonNull<u8>, to: &mut [u8; N]) {
    // SAFETY: as for `copy_from_shared`.
    unsafe { copy(from.as_ptr(), to.as_mut_ptr(), N) }
}

/// Copies private bytes to shared memory, of any length.
///
/// # Safety
/// `to` is valid for as many bytes as `from` has. Another process may write there meanwhile, and read at any time.
#[inline]
pub unsafe fn copy_to_shared(from: &[u8], to: NonNull<u8>) {
    // SAFETY: the caller's promise; a private buffer does not overlap shared memory.
    unsafe { to.as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    // What is written there is never read back: neither by the program, nor, behind this, by the compiler.
    compiler_fence(Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lengths_at_all_alignments_are_copied_whole_and_no_further() {
        let from: Vec<u8> = (0..400).map(|at| at as u8).collect();
        for len in (0..=3 * ROUND).step_by(if cfg!(miri) { 7 } else { 1 }) {
            for at in 0..WIDE {
                let mut to = vec![0xee; len + 2];
                let first = NonNull::from(&from[at..at + len]).cast();
                // SAFETY: `first` has `len` bytes.
                unsafe { copy_from_shared(first, &mut to[1..=len]) };
                assert_eq!((to[0], to[len + 1]), (0xee, 0xee));
                assert_eq!(to[1..=len], from[at..at + len]);
                let mut back = vec![0xee; len + 2];
                // SAFETY: `back` has `len` bytes behind its first.
                unsafe { copy_to_shared(&to[1..=len], NonNull::from(&mut back[1..=len]).cast()) };
                assert_eq!(back, to);
            }
        }
    }
}
