//! An application that writes whatever it likes into the arrays, whenever it likes: from another thread, so that words
//! change while they are read. Ten million batches that a seed replays are `tailplane-attack batches`.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Instant;
use domain::{CallArray, CallRecord, Calls, Cookie, EventArray, Handle, Service};
use mem::{HugePages, Pool, Region};
use memfile::Memory;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::rates::{Rates, Toll};
use crate::{Application, Far, Geometry, Hello, Host, Near, Waiting, layout};

const SEGMENT: usize = 1_448;
const ROOM: usize = 64;

fn join(region: &Arc<Region>) -> (Near<'static>, Far) {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (near, far) = pair.expect("made");
    let geometry = Geometry { events: 64, calls: 128, arena_chunks: 64 };
    let hello = Hello { geometry, waiting: Waiting::default(), segment_bytes: SEGMENT, sums: true };
    let host = Host::new(hello, 1, region).expect("made");
    host.greet(near.as_fd()).expect("sent");
    let mut fars = Application::join(far).expect("joined").begin(false).expect("sent");
    let mut nears = host.meet(near.as_fd(), &Arc::default()).expect("met");
    (nears.pop().expect("one"), fars.pop().expect("one"))
}

/// A word that a liar would like: at the edges of what is allowed, far beyond, or nearly right.
fn odd(random: &mut impl Rng, near: u64) -> u64 {
    match random.random_range(0..8) {
        0 => u64::MAX - random.random_range(0..3),
        1 => random.random(),
        2 => 1 << random.random_range(0..64),
        3 => near,
        4 => near.wrapping_add(1),
        5 => near.wrapping_sub(1),
        6 => random.random_range(0..9),
        _ => random.random_range(0..70_000),
    }
}

fn write(calls: &Memory, at: usize, value: u64) {
    if let Some(word) = calls.word64(at) {
        word.store(value, Ordering::Relaxed);
    }
}

/// Writes a batch of calls, most of which make no sense.
fn lie(calls: &Memory, geometry: Geometry, arena: u64, random: &mut impl Rng) {
    let most = if random.random_range(0..100) == 0 { geometry.call_records() } else { 5 };
    let count = random.random_range(0..=most);
    for index in 0..count {
        let at = geometry.record(index);
        let kind = odd(random, 2) & !(u64::from(random.random_bool(0.8)) * 0xff00);
        let kind = kind & 0xffff_ffff | odd(random, 2) << 32;
        let piece = odd(random, arena) << 16 | odd(random, 2_048) & 0xffff;
        let second = if random.random_bool(0.5) { random.random() } else { piece };
        let third = if random.random_bool(0.5) { odd(random, 100) } else { piece };
        for (word, value) in [kind, second, third, odd(random, 3)].into_iter().enumerate() {
            write(calls, at + 8 * word, value);
        }
    }
    for index in 0..random.random_range(0..=8) {
        let (offset, len) = (odd(random, arena), odd(random, 2_048));
        write(calls, geometry.piece(index), offset << 16 | len & 0xffff);
    }
    let told = if random.random_bool(0.9) { count as u64 } else { odd(random, 192) };
    let counts = layout::two(told as u32, odd(random, 8) as u32);
    write(calls, layout::CALLS_AND_PIECES, counts);
    write(calls, layout::WISH, odd(random, 0));
}

/// Issues must be calls that an honest application could have made, with sums of what is sent, and give all
/// memory back.
fn check(array: &mut CallArray, pool: &mut Pool) -> usize {
    let (records, mut payloads) = array.take();
    assert!(records.len() <= ROOM + EventArray::MAX_RECORDS);
    let mut next = 0;
    for record in &records {
        if let CallRecord::Sendv { staged, .. } | CallRecord::UdpSendv { staged, .. } = record {
            assert_eq!(staged.first, next, "pieces stand in the order of their calls");
            next += staged.count;
        }
    }
    assert_eq!(next as usize, payloads.len());
    for (mbuf, sum) in payloads.drain(..) {
        assert_eq!(sum.finish(), wire::Sum::of(mbuf.bytes()).finish(), "a sum of other bytes");
        pool.free(mbuf);
    }
    let count = records.len();
    array.restore(records, payloads);
    count
}

/// Has these calls issued, with no pieces beside them. Answers what comes of them: calls, and the bytes of messages.
fn issued(
    near: &mut Near<'_>,
    far: &Far,
    told: &[[u64; layout::RECORD_WORDS]],
    pool: &mut Pool,
) -> (Vec<CallRecord>, Vec<Vec<u8>>) {
    let (memory, geometry) = (&far.parts().calls, far.parts().geometry);
    for (index, words) in told.iter().enumerate() {
        for (word, value) in words.iter().enumerate() {
            write(memory, geometry.record(index) + 8 * word, *value);
        }
    }
    write(memory, layout::CALLS_AND_PIECES, layout::two(told.len() as u32, 0));
    let mut array = CallArray::new(ROOM, SEGMENT);
    near.take_calls(&mut Calls::new(&mut array, pool));
    let (records, payloads) = array.take();
    let take = |(mbuf, _): (mem::Mbuf, wire::Sum)| {
        let bytes = mbuf.bytes().to_vec();
        pool.free(mbuf);
        bytes
    };
    (records, payloads.into_iter().map(take).collect())
}

/// Bytes of the packet memory can be sent by their place, and no others.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn what_is_sent_of_the_packet_memory_is_inside_it() {
    let region = Region::map(512, HugePages::No).expect("mapped");
    let (mut near, far) = join(&region);
    let mut pool = Pool::new(&region, 128);
    let mut mbuf = pool.alloc().expect("memory");
    mbuf.append(b"received").expect("room");
    let at = pool.offset_of(&mbuf).expect("its own");
    let end = region.len_bytes() as u64;
    let pieces = [(at, 8), (end - 4, 4), (end - 4, 5), (end, 1), (u64::MAX >> 16, 65_535)];
    for policed in [false, true] {
        // With rates to keep it goes another way.
        let rates = Rates { bytes: policed.then_some(1 << 40), ..Rates::default() };
        near.toll = Toll::new(rates);
        let told: Vec<_> = pieces
            .iter()
            .zip(5..)
            .map(|((at, len), handle)| [8, handle, at << 16 | len, 3])
            .collect();
        // All in one batch, and each in one of its own.
        for batches in [vec![&told[..]], told.chunks(1).collect()] {
            let before = near.stats().violations();
            let (mut records, mut sent) = (Vec::new(), Vec::new());
            for batch in batches {
                let (more, bytes) = issued(&mut near, &far, batch, &mut pool);
                records.extend(more);
                sent.extend(bytes);
            }
            assert_eq!(sent, [&b"received"[..], &[0; 4]]);
            assert_eq!(near.stats().violations() - before, 3);
            // What they take along is given back all the same.
            assert_eq!(records.len(), 2 + pieces.len(), "{records:?}");
        }
    }
    pool.free(mbuf);
}

/// Answers count against an application's rates, many in a batch or one.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn answers_are_charged() {
    let region = Region::map(512, HugePages::No).expect("mapped");
    let (mut near, far) = join(&region);
    let mut pool = Pool::new(&region, 128);
    let (packets, bytes) = (Some(1_000), Some(1_000));
    let told: Vec<_> = (5..8).map(|handle| [8, handle, 8 << 16 | 8, 3]).collect();
    for (rates, millis) in
        [(Rates { packets, ..Rates::default() }, 3), (Rates { bytes, ..Rates::default() }, 3 * 8)]
    {
        for batches in [vec![&told[..]], told.chunks(1).collect()] {
            near.toll = Toll::new(rates);
            for batch in batches {
                issued(&mut near, &far, batch, &mut pool);
            }
            let toll = near.toll.as_ref().expect("there are rates");
            assert_eq!(toll.free_at(), Instant::from_millis(millis), "{rates:?}");
        }
    }
}

/// What a message takes along is checked as if it came by itself: it need not fit a number of 32 bits, nor what it
/// comes with be sound.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn what_a_message_takes_along_is_a_call_of_its_own() {
    let region = Region::map(512, HugePages::No).expect("mapped");
    let (mut near, far) = join(&region);
    let mut pool = Pool::new(&region, 128);
    let outside = 1 << 60 | 1;
    let told = [[8 << 16 | 4, 64], [8 << 16 | 4, u64::MAX], [outside, 64]];
    let told: Vec<_> = told
        .iter()
        .zip(5..)
        .map(|([piece, bytes], handle)| [2 | 1 << 32, handle, *piece, *bytes])
        .collect();
    let (records, sent) = issued(&mut near, &far, &told, &mut pool);
    let done: Vec<u32> = (records.iter())
        .filter_map(|record| match record {
            CallRecord::RecvDone { bytes, .. } => Some(*bytes),
            _ => None,
        })
        .collect();
    assert_eq!(done, [64, u32::MAX, 64]);
    assert_eq!((records.len(), sent.len()), (5, 2), "{records:?}");
    assert_eq!(near.stats().violations(), 1);
}

fn storm(batches: u64, seed: u64) {
    let region = Region::map(512, HugePages::No).expect("mapped");
    let (mut near, far) = join(&region);
    let stop = AtomicBool::new(false);
    let geometry = far.parts().geometry;
    std::thread::scope(|scope| {
        let stop = &stop;
        let _end = crate::rates_tests::Ends(stop);
        scope.spawn(move || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let far = far;
            let (events, calls) = (&far.parts().events, &far.parts().calls);
            let arena = far.arena().len_bytes() as u64;
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let batch =
                    events.word(layout::BATCH).map_or(0, |word| word.load(Ordering::Acquire));
                if batch == seen {
                    // Meanwhile it changes what is being read.
                    let at = 8 * random.random_range(1..geometry.call_bytes() as u64 / 8) as usize;
                    if at >= layout::HEADER {
                        write(calls, at, odd(&mut random, arena));
                    }
                    continue;
                }
                seen = batch;
                lie(calls, geometry, arena, &mut random);
                if let Some(done) = calls.word(layout::BATCH) {
                    done.store(batch, Ordering::Release);
                }
            }
        });
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        let mut pool = Pool::new(&region, 400);
        let mut array = CallArray::new(ROOM, SEGMENT);
        let mut events = EventArray::new(16);
        let (before, mut issued) = (pool.available(), 0);
        for batch in 0..batches {
            if random.random_bool(0.5) {
                let mut mbuf = pool.alloc().expect("memory");
                mbuf.append(b"request").expect("room");
                events.push_recv(Handle::new(1, 1, 1), Cookie(1), mbuf, 0, 1_000).expect("room");
            }
            let calls = &mut Calls::new(&mut array, &mut pool);
            near.on_batch(Instant::from_nanos(batch), events.view(&()), calls);
            issued += check(&mut array, &mut pool) as u64;
            for (_, mbuf) in events.drain() {
                pool.free(mbuf);
            }
        }
        assert_eq!(pool.available(), before, "memory is lost");
        let stats = near.stats();
        assert!(issued > batches / 4, "most lies are no calls at all: {issued}");
        assert!(stats.violations() > batches / 4 && stats.refused() > batches / 1_000, "{stats:?}");
    });
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn whatever_an_application_writes_is_a_call_or_nothing() {
    storm(200_000, 1);
}

/// What is only to be read cannot be mapped for writing, by whatever way; what the application writes neither, by
/// anybody else.
#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn what_is_shown_cannot_be_written_to() {
    let region = Region::map(512, HugePages::No).expect("mapped");
    let (_near, far) = join(&region);
    let parts = far.parts();
    for memory in [&parts.events, &parts.packets, &parts.calls] {
        let own = std::sync::Arc::ptr_eq(memory, &parts.calls);
        assert_eq!(memory.copy_in(0, b"x"), own, "what others write was joined to be read");
        let file = memory.descriptor().expect("duplicated");
        assert!(Memory::join(file, memory.len()).is_err(), "it can be mapped again for writing");
        let again = memory.descriptor().expect("duplicated");
        assert!(rustix::io::write(&again, b"x").is_err(), "it can be written to as a file");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&again));
        let opened = rustix::fs::open(path, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty());
        let mapped = opened.map(|file| Memory::join(file, memory.len()));
        assert!(!matches!(mapped, Ok(Ok(_))), "it can be opened again for writing");
    }
}
