//! A service that is stopped tells whoever is connected, and gives its packet memory back.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use echo::Echo;
use mem::HugePages;
use runtime::{ElasticConfig, IdlePolicy, ModerationPolicy, StackConfig};
use runtime::{RuntimeConfig, Scheduler, run};
use rustix::process::Signal;
use service::lab::constants::{DATAPLANE_ADDRESS, DATAPLANE_INTERFACE, SUBNET_BITS};
use service::network_config::{ChecksumsName, ModeName};
use service::port::{Port, PortConfig};
use tailplane::{Server, SharedSlots};

use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{ECHO, Testbed, config, start};

const CONNECTIONS: usize = 20;
/// Well below any time-out of a peer that is not told.
const AT_ONCE: Duration = Duration::from_secs(5);

fn connections(bed: &Testbed) -> Vec<TcpStream> {
    bed.at_client(|| (0..CONNECTIONS).map(|_| connect(ECHO).expect("let in")).collect())
}

/// The peer has reset the connection, and has not kept us waiting for it.
#[track_caller]
fn assert_reset(stream: &mut TcpStream) {
    let began = Instant::now();
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).expect_err("no end in order");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    assert!(began.elapsed() < AT_ONCE, "after {:?}", began.elapsed());
}

#[test]
fn whoever_is_connected_is_reset_when_a_service_is_stopped() {
    let Some(bed) = Testbed::new("stopped", 2) else { return };
    for scheduler in ["run-to-completion", "work-conserving"] {
        let more = format!("scheduler = \"{scheduler}\"\n");
        let service = start(&bed.directory, &config("echo", bed.lab.prefix(), 2, &more));
        let mut streams = connections(&bed);
        streams.iter_mut().for_each(|stream| assert_echoes(stream, b"hello"));
        // One waits for the end in a thread of its own, and one has not read its answer.
        let mut waiting = streams.pop().expect("there are some");
        let waiter = thread::spawn(move || assert_reset(&mut waiting));
        streams[0].write_all(b"unheard").expect("open");
        thread::sleep(Duration::from_millis(20));
        let finished = service.interrupt(Signal::TERM);
        finished.assert_success();
        waiter.join().expect("it was reset");
        streams.iter_mut().for_each(assert_reset);
        assert!(!finished.stdout.contains("not_reset"), "{finished:?}");
        assert!(!finished.stdout.contains("memory_lost"), "{finished:?}");
        let count = |line: &str| -> usize {
            let number = line.split_once(" reset").and_then(|(head, _)| head.rsplit(' ').next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let reset: usize = finished.stdout.lines().map(count).sum();
        assert_eq!(reset, CONNECTIONS, "{finished:?}");
    }
}

fn runtime(port: &Port, scheduler: Scheduler) -> RuntimeConfig {
    let mut stack = StackConfig::new(DATAPLANE_ADDRESS, SUBNET_BITS, port.mac());
    stack.tcp_listen = vec![ECHO.port()];
    RuntimeConfig {
        stack,
        elastic: ElasticConfig::default(),
        scheduler,
        idle: IdlePolicy { spin: Some(Duration::from_micros(50)), ..IdlePolicy::default() },
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: 1_024,
        segment: None,
        register: None,
    }
}

/// Regions of packet memory that this process has mapped.
fn mapped() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    maps.lines().filter(|line| line.contains("tailplane-packets")).count()
}

/// Chunks were lent to the kernel, wait in its rings, are held by the service and retained by the stack.
fn all_chunks_come_back(bed: &Testbed, scheduler: Scheduler) {
    let mut port = Port::open(&PortConfig {
        interface: DATAPLANE_INTERFACE.to_owned(),
        namespace: Some(bed.lab.dataplane().clone()),
        addresses: vec![DATAPLANE_ADDRESS.into()],
        threads: 2,
        chunks: 8_192,
        huge_pages: HugePages::No,
        mode: ModeName::Auto,
        checksums: ChecksumsName::Auto,
        rx_buffers: None,
    })
    .expect("a port");
    let (region, queues) = (Arc::clone(&port.region), port.take_queues());
    let config = runtime(&port, scheduler);
    let stop = AtomicBool::new(false);
    let slots = Arc::new(SharedSlots::new(2, 1_000));
    let make = |core| Server::shared(core, Echo, Arc::clone(&slots));
    thread::scope(|scope| {
        let server = scope.spawn(|| run(&config, &region, queues, make, &stop));
        let mut streams = connections(bed);
        streams.iter_mut().for_each(|stream| assert_echoes(stream, b"hello"));
        // Answers that nobody reads: they fill the client's window, and then our memory.
        let flood = vec![7; 1 << 20];
        for stream in &mut streams[..4] {
            stream.set_nonblocking(true).expect("a socket of ours");
            let _ = stream.write(&flood).expect("some of it");
            stream.set_nonblocking(false).expect("a socket of ours");
        }
        thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let reports = server.join().expect("no panic").expect("it ends well");
        let left = reports.iter().fold((0, 0), |sum, (report, _)| {
            (sum.0 + report.left.connections.reset, sum.1 + report.left.memory.lost)
        });
        assert_eq!(left, (CONNECTIONS as u64, 0));
        streams[4..].iter_mut().for_each(assert_reset);
    });
    assert_eq!(region.depot_len(), region.chunks() as usize);
}

#[test]
fn packet_memory_comes_back_from_the_kernel_and_is_unmapped() {
    let Some(bed) = Testbed::new("memory", 2) else { return };
    for scheduler in [Scheduler::RunToCompletion, Scheduler::WorkConserving(Default::default())] {
        let before = mapped();
        all_chunks_come_back(&bed, scheduler.clone());
        assert_eq!(mapped(), before, "{scheduler:?}");
    }
}
