//! The load generator on our own dataplane: at the client's end of a lab, or of a wire in shared memory.

use std::net::SocketAddrV4;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context;
use load::{LoadConfig, LoadReport, dataplane};
use mem::{HugePages, Region};
use nic::af_xdp::AfXdpError;
use nic::xdp_program::XdpProgramError;
use nic::{Nic, QueueSet};
use runtime::{RuntimeConfig, StackConfig};
use tailplane::{Endpoint, MacAddr, Service};

use crate::demo::ends::{CHUNKS, port_of, runtime_of};
use service::lab::Lab;
use service::lab::constants::{CLIENT_DATAPLANE_ADDRESS, CLIENT_INTERFACE, SUBNET_BITS};
use service::local_wire::LocalWire;
use service::port::Port;

/// The load generator on our own dataplane.
#[derive(Debug)]
pub struct DataplaneClient {
    wire: Wire,
    threads: u32,
    cpus: Vec<usize>,
    /// Real-time priority of its threads: only for windows well below a second.
    pub realtime: Option<u8>,
    /// How long its threads look for packets before they sleep. By default long enough not to sleep
    /// between requests, short enough to let go when all is done.
    pub idle_spin: Duration,
}

#[derive(Debug)]
enum Wire {
    Port(Box<Port>),
    Local(Box<LocalWire>),
}

impl Wire {
    fn mac(&self) -> MacAddr {
        match self {
            Self::Port(port) => port.mac(),
            Self::Local(local) => local.mac,
        }
    }

    fn description(&self) -> &str {
        match self {
            Self::Port(port) => &port.opened.description,
            Self::Local(local) => &local.description,
        }
    }
}

/// How long the kernel may take to let go of a queue that was closed just before.
const BUSY_WAIT: Duration = Duration::from_secs(2);

impl DataplaneClient {
    /// Opens the client's end of a lab.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(lab: &Lab, threads: u32, cpus: &[usize]) -> anyhow::Result<Self> {
        let config = port_of(CLIENT_INTERFACE, lab.client(), CLIENT_DATAPLANE_ADDRESS, threads);
        let begin = Instant::now();
        let port = loop {
            match Port::open(&config) {
                Err(error) if is_busy(&error) && begin.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other?,
            }
        };
        Ok(Self::over(Wire::Port(Box::new(port)), threads, cpus))
    }

    /// Joins the wire in shared memory that a service offers at `path`. It has one queue pair, so one
    /// thread.
    ///
    /// # Errors
    /// Nobody offers one there.
    pub fn join(path: &Path, cpus: &[usize]) -> anyhow::Result<Self> {
        let wire = LocalWire::join(path, CHUNKS, HugePages::Try)?;
        Ok(Self::over(Wire::Local(Box::new(wire)), 1, cpus))
    }

    fn over(wire: Wire, threads: u32, cpus: &[usize]) -> Self {
        let idle_spin = Duration::from_millis(2);
        Self { wire, threads, cpus: cpus.to_vec(), realtime: None, idle_spin }
    }

    /// Carries one load. A client can be used once: its queues end with their threads.
    ///
    /// # Errors
    /// Settings that cannot be used, or a server that does not answer.
    pub fn run(&mut self, config: &LoadConfig, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        let target = Endpoint::new(*target.ip(), target.port());
        let (services, run) = dataplane::services(config, target, self.threads)?;
        let limit = Duration::from_millis(run.limit_ms());
        self.serve(services, limit, || run.is_over())?;
        let driver = match &self.wire {
            Wire::Port(_) => "tailplane over af_xdp",
            Wire::Local(_) => "tailplane over shm",
        };
        let mut conditions = run.conditions(driver, target);
        conditions.cores.clone_from(&self.cpus);
        conditions.more.insert("client driver".into(), self.wire.description().to_owned());
        Ok(run.report(conditions)?)
    }

    /// Runs services at this end, one on each thread, until `is_over` or for `limit` at most.
    ///
    /// # Errors
    /// What the dataplane could not do.
    pub fn serve<S: Service + Send>(
        &mut self,
        services: Vec<S>,
        limit: Duration,
        is_over: impl Fn() -> bool,
    ) -> anyhow::Result<()> {
        let stack = StackConfig::new(CLIENT_DATAPLANE_ADDRESS, SUBNET_BITS, self.wire.mac());
        let config = RuntimeConfig {
            cpus: self.cpus.clone(),
            realtime: self.realtime,
            ..runtime_of(stack, self.idle_spin)
        };
        match &mut self.wire {
            Wire::Port(port) => {
                let queues = port.take_queues();
                serve(&config, &port.region, queues, services, limit, is_over)
            }
            Wire::Local(local) => {
                let queues = local.take_queues();
                serve(&config, &local.region, queues, services, limit, is_over)
            }
        }
    }
}

fn serve<N: Nic + Send, S: Service + Send>(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    queues: Vec<impl Into<QueueSet<N>> + Send>,
    services: Vec<S>,
    limit: Duration,
    is_over: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let services: Vec<_> = services.into_iter().map(|service| Mutex::new(Some(service))).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let plane = scope.spawn(|| {
            let make = |core: usize| {
                let mut place = services[core].lock().unwrap_or_else(|bad| bad.into_inner());
                place.take().expect("each thread asks for its service once")
            };
            runtime::run(config, region, queues, make, &stop)
        });
        let deadline = Instant::now() + limit;
        while !is_over() && !plane.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        match plane.join() {
            Ok(result) => result.map(|_| ()).context("the client's dataplane failed"),
            Err(_) => Err(anyhow::anyhow!("the client's dataplane panicked")),
        }
    })
}

/// Whether a queue could not be opened because a closed socket still holds it.
fn is_busy(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(AfXdpError::QueueBusy { .. }))
            || matches!(cause.downcast_ref(), Some(XdpProgramError::Taken { .. }))
    })
}
