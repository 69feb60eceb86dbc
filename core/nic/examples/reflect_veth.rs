//! Packets per second of a bare reflector on a veth pair, the bound for any service there.
//!
//! `cargo run --release -p nic --example reflect_veth -- [SECONDS]`, as root. Both ends are
//! AF_XDP in copy mode, one core each. Makes and removes its own network namespaces.

#[path = "../tests/veth/rig.rs"]
#[allow(dead_code)]
mod rig;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant as WallClock};

use clock::Instant;
use mem::{HugePages, Pool, Region};
use nic::Nic;
use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
use nic::blaster::{Blaster, BlasterConfig};
use nic::reflector::Reflector;
use nic::xdp_program::{XdpFilter, XdpProgram};
use std::net::SocketAddrV4;

use wire::MacAddr;

/// Length of a spinning burst: two spinners starve a machine of two processors.
const BURST: Duration = Duration::from_millis(60);
const PAUSE: Duration = Duration::from_millis(40);

fn open(interface: &str, address: std::net::Ipv4Addr, buffers: u32) -> (AfXdp, XdpProgram, Pool) {
    let region: Arc<Region> = Region::map(16_384, HugePages::No).expect("memory");
    let config = AfXdpConfig { rx_buffers: buffers, ..AfXdpConfig::new(interface, 0) };
    let mut program =
        XdpProgram::attach(interface, &XdpFilter::address(address)).expect("a program");
    let socket = XdpSocket::open(&config, &region).expect("a socket");
    program.register(0, socket.socket().fd()).expect("registered");
    let mut pool = Pool::new(&region, 8192);
    let mut nic = AfXdp::new(socket).expect("a driver");
    nic.receive(Instant::ZERO, &mut pool, &mut Vec::new(), 0);
    (nic, program, pool)
}

fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).expect("the core exists");
}

/// Time that this thread has been executing: does not pass while a neighbour has the core.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn main() {
    if rig::skip_reason().is_some() {
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().and_then(|n| n.parse().ok()).unwrap_or(default);
    let (seconds, window, batch, buffers): (u64, u64, u64, u64) =
        (number(2), number(1024), number(64), number(4096));
    let rig = rig::Rig::new();
    let (running, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let near_mac = AtomicU64::new(0);
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            rig.enter_near();
            pin(0);
            let (mut nic, _program, mut pool) = open(rig::NEAR, rig::OWN, buffers as u32);
            let mut bytes = [0; 8];
            bytes[..6].copy_from_slice(&nic.capabilities().mac.0);
            near_mac.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            barrier.wait();
            let mut reflector = Reflector::new(batch as usize);
            let (mut frames, mut cost_ns) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let before = cpu_ns();
                let busy = reflector.reflect_once(Instant::ZERO, &mut nic, &mut pool);
                // Small rounds would measure the clock.
                if busy >= 32 {
                    cost_ns += cpu_ns() - before;
                    frames += busy as u64;
                }
                if busy == 0 && !running.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
            println!("reflector: {:?}", nic.stats());
            if let Some(each) = cost_ns.checked_div(frames) {
                println!("reflector: {each} ns of its core per frame, busy rounds only");
            }
        });
        rig.enter_far();
        pin(1);
        let (mut nic, _program, mut pool) = open(rig::FAR, rig::PEER, 4096);
        barrier.wait();
        let mut mac = [0; 6];
        mac.copy_from_slice(&near_mac.load(Ordering::Relaxed).to_le_bytes()[..6]);
        let mut blaster = Blaster::new(BlasterConfig {
            source_mac: nic.capabilities().mac,
            target_mac: MacAddr(mac),
            source: SocketAddrV4::new(rig::PEER, 4000),
            target: SocketAddrV4::new(rig::OWN, 7),
            frame_bytes: 60,
            flows: 1,
            window,
            batch: batch as usize,
        });
        let (mut best, mut total, mut spent) = (0.0f64, 0, Duration::ZERO);
        let mut latencies = Vec::new();
        let start = WallClock::now();
        while start.elapsed() < Duration::from_secs(seconds) {
            running.store(true, Ordering::Relaxed);
            let (begin, before) = (WallClock::now(), blaster.reflected);
            while begin.elapsed() < BURST {
                if window == 1 {
                    let sent = WallClock::now();
                    blaster.blast_once(Instant::ZERO, &mut nic, &mut pool);
                    while blaster.outstanding() > 0 && begin.elapsed() < BURST {
                        blaster.collect_once(Instant::ZERO, &mut nic, &mut pool);
                    }
                    latencies.push(sent.elapsed());
                } else {
                    for _ in 0..16 {
                        blaster.blast_once(Instant::ZERO, &mut nic, &mut pool);
                    }
                }
            }
            let (count, took) = (blaster.reflected - before, begin.elapsed());
            best = best.max(count as f64 / took.as_secs_f64());
            total += count;
            spent += took;
            let wait = WallClock::now();
            while blaster.outstanding() > 0 && wait.elapsed() < BURST {
                blaster.collect_once(Instant::ZERO, &mut nic, &mut pool);
            }
            let lost = blaster.write_off();
            if lost > 0 {
                println!("lost {lost}");
            }
            running.store(false, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        stop.store(true, Ordering::Relaxed);
        let mean = total as f64 / spent.as_secs_f64();
        println!(
            "window {window} batch {batch} buffers {buffers}: mean {mean:.0}/s, best burst {best:.0}/s"
        );
        if !latencies.is_empty() {
            latencies.sort();
            let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
            println!("round trip p50 {:?} p99 {:?}", at(0.5), at(0.99));
        }
        println!("blaster: {:?}", nic.stats());
    });
}
