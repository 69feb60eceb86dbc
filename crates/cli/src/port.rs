//! A network interface opened for a dataplane: packet memory, one AF_XDP queue pair for each elastic
//! thread, and the XDP program that takes the dataplane's address.
//!
//! [`OpenPort`] is what takes privileges: its sockets can be passed to another process. A [`Port`] drives them here.
//!
//! The program goes when the [`Port`] is dropped, and with it the last packet for us; the huge pages
//! with the memory, when the last chunk is back: a dataplane that has run on the port gives all of them back.

use std::sync::Arc;

use anyhow::Context;
use mem::{HugePages, Region};
use nic::af_xdp::{AfXdp, AfXdpConfig, BindMode, XdpSocket};
use nic::xdp_program::{XdpFilter, XdpProgram};
use tailplane::{Ipv4Addr, MacAddr};

use crate::lab::{Namespace, in_namespace};

/// What to open.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The interface, in its namespace.
    pub interface: String,
    /// The namespace; the caller's own where there is none.
    pub namespace: Option<Namespace>,
    /// Which address the dataplane takes.
    pub address: Ipv4Addr,
    /// Queue pairs, and so elastic threads.
    pub queues: u32,
    /// Chunks of packet memory, 2 KiB each, for all queues together.
    pub chunks: usize,
    /// Whether they should lie in huge pages.
    pub huge_pages: HugePages,
    /// Copy or zero-copy.
    pub mode: BindMode,
    /// Chunks that are lent to the kernel at most; `None`: what the driver thinks right.
    pub rx_buffers: Option<u32>,
}

impl PortConfig {
    /// Runs `open` where the interface is.
    fn at_interface<R: Send>(
        &self,
        open: impl FnOnce() -> anyhow::Result<R> + Send,
    ) -> anyhow::Result<R> {
        match &self.namespace {
            None => open(),
            Some(namespace) => in_namespace(namespace, open)?,
        }
        .with_context(|| format!("cannot open interface '{}' for the dataplane", self.interface))
    }

    /// Opens the queues alone, for a program that is attached already.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open_queues(&self) -> anyhow::Result<OpenQueues> {
        self.at_interface(|| OpenQueues::open_here(self))
    }
}

/// Queues that are open and take no packets until a program sends them there.
#[derive(Debug)]
pub struct OpenQueues {
    /// The packet memory.
    pub region: Arc<Region>,
    /// A socket for each queue, in order.
    pub sockets: Vec<XdpSocket>,
    /// Chunks that the kernel is to hold for reception, of each queue.
    pub rx_buffers: u32,
}

impl OpenQueues {
    fn open_here(config: &PortConfig) -> anyhow::Result<Self> {
        let region = Region::map(config.chunks, config.huge_pages)?;
        // Half of the memory at most is lent out for reception, whatever the rings could take.
        let lendable = (config.chunks as u32 / 2 / config.queues.max(1)).max(64);
        let mut queue = AfXdpConfig::new(&config.interface, 0);
        queue.mode = config.mode;
        queue.rx_buffers = config.rx_buffers.unwrap_or(queue.rx_buffers).min(lendable);
        let sockets = XdpSocket::open_queues(&queue, config.queues, &region)?;
        Ok(Self { region, sockets, rx_buffers: queue.rx_buffers })
    }
}

/// An interface that is open, its queues not driven yet: they may be passed to another process.
#[derive(Debug)]
pub struct OpenPort {
    /// The packet memory.
    pub region: Arc<Region>,
    /// The link address of the interface.
    pub mac: MacAddr,
    /// How frames travel, for conditions: `af_xdp copy, native XDP, 2 MB pages`.
    pub description: String,
    /// A socket for each queue, in order.
    pub sockets: Vec<XdpSocket>,
    /// Chunks that the kernel is to hold for reception, of each queue.
    pub rx_buffers: u32,
    /// It takes the dataplane's packets as long as it lives.
    pub program: XdpProgram,
}

impl OpenPort {
    /// Opens an interface.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &PortConfig) -> anyhow::Result<Self> {
        config.at_interface(|| Self::open_here(config))
    }

    fn open_here(config: &PortConfig) -> anyhow::Result<Self> {
        let OpenQueues { region, sockets, rx_buffers } = OpenQueues::open_here(config)?;
        let mut program =
            XdpProgram::attach(&config.interface, &XdpFilter::address(config.address))?;
        for (number, socket) in sockets.iter().enumerate() {
            program.register(number as u32, socket.fd())?;
        }
        let first = sockets.first().context("no queue was asked for")?;
        let mode = if first.is_zero_copy() { "zero-copy" } else { "copy" };
        let pages = if region.is_huge() { "2 MB pages" } else { "4 KiB pages" };
        let description = format!("af_xdp {mode}, {} XDP, {pages}", program.mode().name());
        let mac = first.interface().mac;
        Ok(Self { region, mac, description, sockets, rx_buffers, program })
    }
}

/// See the module's comment.
#[derive(Debug)]
pub struct Port {
    /// The packet memory.
    pub region: Arc<Region>,
    /// The link address of the interface.
    pub mac: MacAddr,
    /// How frames travel, for conditions: `af_xdp copy, native XDP, 2 MB pages`.
    pub description: String,
    queues: Vec<AfXdp>,
    /// Held for its `Drop`.
    _program: XdpProgram,
}

impl Port {
    /// Opens an interface, to be driven by this process.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &PortConfig) -> anyhow::Result<Self> {
        let OpenPort { region, mac, description, sockets, program, .. } = OpenPort::open(config)?;
        let driven = sockets.into_iter().map(AfXdp::new).collect::<Result<Vec<_>, _>>();
        let queues = driven.with_context(|| {
            format!("cannot open interface '{}' for the dataplane", config.interface)
        })?;
        Ok(Self { region, mac, description, queues, _program: program })
    }

    /// The queue pairs, to be given to their threads. The second call answers none.
    pub fn take_queues(&mut self) -> Vec<AfXdp> {
        std::mem::take(&mut self.queues)
    }
}
