//! A network interface opened for a dataplane: packet memory, AF_XDP queue pairs for its elastic threads, and the XDP
//! program that takes the dataplane's address.
//!
//! One order of steps suits all drivers and kernels:
//!
//! ```text
//! look      driver, queues, MTU
//! attach    the XDP program, native where the driver can: some drivers set their queues up anew for it
//! choose    the way that receives the most and whose bind, tried, succeeds (`choice`); by that the size of chunks
//! steer     the device's table, so that packets come only to queues that have a thread; without one, all queues
//!           are opened
//! create    packet memory, and a socket for each queue
//! map       the rings, by whoever drives the queues
//! bind      the sockets, in the mode that was chosen; then the program sends them packets
//! ```
//!
//! [`OpenPort`] is what takes privileges: its sockets can be passed to another process, which maps them. A [`Port`]
//! drives them here.
//!
//! The program goes when the [`Port`] is dropped, and with it the last packet for us; the huge pages
//! with the memory, when the last chunk is back: a dataplane that has run on the port gives all of them back.

mod address;
mod choice;
mod refusal;
mod way;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use mem::{HugePages, Region};
use nic::QueueSet;
use nic::af_xdp::{AfXdp, AfXdpError, MappedSocket, XdpSocket};
use nic::device::{Device, Mtu, Watch};
use nic::xdp_program::{AttachMode, AttachPolicy, XdpFilter, XdpProgram, XdpProgramError};
use tailplane::MacAddr;

use self::address::check_unused;
use self::choice::{Ran, choose};
pub use self::refusal::Refusal;
pub use self::way::Way;
use crate::lab::{Lab, Namespace, in_namespace};
use crate::network_config::{ChecksumsName, ModeName};
use crate::steering::Steering;

/// Queues of a port at most: their sockets go in one message to the process that drives them.
pub(crate) const QUEUES_MAX: u32 = 64;

/// What to open.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// The interface, in its namespace.
    pub interface: String,
    /// The namespace; the caller's own where there is none.
    pub namespace: Option<Namespace>,
    /// Which addresses the dataplane takes.
    pub addresses: Vec<IpAddr>,
    /// Elastic threads. Each has a queue pair of its own where the device has that many.
    pub threads: u32,
    /// Chunks of packet memory for all queues together.
    pub chunks: usize,
    /// Whether they should lie in huge pages.
    pub huge_pages: HugePages,
    /// How frames travel.
    pub mode: ModeName,
    /// Who completes the checksums of what is sent.
    pub checksums: ChecksumsName,
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

    /// Makes queues for a program that is attached already, in the way that was chosen when it was.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn make_queues(&self, way: Way, count: u32) -> anyhow::Result<Queues> {
        self.at_interface(|| Queues::make(self, way, count))
    }

    /// How many queue pairs to open of a device: all of them where nothing keeps packets from the others.
    fn queues_of(&self, device: &Device, steering: &Steering) -> anyhow::Result<u32> {
        let there = device.queues.unwrap_or(self.threads);
        let count = if steering.is_open { there } else { there.min(self.threads) };
        if count > QUEUES_MAX {
            let (interface, threads) = (&self.interface, self.threads);
            bail!(
                "cannot open all queues of '{interface}': found {count} ({}), and no way to keep packets from any; do \
                 `ethtool -L {interface} combined {threads}`",
                device.driver
            );
        }
        Ok(count)
    }
}

/// A device with a program that takes the dataplane's packets, and the way that was chosen for them.
#[derive(Debug)]
pub struct Attached {
    /// What it is.
    pub device: Device,
    /// How frames travel.
    pub way: Way,
    /// Why by no better one, where there is one.
    pub why: Option<Refusal>,
    /// It takes the packets as long as it lives.
    pub program: XdpProgram,
}

impl Attached {
    /// Attaches a program to an interface of the calling thread's network namespace, and chooses the best way that the
    /// device has, of those that are wanted: it is tried with `queue`.
    ///
    /// # Errors
    /// There is none, or not the one that is demanded; the kernel has an address of the filter; what to do.
    pub fn to(
        interface: &str,
        filter: &XdpFilter,
        wanted: ModeName,
        queue: u32,
    ) -> anyhow::Result<Self> {
        let device = Device::look(interface).map_err(|source| AfXdpError::NoInterface {
            interface: interface.to_owned(),
            source,
        })?;
        if !device.is_up {
            return Err(AfXdpError::IsDown { interface: interface.to_owned() }.into());
        }
        check_unused(filter)?;
        let try_way = |way: Way| way.try_on(interface, queue);
        let (device, program) = attach(device, filter, attach_policy(wanted))?;
        if let Some((way, why)) = choose(&device, &Ran::of(&program), wanted, try_way)? {
            return Ok(Self { device, way, why, program });
        }
        let refusal = Refusal::of_multi_buffer(&device);
        if wanted != ModeName::Auto {
            bail!("cannot use '{interface}' with native XDP: found {refusal}");
        }
        drop(program);
        let (device, program) = attach(device, filter, AttachPolicy::Generic)?;
        let chosen = choose(&device, &Ran::of(&program), ModeName::Generic, try_way)?;
        let (way, _) = chosen.context("generic XDP has no way for frames")?;
        Ok(Self { device, way, why: Some(refusal), program })
    }

    /// How frames travel, for conditions, with packet memory in `region`: `af_xdp zero-copy, native XDP, igb, 4 KiB
    /// chunks, 2 MB pages`. Short: a service describes itself by it ([`endpoint::Description`]).
    pub fn describe(&self, region: &Region) -> String {
        let Self { device, way, .. } = self;
        let pages = if region.is_huge() { "2 MB pages" } else { "4 KiB pages" };
        let chunk = way.chunk.get() >> 10;
        let several = if way.multi_buffer { " (several a frame)" } else { "" };
        let checksums = if way.tx_checksum_offload { ", checksums by the device" } else { "" };
        format!("af_xdp {way}, {}, {chunk} KiB chunks{several}, {pages}{checksums}", device.driver)
    }

    /// What that costs, and why it is no better way: `65 MiB of packet memory; veth refuses zero-copy: ...`.
    pub fn cost(&self, region: &Region) -> String {
        let megabytes = region.len_bytes().div_ceil(1 << 20);
        let why = self.why.as_ref().map_or(String::new(), |why| format!("; {why}"));
        format!("{megabytes} MiB of packet memory{why}")
    }
}

/// Attaches a program to a device, and looks at the device again: virtio_net uses more queues once it runs one, as many more
/// as there are CPUs.
fn attach(
    device: Device,
    filter: &XdpFilter,
    policy: AttachPolicy,
) -> anyhow::Result<(Device, XdpProgram)> {
    let interface = device.interface.name.clone();
    let attached = XdpProgram::attach_with(&interface, filter, policy, device.is_jumbo());
    let program = attached.map_err(|error| match error {
        XdpProgramError::Attach { mode: AttachMode::Native, .. } => {
            let refusal = Refusal::of_program(&device, &error);
            anyhow!("cannot attach the XDP program to '{interface}': found {refusal}")
        }
        other => other.into(),
    })?;
    Ok((Device::look(&interface).unwrap_or(device), program))
}

/// How the program is to be attached for a mode.
fn attach_policy(mode: ModeName) -> AttachPolicy {
    match mode {
        ModeName::Auto => AttachPolicy::PreferNative,
        ModeName::ZeroCopy | ModeName::Copy => AttachPolicy::Native,
        ModeName::Generic => AttachPolicy::Generic,
    }
}

/// Queues that are made, and take no packets until they are bound and a program sends them there.
#[derive(Debug)]
pub struct Queues {
    /// The packet memory.
    pub region: Arc<Region>,
    /// A socket for each queue, in order.
    pub sockets: Vec<XdpSocket>,
    /// Chunks that the kernel is to hold for reception, of each queue.
    pub rx_buffers: u32,
}

impl Queues {
    fn make(config: &PortConfig, way: Way, count: u32) -> anyhow::Result<Self> {
        let region = Region::map_of(config.chunks, way.chunk, config.huge_pages)?;
        // Half of the memory at most is lent out for reception, whatever the rings could take.
        let lendable = (config.chunks as u32 / 2 / count.max(1)).max(64);
        let mut queue = way.config(&config.interface, 0);
        queue.rx_buffers = config.rx_buffers.unwrap_or(queue.rx_buffers).min(lendable);
        let sockets = XdpSocket::create_all(&queue, count, &region)?;
        if sockets.is_empty() {
            bail!("no queue was asked for");
        }
        Ok(Self { region, sockets, rx_buffers: queue.rx_buffers })
    }
}

/// Binds the sockets of queues, whose rings are mapped, and has the program send them packets.
///
/// # Errors
/// Which queue could not be bound, why, and what to do.
pub fn bind<'a>(
    program: &mut XdpProgram,
    sockets: impl Iterator<Item = &'a XdpSocket> + Clone,
) -> anyhow::Result<()> {
    let bound = XdpSocket::bind_all(sockets.clone());
    bound.with_context(|| format!("cannot bind the queues of '{}'", program.interface().name))?;
    for socket in sockets {
        program.register(socket.queue(), socket.fd())?;
    }
    Ok(())
}

/// An interface that is open, its queues made: they may be passed to another process.
#[derive(Debug)]
pub struct OpenPort {
    /// What it is.
    pub device: Device,
    /// How frames travel.
    pub way: Way,
    /// The same for conditions, as [`Attached::describe`].
    pub description: String,
    /// What it costs, as [`Attached::cost`].
    pub cost: String,
    /// The queues, not bound yet: none once they were taken.
    pub queues: Option<Queues>,
    /// It takes the dataplane's packets as long as it lives.
    pub program: XdpProgram,
    /// Sees whether the interface is there, and has a link.
    pub watch: Arc<Watch>,
    /// By what packets come to their threads.
    pub steering: Steering,
}

impl OpenPort {
    /// Opens an interface, the lab's end of a pair or a device, whose packets are steered to their threads.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &PortConfig, lab: Option<&Lab>) -> anyhow::Result<Self> {
        let speaks_v6 = config.addresses.iter().any(IpAddr::is_ipv6);
        Self::open_with(config, |device| Steering::of(lab, device, config.threads, speaks_v6))
    }

    fn open_with(
        config: &PortConfig,
        steer: impl FnOnce(&Device) -> Steering,
    ) -> anyhow::Result<Self> {
        let filter = XdpFilter { addresses: config.addresses.clone(), ..XdpFilter::default() };
        let attached = config.at_interface(|| {
            let mut attached = Attached::to(&config.interface, &filter, config.mode, 0)?;
            attached.way = attached.way.with_checksums(config.checksums, &attached.device)?;
            Ok(attached)
        })?;
        let steering = steer(&attached.device);
        let count = config.queues_of(&attached.device, &steering)?;
        config.at_interface(|| {
            let queues = Queues::make(config, attached.way, count)?;
            let mut description = attached.describe(&queues.region);
            if count != config.threads {
                let (queues, threads) =
                    (counted(count, "queue"), counted(config.threads, "thread"));
                description.push_str(&format!(", {queues} for {threads}"));
            }
            description.push_str(steering.description);
            let cost = attached.cost(&queues.region);
            let Attached { device, way, program, .. } = attached;
            let watch = Arc::new(device.watch().context("watching the interface")?);
            let queues = Some(queues);
            Ok(Self { device, way, description, cost, queues, program, watch, steering })
        })
    }
}

/// `1 queue`, `2 queues`.
fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// How long a link is waited for: devices take theirs down for a few seconds when a program or a socket comes.
pub const LINK_WITHIN: Duration = Duration::from_secs(10);
const LINK_LOOK: Duration = Duration::from_millis(10);

/// See the module's comment.
#[derive(Debug)]
pub struct Port {
    /// The packet memory.
    pub region: Arc<Region>,
    /// The largest packets.
    pub mtu: Mtu,
    queues: Vec<QueueSet<AfXdp>>,
    /// The interface. Its program, and what steers packets, go with this value, after the queues.
    pub opened: OpenPort,
}

impl Port {
    /// Opens all queues of an interface, to be driven by this process.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &PortConfig) -> anyhow::Result<Self> {
        let unsteered = |_: &Device| Steering { is_open: true, ..Steering::default() };
        Self::driven(config, OpenPort::open_with(config, unsteered)?)
    }

    /// Drives an interface that is open in this process.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn driven(config: &PortConfig, mut opened: OpenPort) -> anyhow::Result<Self> {
        let queues = opened.queues.take().context("the queues are in other hands")?;
        let Queues { region, sockets, .. } = queues;
        let driven = || -> anyhow::Result<Vec<QueueSet<AfXdp>>> {
            let mapped = sockets
                .into_iter()
                .map(XdpSocket::map)
                .collect::<Result<Vec<MappedSocket>, _>>()?;
            bind(&mut opened.program, mapped.iter().map(MappedSocket::socket))?;
            let queues = mapped.into_iter().map(AfXdp::new).collect::<Result<_, _>>()?;
            Ok(QueueSet::deal(queues, config.threads as usize)?)
        };
        let queues = driven().with_context(|| {
            format!("cannot open interface '{}' for the dataplane", config.interface)
        })?;
        let began = Instant::now();
        while !opened.watch.has_link() && began.elapsed() < LINK_WITHIN {
            std::thread::sleep(LINK_LOOK);
        }
        let mtu = opened.way.mtu(&opened.device);
        Ok(Self { region, mtu, queues, opened })
    }

    /// The link address of the interface.
    pub fn mac(&self) -> MacAddr {
        self.opened.device.interface.mac
    }

    /// The queue pairs of each thread. The second call answers none.
    pub fn take_queues(&mut self) -> Vec<QueueSet<AfXdp>> {
        std::mem::take(&mut self.queues)
    }
}
