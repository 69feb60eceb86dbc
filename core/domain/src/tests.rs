//! The arrays are bounded, coalesce, and lose no buffer.

extern crate std;

use alloc::vec::Vec;

use mem::{Pool, Region};
use wire::{Endpoint, Ipv4Addr, Sum};

use super::*;

fn pool() -> Pool {
    Pool::new(&Region::heap(8), 8)
}

fn drain(array: &mut CallArray, pool: &mut Pool) -> Vec<Vec<u8>> {
    let (records, mut payloads) = array.take();
    let contents = payloads
        .drain(..)
        .map(|(mbuf, sum)| {
            assert_eq!(sum.finish(), Sum::of(mbuf.bytes()).finish(), "checksum made while copying");
            let bytes = mbuf.bytes().to_vec();
            pool.free(mbuf);
            bytes
        })
        .collect();
    array.restore(records, payloads);
    contents
}

#[test]
fn handles_keep_their_parts_apart() {
    let handle = Handle::new(4095, Handle::MAX_SLOTS - 1, Handle::GENERATIONS - 1);
    assert_eq!((handle.group(), handle.slot()), (4095, Handle::MAX_SLOTS - 1));
    assert_eq!(handle.generation(), Handle::GENERATIONS - 1);
    assert_eq!(Handle::from_bits(Handle::new(1, 2, 3).to_bits()), Handle::new(1, 2, 3));
}

#[test]
fn sends_on_one_connection_share_a_segment() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 1448));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[b"one ", b"two "]).expect("room");
    calls.recv_done(a, 10).expect("room");
    calls.sendv(a, &[b"three"]).expect("room");
    calls.sendv(b, &[b"other"]).expect("room");
    calls.sendv(a, &[b"later"]).expect("room");
    assert_eq!(array.len(), 4);
    assert_eq!(drain(&mut array, &mut pool), [&b"one two three"[..], b"other", b"later"]);
    assert_eq!(pool.available(), 8);
}

#[test]
fn an_empty_send_takes_no_other_connections_buffer() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 1448));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[b"abc"]).expect("room");
    calls.sendv(b, &[]).expect("room");
    calls.sendv(b, &[b"", b"SECRET"]).expect("room");
    assert_eq!(drain(&mut array, &mut pool), [&b"abc"[..], b"SECRET"]);
    assert_eq!(pool.available(), 8);
}

#[test]
fn large_sends_fill_segments_exactly() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 100));
    let data: Vec<u8> = (0..=255).collect();
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(Handle::new(0, 1, 0), &[&data[..33], &data[33..]]).expect("room");
    let staged = drain(&mut array, &mut pool);
    assert_eq!(staged.iter().map(Vec::len).collect::<Vec<_>>(), [100, 100, 56]);
    assert_eq!(staged.concat(), data);
}

/// What an array by place tells: of each call on a connection its handle's slot, and of messages their bytes.
fn told(array: &mut CallArray, pool: &mut Pool, received: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let (records, mut payloads) = array.take();
    let mut buffers = Vec::new();
    array.emptied_into(&mut buffers);
    let arena = |placed: Placed| {
        let (from, len) = (placed.offset, placed.len as usize);
        let all = buffers.iter().find_map(|mbuf| {
            let begins = pool.offset_of(mbuf)?;
            mbuf.bytes().get(from.checked_sub(begins)? as usize..)?.get(..len)
        });
        all.expect("it is in a buffer").to_vec()
    };
    let told = records
        .iter()
        .filter_map(|record| match *record {
            CallRecord::SendvPlaced { handle, placed } => {
                let bytes = match placed.memory {
                    SharedMemory::Arena => arena(placed),
                    SharedMemory::Packets => {
                        received[placed.offset as usize..][..placed.len as usize].to_vec()
                    }
                };
                Some((handle.slot(), bytes))
            }
            CallRecord::Sendv { handle, staged } => {
                let staged = &payloads[staged.first as usize..][..staged.count as usize];
                let bytes = staged.iter().flat_map(|(mbuf, _)| mbuf.bytes().to_vec()).collect();
                Some((handle.slot(), bytes))
            }
            CallRecord::Close { handle } => Some((handle.slot(), Vec::new())),
            _ => None,
        })
        .collect();
    buffers
        .into_iter()
        .chain(payloads.drain(..).map(|(mbuf, _)| mbuf))
        .for_each(|mbuf| pool.free(mbuf));
    array.restore(records, payloads);
    told
}

/// An array by place whose packet memory is `received`.
fn by_place(capacity: usize, received: &[u8]) -> CallArray {
    let begins = received.as_ptr().addr();
    CallArray::new(capacity, 1_448).by_place(begins..begins + received.len())
}

#[test]
fn by_place_what_was_received_is_sent_from_where_it_is() {
    let received = &[[b'r'; 200], [b'm'; 200]].concat()[..];
    let (mut pool, mut array) = (pool(), by_place(8, received));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[&received[200..]]).expect("room");
    calls.recv_done(a, 8).expect("room");
    // Other bytes are put down; on one connection they are one message.
    calls.sendv(b, &[b"other"]).expect("room");
    calls.recv_done(b, 8).expect("room");
    calls.sendv(b, &[&received[..3], b"!"]).expect("room");
    // So are a few that were received, but not many, which cannot be continued.
    calls.sendv(b, &[&received[..3]]).expect("room");
    calls.sendv(b, &[&received[..129]]).expect("room");
    calls.sendv(b, &[b"end"]).expect("room");
    calls.sendv(a, &[b"late"]).expect("room");
    assert_eq!(pool.available(), 7, "messages share a buffer");
    let expected: [(u32, &[u8]); 5] = [
        (1, &received[200..]),
        (2, b"otherrrr!rrr"),
        (2, &received[..129]),
        (2, b"end"),
        (1, b"late"),
    ];
    assert_eq!(
        told(&mut array, &mut pool, received),
        expected.map(|(slot, bytes)| (slot, bytes.to_vec()))
    );
    assert_eq!(pool.available(), 8);
}

#[test]
fn by_place_no_message_overtakes_another() {
    let (mut pool, mut array) = (pool(), by_place(16, &[]));
    let handle = Handle::new(0, 1, 0);
    let long: Vec<u8> = (0..2_000).map(|index| index as u8).collect();
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(handle, &[b"one"]).expect("room");
    // Several frames: staged, and behind it nothing continues what was put down before.
    calls.sendv(handle, &[&long]).expect("room");
    calls.sendv(handle, &[b"two"]).expect("room");
    calls.sendv(handle, &[&long[..1_447]]).expect("room");
    calls.close(handle).expect("room");
    calls.sendv(handle, &[b"late"]).expect("room");
    let expected = [
        b"one".to_vec(),
        long.clone(),
        b"two".to_vec(),
        long[..1_447].to_vec(),
        Vec::new(),
        b"late".to_vec(),
    ];
    assert_eq!(told(&mut array, &mut pool, &[]), expected.map(|bytes| (1, bytes)));
    assert_eq!(pool.available(), 8);
}

/// What was received is sent from where it is without continuing anything, and nothing is continued past it.
#[test]
fn by_place_what_was_received_ends_what_came_before() {
    let received = &[b'r'; 2_000][..];
    let (mut pool, mut array) = (Pool::new(&Region::heap(64), 64), by_place(16, received));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let long: Vec<u8> = (0..2_000).map(|index| index as u8).collect();
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[b"own"]).expect("room");
    calls.sendv(b, &[&received[..10]]).expect("room");
    // Not to what the other connection had put down.
    calls.sendv(b, &[b"tail"]).expect("room");
    calls.sendv(a, &[&long]).expect("room");
    calls.sendv(a, &[&received[..150]]).expect("room");
    // Not to the buffers before it.
    calls.sendv(a, &[&long]).expect("room");
    let expected = [
        (1, b"own".to_vec()),
        (2, received[..10].to_vec()),
        (2, b"tail".to_vec()),
        (1, long.clone()),
        (1, received[..150].to_vec()),
        (1, long),
    ];
    assert_eq!(told(&mut array, &mut pool, received), expected);
    // More than a frame carries has to be cut, and nothing has no place.
    for len in [1_449, 0] {
        Calls::new(&mut array, &mut pool).sendv(a, &[&received[..len]]).expect("room");
        let (records, payloads) = array.told();
        let expected = len.div_ceil(1_448) as u32;
        let [CallRecord::Sendv { staged, .. }] = records else { panic!("{records:?}") };
        assert_eq!((staged.count, payloads.len() as u32), (expected, expected));
        assert_eq!(told(&mut array, &mut pool, received), [(1, received[..len].to_vec())]);
    }
    assert_eq!(pool.available(), 64);
}

/// An array that was told and emptied knows nothing of what was in it.
#[test]
fn nothing_is_continued_of_calls_that_were_told() {
    let received = &[b'r'; 64][..];
    let (mut pool, mut array) = (Pool::new(&Region::heap(64), 64), by_place(16, received));
    let handle = Handle::new(0, 1, 0);
    let (long, mut lent) = ([7; 2_000], Vec::new());
    for message in [&long[..], b"own", received] {
        for _ in 0..2 {
            Calls::new(&mut array, &mut pool).sendv(handle, &[message]).expect("room");
            assert_eq!(array.told().0.len(), 1, "{} bytes", message.len());
            array.emptied_into(&mut lent);
            assert!(array.is_empty() && array.told().1.is_empty());
        }
    }
    // Two for each long message, and one for each short one that was not received.
    assert_eq!((lent.len(), pool.available()), (6, 58));
    lent.into_iter().for_each(|mbuf| pool.free(mbuf));
}

#[test]
fn by_place_there_is_room_for_as_much_as_the_dataplane_has() {
    let received = [7; 64];
    let (mut pool, mut array) = (pool(), by_place(16, &received));
    let handle = |slot| Handle::new(0, slot, 0);
    array.bound(16, 3);
    let mut calls = Calls::new(&mut array, &mut pool);
    // A buffer each there, wherever the bytes stand here.
    calls.sendv(handle(1), &[&received]).expect("room");
    calls.sendv(handle(2), &[b"x"]).expect("room");
    calls.sendv(handle(2), &[b"y"]).expect("the same buffer");
    calls.sendv(handle(3), &[&[1; 1_449]]).expect_err("it needs two");
    calls.sendv(handle(3), &[&received]).expect("room");
    assert_eq!(calls.sendv(handle(4), &[&received]), Err(Full));
    assert_eq!(calls.sendv(handle(4), &[b"x"]), Err(Full));
    assert_eq!(told(&mut array, &mut pool, &received).len(), 3);
    // No memory here: nothing is taken.
    array.bound(16, usize::MAX);
    let held: Vec<_> = core::iter::from_fn(|| pool.alloc().ok()).collect();
    let mut calls = Calls::new(&mut array, &mut pool);
    assert_eq!(calls.sendv(handle(4), &[b"x"]), Err(Full));
    calls.sendv(handle(5), &[&received]).expect("needs none");
    assert_eq!(told(&mut array, &mut pool, &received), [(5, received.to_vec())]);
    // Messages that follow one another on a connection fill its buffers.
    array.bound(64, 2);
    let mut calls = Calls::new(&mut array, &mut pool);
    let mut received_again = || calls.sendv(handle(5), &[&received]);
    let fit = core::iter::from_fn(|| received_again().ok()).count();
    assert_eq!(fit, 2 * 1_448 / 64);
    assert_eq!(told(&mut array, &mut pool, &received).len(), fit);
    // Nor is there more than one call for each of so many.
    array.bound(1, usize::MAX);
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(handle(5), &[&received]).expect("room");
    assert_eq!(calls.sendv(handle(6), &[&received]), Err(Full));
    assert_eq!(told(&mut array, &mut pool, &received).len(), 1);
    held.into_iter().for_each(|mbuf| pool.free(mbuf));
    assert_eq!(pool.available(), 8);
}

#[test]
fn datagrams_are_not_cut_where_segments_are() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 1448));
    let mut calls = Calls::new(&mut array, &mut pool);
    let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 7);
    calls.udp_sendv(7, peer, &[&[1; 1000], &[2; 472]]).expect("room");
    let staged = drain(&mut array, &mut pool);
    assert_eq!(staged.iter().map(Vec::len).collect::<Vec<_>>(), [1472]);
}

#[test]
fn exhausted_memory_takes_nothing() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 100));
    let handle = Handle::new(0, 1, 0);
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(handle, &[&[1; 50]]).expect("room");
    assert_eq!(calls.sendv(handle, &[&[2; 2000]]), Err(Full));
    assert_eq!(drain(&mut array, &mut pool), [[1; 50]]);
    assert_eq!(pool.available(), 8);
}

#[test]
fn the_arrays_are_bounded() {
    let (mut pool, mut array) = (pool(), CallArray::new(2, 100));
    let mut calls = Calls::new(&mut array, &mut pool);
    let handle = Handle::new(0, 1, 0);
    calls.close(handle).expect("room");
    calls.abort(handle).expect("room");
    assert_eq!(calls.close(handle), Err(Full));
    assert_eq!(calls.sendv(handle, &[b"x"]), Err(Full));

    let mut events = EventArray::new(1);
    let record = EventRecord::Eof { handle, cookie: Cookie(1) };
    events.push(record).expect("room");
    assert_eq!(events.push(record), Err(record));
    let mbuf = pool.alloc().expect("a chunk");
    let mbuf = events.push_recv(handle, Cookie(1), mbuf, 0, 0).expect_err("full");
    pool.free(mbuf);
    assert_eq!(pool.available(), 8);
}

#[test]
fn asking_again_has_room_beyond_the_capacity_and_ends_somewhere() {
    let (mut pool, mut array) = (pool(), CallArray::new(1, 100));
    let mut calls = Calls::new(&mut array, &mut pool);
    let handle = |number: u32| Handle::new(0, number, 0);
    for number in 0..3 {
        calls.again(handle(number));
        calls.again(handle(number));
    }
    assert_eq!((calls.room(), calls.close(handle(0))), (0, Err(Full)));
    assert_eq!(calls.sendv(handle(0), &[b"x"]), Err(Full));
    for number in 0..2 * EventArray::MAX_RECORDS as u32 {
        calls.again(handle(number));
    }
    let (records, payloads) = array.take();
    assert_eq!((records.len(), payloads.len()), (1 + EventArray::MAX_RECORDS, 0));
    let first: Vec<_> = (0..3).map(|number| CallRecord::Again { handle: handle(number) }).collect();
    assert_eq!(records[..3], first);
}

#[test]
fn asking_again_between_two_sends_does_not_part_them() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 1448));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[b"one "]).expect("room");
    calls.again(b);
    calls.sendv(a, &[b"two"]).expect("room");
    assert_eq!(drain(&mut array, &mut pool), [b"one two"]);
}

#[test]
fn buffers_stand_in_the_order_of_the_calls_also_around_an_empty_send() {
    let (mut pool, mut array) = (pool(), CallArray::new(8, 1448));
    let (a, b) = (Handle::new(0, 1, 0), Handle::new(0, 2, 0));
    let mut calls = Calls::new(&mut array, &mut pool);
    calls.sendv(a, &[b"one "]).expect("room");
    calls.sendv(b, &[b""]).expect("room");
    calls.sendv(a, &[b"two"]).expect("room");
    let (records, payloads) = array.take();
    let staged = |record: &CallRecord| match record {
        CallRecord::Sendv { staged, .. } => (staged.first, staged.count),
        other => panic!("no send: {other:?}"),
    };
    let places: Vec<_> = records.iter().map(staged).collect();
    assert_eq!(places, [(0, 1), (1, 0), (1, 1)]);
    payloads.into_iter().for_each(|(mbuf, _)| pool.free(mbuf));
}

#[test]
fn events_show_the_received_bytes_in_place() {
    let mut pool = pool();
    let mut events = EventArray::new(4);
    let (handle, cookie) = (Handle::new(1, 1, 1), Cookie(7));
    let mut mbuf = pool.alloc().expect("a chunk");
    mbuf.append(b"hello").expect("fits");
    let address = mbuf.bytes().as_ptr();
    events.push_recv(handle, cookie, mbuf, 3, 0).expect("room");
    let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9);
    let mut mbuf = pool.alloc().expect("a chunk");
    mbuf.append(b"datagram").expect("fits");
    events.push_datagram(53.into(), peer, mbuf).expect("room");
    events.push(EventRecord::Again { handle, cookie, window: 1 }).expect("room");
    assert_eq!(events.records()[2].connection(), Some(handle));
    events.renew_windows(|of| if of == handle { 9 } else { 0 });
    let seen: Vec<Event<'_>> = events.view(&()).iter().collect();
    assert_eq!(
        seen,
        [
            Event::Recv { handle, cookie, data: b"hello", acked: 3, window: 9 },
            Event::Datagram { local: 53.into(), peer, data: b"datagram" },
            Event::Again { handle, cookie, window: 9 },
        ]
    );
    let Event::Recv { data, .. } = seen[0] else { panic!("the first event is a Recv") };
    assert_eq!(data.as_ptr(), address, "not copied");
    for (_, mbuf) in events.drain() {
        pool.free(mbuf);
    }
    assert!(events.is_empty());
}

/// What was written, by number.
type Places = alloc::collections::BTreeMap<usize, (EventRecord, Vec<u8>)>;

/// Keeps what is written to it, and takes no datagram.
#[derive(Debug, Default)]
struct Written(std::sync::Arc<std::sync::Mutex<Places>>);

impl EventMirror for Written {
    fn put(&mut self, index: usize, events: Appended<'_>) -> usize {
        let mut written = self.0.lock().expect("nobody panicked");
        let is_taken = |record: &EventRecord| !matches!(record, EventRecord::Datagram { .. });
        let taken = events.records().iter().take_while(|record| is_taken(record));
        let copied = |record: &EventRecord| (*record, events.bytes(record).to_vec());
        let taken: Vec<_> = taken.map(copied).collect();
        let put = taken.len();
        written.extend((index..).zip(taken));
        put
    }
}

#[test]
fn events_are_mirrored_as_they_come_and_when_they_change() {
    let (mut pool, mut events) = (pool(), EventArray::new(8));
    let written = Written::default();
    let seen = std::sync::Arc::clone(&written.0);
    events.mirror_in(alloc::boxed::Box::new(written));
    let (handle, cookie) = (Handle::new(1, 1, 1), Cookie(7));
    let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9);
    let mut filled = |bytes: &[u8]| {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(bytes).expect("fits");
        mbuf
    };
    let is_mirrored = |events: &mut EventArray| events.view(&()).is_mirrored();
    let (first, second, third) = (filled(b"one"), filled(b"two"), filled(b"datagram"));
    events.push_recv(handle, cookie, first, 0, 5).expect("room");
    let sent = |bytes| EventRecord::Sent { handle, cookie, bytes, window: 6 };
    for bytes in [1, 2] {
        // The second is added to the first, which stands there already.
        events.append(sent(bytes), None).expect("room");
        assert!(is_mirrored(&mut events));
    }
    events.push_recv(handle, cookie, second, 0, 6).expect("room");
    assert!(is_mirrored(&mut events));
    events.renew_windows(|_| 9);
    assert!(is_mirrored(&mut events));
    {
        let written = seen.lock().expect("nobody panicked");
        assert!(written.values().map(|(record, _)| record).eq(&events.records()[1..]));
        let bytes: Vec<_> = written.values().map(|(_, bytes)| &bytes[..]).collect();
        assert_eq!(bytes, [&b""[..], b"two"]);
    }
    // What is not taken stays out, and all behind it.
    events.push_datagram(53.into(), peer, third).expect("room");
    events.push(EventRecord::Eof { handle, cookie }).expect("room");
    assert!(!is_mirrored(&mut events));
    assert_eq!(seen.lock().expect("nobody panicked").len(), 2);
    // The next batch is mirrored again; of what is split off, the rest is, from its beginning.
    events.take_buffers(&mut Vec::new());
    events.push(EventRecord::Eof { handle, cookie }).expect("room");
    assert!(is_mirrored(&mut events));
    let mut others = EventArray::growing();
    for window in 1..4 {
        events.push(EventRecord::Again { handle, cookie, window }).expect("room");
    }
    assert_eq!(events.split_front(2, &mut others), 2);
    assert!(is_mirrored(&mut events) && !is_mirrored(&mut others));
    assert_eq!(seen.lock().expect("nobody panicked")[&1].0, events.records()[1]);
}

/// What is new is written some at a time, so that its lines are on their way before the batch ends; once one is not
/// taken, nothing behind it is shown to the mirror.
#[test]
fn events_are_mirrored_before_the_batch_ends() {
    let (mut events, written) = (EventArray::new(100), Written::default());
    let seen = std::sync::Arc::clone(&written.0);
    let count = || seen.lock().expect("nobody panicked").len();
    events.mirror_in(alloc::boxed::Box::new(written));
    let record = |index| EventRecord::Eof { handle: Handle::new(0, index, 0), cookie: Cookie(0) };
    for index in 0..50 {
        events.push(record(index)).expect("room");
        let new = events.len() - 1 - count();
        assert!(new < 16, "{new} of {} are not written", events.len());
    }
    // The first one is told otherwise.
    assert_eq!(events.view(&()).len(), 1 + count());
    let (mut pool, peer) = (pool(), Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9));
    events.push_datagram(53.into(), peer, pool.alloc().expect("a chunk")).expect("room");
    (0..20).for_each(|index| events.push(record(index)).expect("room"));
    assert!(!events.view(&()).is_mirrored());
    assert_eq!(count(), 49);
    events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
}

/// Whatever is asked for, and whatever room there is: the same calls, or nothing is done.
#[test]
fn answers_are_the_calls_that_the_other_methods_make() {
    let handles = [1, 2, 3].map(|slot| Handle::new(0, slot, 0));
    // Handle, bytes sent, bytes given back.
    let shapes = [(0, 5, 9), (1, 64, 0), (2, 100, 7), (2, 1, 1), (0, 101, 3), (0, 0, 3), (0, 7, 2)];
    for (capacity, chunks) in (0..16).flat_map(|calls| (0..16).map(move |chunks| (calls, chunks))) {
        let mut pools = [(); 2].map(|()| Pool::new(&Region::heap(64), 32));
        let mut arrays = [(); 2].map(|()| CallArray::new(capacity, 100));
        arrays.iter_mut().for_each(|array| array.bound(capacity, chunks));
        let ([pool, others_pool], [array, others]) = (&mut pools, &mut arrays);
        let mut others = Calls::new(others, others_pool);
        for (which, len, done) in shapes {
            let fill = |room: &mut [u8]| {
                room.fill(len as u8);
                Sum::of(room)
            };
            let mut calls = Calls::new(array, pool);
            let mut answers = calls.answers();
            let handle = handles[which];
            let is_done = match len {
                64 => answers.recv_done(handle, done),
                _ => answers.sendv_and_done(handle, len, done, fill),
            };
            if !is_done {
                continue;
            }
            if len != 64 {
                others.sendv_with(handle, len, fill).expect("room, as there was for the answer");
            }
            if len == 64 || done > 0 {
                others.recv_done(handle, done as usize).expect("room, as there was for the answer");
            }
        }
        let [array, others] = &mut arrays;
        assert_eq!(array.records, others.records, "{capacity} calls, {chunks} buffers");
        assert!(capacity < 8 || chunks < 4 || array.len() == 7, "there was room: {array:?}");
        let [pool, others_pool] = &mut pools;
        assert_eq!(drain(array, pool), drain(others, others_pool));
    }
}

/// A service behind a reference or in a box answers as it does by itself, to all that is asked of it.
#[test]
fn what_is_asked_of_a_wrapped_service_is_asked_of_it() {
    #[derive(Default)]
    struct Asked(u32);
    impl crate::Service for Asked {
        fn on_batch(&mut self, _: Instant, _: crate::Events<'_>, _: &mut Calls<'_>) {
            self.0 += 1;
        }
        fn wake_at(&self) -> Option<Instant> {
            Some(Instant::ZERO)
        }
        fn is_away(&mut self, _: Instant) -> bool {
            self.0 += 10;
            true
        }
        fn has_batch(&self) -> bool {
            true
        }
        fn collect(&mut self, _: Instant, _: &mut Calls<'_>) {
            self.0 += 100;
        }
        fn runs_anywhere(&self) -> bool {
            true
        }
    }
    fn ask<S: crate::Service>(mut service: S) {
        let mut pool = Pool::new(&Region::heap(16), 16);
        let (mut events, mut calls) = (EventArray::new(1), CallArray::new(1, 100));
        let mut calls = Calls::new(&mut calls, &mut pool);
        service.on_batch(Instant::ZERO, events.view(&()), &mut calls);
        service.collect(Instant::ZERO, &mut calls);
        assert!(service.is_away(Instant::ZERO) && service.has_batch() && service.runs_anywhere());
        assert_eq!(service.wake_at(), Some(Instant::ZERO));
    }
    let mut service = Asked::default();
    ask(&mut service);
    assert_eq!(service.0, 111);
    ask(alloc::boxed::Box::new(&mut service));
    assert_eq!(service.0, 222);
}
