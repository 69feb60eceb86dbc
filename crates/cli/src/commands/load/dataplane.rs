//! The load generator on our own dataplane, at the client's end of a lab.

use std::net::SocketAddrV4;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use load::{LoadConfig, LoadReport, dataplane};
use mem::HugePages;
use tailplane::runtime::{self, RuntimeConfig};
use tailplane::{ElasticConfig, Endpoint, IdlePolicy, Ipv4Addr, StackConfig};

use crate::lab::Lab;
use crate::lab::constants::{CLIENT_DATAPLANE_ADDRESS, CLIENT_INTERFACE, SUBNET_BITS};
use crate::port::{Port, PortConfig};

/// The load generator on our own dataplane, at the client's end of a lab.
#[derive(Debug)]
pub struct DataplaneClient {
    port: Port,
    threads: u32,
    cpus: Vec<usize>,
    /// Real-time priority of its threads: only for windows well below a second.
    pub realtime: Option<u8>,
}

/// How long the kernel may take to let go of a queue that was closed just before.
const BUSY_WAIT: Duration = Duration::from_secs(2);

impl DataplaneClient {
    /// Opens the client's end.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(lab: &Lab, threads: u32, cpus: &[usize]) -> anyhow::Result<Self> {
        let config = PortConfig {
            interface: CLIENT_INTERFACE.to_owned(),
            namespace: Some(lab.client().clone()),
            address: CLIENT_DATAPLANE_ADDRESS,
            queues: threads,
            chunks: 16_384 * threads as usize,
            huge_pages: HugePages::Try,
            mode: nic::af_xdp::BindMode::Auto,
            rx_buffers: None,
        };
        let begin = Instant::now();
        let port = loop {
            match Port::open(&config) {
                Err(error) if is_busy(&error) && begin.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other?,
            }
        };
        Ok(Self { port, threads, cpus: cpus.to_vec(), realtime: None })
    }

    /// Carries one load. A client can be used once: its queues end with their threads.
    ///
    /// # Errors
    /// Settings that cannot be used, or a server that does not answer.
    pub fn run(&mut self, config: &LoadConfig, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        let target = Endpoint::new(*target.ip(), target.port());
        let (services, run) = dataplane::services(config, target, self.threads)?;
        let queues = self.port.take_queues();
        let runtime_config = self.runtime_config(CLIENT_DATAPLANE_ADDRESS);
        let services: Vec<_> =
            services.into_iter().map(|service| Mutex::new(Some(service))).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let plane = scope.spawn(|| {
                let make = |core: usize| {
                    let mut place = services[core].lock().unwrap_or_else(|bad| bad.into_inner());
                    place.take().expect("each thread asks for its service once")
                };
                runtime::run(&runtime_config, &self.port.region, queues, make, &stop)
            });
            let deadline = Instant::now() + Duration::from_millis(run.limit_ms());
            while !run.is_over() && !plane.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            match plane.join() {
                Ok(result) => result.map(|_| ()).context("the client's dataplane failed"),
                Err(_) => Err(anyhow::anyhow!("the client's dataplane panicked")),
            }
        })?;
        let mut conditions = run.conditions("tailplane over af_xdp", target);
        conditions.cores.clone_from(&self.cpus);
        conditions.more.insert("client driver".into(), self.port.description.clone());
        Ok(run.report(conditions)?)
    }

    fn runtime_config(&self, address: Ipv4Addr) -> RuntimeConfig {
        RuntimeConfig {
            stack: StackConfig::new(address, SUBNET_BITS, self.port.mac),
            elastic: ElasticConfig::default(),
            // Long enough not to sleep between requests, short enough to let go when all is done.
            idle: IdlePolicy { spin: Some(Duration::from_millis(2)), ..IdlePolicy::default() },
            cpus: self.cpus.clone(),
            realtime: self.realtime,
            pool_keep: 4_096,
        }
    }
}

/// Whether a queue could not be opened because a closed socket still holds it.
fn is_busy(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(nic::af_xdp::AfXdpError::QueueBusy { .. }))
    })
}
