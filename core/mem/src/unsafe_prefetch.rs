//! Asking the processor for a cache line ahead of its use.
//!
//! `unsafe` because the intrinsic takes a pointer; it cannot fault whatever the pointer is.
#![allow(unsafe_code)]

/// Starts loading the cache line of `value`.
#[inline(always)]
pub fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint; it reads nothing that the program can observe, and the reference is valid.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}
