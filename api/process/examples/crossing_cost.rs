//! What the parts of a crossing take where no cache line has to move: both sides take turns in one thread. What a
//! crossing between two processors takes beyond this is the way of its lines.
//!
//! ```text
//! cargo run --release -p process --example crossing_cost
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use domain::{CallArray, Calls, Cookie, Event, EventArray, Events, Handle, Service};
use mem::{HugePages, Mbuf, Pool, Region};
use process::{Application, Geometry, Hello, Host, Waiting};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

const BATCH: usize = 64;
const ROUNDS: usize = 20_000;
const BYTES: usize = 64;

struct Echo;

impl Service for Echo {
    fn on_batch(&mut self, _: clock::Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            if let Event::Recv { handle, data, .. } = event {
                calls.sendv(handle, &[data]).expect("room");
                calls.recv_done(handle, data.len()).expect("room");
            }
        }
    }
}

fn main() {
    let flags = SocketFlags::CLOEXEC;
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let region = Region::map(4_096, HugePages::No).expect("mapped");
    let hello = Hello {
        geometry: Geometry::default(),
        waiting: Waiting::default(),
        segment_bytes: 1_448,
        sums: true,
    };
    let host = Host::new(hello, 1, &region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let mut fars = Application::join(far_socket).expect("joined").begin(false).expect("sent");
    let gone = Arc::new(AtomicBool::new(false));
    let mut nears = host.meet(near_socket.as_fd(), &gone).expect("met");
    let (mut near, mut far) = (nears.pop().expect("one"), fars.pop().expect("one"));
    let _bell = near.go_apart().expect("made with a bell");

    let mut pool = Pool::new(&region, 1_024);
    let mut events = EventArray::new(1_568);
    events.mirror_in(Box::new(near.mirror()));
    let mut linked_events = EventArray::new(1_568);
    let mut calls = CallArray::new(1_024, 1_448);
    let now = clock::Instant::from_millis(1);
    let mut spent = [Duration::ZERO; 6];
    for _ in 0..ROUNDS {
        let appended = append(&mut events, &mut pool);
        let began = Instant::now();
        near.on_batch(now, events.view(&()), &mut Calls::new(&mut calls, &mut pool));
        let told = Instant::now();
        assert!(near.is_away(now) && far.poll(&mut Echo) && !near.is_away(now));
        let answered = Instant::now();
        near.collect(now, &mut Calls::new(&mut calls, &mut pool));
        let issued = Instant::now();
        assert_eq!(calls.len(), 2 * BATCH);
        free(&mut events, &mut calls, &mut pool);
        // The same, linked in.
        let linked_appended = append(&mut linked_events, &mut pool);
        let linked = Instant::now();
        let view = linked_events.view(&());
        Echo.on_batch(now, view, &mut Calls::new(&mut calls, &mut pool));
        let inline = linked.elapsed();
        free(&mut linked_events, &mut calls, &mut pool);
        let of_parts =
            [appended, told - began, answered - told, issued - answered, linked_appended, inline];
        for (sum, one) in spent.iter_mut().zip(of_parts) {
            *sum += one;
        }
    }
    let each = spent.map(|sum| sum.as_nanos() as f64 / (ROUNDS * BATCH) as f64);
    let [appended, told, answered, issued, linked_appended, inline] = each;
    println!("an echo of {BYTES} bytes, {BATCH} a batch, one thread, nanoseconds a request:");
    println!("  dataplane: events appended       {appended:.1}");
    println!("  dataplane: batch handed over     {told:.1}");
    println!("  application: all of it           {answered:.1}");
    println!("  dataplane: calls checked, issued {issued:.1}");
    println!("  linked in: events appended       {linked_appended:.1}");
    println!("  linked in: application           {inline:.1}");
}

/// Events of a batch of requests. Answers how long it took to append them.
fn append(events: &mut EventArray, pool: &mut Pool) -> Duration {
    let mut received: Vec<Mbuf> = (0..BATCH)
        .map(|_| {
            let mut mbuf: Mbuf = pool.alloc().expect("memory");
            mbuf.append(&[7; BYTES]).expect("it fits");
            mbuf
        })
        .collect();
    let began = Instant::now();
    for (index, mbuf) in received.drain(..).enumerate() {
        let handle = Handle::from_bits(index as u64);
        events.push_recv(handle, Cookie(0), mbuf, 0, 65_535).expect("room");
    }
    began.elapsed()
}

/// Gives back what a batch and its answers took.
fn free(events: &mut EventArray, calls: &mut CallArray, pool: &mut Pool) {
    let (records, mut payloads) = calls.take();
    payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
    calls.restore(records, payloads);
    events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
}
