//! The service `gateway` of `tailplane sdp serve`: the opener opens its device, the plane's process adopts
//! that and makes the gateway before the plane starts, so that what is wrong is said at once.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use gateway::{Counters, Gateway, GatewayConfig, Links};
use mem::{ChunkBytes, Pool, Region};
use nic::Interface;
use nic::af_xdp::{AdoptedQueue, AfXdp, MappedSocket, XdpSocket};
use nic::xdp_program::{XdpFilter, XdpProgram};
use sdp::{Echo, Handler};
use serde::{Deserialize, Serialize};
use tailplane::MacAddr;

use super::gateway_config::{Device, GatewayFile, GatewaySettings, LabEnd};
use super::serve_args::ServeArgs;
use service::host;
use service::lab::constants::{CLIENT_INTERFACE, CLIENT_MAC, DATAPLANE_INTERFACE, DATAPLANE_MAC};
use service::lab::{Lab, in_namespace};
use service::network_config::ModeName;
use service::port::{Attached, bind};
use service::split::PassedInterface;

/// What the plane's process needs to know of the device, with its packet memory and its socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PassedGateway {
    /// The text of the gateway's file, or what stands for one.
    text: String,
    next_hop: [u8; 6],
    #[serde(with = "PassedInterface")]
    interface: Interface,
    rx_buffers: u32,
    chunk_bytes: usize,
}

/// Held by the opener until the plane has stopped: the program goes first, then the lab.
#[derive(Debug)]
pub struct Held {
    /// The queue, until it is bound.
    made: Option<(XdpSocket, Arc<Region>)>,
    program: XdpProgram,
    _lab: Option<Lab>,
}

impl Held {
    /// Binds the queue, whose rings the plane has mapped, and lets go of it.
    ///
    /// # Errors
    /// It cannot be bound, and what to do.
    pub fn bind(&mut self) -> anyhow::Result<()> {
        let Some((socket, _region)) = self.made.take() else { return Ok(()) };
        bind(&mut self.program, std::iter::once(&socket))
    }
}

/// A device that was opened, to be passed on.
pub struct Opened {
    /// Lines about it for the person who started it.
    pub announcement: String,
    /// What goes with the descriptors.
    pub passed: PassedGateway,
    /// The packet memory, and the socket.
    pub descriptors: [OwnedFd; 2],
    /// To be held meanwhile.
    pub held: Held,
}

/// Opens the device of the gateway that the arguments describe.
///
/// # Errors
/// What could not be opened or made, and what to do.
pub fn open(args: &ServeArgs) -> anyhow::Result<Opened> {
    let (text, settings) = match &args.gateway {
        Some(path) => GatewayFile::load(path)?,
        None => {
            let end = serde_json::to_string(&args.lab_end.unwrap_or_default())?;
            let text = format!("network.end = {end}");
            let settings = GatewayFile::parse(&text)?;
            (text, settings)
        }
    };
    let (lab, interface, next_hop, opened) = match &settings.device {
        Device::Interface(name, next_hop) => {
            (None, name.as_str(), *next_hop, open_queue(name, &settings))
        }
        Device::Lab(name, end) => {
            let lab = lab(name)?;
            let (interface, next_hop, namespace) = match end {
                LabEnd::Dataplane => (DATAPLANE_INTERFACE, CLIENT_MAC, lab.dataplane()),
                LabEnd::Client => (CLIENT_INTERFACE, DATAPLANE_MAC, lab.client()),
            };
            let opened = in_namespace(namespace, || open_queue(interface, &settings))?;
            (Some(lab), interface, MacAddr(next_hop), opened)
        }
    };
    let Queue { socket, program, region, rx_buffers, description } =
        opened.with_context(|| format!("cannot open interface '{interface}' for the gateway"))?;
    let link = socket.interface();
    let passed = PassedGateway {
        text,
        next_hop: next_hop.0,
        interface: link.clone(),
        rx_buffers,
        chunk_bytes: region.chunk_bytes().get(),
    };
    let config = passed.config(&settings, link.mac);
    config.check().context("cannot make the gateway")?;
    let memory = region.memfd().context("packet memory is no memory file")?;
    let duplicate = |descriptor: std::os::fd::BorrowedFd<'_>| {
        descriptor.try_clone_to_owned().context("duplicating a descriptor of the gateway")
    };
    let descriptors = [duplicate(memory)?, duplicate(socket.fd())?];
    Ok(Opened {
        announcement: announcement(&settings, &config, interface, &description),
        descriptors,
        held: Held { made: Some((socket, region)), program, _lab: lab },
        passed,
    })
}

impl PassedGateway {
    /// The gateway's configuration; the key of its steering is not drawn.
    fn config(&self, settings: &GatewaySettings, local: MacAddr) -> GatewayConfig {
        GatewayConfig {
            tunnel: settings.tunnel,
            links: Links { local, remote: MacAddr(self.next_hop) },
            tenants: settings.tenants,
            steering: settings.steering,
            servers: settings.servers,
        }
    }
}

/// A gateway that waits for its plane.
pub struct Prepared {
    /// What it does, readable while it runs.
    pub counters: Arc<Counters>,
    config: GatewayConfig,
    /// The device and its memory, until the core takes them.
    parts: Mutex<Option<(AfXdp, Pool)>>,
}

/// A device whose rings are mapped, and which the opener is to bind.
pub struct Adopted {
    config: GatewayConfig,
    mapped: MappedSocket,
}

impl Adopted {
    /// Adopts a device.
    ///
    /// # Errors
    /// The descriptors are not what the opener passes.
    pub fn adopt(passed: &PassedGateway, memory: OwnedFd, socket: OwnedFd) -> anyhow::Result<Self> {
        let settings = GatewayFile::parse(&passed.text)?;
        let interface = passed.interface.clone();
        let mut config = passed.config(&settings, interface.mac);
        if let Some(steering) = &mut config.steering {
            // A tenant that knew it could aim all sessions at one tenant.
            rustix::rand::getrandom(&mut steering.key, rustix::rand::GetRandomFlags::empty())
                .context("drawing a key for the steering")?;
        }
        let chunk = ChunkBytes::of(passed.chunk_bytes).context("there are no such chunks")?;
        let region = Region::join_of(memory, chunk).context("joining the packet memory")?;
        let facts = AdoptedQueue {
            interface,
            queue: settings.queue,
            rx_buffers: passed.rx_buffers,
            assume_rx_checksums: false,
            tx_checksum_offload: false,
            is_sole_owner: true,
        };
        Ok(Self { config, mapped: XdpSocket::adopt(socket, &region, facts)? })
    }

    /// The gateway, now that the opener has bound the device and let go of it.
    ///
    /// # Errors
    /// The kernel does not know the device.
    pub fn prepare(self) -> anyhow::Result<Prepared> {
        let Self { config, mapped } = self;
        let region = Arc::clone(mapped.socket().region());
        let (nic, pool) = (AfXdp::new(mapped)?, Pool::new(&region, region.chunks() as usize / 2));
        Ok(Prepared { counters: Arc::default(), config, parts: Mutex::new(Some((nic, pool))) })
    }
}

impl Prepared {
    /// The service of the plane's only core, which asks once.
    pub fn take(&self) -> Box<dyn Handler> {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gateway = parts.and_then(|(nic, pool)| {
            Gateway::new(self.config, nic, pool, Arc::clone(&self.counters)).ok()
        });
        match gateway {
            Some(gateway) => Box::new(gateway),
            // There is no second core, and the settings were checked: both before the plane was started.
            None => Box::new(Echo),
        }
    }
}

fn lab(name: &str) -> anyhow::Result<Lab> {
    let lab = host::lab_named(name, 1, false)?;
    if lab.queues() != 1 {
        bail!(
            "lab '{name}' is up with {} queues, and a gateway has one: `tailplane lab down --name \
             {name}` lets it be made anew",
            lab.queues()
        );
    }
    Ok(lab)
}

/// An opened queue.
struct Queue {
    socket: XdpSocket,
    program: XdpProgram,
    region: Arc<Region>,
    rx_buffers: u32,
    description: String,
}

/// Opens the queue, in the namespace of the calling thread. GRE to the tunnel's end is ours, all else the
/// kernel's.
fn open_queue(interface: &str, settings: &GatewaySettings) -> anyhow::Result<Queue> {
    let filter = XdpFilter::tunnel(settings.tunnel.local);
    let attached = Attached::to(interface, &filter, ModeName::Auto, settings.queue)?;
    let memory = &settings.memory;
    let region = Region::map_of(memory.chunks, attached.way.chunk, memory.huge_pages)?;
    let mut queue = attached.way.config(interface, settings.queue);
    // Half of the memory is lent out for reception at most, the rest is for what tenants send.
    let half = memory.chunks / 2;
    queue.rx_buffers = queue.rx_buffers.min(u32::try_from(half).unwrap_or(u32::MAX));
    let socket = XdpSocket::create(&queue, &region)?;
    let description = attached.describe(&region);
    let Attached { program, .. } = attached;
    Ok(Queue { socket, program, region, rx_buffers: queue.rx_buffers, description })
}

fn announcement(
    settings: &GatewaySettings,
    config: &GatewayConfig,
    interface: &str,
    description: &str,
) -> String {
    let (first, bits) = config.tenants;
    let steering = config.steering.map_or_else(String::new, |steering| {
        let (server, bits) = config.servers;
        format!("\n  steering   {} to tenants of {server}/{bits}", steering.virtual_addr)
    });
    format!(
        "  device     {interface} queue {}, {description}\n  tunnel     {} to {}, next hop {}\n  \
         tenants    {first}/{bits}{steering}\n",
        settings.queue, config.tunnel.local, config.tunnel.remote, config.links.remote,
    )
}
