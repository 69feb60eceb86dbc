//! The ring on heap memory (also under Miri), and a model of its memory ordering (loom).
//!
//! `cargo +nightly miri test -p nic --lib ring` and
//! `RUSTFLAGS="--cfg loom" cargo test -p nic --lib ring --release`.

use super::*;
use std::cell::UnsafeCell;
use std::sync::Arc;

const OFFSETS: RingOffsets =
    RingOffsets { producer: 0, consumer: 64, flags: Some(128), entries: 192 };

/// Memory for a ring, shared by its two sides.
struct Heap(UnsafeCell<Vec<u64>>);
// SAFETY: only rings touch the words, by their protocol.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

fn heap(size: u32) -> Arc<Heap> {
    Arc::new(Heap(UnsafeCell::new(vec![0; OFFSETS.len_bytes(size, 8).div_ceil(8)])))
}

fn ring(heap: &Arc<Heap>, size: u32) -> RawRing<u64, Arc<Heap>> {
    // SAFETY: the vector is never resized; its address is read without a reference to its elements
    // being kept.
    let (base, len) = unsafe {
        let words = &mut *heap.0.get();
        (NonNull::new(words.as_mut_ptr()).expect("not null").cast::<u8>(), words.len() * 8)
    };
    // SAFETY: the memory lives as long as the `Arc`, and is used by rings only.
    unsafe { RawRing::new(base, len, OFFSETS, size, Arc::clone(heap)) }.expect("fits")
}

type Sides = (Producer<u64, RawRing<u64, Arc<Heap>>>, Consumer<u64, RawRing<u64, Arc<Heap>>>);

fn sides(size: u32, start: u32) -> Sides {
    let heap = heap(size);
    let memory = ring(&heap, size);
    memory.producer().store_release(start);
    memory.consumer().store_release(start);
    (Producer::new(memory), Consumer::new(ring(&heap, size)))
}

#[test]
fn entries_come_out_in_order_across_the_wrap_of_the_index() {
    let (mut producer, mut consumer) = sides(8, u32::MAX - 11);
    let (mut sent, mut seen) = (0u64, 0u64);
    while seen < 40 {
        let room = producer.reserve(5);
        for _ in 0..room {
            assert!(producer.push(sent));
            sent += 1;
        }
        assert_eq!(consumer.peek(8) as u64, sent - u64::from(room) - seen, "not submitted yet");
        producer.submit();
        let ready = consumer.peek(3);
        for _ in 0..ready {
            assert_eq!(consumer.pop(), Some(seen));
            seen += 1;
        }
        consumer.release();
        assert_eq!(u64::from(producer.pending()), sent - seen);
    }
}

#[test]
fn a_full_ring_takes_no_more_and_an_empty_one_gives_none() {
    let (mut producer, mut consumer) = sides(4, 0);
    assert_eq!(producer.reserve(9), 4);
    for entry in 0..4 {
        assert!(producer.push(entry));
    }
    assert!(!producer.push(4), "beyond the reservation");
    assert_eq!((consumer.peek(4), consumer.pop()), (0, None));
    producer.submit();
    assert_eq!(producer.reserve(1), 0);
    assert_eq!(consumer.peek(2), 2);
    assert_eq!((consumer.pop(), consumer.pop()), (Some(0), Some(1)));
    assert_eq!(producer.reserve(4), 0, "popped but not released");
    consumer.release();
    assert_eq!(producer.reserve(4), 2);
}

#[test]
fn a_lying_other_side_cannot_lead_out_of_the_ring() {
    let (mut producer, mut consumer) = sides(4, 0);
    producer.memory().consumer().store_release(77);
    assert_eq!(producer.reserve(5), 0);
    assert!(!producer.push(1));
    consumer.memory().producer().store_release(0x8000_0000);
    assert_eq!(consumer.peek(u32::MAX), 4);
    let popped = core::iter::from_fn(|| consumer.pop()).count();
    assert_eq!(popped, 4);
}

#[test]
fn memory_that_does_not_hold_the_ring_is_refused() {
    let heap = heap(8);
    let whole = OFFSETS.len_bytes(8, 8);
    // SAFETY: the vector is as long as `whole`, and lives as long as the `Arc`.
    let make = |len, offsets, size| unsafe {
        let base = NonNull::new((*heap.0.get()).as_mut_ptr()).expect("not null").cast::<u8>();
        RawRing::<u64, _>::new(base, len, offsets, size, Arc::clone(&heap)).is_some()
    };
    assert!(make(whole, OFFSETS, 8));
    assert!(!make(whole - 1, OFFSETS, 8));
    assert!(!make(whole, OFFSETS, 7));
    assert!(!make(whole, OFFSETS, 0));
    assert!(!make(whole, RingOffsets { producer: whole, ..OFFSETS }, 8));
    assert!(!make(whole, RingOffsets { consumer: 2, ..OFFSETS }, 8));
    assert!(!make(whole, RingOffsets { flags: Some(usize::MAX), ..OFFSETS }, 8));
    assert!(!make(whole, RingOffsets { entries: usize::MAX - 7, ..OFFSETS }, 8));
}

#[cfg(not(loom))]
#[test]
fn two_threads_lose_and_invent_nothing() {
    let total: u64 = if cfg!(miri) { 200 } else { 200_000 };
    let (mut producer, mut consumer) = sides(16, u32::MAX - 100);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut next = 0;
            while next < total {
                for _ in 0..producer.reserve(5) {
                    if next < total && producer.push(next * 7) {
                        next += 1;
                    }
                }
                producer.submit();
                std::thread::yield_now();
            }
        });
        let mut expected = 0;
        while expected < total {
            for _ in 0..consumer.peek(9) {
                assert_eq!(consumer.pop(), Some(expected * 7));
                expected += 1;
            }
            consumer.release();
            std::thread::yield_now();
        }
    });
}

/// Every interleaving and every reordering that the memory model allows, for two entries through a
/// ring of one slot, so that reuse of the slot is covered too.
#[cfg(loom)]
mod loom_model {
    use super::*;
    use handshake::{ByFence, One, Sleepers, models};
    use loom::cell::UnsafeCell as ModelCell;
    use loom::sync::atomic::{AtomicU32 as ModelWord, Ordering};

    struct Good(ModelWord);
    impl Word for Good {
        fn load_relaxed(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }
        fn load_acquire(&self) -> u32 {
            self.0.load(Ordering::Acquire)
        }
        fn store_release(&self, value: u32) {
            self.0.store(value, Ordering::Release);
        }
    }

    /// A mistake: publishes with a relaxed store.
    struct RelaxedPublish(Good);
    impl Word for RelaxedPublish {
        fn load_relaxed(&self) -> u32 {
            self.0.load_relaxed()
        }
        fn load_acquire(&self) -> u32 {
            self.0.load_acquire()
        }
        fn store_release(&self, value: u32) {
            self.0.0.store(value, Ordering::Relaxed);
        }
    }

    /// A mistake: reads the other side's index without acquiring what stands behind it.
    struct RelaxedLook(Good);
    impl Word for RelaxedLook {
        fn load_relaxed(&self) -> u32 {
            self.0.load_relaxed()
        }
        fn load_acquire(&self) -> u32 {
            self.0.load_relaxed()
        }
        fn store_release(&self, value: u32) {
            self.0.store_release(value);
        }
    }

    trait Make: Word + 'static {
        fn zero() -> Self;
    }
    impl Make for Good {
        fn zero() -> Self {
            Good(ModelWord::new(0))
        }
    }
    impl Make for RelaxedPublish {
        fn zero() -> Self {
            RelaxedPublish(Good::zero())
        }
    }
    impl Make for RelaxedLook {
        fn zero() -> Self {
            RelaxedLook(Good::zero())
        }
    }

    struct Memory<W> {
        producer: W,
        consumer: W,
        armed: ModelWord,
        slots: Vec<ModelCell<u32>>,
    }

    impl<W: Make> Memory<W> {
        fn shared(size: usize) -> Arc<Self> {
            let slots = (0..size).map(|_| ModelCell::new(0)).collect();
            Arc::new(Self {
                producer: W::zero(),
                consumer: W::zero(),
                armed: ModelWord::new(0),
                slots,
            })
        }
    }

    // SAFETY: slots are checked by loom.
    unsafe impl<W: Word> RingMemory<u32> for Arc<Memory<W>> {
        type Word = W;
        fn producer(&self) -> &W {
            &self.producer
        }
        fn consumer(&self) -> &W {
            &self.consumer
        }
        fn size(&self) -> u32 {
            self.slots.len() as u32
        }
        unsafe fn write(&self, slot: u32, entry: u32) {
            // SAFETY: loom fails the test where another thread touches the slot.
            self.slots[slot as usize].with_mut(|cell| unsafe { *cell = entry });
        }
        unsafe fn read(&self, slot: u32) -> u32 {
            // SAFETY: as above.
            self.slots[slot as usize].with(|cell| unsafe { *cell })
        }
    }

    // SAFETY: the model's memory is made of loom's words and cells.
    unsafe impl<W> Sync for Memory<W> {}
    // SAFETY: as above.
    unsafe impl<W> Send for Memory<W> {}

    fn two_entries<W: Make>() {
        loom::model(|| {
            let memory = Memory::<W>::shared(1);
            let mut producer = Producer::new(Arc::clone(&memory));
            let mut consumer = Consumer::new(memory);
            let sender = loom::thread::spawn(move || {
                for entry in [7, 8] {
                    while producer.reserve(1) == 0 {
                        loom::thread::yield_now();
                    }
                    assert!(producer.push(entry));
                    producer.submit();
                }
            });
            for expected in [7, 8] {
                while consumer.peek(1) == 0 {
                    loom::thread::yield_now();
                }
                assert_eq!(consumer.pop(), Some(expected));
                consumer.release();
            }
            sender.join().expect("the sender finished");
        });
    }

    #[test]
    fn no_entry_is_seen_before_it_is_written_nor_overwritten_before_it_is_read() {
        two_entries::<Good>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_relaxed_publish_is_caught() {
        two_entries::<RelaxedPublish>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn a_relaxed_look_is_caught() {
        two_entries::<RelaxedLook>();
    }

    /// Sleeping: the consumer arms, then looks; the producer submits, then looks whether the
    /// consumer armed. At least one of them must notice.
    #[test]
    fn no_wake_up_is_lost() {
        const OVERSLEPT: &str = "asleep, with an entry in the ring and no wake-up";
        let mistakes = [
            (models::Mutant::NoFenceBeforeLook, OVERSLEPT),
            (models::Mutant::NoFenceBeforeNotify, OVERSLEPT),
            (models::Mutant::LookBeforeAnnouncement, OVERSLEPT),
        ];
        models::check(models::mutate, &mistakes, || {
            let memory = Memory::<Good>::shared(1);
            let mut producer = Producer::new(Arc::clone(&memory));
            let consumer = Consumer::new(Arc::clone(&memory));
            let other = Arc::clone(&memory);
            let sender = loom::thread::spawn(move || {
                producer.reserve(1);
                producer.push(7);
                producer.submit();
                let sleeper = Sleepers::<_, One, ByFence>::over(&other.armed);
                sleeper.notify(One) != 0 && sleeper.claim(1)
            });
            let sleeper = Sleepers::<_, One, ByFence>::over(&memory.armed);
            let quiet = sleeper.arm(1, |One| consumer.backlog() > 0).is_quiet();
            let rang = sender.join().expect("the sender finished");
            assert!(!quiet || rang, "{OVERSLEPT}");
        });
    }
}
