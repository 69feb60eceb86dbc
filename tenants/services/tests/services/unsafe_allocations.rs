//! That no service allocates while it serves: `count(|| ..)` is how often the closure did, on this thread.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::Ipv4Addr;

use clock::{Duration, Instant};
use services::{
    Decryption, DispatchConfig, Dispatcher, Encryption, Raid, ReedSolomon, Refused, RequestHeader,
    Service, Steering, SteeringConfig,
};
use wire::Endpoint;

use crate::packets::{serve, tcp, tunnel, udp};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: everything is passed on to the system's allocator; the counter is a cell without destructor, which may be
// touched at any time of a thread's life and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_count_counts() {
    assert_eq!(count(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn serving_allocates_nothing() {
    let (mut entry, mut exit) = tunnel(|config| (config.sequence, config.checksum) = (true, true));
    let endpoint = |i: u16| Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), i);
    let packet = udp(endpoint(1), endpoint(2), 0, &[1; 100]);
    let encapsulated = serve(&mut entry, &packet).expect("served");
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let encrypted = serve(&mut encryption, &packet).expect("served");
    let mut decryption = Decryption::new(&[1; 32]);
    let mut code = ReedSolomon::new(4, 2).expect("a shape");
    let mut repair = code.repair(&[0, 3]).expect("two of two");
    let mut raid = Raid::new(4).expect("a number of disks");
    let mut config = DispatchConfig::new(2, 64, [0; 16]);
    config.pools.push(vec![0, 1]);
    config.methods.push((1, 0));
    let mut dispatcher = Dispatcher::new(&config).expect("a configuration");
    let mut request = [0; 64];
    let header = RequestHeader { flags: 0, method: 1, key_len: 0, payload_len: 48, request_id: 1 };
    header.emit(&mut request);

    let cases: [(&mut dyn Service, &[u8]); 8] = [
        (&mut entry, &packet),
        (&mut exit, &encapsulated),
        (&mut encryption, &packet),
        (&mut decryption, &encrypted),
        (&mut code, &[7; 400]),
        (&mut repair, &[7; 400]),
        (&mut raid, &[7; 400]),
        (&mut dispatcher, &request),
    ];
    for (service, request) in cases {
        let mut reply = vec![0; service.reply_len_max(request.len())];
        let mut outcomes = [Err(Refused::Fragment); 2];
        let name = service.name();
        let allocations = count(|| {
            outcomes[0] = service.serve(request, &mut reply);
            outcomes[1] = service.serve(&request[..5], &mut reply);
        });
        assert!(outcomes[0].is_ok(), "{name}: {outcomes:?}");
        assert_eq!(allocations, 0, "{name}");
    }
}

#[test]
fn steering_allocates_nothing_also_when_its_table_overflows() {
    let virtual_addr = Ipv4Addr::new(10, 0, 0, 100);
    let mut config = SteeringConfig::new(virtual_addr, [3; 16]);
    (config.sessions_max, config.idle_max) = (64, Duration::from_millis(50));
    let mut steering = Steering::new(config).expect("a configuration");
    let backend = steering.add_backend(Ipv4Addr::new(10, 0, 1, 1)).expect("room");
    let packets: Vec<_> = (1..500)
        .map(|port| {
            let client = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), port);
            tcp(client, Endpoint::new(virtual_addr, 80), b"hello")
        })
        .collect();
    let mut reply = [0; 100];
    let allocations = count(|| {
        for (i, packet) in packets.iter().enumerate() {
            steering.set_now(Instant::from_millis(i as u64));
            assert_eq!(steering.serve(packet, &mut reply), Ok(packet.len()));
        }
        steering.add_backend(Ipv4Addr::new(10, 0, 1, 2)).expect("room");
        steering.remove_backend(backend).expect("there");
    });
    assert_eq!(allocations, 0);
    assert!(steering.stats().expired > 0, "{:?}", steering.stats());
}
