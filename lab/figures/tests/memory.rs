//! Packet memory goes with the dataplane that it was for: figures run one after the other in one process.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::commands::load::DataplaneClient;
use load::{LoadConfig, Mode, WorkloadConfig};
use service::config::RunConfig;
use service::host::Host;
use service::lab::constants::DATAPLANE_ADDRESS;

/// Regions of packet memory that this process has mapped.
fn mapped() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("procfs");
    maps.lines().filter(|line| line.contains("tailplane-packets")).count()
}

/// An echo service and a load on it, joined by shared memory, from beginning to end.
fn run_once(socket: &Path, scheduler: &str) {
    let text = format!(
        "[service]\napp = \"echo\"\n[network]\nshm = \"{}\"\n[memory]\nchunks = 8192\n\
         [dataplane]\nspin_us = 50\nscheduler = \"{scheduler}\"\n",
        socket.display()
    );
    let config = RunConfig::parse(&text).expect("a good configuration");
    let host = Host::open(&config, None).expect("a wire");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| host.run_app(&config, || (), &stop));
        let mut client = DataplaneClient::join(socket, &[]).expect("its other end");
        let load = LoadConfig {
            mode: Mode::Closed { depth: 4 },
            connections: 20,
            warmup_ms: 10,
            measure_ms: 50,
            ..LoadConfig::new(WorkloadConfig::Echo { bytes: 64 })
        };
        let carried = client.run(&load, SocketAddrV4::new(DATAPLANE_ADDRESS, 7));
        assert_eq!(mapped(), 2, "the server's and the client's");
        stop.store(true, Ordering::Relaxed);
        let served = server.join().expect("no panic").expect("it serves to its end");
        carried.expect("it carries its load");
        assert_eq!(served[0].left.memory.lost, 0);
    });
}

#[test]
fn packet_memory_is_unmapped_after_each_run() {
    let socket = std::env::temp_dir().join(format!("tailplane-memory-{}", std::process::id()));
    for scheduler in ["run-to-completion", "work-conserving"] {
        for _ in 0..2 {
            run_once(&socket, scheduler);
            assert_eq!(mapped(), 0, "{scheduler}");
        }
    }
}
