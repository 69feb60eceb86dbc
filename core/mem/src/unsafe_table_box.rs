//! Memory for tables that are large and looked up at random: connections, and what services keep of
//! them.
//!
//! A message of one connection out of a hundred thousand touches memory that nobody has touched for
//! long, so beside the cache it misses the TLB, and in 4 KiB pages the walk misses as well. A
//! [`TableBox`] is a `Box` whose contents lie beside those of others in blocks of 2 MiB, for which the
//! kernel is asked to use huge pages (`madvise`; where it has none to give, or none are enabled, the
//! pages are small and nothing else changes: `tailplane doctor` says which).
//!
//! Each thread carves its own blocks, so nothing is locked, and the memory is near the core that
//! touched it first. What a dropped box held is not used again before all boxes of its block are gone:
//! for parts of tables that only grow.
//!
//! This module holds `unsafe` because boxes point into blocks. It stays sound by three rules: each byte
//! of a block is given out at most once; every box keeps its block alive; a box is the only owner of its
//! value.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

#[cfg(feature = "std")]
use self::blocks::Block;

/// See the module's comment.
#[derive(Debug)]
pub struct TableBox<T> {
    value: NonNull<T>,
    home: Home,
    owns: core::marker::PhantomData<T>,
}

/// Where a value lies.
#[derive(Debug)]
enum Home {
    /// In an allocation of its own: it is a `Box`.
    Alone,
    #[cfg(feature = "std")]
    Within(#[expect(dead_code, reason = "held to keep the memory")] alloc::sync::Arc<Block>),
}

// SAFETY: it owns its value, as a `Box` does; a block is an address range without contents of its own.
unsafe impl<T: Send> Send for TableBox<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for TableBox<T> {}

impl<T> TableBox<T> {
    /// A box with this value.
    pub fn new(value: T) -> Self {
        #[cfg(feature = "std")]
        if let Some((place, block)) = blocks::carve(core::alloc::Layout::new::<T>()) {
            let place = place.cast::<T>();
            // SAFETY: of the right size and alignment, in a block that is alive, and nobody else's.
            unsafe { place.write(value) };
            let owns = core::marker::PhantomData;
            return Self { value: place, home: Home::Within(block), owns };
        }
        let value = NonNull::from(Box::leak(Box::new(value)));
        Self { value, home: Home::Alone, owns: core::marker::PhantomData }
    }
}

impl<T> Deref for TableBox<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: written in `new`, and this box owns it.
        unsafe { self.value.as_ref() }
    }
}

impl<T> DerefMut for TableBox<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the box is borrowed alone.
        unsafe { self.value.as_mut() }
    }
}

impl<T> Drop for TableBox<T> {
    fn drop(&mut self) {
        match self.home {
            // SAFETY: leaked from a `Box` in `new`, and taken back only here.
            Home::Alone => drop(unsafe { Box::from_raw(self.value.as_ptr()) }),
            // SAFETY: nobody uses the value after this; the block goes, if it does, afterwards.
            #[cfg(feature = "std")]
            Home::Within(_) => unsafe { self.value.drop_in_place() },
        }
    }
}

#[cfg(feature = "std")]
mod blocks {
    use alloc::alloc::{Layout, alloc, dealloc};
    use alloc::sync::Arc;
    use core::cell::RefCell;
    use core::ptr::NonNull;

    /// Bytes of a block: those of a huge page, at whose boundary it begins.
    const BLOCK: usize = 2 << 20;
    /// What is larger has an allocation of its own.
    const LARGEST: usize = BLOCK / 8;

    const LAYOUT: Layout = match Layout::from_size_align(BLOCK, BLOCK) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };

    /// An allocation that boxes lie in.
    #[derive(Debug)]
    pub struct Block(NonNull<u8>);

    // SAFETY: an address range; what lies in it belongs to the boxes.
    unsafe impl Send for Block {}
    // SAFETY: as above.
    unsafe impl Sync for Block {}

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: allocated with this layout; no box is left, as each holds the block.
            unsafe { dealloc(self.0.as_ptr(), LAYOUT) };
        }
    }

    impl Block {
        fn new() -> Option<Self> {
            // SAFETY: the layout's size is not zero.
            let base = NonNull::new(unsafe { alloc(LAYOUT) })?;
            #[cfg(all(target_os = "linux", not(miri)))]
            {
                use rustix::mm::{Advice, madvise};
                // SAFETY: the range was just allocated; the advice changes no contents.
                let _ = unsafe { madvise(base.as_ptr().cast(), BLOCK, Advice::LinuxHugepage) };
            }
            Some(Self(base))
        }
    }

    std::thread_local! {
        /// The block that this thread carves, and how much of it is given out.
        static CURRENT: RefCell<Option<(Arc<Block>, usize)>> = const { RefCell::new(None) };
    }

    /// Memory for one value. `None`: it is too large or there is no memory for a block, or the thread
    /// is about to end.
    pub fn carve(layout: Layout) -> Option<(NonNull<u8>, Arc<Block>)> {
        if layout.size() > LARGEST || layout.align() > BLOCK {
            return None;
        }
        let carve = |current: &RefCell<Option<(Arc<Block>, usize)>>| {
            let mut current = current.try_borrow_mut().ok()?;
            let fits = |(_, used): &&(Arc<Block>, usize)| {
                used.next_multiple_of(layout.align()) + layout.size() <= BLOCK
            };
            if current.as_ref().filter(fits).is_none() {
                *current = Some((Arc::new(Block::new()?), 0));
            }
            let (block, used) = current.as_mut()?;
            let start = used.next_multiple_of(layout.align());
            *used = start + layout.size();
            // SAFETY: `start + size` is within the block, as was asked above.
            Some((unsafe { block.0.add(start) }, Arc::clone(block)))
        };
        CURRENT.try_with(carve).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn values_live_and_are_dropped_once() {
        let alive = Rc::new(());
        let mut boxes: Vec<TableBox<([u64; 9], Rc<()>)>> =
            (0..100).map(|n| TableBox::new(([n; 9], Rc::clone(&alive)))).collect();
        assert_eq!(Rc::strong_count(&alive), 101);
        for (n, value) in boxes.iter_mut().enumerate() {
            assert_eq!(value.0, [n as u64; 9]);
            value.0[3] = 7;
        }
        boxes.retain(|value| value.0[0] % 2 == 0);
        assert_eq!(Rc::strong_count(&alive), 51);
        assert!(boxes.iter().all(|value| value.0[3] == 7));
        drop(boxes);
        assert_eq!(Rc::strong_count(&alive), 1);
    }

    #[test]
    fn alignment_holds_and_values_stand_together() {
        #[repr(align(64))]
        struct Line(#[expect(dead_code, reason = "of this size")] [u8; 64]);
        let first = TableBox::new(1u8);
        let lines: Vec<TableBox<Line>> = (0..4).map(|n| TableBox::new(Line([n; 64]))).collect();
        let at = |line: &TableBox<Line>| core::ptr::from_ref(&**line) as usize;
        assert!(lines.iter().all(|line| at(line) % 64 == 0));
        assert!(lines.windows(2).all(|pair| at(&pair[1]) == at(&pair[0]) + 64));
        assert_eq!(*first, 1);
    }

    #[test]
    fn large_and_many_values() {
        let large = TableBox::new([5u8; 300 << 10]);
        assert!(large.iter().all(|&byte| byte == 5));
        // More than one block.
        let count = if cfg!(miri) { 300 } else { 3_000 };
        let many: Vec<TableBox<[u32; 2_048]>> =
            (0..count).map(|n| TableBox::new([n; 2_048])).collect();
        assert!(many.iter().enumerate().all(|(n, value)| value[2_047] == n as u32));
    }

    #[test]
    fn another_thread_may_have_and_drop_it() {
        let made = std::thread::spawn(|| TableBox::new(String::from("there"))).join();
        let made = made.expect("no panic");
        assert_eq!(*made, "there");
        std::thread::spawn(move || drop(made)).join().expect("no panic");
    }
}
