//! Dataplanes of this process at the ends of a lab's wires: their ports, and how they run.

use std::time::Duration;

use mem::HugePages;
use runtime::{ElasticConfig, IdlePolicy, ModerationPolicy, RuntimeConfig, Scheduler, StackConfig};
use tailplane::Ipv4Addr;

use service::lab::Namespace;
use service::network_config::{ChecksumsName, ModeName};
use service::port::PortConfig;

/// Chunks of packet memory for each thread.
pub const CHUNKS: usize = 16_384;

/// The port of so many threads at an end.
pub fn port_of(
    interface: &str,
    namespace: &Namespace,
    address: Ipv4Addr,
    threads: u32,
) -> PortConfig {
    PortConfig {
        interface: interface.to_owned(),
        namespace: Some(namespace.clone()),
        addresses: vec![address.into()],
        threads,
        chunks: CHUNKS * threads as usize,
        huge_pages: HugePages::Try,
        mode: ModeName::Auto,
        checksums: ChecksumsName::Auto,
        rx_buffers: None,
    }
}

/// A dataplane that runs to completion, never waits for further packets, and sleeps after so long without work.
pub fn runtime_of(stack: StackConfig, idle_spin: Duration) -> RuntimeConfig {
    RuntimeConfig {
        stack,
        elastic: ElasticConfig::default(),
        scheduler: Scheduler::RunToCompletion,
        idle: IdlePolicy { spin: Some(idle_spin), ..IdlePolicy::default() },
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: CHUNKS / 4,
        segment: None,
        register: None,
    }
}
