//! What the parts of a crossing take where no cache line has to move: both sides take turns in one thread. What a
//! crossing between two processors takes beyond this is the way of its lines.
//!
//! ```text
//! cargo run --release -p tailplane-process --example crossing_cost
//! ```

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use domain::{CallArray, Calls, Cookie, Event, EventArray, Events, Handle, Held, Service};
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

struct NothingHeld;

impl Held for NothingHeld {
    fn held(&self, _: Handle, _: &mut dyn FnMut(&[u8])) {}
}

fn main() {
    let flags = SocketFlags::CLOEXEC;
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let region = Region::map(4_096, HugePages::No).expect("mapped");
    let hello =
        Hello { geometry: Geometry::default(), waiting: Waiting::default(), segment_bytes: 1_448 };
    let host = Host::new(hello, 1, &region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let mut fars = Application::join(far_socket).expect("joined").begin(false).expect("sent");
    let gone = Arc::new(AtomicBool::new(false));
    let mut nears = host.meet(near_socket.as_fd(), &gone).expect("met");
    let (mut near, mut far) = (nears.pop().expect("one"), fars.pop().expect("one"));
    let _bell = near.go_apart().expect("made with a bell");

    let mut pool = Pool::new(&region, 1_024);
    let mut events = EventArray::new(1_568);
    let mut calls = CallArray::new(1_024, 1_448);
    let now = clock::Instant::from_millis(1);
    let mut spent = [Duration::ZERO; 4];
    for _ in 0..ROUNDS {
        for index in 0..BATCH {
            let mut mbuf: Mbuf = pool.alloc().expect("memory");
            mbuf.append(&[7; BYTES]).expect("it fits");
            let handle = Handle::from_bits(index as u64);
            events.push_recv(handle, Cookie(0), mbuf, 0, 65_535).expect("room");
        }
        let began = Instant::now();
        near.on_batch(now, events.view(&NothingHeld), &mut Calls::new(&mut calls, &mut pool));
        let told = Instant::now();
        assert!(near.is_away(now) && far.poll(&mut Echo) && !near.is_away(now));
        let answered = Instant::now();
        near.collect(now, &mut Calls::new(&mut calls, &mut pool));
        let issued = Instant::now();
        assert_eq!(calls.len(), 2 * BATCH);
        let (records, mut payloads) = calls.take();
        payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
        calls.restore(records, payloads);
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
        // The same, linked in.
        for index in 0..BATCH {
            let mut mbuf: Mbuf = pool.alloc().expect("memory");
            mbuf.append(&[7; BYTES]).expect("it fits");
            let handle = Handle::from_bits(index as u64);
            events.push_recv(handle, Cookie(0), mbuf, 0, 65_535).expect("room");
        }
        let linked = Instant::now();
        let view = events.view(&NothingHeld);
        Echo.on_batch(now, view, &mut Calls::new(&mut calls, &mut pool));
        let inline = linked.elapsed();
        let (records, mut payloads) = calls.take();
        payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
        calls.restore(records, payloads);
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
        for (sum, one) in
            spent.iter_mut().zip([told - began, answered - told, issued - answered, inline])
        {
            *sum += one;
        }
    }
    let each = spent.map(|sum| sum.as_nanos() as f64 / (ROUNDS * BATCH) as f64);
    let [told, answered, issued, inline] = each;
    println!("an echo of {BYTES} bytes, {BATCH} a batch, one thread, nanoseconds a request:");
    println!("  dataplane: events written down   {told:.1}");
    println!("  application: all of it           {answered:.1}");
    println!("  dataplane: calls checked, issued {issued:.1}");
    println!("  linked in: all of it             {inline:.1}");
}
