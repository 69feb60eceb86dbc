//! Pools lose nothing, and refuse what is not theirs.

use super::*;

fn pool(chunks: u32) -> Pool {
    Pool::new(&Region::heap(chunks), chunks as usize)
}

#[test]
fn exhaustion_is_an_error_and_counted() {
    let mut pool = pool(2);
    let first = pool.alloc().expect("first");
    let second = pool.alloc().expect("second");
    assert_eq!(pool.alloc().err(), Some(Exhausted));
    assert_eq!(pool.stats().exhausted, 1);
    pool.free(first);
    pool.free(second);
    assert_eq!(pool.available(), 2);
}

#[test]
fn windows_never_leave_the_chunk() {
    let mut pool = pool(1);
    let mut mbuf = pool.alloc().expect("a chunk");
    assert_eq!(mbuf.headroom(), TX_HEADROOM - CHUNK_HEADER);
    assert!(mbuf.prepend(mbuf.headroom() + 1).is_err());
    assert!(mbuf.extend(mbuf.tailroom() + 1).is_err());
    let all = mbuf.tailroom();
    mbuf.extend(all).expect("all of the tail").fill(7);
    assert_eq!(mbuf.len(), CHUNK_SIZE - TX_HEADROOM);
    mbuf.advance(usize::MAX);
    assert!(mbuf.is_empty());
    assert_eq!(mbuf.reset(CHUNK_HEADER - 1), Err(NoRoom));
    assert_eq!(mbuf.reset(CHUNK_SIZE + 1), Err(NoRoom));
    pool.free(mbuf);
}

#[test]
fn the_device_can_return_only_what_it_holds() {
    let mut pool = pool(2);
    let mbuf = pool.alloc().expect("a chunk");
    let address = pool.lend(mbuf).expect("of this region");
    assert!(pool.take_back(1 << 40, 64).is_err(), "outside the region");
    assert!(pool.take_back(address + RX_HEADROOM as u64, CHUNK_SIZE).is_err(), "too long");
    assert!(pool.take_back(address, 64).is_err(), "inside the bookkeeping");
    let mbuf = pool.take_back(address + RX_HEADROOM as u64, 64).expect("lent");
    assert_eq!(mbuf.len(), 64);
    assert!(pool.take_back(address + RX_HEADROOM as u64, 64).is_err(), "returned twice");
    assert!(pool.complete_address(address).is_err(), "was never sent");
    pool.free(mbuf);
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_segment_is_free_when_sent_and_acknowledged_in_either_order() {
    for acknowledged_first in [true, false] {
        let mut pool = pool(1);
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(b"data").expect("fits");
        let mut segment = mbuf.retain(TxMeta { len: 4, ..TxMeta::default() });
        let frame = segment
            .transmit(3, |front, payload| {
                assert_eq!(payload, b"data");
                front.copy_from_slice(b"hdr");
            })
            .expect("room for three bytes");
        assert_eq!(frame.bytes(), b"hdrdata");
        assert!(segment.is_in_nic());
        assert!(segment.transmit(3, |_, _| ()).is_err(), "the device reads it");
        let (address, len) = pool.post(frame).expect("of this region");
        assert_eq!(len, 7);
        if acknowledged_first {
            pool.release(segment);
            assert_eq!(pool.available(), 0);
            pool.complete_address(address).expect("in transmission");
        } else {
            pool.complete_address(address).expect("in transmission");
            assert_eq!(pool.available(), 0);
            pool.release(segment);
        }
        assert_eq!(pool.available(), 1);
        assert!(pool.complete_address(address).is_err(), "completed twice");
    }
}

#[test]
fn a_frame_is_sent_and_kept_with_headers_before_it() {
    let mut pool = Pool::new(&Region::heap(2), 2);
    let mut mbuf = pool.alloc().expect("a chunk");
    mbuf.append(b"payload").expect("fits");
    let beyond = mbuf.transmit::<2048>(TxMeta::default(), |_| unreachable!("no headroom"));
    let mbuf = beyond.expect_err("more than the headroom");
    let write = |front: &mut [u8; 8]| {
        front[2..].copy_from_slice(b"header");
        6
    };
    let (retained, frame) = mbuf.transmit(TxMeta::default(), write).expect("headroom");
    assert_eq!((frame.bytes(), retained.payload()), (&b"headerpayload"[..], &b"payload"[..]));
    assert!(retained.is_in_nic());
    pool.complete(frame);
    pool.release(retained);
    assert_eq!(pool.available(), 2);
}

/// Also before a frame that leaves no headroom, whose metadata lies in the end of the chunk's bookkeeping.
#[test]
fn metadata_before_a_frame_overwrites_nothing() {
    for head in [CHUNK_HEADER, TX_HEADROOM] {
        let mut pool = Pool::new(&Region::heap(2), 2);
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.reset(head).expect("inside");
        mbuf.append(b"headerpayload").expect("fits");
        mbuf.advance(6);
        let meta = TxMeta {
            sent_at_ns: u64::MAX,
            payload_sum: u64::MAX,
            seq: u32::MAX,
            len: 7,
            flags: u8::MAX,
            transmissions: u8::MAX,
        };
        let (retained, mut frame) = mbuf.transmit(meta, |_: &mut [u8; 6]| 6).expect("headroom");
        assert_eq!(frame.partial_checksum(), None);
        frame.write_metadata([0xa5; crate::TX_METADATA]);
        assert_eq!((frame.bytes(), retained.payload()), (&b"headerpayload"[..], &b"payload"[..]));
        assert_eq!(retained.meta(), meta);
        pool.complete(frame);
        // What was written lies there.
        let mut again = retained;
        let before = 6 + crate::TX_METADATA;
        if head > CHUNK_HEADER {
            let seen = |front: &mut [u8], _: &[u8]| assert_eq!(front[..24], [0xa5; 24]);
            let sent = again.transmit(before, seen).expect("headroom");
            pool.complete(sent);
        }
        pool.release(again);
        assert_eq!(pool.available(), 2);
    }
}

#[test]
fn queues_keep_order_and_contents() {
    let mut pool = pool(8);
    let mut queue = MbufQueue::default();
    for value in 0..5u8 {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[value; 3]).expect("fits");
        mbuf.tag = value as u32;
        queue.push(mbuf);
    }
    let seen: Vec<u8> = queue.iter().map(|frame| frame[0]).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    for value in 0..5u8 {
        let mbuf = queue.pop().expect("five were pushed");
        assert_eq!((mbuf.bytes(), mbuf.tag), (&[value; 3][..], value as u32));
        pool.free(mbuf);
    }
    assert!(queue.pop().is_none() && queue.is_empty());
    assert_eq!(pool.available(), 8);
}

#[test]
fn bytes_join_the_newest_of_a_queue_as_long_as_they_fit() {
    let mut pool = pool(4);
    let mut queue = MbufQueue::default();
    assert!(!queue.append_to_last(b"nobody"));
    for _ in 0..2 {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(b"one").expect("fits");
        queue.push(mbuf);
    }
    assert!(queue.append_to_last(b" and two") && !queue.append_to_last(&[0; 2_048]));
    let mut copies = 0;
    while queue.append_to_last(&[7; 100]) {
        copies += 1;
    }
    assert!(copies > 15, "{copies}");
    let lens: Vec<_> = queue.iter().map(<[u8]>::len).collect();
    assert_eq!(lens, [3, 11 + 100 * copies]);
    let [first, second] = [queue.pop(), queue.pop()].map(|mbuf| mbuf.expect("two were pushed"));
    assert_eq!((first.bytes(), &second.bytes()[..11]), (&b"one"[..], &b"one and two"[..]));
    assert!(second.bytes()[11..].iter().all(|&byte| byte == 7) && queue.is_empty());
    [first, second].into_iter().for_each(|mbuf| pool.free(mbuf));
    assert_eq!(pool.available(), 4);
}

#[test]
fn retained_queues_keep_order() {
    let mut pool = pool(4);
    let mut queue = RetainedQueue::default();
    for seq in 0..4 {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[0; 10]).expect("fits");
        queue.push(mbuf.retain(TxMeta { seq, len: 10, ..TxMeta::default() }));
    }
    queue.with_front(|segment| segment.trim_front(4));
    let mut seen = Vec::new();
    queue.for_each_while(|segment| {
        seen.push((segment.meta().seq, segment.payload().len()));
        segment.meta().seq < 2
    });
    assert_eq!(seen, [(0, 6), (1, 10), (2, 10)]);
    while let Some(segment) = queue.pop() {
        pool.release(segment);
    }
    assert_eq!(pool.available(), 4);
}

#[test]
fn a_pool_that_finds_nothing_gets_half_of_what_another_keeps() {
    let region = Region::heap(1_024);
    let (mut rich, mut poor) = (Pool::new(&region, 1_024), Pool::new(&region, 1_024));
    rich.share_out();
    assert_eq!(rich.free_len(), 1_024, "none is wanted");
    assert!(poor.alloc().is_err());
    // The one that wants has nothing to give, and does not forget it.
    poor.share_out();
    rich.share_out();
    assert_eq!((rich.free_len(), region.depot_len()), (512, 512));
    let taken: Vec<_> = std::iter::from_fn(|| poor.alloc().ok()).collect();
    assert_eq!(taken.len(), 512);
    (0..8).for_each(|_| rich.share_out());
    assert_eq!(rich.free_len(), 256, "once for each time");
    // Before it sleeps it keeps two batches only, where the depot has little.
    rich.rest();
    assert_eq!(rich.free_len(), 256);
    let rest: Vec<_> = std::iter::from_fn(|| poor.alloc().ok()).collect();
    rich.rest();
    assert_eq!((rest.len(), rich.free_len(), region.depot_len()), (256, 128, 128));
    taken.into_iter().chain(rest).for_each(|mbuf| poor.free(mbuf));
}

#[test]
fn pools_trade_through_the_depot() {
    let region = Region::heap(512);
    let mut giver = Pool::new(&region, 256);
    let mut taker = Pool::new(&region, 128);
    // All that one allocates the other frees, as when packets are forwarded between cores.
    for _ in 0..20 {
        let batch: Vec<Mbuf> = (0..100).map(|_| giver.alloc().expect("recycled")).collect();
        for mbuf in batch {
            taker.free(mbuf);
        }
    }
    assert_eq!(giver.free_len() + taker.free_len() + region.depot_len(), 512);
    assert_eq!(giver.stats().exhausted, 0);
}

#[test]
fn chunks_of_another_region_are_refused() {
    let mut ours = pool(2);
    let mut theirs = pool(2);
    let mbuf = theirs.alloc().expect("a chunk");
    let mbuf = ours.lend(mbuf).expect_err("not ours to lend");
    let chunk = mbuf.chunk();
    ours.free(mbuf);
    assert_eq!(ours.stats().foreign, 1);
    assert_eq!(ours.available(), 2);
    assert_eq!(theirs.available(), 1, "nor did it go home by itself");
    // A region stays as long as a chunk of it is out. This one is nobody's any more: home it goes.
    theirs.free(crate::Mbuf::adopt(chunk));
    assert_eq!(theirs.available(), 2);
}

#[cfg(feature = "std")]
#[test]
fn cores_share_a_region_without_loss() {
    let region = Region::heap(1024);
    std::thread::scope(|scope| {
        for core in 0..4u8 {
            let region = &region;
            scope.spawn(move || {
                let mut pool = Pool::new(region, 128);
                for round in 0..if cfg!(miri) { 3 } else { 300 } {
                    let mut held = Vec::new();
                    while held.len() < 200
                        && let Ok(mut mbuf) = pool.alloc()
                    {
                        mbuf.append(&[core; 32]).expect("fits");
                        held.push(mbuf);
                    }
                    for mbuf in held {
                        assert_eq!(mbuf.bytes(), [core; 32], "round {round}");
                        pool.free(mbuf);
                    }
                }
            });
        }
    });
    assert_eq!(region.depot_len(), 1024);
}

#[cfg(all(feature = "std", not(miri)))]
#[test]
fn a_mapped_region_has_a_file_and_whole_pages() {
    let region = Region::map(4, HugePages::No).expect("normal pages");
    // Three pages of two chunks each, one of which is the block's own.
    assert_eq!((region.chunks(), region.len_bytes()), (5, 3 * 4096));
    assert_eq!(region.base().as_ptr() as usize % crate::BLOCK_SIZE, 0);
    assert!(region.memfd().is_some() && !region.is_huge());
    assert!(Region::map(0, HugePages::No).is_err());
}

#[cfg(all(feature = "std", not(miri)))]
#[test]
fn a_region_that_was_passed_on_is_joined_and_others_are_refused() {
    use std::os::fd::{AsFd, OwnedFd};
    let twice = |region: &Region| {
        region.memfd().expect("mapped").try_clone_to_owned().expect("a descriptor is left")
    };
    let theirs = Region::map(1_000, HugePages::No).expect("normal pages");
    let ours = Region::join(twice(&theirs)).expect("the same memory");
    assert_eq!((ours.chunks(), ours.len_bytes()), (theirs.chunks(), theirs.len_bytes()));
    assert_eq!((ours.is_huge(), ours.depot_len()), (false, ours.chunks() as usize));
    // Who holds a chunk stands in the memory itself: the other side knows that it has not lent this one.
    let mut pool = Pool::new(&ours, 1_000);
    let mut mbuf = pool.alloc().expect("all are free");
    mbuf.append(b"across").expect("fits");
    let offset = pool.offset_of(&mbuf).expect("of this region");
    let peer = Pool::new(&theirs, 1_000);
    let seen = peer.take_back(offset, 6);
    assert!(seen.is_err(), "they have lent nothing: {seen:?}");
    pool.free(mbuf);
    drop(pool);
    // It can be shown on from here, to be read.
    ours.seal_writes().expect("not sealed before");
    assert!(Region::join(twice(&theirs)).is_err(), "nobody else can write to it any more");

    let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("the null device"));
    let error = Region::join(file).expect_err("no region");
    assert!(error.to_string().contains("Region::map"), "{error}");
    let loose = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING);
    let loose = loose.expect("a memory file");
    rustix::fs::ftruncate(loose.as_fd(), 1 << 20).expect("sized");
    Region::join(loose).expect_err("it could be cut off");
}

#[test]
fn the_head_of_a_block_is_nobodys_chunk() {
    let region = Region::heap(1500);
    let mut pool = Pool::new(&region, 1500);
    assert_eq!((pool.available(), region.len_bytes() / crate::CHUNK_SIZE), (1500, 1502));
    for head in [0, crate::BLOCK_SIZE] {
        for address in [head, head + 1023, head + crate::CHUNK_SIZE - 1] {
            let address = address as u64;
            assert_eq!(pool.take_back(address, 0).expect_err("not lent"), BadAddress(address));
            assert_eq!(pool.complete_address(address), Err(BadAddress(address)));
        }
    }
    // All are lent, each with a state of its own: taken back in another order, each just once.
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc().ok()).collect();
    let lent: Vec<u64> =
        all.into_iter().map(|mbuf| pool.lend(mbuf).expect("of this region")).collect();
    assert_eq!((lent.len(), pool.available()), (1500, 0));
    for &address in lent.iter().rev() {
        let mbuf = pool.take_back(address + crate::RX_HEADROOM as u64, 60).expect("it was lent");
        assert!(pool.take_back(address + crate::RX_HEADROOM as u64, 60).is_err());
        pool.free(mbuf);
    }
    assert_eq!(pool.available(), 1500);
}

#[test]
fn a_page_holds_a_larger_frame_and_has_one_state() {
    let region = Region::heap_of(600, ChunkBytes::Page);
    let mut pool = Pool::new(&region, 600);
    // Two blocks, whose first chunks are nobody's.
    assert_eq!((pool.available(), region.len_bytes()), (600, 602 * 4096));
    let all: Vec<_> = std::iter::from_fn(|| pool.alloc().ok()).collect();
    let lent: Vec<u64> =
        all.into_iter().map(|mbuf| pool.lend(mbuf).expect("of this region")).collect();
    assert!(lent.iter().all(|address| address % 4096 == 0 && address % (2 << 20) != 0));
    let longest = ChunkBytes::Page.max_frame();
    assert_eq!(longest, 3776);
    for (at, &address) in lent.iter().enumerate() {
        let start = address + RX_HEADROOM as u64;
        assert!(pool.take_back(start, longest + 1).is_err(), "it would end in the next chunk");
        let mut mbuf = pool.take_back(start, longest - at % 2).expect("it was lent");
        assert!(pool.take_back(address + 2048, 0).is_err(), "the second half has no state");
        assert_eq!((mbuf.len(), mbuf.tailroom()), (longest - at % 2, 0));
        assert!(mbuf.extend(1).is_err(), "only the device writes there");
        mbuf.bytes_mut().fill(at as u8);
        mbuf.truncate(3000);
        assert_eq!(mbuf.len(), 3000);
        pool.free(mbuf);
    }
    // As many as before, from where the device may have written.
    let again: Vec<_> = std::iter::from_fn(|| pool.alloc().ok()).collect();
    assert_eq!(again.len(), 600);
    for mut mbuf in again {
        mbuf.append(&[7; CHUNK_SIZE - TX_HEADROOM]).expect("as in a small one");
        assert_eq!(mbuf.tailroom(), 0);
        let address = pool.post(mbuf.into_tx()).expect("of this region").0;
        pool.complete_address(address).expect("it was sent");
    }
    assert_eq!(pool.available(), 600);
}

#[cfg(not(miri))]
#[test]
fn a_mapped_region_of_pages_is_joined_as_such() {
    let region = Region::map_of(100, ChunkBytes::Page, HugePages::No).expect("memory");
    let memory = region.memfd().expect("a memory file").try_clone_to_owned().expect("duplicated");
    let joined = Region::join_of(memory, ChunkBytes::Page).expect("joined");
    assert_eq!((joined.chunks(), joined.chunk_bytes()), (region.chunks(), ChunkBytes::Page));
    assert_eq!(ChunkBytes::of(4096), Some(ChunkBytes::Page));
    assert_eq!((ChunkBytes::of(2048), ChunkBytes::of(3000)), (Some(ChunkBytes::Small), None));
}

#[test]
fn a_pool_that_only_gives_is_topped_up() {
    let region = Region::heap(2_000);
    let (mut pool, mut other) = (Pool::new(&region, 400), Pool::new(&region, 1_000));
    let mut taken: Vec<_> = (0..100).map(|_| pool.alloc().expect("kept")).collect();
    // What came back to the other one last goes out first.
    let last = other.alloc().expect("kept");
    let chunk = last.chunk();
    other.free(last);
    pool.top_up(&mut other);
    assert_eq!((pool.free_len(), other.free_len()), (400, 900), "what is missing");
    taken.push(pool.alloc().expect("kept"));
    assert_eq!(taken.last().map(|mbuf| mbuf.chunk()), Some(chunk));
    pool.top_up(&mut other);
    assert_eq!((pool.free_len(), other.free_len()), (399, 900), "one alone is not worth it");
    taken.extend((0..399).map(|_| pool.alloc().expect("kept")));
    pool.top_up(&mut other);
    assert_eq!(
        (pool.free_len(), other.free_len()),
        (400, 500),
        "no more than half of what it keeps"
    );
    taken.extend(std::iter::from_fn(|| pool.alloc().ok()));
    assert_eq!(pool.available(), 0, "the depot has nothing either");
    pool.top_up(&mut other);
    assert_eq!((pool.free_len(), other.free_len()), (250, 250), "half of what there is");
    let foreign = Region::heap(500);
    taken.extend(std::iter::from_fn(|| pool.alloc().ok()));
    pool.top_up(&mut Pool::new(&foreign, 500));
    assert_eq!(pool.free_len(), 0, "not from another region");
    taken.into_iter().for_each(|mbuf| pool.free(mbuf));
    assert_eq!(pool.available() + other.free_len(), 2_000);
}

#[test]
fn sending_and_receiving_leave_each_other_memory() {
    use crate::Want;
    let mut pool = Pool::new(&Region::heap(80), 80);
    let mut sent = Vec::new();
    while pool.allows(Want::Send) {
        sent.push(pool.alloc().expect("allowed"));
    }
    // Half of the pool: three eighths are reception's, one is nobody's.
    assert_eq!((sent.len(), pool.available()), (40, 40));
    let mut kept = Vec::new();
    while pool.allows(Want::OutOfOrder) {
        kept.push(pool.alloc().expect("allowed"));
        pool.keep();
    }
    assert_eq!((kept.len(), pool.allows(Want::Send)), (20, false));
    while pool.allows(Want::Receive) {
        kept.push(pool.alloc().expect("allowed"));
        pool.keep();
    }
    assert_eq!((kept.len(), pool.available()), (30, 10));
    // What is acknowledged can be sent anew, however much is kept.
    pool.free(sent.pop().expect("sent"));
    assert!(pool.allows(Want::Send));
    for mbuf in kept.drain(..) {
        pool.unkeep();
        pool.free(mbuf);
    }
    sent.drain(..).for_each(|mbuf| pool.free(mbuf));
    assert_eq!((pool.kept(), pool.available()), (0, 80));
}

#[test]
fn a_segment_put_to_the_front_is_taken_first() {
    use crate::{RetainedQueue, TxMeta};
    let mut pool = Pool::new(&Region::heap(4), 4);
    let mut queue = RetainedQueue::default();
    for (seq, front) in [(1, true), (2, false), (0, true)] {
        let meta = TxMeta { seq, ..TxMeta::default() };
        let segment = pool.alloc().expect("a chunk").retain(meta);
        if front { queue.push_front(segment) } else { queue.push(segment) }
    }
    for seq in 0..3 {
        let segment = queue.pop().expect("three");
        assert_eq!(segment.meta().seq, seq);
        pool.release(segment);
    }
    assert!(queue.is_empty());
    assert_eq!(pool.available(), 4);
}

#[test]
fn bytes_are_appended_to_a_segment_that_the_device_does_not_read() {
    use crate::{RetainedQueue, TxMeta};
    let mut pool = Pool::new(&Region::heap(4), 4);
    let mut queue = RetainedQueue::default();
    assert_eq!((queue.back(), queue.with_back(|_| ())), (None, None));
    for seq in 0..2 {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(b"first").expect("fits");
        queue.push(mbuf.retain(TxMeta { seq, ..TxMeta::default() }));
    }
    assert_eq!(queue.back().map(|meta| meta.seq), Some(1));
    let frame = queue.with_back(|last| {
        let room = last.tailroom();
        last.append(b" and second").expect("there is room");
        assert_eq!((last.payload(), last.tailroom()), (&b"first and second"[..], room - 11));
        assert!(last.append(&vec![0; room - 10]).is_err(), "one too many");
        let frame = last.transmit(4, |out, _| out.fill(7)).expect("room for headers");
        assert!(last.append(b"x").is_err(), "the device reads it");
        frame
    });
    pool.complete(frame.expect("a segment"));
    assert_eq!(queue.with_back(|last| last.append(b"!").is_ok()), Some(true));
    assert_eq!(queue.pop().map(|first| (first.payload().len(), pool.release(first)).0), Some(5));
    let last = queue.pop().expect("two");
    assert_eq!(last.payload(), b"first and second!");
    pool.release(last);
    assert_eq!(pool.available(), 4);
}

#[test]
fn an_allowance_is_brought_from_the_depot_before_it_is_used_up() {
    let region = Region::heap(1_000);
    let mut pool = Pool::new(&region, 400);
    let mut taken = Vec::new();
    while pool.at_hand(Want::Send) > 0 {
        taken.push(pool.alloc().expect("at hand"));
    }
    let brought = pool.allowance(Want::Send);
    assert!(brought > 0, "the depot has {}", 1_000 - taken.len() - pool.available());
    assert_eq!(pool.at_hand(Want::Send), brought);
    // What there is enough of stays where it is.
    assert_eq!(pool.allowance(Want::Send), brought);
    taken.into_iter().for_each(|mbuf| pool.free(mbuf));
}

/// Several pools visit the depot at the same time: each finds the chunks that are free.
#[cfg(feature = "std")]
#[test]
fn no_pool_is_exhausted_while_the_depot_has_chunks() {
    const CORES: usize = 4;
    /// More than a pool keeps: each round goes through the depot.
    const HELD: usize = 200;
    let rounds = if cfg!(miri) { 1 } else { 10_000 };
    let region = Region::heap(2_048);
    std::thread::scope(|scope| {
        for _ in 0..CORES {
            scope.spawn(|| {
                let mut pool = Pool::new(&region, 128);
                let mut held = Vec::new();
                for round in 0..rounds {
                    for _ in 0..HELD {
                        assert!(pool.allows(Want::Send), "not allowed in round {round}");
                        held.push(pool.alloc().unwrap_or_else(|error| {
                            panic!("round {round}, {} chunks free: {error}", region.depot_len())
                        }));
                    }
                    held.drain(..).for_each(|mbuf| pool.free(mbuf));
                }
                assert_eq!(pool.stats().exhausted, 0);
            });
        }
    });
    assert_eq!(region.depot_len(), 2_048);
}

/// A process that reads a region finds no address of this process in it.
#[cfg(all(feature = "std", not(miri)))]
#[test]
fn no_address_is_written_to_packet_memory() {
    use std::os::unix::fs::FileExt;
    let region = Region::map(64, HugePages::No).expect("normal pages");
    let mut pool = Pool::new(&region, 64);
    let (mut received, mut sent) = (MbufQueue::default(), RetainedQueue::default());
    for seq in 0..8 {
        received.push(pool.alloc().expect("a chunk"));
        let meta = TxMeta { seq, ..TxMeta::default() };
        let segment = pool.alloc().expect("a chunk").retain(meta);
        if seq % 2 == 0 { sent.push(segment) } else { sent.push_front(segment) }
    }
    let file = std::fs::File::from(
        region.memfd().expect("mapped").try_clone_to_owned().expect("a descriptor is left"),
    );
    let mut bytes = vec![0; region.len_bytes()];
    file.read_exact_at(&mut bytes, 0).expect("all of it");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("one's own mappings");
    let mapped: Vec<_> = maps
        .lines()
        .filter_map(|line| line.split_once(' ')?.0.split_once('-'))
        .map(|(from, to)| u64::from_str_radix(from, 16).ok().zip(u64::from_str_radix(to, 16).ok()))
        .collect::<Option<_>>()
        .expect("ranges of addresses");
    let base = region.base().addr().get() as u64;
    assert!(mapped.iter().any(|(from, to)| (*from..*to).contains(&base)), "{maps}");
    for (at, word) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        let inside = mapped.iter().find(|(from, to)| (*from..*to).contains(&word));
        assert_eq!(inside, None, "an address at offset {}", 8 * at);
    }
    while let Some(mbuf) = received.pop() {
        pool.free(mbuf);
    }
    while let Some(segment) = sent.pop() {
        pool.release(segment);
    }
    assert_eq!(pool.available(), region.chunks() as usize);
}

#[test]
fn a_queue_has_chunks_of_several_regions() {
    let mut pools = [pool(2), pool(2)];
    let mut queue = MbufQueue::default();
    for (index, tag) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        let mut mbuf = pools[index].alloc().expect("a chunk");
        mbuf.tag = tag;
        queue.push(mbuf);
    }
    for (index, tag) in [(0, 1), (1, 2), (0, 3), (1, 4)] {
        let mbuf = queue.pop().expect("four were pushed");
        assert_eq!(mbuf.tag, tag);
        pools[index].free(mbuf);
    }
    assert!(queue.is_empty() && pools.iter().all(|pool| pool.available() == 2));
}

/// A segment of three chunks, with 4, 3 and 5 bytes.
fn long_segment(pool: &mut Pool) -> crate::Retained {
    let parts = [&b"long"[..], b"er ", b"than "].map(|part| {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(part).expect("fits");
        mbuf.retain(TxMeta::default())
    });
    let [mut first, second, third] = parts;
    assert!(!first.is_long());
    first.chain(second).expect("near by");
    first.chain(third).expect("near by");
    assert!(first.is_long());
    first
}

fn text(segment: &crate::Retained) -> Vec<u8> {
    segment.parts().flatten().copied().collect()
}

#[test]
fn a_long_segment_is_one_frame_of_all_of_its_chunks() {
    let mut pool = Pool::new(&Region::heap(8), 8);
    let mut segment = long_segment(&mut pool);
    assert_eq!((text(&segment), pool.available()), (b"longer than ".to_vec(), 5));
    let first = segment.transmit(2, |out, _| out.fill(b'>')).expect("headroom");
    assert_eq!((first.bytes(), first.is_continued()), (&b">>long"[..], true));
    let mut frames = vec![first];
    frames.extend(segment.transmit_rest());
    let parts: Vec<_> = frames.iter().map(|part| (part.bytes(), part.is_continued())).collect();
    assert_eq!(parts[1..], [(&b"er "[..], true), (&b"than "[..], false)]);
    assert!(segment.is_in_nic());
    // One part after the other comes back, by address or not: it is in the NIC until all have.
    let mut posted = || pool.post(frames.pop().expect("three")).expect("of this region").0;
    let [last, middle] = [posted(), posted()];
    frames.drain(..).for_each(|part| pool.complete(part));
    pool.complete_address(middle).expect("was in the NIC");
    assert!(segment.is_in_nic());
    assert!(segment.transmit(2, |_, _| ()).is_err(), "the NIC reads a part");
    pool.complete_address(last).expect("was in the NIC");
    assert!(!segment.is_in_nic());
    assert_eq!(text(&segment), b"longer than ");
    // And once more, with the stack's claim given up before the NIC's.
    let mut frames = vec![segment.transmit(2, |out, _| out.fill(b'>')).expect("headroom")];
    frames.extend(segment.transmit_rest());
    pool.release(segment);
    assert_eq!(pool.available(), 5);
    frames.drain(..).for_each(|part| pool.complete(part));
    assert_eq!(pool.available(), 8);
    let segment = long_segment(&mut pool);
    pool.release(segment);
    assert_eq!(pool.available(), 8);
}

#[test]
fn a_long_segment_is_trimmed_grown_and_split_between_its_chunks() {
    let mut pool = Pool::new(&Region::heap(8), 8);
    let mut segment = long_segment(&mut pool);
    segment.append(b"one chunk").expect("the last one has room");
    assert_eq!(text(&segment), b"longer than one chunk");
    segment.trim_front(5);
    assert_eq!((segment.payload(), text(&segment)), (&b""[..], b"r than one chunk".to_vec()));
    let segment = segment.split_front(1).expect_err("one byte is no chunk");
    let [front, segment] = segment.split_front(2).expect("two bytes are in the second chunk");
    assert_eq!((text(&front), front.is_long()), (b"r ".to_vec(), true));
    assert_eq!((text(&segment), segment.is_long()), (b"than one chunk".to_vec(), false));
    let segment = segment.split_front(99).expect_err("nothing would be left");
    pool.release(front);
    assert_eq!(pool.available(), 7);
    pool.release(segment);
    assert_eq!(pool.available(), 8);
    // Also where one of the chunks is in the NIC.
    let mut segment = long_segment(&mut pool);
    let mut frames = vec![segment.transmit(2, |out, _| out.fill(b'>')).expect("headroom")];
    frames.extend(segment.transmit_rest());
    let [front, segment] = segment.split_front(7).expect("between chunks");
    assert_eq!((text(&front), text(&segment)), (b"longer ".to_vec(), b"than ".to_vec()));
    assert!(front.is_in_nic() && segment.is_in_nic());
    frames.drain(..).for_each(|part| pool.complete(part));
    assert!(!front.is_in_nic() && !segment.is_in_nic() && front.is_long());
    pool.release(front);
    pool.release(segment);
    assert_eq!(pool.available(), 8);
}

#[test]
fn a_frame_has_a_partial_checksum_and_goes_on_independently() {
    let mut pool = Pool::new(&Region::heap(2), 2);
    let partial = crate::PartialChecksum {
        start: 34,
        offset: core::num::NonZero::new(16).expect("not zero"),
    };
    let frame = pool.alloc().expect("a chunk").into_tx();
    assert!(frame.is_plain());
    let frame = frame.with_continued(true).with_partial_checksum(Some(partial));
    assert_eq!((frame.is_continued(), frame.partial_checksum()), (true, Some(partial)));
    let frame = frame.with_continued(false);
    assert_eq!((frame.is_continued(), frame.partial_checksum()), (false, Some(partial)));
    assert!(!frame.is_plain());
    pool.complete(frame);
}
