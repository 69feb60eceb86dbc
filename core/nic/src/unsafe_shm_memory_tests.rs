//! Lanes on heap memory (also under Miri), against a peer that lies.

use super::*;
use crate::unsafe_ring::{RingMemory, Word};
use mem::Region;

fn ends(slots: u32) -> (Sender, Receiver, Arc<Memory>) {
    let memory = Memory::heap(slots).expect("a size");
    let sender = Sender::new(&memory, 1).expect("fits");
    let receiver = Receiver::new(&memory, 1).expect("fits");
    (sender, receiver, memory)
}

fn pool() -> Pool {
    Pool::new(&Region::heap(8), 8)
}

#[test]
fn frames_of_all_lengths_cross_and_wrap() {
    let (mut sender, mut receiver, _) = ends(4);
    let mut pool = pool();
    for round in 0..10u8 {
        let lens = [0, 1, MAX_FRAME_BYTES];
        assert_eq!(sender.room(3), 3);
        for len in lens {
            assert!(sender.push(&vec![round; len]));
        }
        assert_eq!(receiver.ready(9), 0, "not submitted");
        assert!(!sender.submit(), "nobody sleeps");
        assert_eq!((receiver.ready(9), receiver.backlog()), (3, 3));
        for len in lens {
            let mbuf = receiver.pop(&mut pool).expect("a frame").expect("a buffer");
            assert_eq!(mbuf.bytes(), vec![round; len]);
            pool.free(mbuf);
        }
        assert!(receiver.pop(&mut pool).is_none());
        receiver.release();
    }
}

#[test]
fn a_full_lane_and_a_long_frame_are_refused() {
    let (mut sender, mut receiver, _) = ends(2);
    let mut pool = pool();
    assert!(!sender.push(&[0; MAX_FRAME_BYTES + 1]));
    assert!(sender.push(&[1]) && sender.push(&[2]) && !sender.push(&[3]));
    sender.submit();
    assert_eq!(sender.room(5), 0);
    assert_eq!(receiver.ready(5), 2);
    let mbuf = receiver.pop(&mut pool).expect("a frame").expect("a buffer");
    pool.free(mbuf);
    receiver.release();
    assert_eq!(sender.room(5), 1);
}

#[test]
fn lying_lengths_and_indices_are_refused() {
    let (_, mut receiver, memory) = ends(4);
    let mut pool = pool();
    let (ring, _) = lane(&memory, 1).expect("fits");
    for slot in 0..4 {
        // SAFETY: below the size; this thread plays the producer.
        unsafe {
            ring.write(slot, if slot == 0 { u32::MAX } else { MAX_FRAME_BYTES as u32 + slot })
        };
    }
    ring.producer().store_release(0x4000_0001);
    assert_eq!(receiver.ready(u32::MAX), 4);
    for _ in 0..4 {
        assert_eq!(receiver.pop(&mut pool).expect("an entry").err(), Some(Refused::BadLength));
    }
    assert!(receiver.pop(&mut pool).is_none());
    assert_eq!(pool.available(), 8);
}

/// A peer that goes on changing the length of a frame that it has handed over: what is used is what was checked.
/// Miri finds where the length is read otherwise than as one atomic word.
#[test]
fn a_length_that_changes_while_it_is_read_is_used_as_it_was_checked() {
    use std::sync::atomic::{AtomicBool, Ordering};
    const LENGTHS: [usize; 5] = [0, 60, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, u32::MAX as usize];
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    let (mut sender, mut receiver, memory) = ends(2);
    let region = Region::heap(8);
    let mut pool = Pool::new(&region, 8);
    let (stop, mut refused, mut received) = (AtomicBool::new(false), 0, 0);
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            let (ring, _) = lane(&memory, 1).expect("fits");
            while !stop.load(Ordering::Relaxed) {
                for (len, slot) in LENGTHS.into_iter().zip([0, 1].into_iter().cycle()) {
                    // SAFETY: below the size; this thread plays a producer that breaks the protocol.
                    unsafe { ring.write(slot, len as u32) };
                }
                std::thread::yield_now();
            }
        });
        for _ in 0..rounds {
            assert!(sender.room(1) == 1 && sender.push(&[7; 60]));
            sender.submit();
            assert_eq!(receiver.ready(1), 1);
            match receiver.pop(&mut pool).expect("a frame") {
                Ok(mbuf) => {
                    assert!(LENGTHS[..3].contains(&mbuf.len()), "{} bytes", mbuf.len());
                    received += 1;
                    pool.free(mbuf);
                }
                Err(refusal) => {
                    assert_eq!(refusal, Refused::BadLength);
                    refused += 1;
                }
            }
            receiver.release();
        }
    });
    assert_eq!((refused + received, pool.available()), (rounds, 8));
}

#[test]
fn want_of_a_buffer_is_an_answer() {
    let (mut sender, mut receiver, _) = ends(2);
    let mut pool = Pool::new(&Region::heap(1), 1);
    let held = pool.alloc().expect("one");
    assert!(sender.push(&[1]));
    sender.submit();
    receiver.ready(1);
    assert_eq!(receiver.pop(&mut pool).expect("an entry").err(), Some(Refused::NoBuffer));
    pool.free(held);
}

#[test]
fn a_sleeper_is_told_of_once() {
    let (mut sender, mut receiver, _) = ends(4);
    assert!(receiver.arm(), "nothing waits");
    assert!(sender.push(&[1]));
    assert!(sender.submit(), "must be woken");
    assert!(sender.push(&[2]));
    assert!(!sender.submit(), "was woken");
    assert!(!receiver.arm(), "two frames wait");
    receiver.disarm();
    assert_eq!(receiver.ready(4), 2);
}

#[test]
fn senseless_sizes_are_refused() {
    for slots in [0, 1, 3, MAX_SLOTS * 2] {
        assert!(Memory::heap(slots).is_err(), "{slots}");
    }
}

#[cfg(not(miri))]
mod files {
    use super::*;

    #[test]
    fn a_joiner_sees_what_the_creator_sends() {
        let memory = Memory::create(8).expect("memory");
        let file = memory.file().expect("a file").try_clone_to_owned().expect("a descriptor");
        let joined = Memory::join(file).expect("the same memory");
        assert_eq!(joined.slots(), 8);
        let mut sender = Sender::new(&memory, 0).expect("fits");
        let mut receiver = Receiver::new(&joined, 0).expect("fits");
        assert!(sender.push(b"hello"));
        sender.submit();
        let mut pool = pool();
        assert_eq!(receiver.ready(1), 1);
        let mbuf = receiver.pop(&mut pool).expect("a frame").expect("a buffer");
        assert_eq!(mbuf.bytes(), b"hello");
        pool.free(mbuf);
    }

    #[test]
    fn what_is_no_such_memory_is_refused() {
        let make = |seal: bool, len: u64, magic: u64, slots: u32| {
            let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
            let file = rustix::fs::memfd_create("test", flags).expect("a file");
            ftruncate(&file, len).expect("a size");
            let mut header = magic.to_ne_bytes().to_vec();
            header.extend(slots.to_ne_bytes());
            if len >= 12 {
                rustix::io::pwrite(&file, &header, 0).expect("written");
            }
            if seal {
                fcntl_add_seals(&file, SealFlags::SHRINK).expect("sealed");
            }
            Memory::join(file)
        };
        let len = total_bytes(8) as u64;
        assert!(make(true, len, MAGIC, 8).is_ok());
        assert!(make(false, len, MAGIC, 8).is_err(), "could shrink");
        assert!(make(true, len, MAGIC + 1, 8).is_err(), "other magic");
        assert!(make(true, len, MAGIC, 16).is_err(), "more slots than memory");
        assert!(make(true, len, MAGIC, 7).is_err(), "no power of two");
        assert!(make(true, 0, MAGIC, 8).is_err(), "empty");
        let null = std::fs::File::open("/dev/null").expect("the null device");
        assert!(Memory::join(null.into()).is_err(), "no memory file");
    }
}
