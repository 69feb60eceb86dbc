//! The arrays are bounded, coalesce, and lose no buffer.

use alloc::vec::Vec;

use mem::{Pool, Region};
use wire::{Endpoint, Ipv4Addr, Sum};

use super::*;

struct NothingHeld;
impl Held for NothingHeld {
    fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
}

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
    events.push_datagram(53, peer, mbuf).expect("room");
    events.push(EventRecord::Again { handle, cookie, window: 1 }).expect("room");
    assert_eq!(events.records()[2].connection(), Some(handle));
    events.renew_windows(|of| if of == handle { 9 } else { 0 });
    let seen: Vec<Event<'_>> = events.view(&NothingHeld).iter().collect();
    assert_eq!(
        seen,
        [
            Event::Recv { handle, cookie, data: b"hello", acked: 3, window: 9 },
            Event::Datagram { local_port: 53, peer, data: b"datagram" },
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
        let (events, mut calls) = (EventArray::new(1), CallArray::new(1, 100));
        let mut calls = Calls::new(&mut calls, &mut pool);
        service.on_batch(Instant::ZERO, events.view(&NothingHeld), &mut calls);
        service.collect(Instant::ZERO, &mut calls);
        assert!(service.is_away(Instant::ZERO) && service.has_batch() && service.runs_anywhere());
        assert_eq!(service.wake_at(), Some(Instant::ZERO));
    }
    struct NothingHeld;
    impl crate::Held for NothingHeld {
        fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
    }
    let mut service = Asked::default();
    ask(&mut service);
    assert_eq!(service.0, 111);
    ask(alloc::boxed::Box::new(&mut service));
    assert_eq!(service.0, 222);
}
