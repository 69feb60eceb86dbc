//! What a request costs each service: nanoseconds and bytes a second, with the conditions.
//!
//! `cargo run --release -p services --example cost`
//!
//! Each figure is the median of `WINDOWS` windows, with the fastest beside it, on one core with everything in its first
//! caches; nothing else should run. Bytes are those of the request.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use services::{
    Decapsulation, Decryption, DispatchConfig, Dispatcher, Encapsulation, Encryption, Kernel, Raid,
    ReedSolomon, RequestHeader, Service, Steering, SteeringConfig, TunnelConfig,
};
use wire::{Endpoint, emit_udp_packet};

const WINDOWS: usize = 31;
const WINDOW: Duration = Duration::from_millis(10);
/// Calls between two looks at the clock.
const CALLS: u32 = 64;
/// Sessions that packets to steer belong to.
const SESSIONS: u16 = 1_024;

/// Median and minimum nanoseconds of one call of `operation`, which is told its number.
fn measure(mut operation: impl FnMut(usize)) -> (f64, f64) {
    let mut number = 0;
    let mut window = || {
        let (start, mut calls) = (Instant::now(), 0);
        while start.elapsed() < WINDOW {
            for _ in 0..CALLS {
                operation(number);
                number += 1;
            }
            calls += CALLS;
        }
        start.elapsed().as_nanos() as f64 / f64::from(calls)
    };
    // The first warms caches and predictors.
    window();
    let mut windows: Vec<f64> = (0..WINDOWS).map(|_| window()).collect();
    windows.sort_by(f64::total_cmp);
    (windows[WINDOWS / 2], windows[0])
}

fn print(name: &str, bytes: usize, (median, fastest): (f64, f64)) {
    let rate = bytes as f64 / median;
    println!("{name:<44} {bytes:>6} {median:>9.1} {fastest:>9.1} {rate:>8.2}");
}

/// The cost of a service whose request is always the same.
fn cost(name: &str, service: &mut dyn Service, request: &[u8]) {
    let mut reply = vec![0; service.reply_len_max(request.len())];
    let result = measure(|_| {
        black_box(service.serve(black_box(request), &mut reply)).expect("served");
    });
    print(name, request.len(), result);
}

fn datagram(port: u16, dst: Ipv4Addr, length: usize) -> Vec<u8> {
    let from = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), port);
    let mut packet = vec![0; length];
    emit_udp_packet(&mut packet, from, Endpoint::new(dst, 53), &vec![0x5a; length - 28]);
    packet
}

fn tunnel(checksum: bool, length: usize) {
    let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().expect("IPv6"));
    let mut config = TunnelConfig::new(local, remote);
    (config.checksum, config.mtu) = (checksum, 1_600);
    let mut entry = Encapsulation::new(config).expect("a tunnel");
    let mut exit = Decapsulation::new(TunnelConfig::new(remote, local)).expect("a tunnel");
    let packet = datagram(1, Ipv4Addr::new(10, 0, 0, 2), length);
    let mut outer = vec![0; entry.reply_len_max(length)];
    entry.serve(&packet, &mut outer).expect("served");
    let with = if checksum { ", GRE checksum" } else { "" };
    cost(&format!("encapsulation{with}"), &mut entry, &packet);
    cost(&format!("decapsulation{with}"), &mut exit, &outer);
}

fn steering(length: usize) {
    let virtual_addr = Ipv4Addr::new(10, 0, 0, 100);
    let mut steering =
        Steering::new(SteeringConfig::new(virtual_addr, [7; 16])).expect("a configuration");
    for number in 0..16 {
        steering.add_backend(Ipv4Addr::new(10, 0, 1, number)).expect("room");
    }
    let packets: Vec<_> = (0..SESSIONS).map(|port| datagram(port, virtual_addr, length)).collect();
    let mut reply = vec![0; length];
    let result = measure(|number| {
        let packet = &packets[number % packets.len()];
        black_box(steering.serve(black_box(packet), &mut reply)).expect("served");
    });
    print("steering, 1,024 known sessions", length, result);
    assert_eq!(steering.stats().new, u64::from(SESSIONS));
}

/// Every packet begins a session, and the table is full: what a flood costs.
fn steering_flood() {
    let virtual_addr = Ipv4Addr::new(10, 0, 0, 100);
    let mut config = SteeringConfig::new(virtual_addr, [7; 16]);
    config.sessions_max = 4_096;
    let mut steering = Steering::new(config).expect("a configuration");
    steering.add_backend(Ipv4Addr::new(10, 0, 1, 1)).expect("room");
    let packets: Vec<_> = (0..=u16::MAX).map(|port| datagram(port, virtual_addr, 64)).collect();
    let mut reply = [0; 64];
    let result = measure(|number| {
        let packet = &packets[number % packets.len()];
        black_box(steering.serve(black_box(packet), &mut reply)).expect("served");
    });
    print("steering, new sessions in a full table", 64, result);
}

fn dispatch() {
    let mut config = DispatchConfig::new(16, 2, [7; 16]);
    config.pools.push((0..16).collect());
    config.methods.push((1, 0));
    let mut dispatcher = Dispatcher::new(&config).expect("a configuration");
    let mut request = [0; 64];
    let header = RequestHeader { flags: 0, method: 1, key_len: 0, payload_len: 48, request_id: 1 };
    header.emit(&mut request);
    let mut reply = [0; 72];
    let result = measure(|_| {
        black_box(dispatcher.serve(black_box(&request), &mut reply)).expect("served");
        let worker = u16::from_be_bytes([reply[6], reply[7]]);
        dispatcher.done(worker).expect("outstanding");
    });
    print("dispatch and done, 16 workers, JBSQ(2)", 64, result);
}

fn conditions() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown", |text| text.trim_start_matches(['\t', ' ', ':']));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    println!("processor: {model}; kernel {}", kernel.trim());
    println!("field arithmetic: {}", Kernel::detect().name());
    println!("AES instructions: {}", Encryption::is_accelerated());
    println!("median of {WINDOWS} windows of {} ms\n", WINDOW.as_millis());
    println!("{:<44} {:>6} {:>9} {:>9} {:>8}", "", "bytes", "ns", "fastest", "bytes/ns");
}

fn main() {
    conditions();
    for length in [64, 1_500] {
        tunnel(false, length);
        tunnel(true, length);
    }
    let message = vec![0x5a; 1_024];
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let mut sealed = vec![0; encryption.reply_len_max(message.len())];
    encryption.serve(&message, &mut sealed).expect("served");
    cost("AES-256-CBC encryption", &mut encryption, &message);
    cost("AES-256-CBC decryption", &mut Decryption::new(&[1; 32]), &sealed);
    for length in [64, 1_500] {
        steering(length);
    }
    steering_flood();
    for kernel in [Kernel::detect(), Kernel::portable()] {
        // 4 KiB in ten fragments, the last one filled up.
        let mut code = ReedSolomon::with_kernel(10, 4, kernel).expect("a shape");
        cost(&format!("Reed-Solomon 10 + 4, {}", kernel.name()), &mut code, &[0x5a; 4_100]);
        let mut repair = code.repair(&[0, 3, 7, 11]).expect("four of four");
        cost(&format!("its repair of four, {}", kernel.name()), &mut repair, &[0x5a; 4_100]);
        let mut raid = Raid::with_kernel(8, kernel).expect("a number");
        cost(&format!("RAID P+Q, 8 disks, {}", kernel.name()), &mut raid, &[0x5a; 4_096]);
    }
    dispatch();
}
