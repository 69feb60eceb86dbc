//! The service `gateway` of `tailplane sdp serve`: its device is opened, and its gateway made, before the
//! plane starts, so that what is wrong is said at once.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use gateway::{Counters, Gateway, GatewayConfig, Links};
use mem::{Pool, Region};
use nic::Nic;
use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
use nic::xdp_program::{XdpFilter, XdpProgram};
use sdp::{Echo, Handler};
use tailplane::MacAddr;

use super::gateway_config::{Device, GatewaySettings, LabEnd};
use crate::lab::constants::{CLIENT_INTERFACE, CLIENT_MAC, DATAPLANE_INTERFACE, DATAPLANE_MAC};
use crate::lab::{Lab, LabConfig, LabError, Lifetime, in_namespace};

/// A gateway that waits for its plane, and what must stay as long as that runs.
pub struct Prepared {
    /// What it does, readable while it runs.
    pub counters: Arc<Counters>,
    /// Lines about it for whoever started it.
    pub announcement: String,
    config: GatewayConfig,
    /// The device and its memory, until the core takes them.
    parts: Mutex<Option<(AfXdp, Pool)>>,
}

/// Held until the plane has stopped: the program goes first, then the lab.
pub struct Held {
    _program: XdpProgram,
    _lab: Option<Lab>,
}

/// An opened queue.
struct Opened {
    nic: AfXdp,
    program: XdpProgram,
    pool: Pool,
    description: String,
}

/// Opens the device and makes the gateway.
///
/// # Errors
/// What could not be opened or made, and what to do.
pub fn prepare(settings: &GatewaySettings) -> anyhow::Result<(Prepared, Held)> {
    let (lab, interface, next_hop) = match &settings.device {
        Device::Interface(name, next_hop) => (None, name.as_str(), *next_hop),
        Device::Lab(name, LabEnd::Dataplane) => {
            (Some(lab(name)?), DATAPLANE_INTERFACE, MacAddr(CLIENT_MAC))
        }
        Device::Lab(name, LabEnd::Client) => {
            (Some(lab(name)?), CLIENT_INTERFACE, MacAddr(DATAPLANE_MAC))
        }
    };
    let opened = match (&lab, &settings.device) {
        (Some(lab), Device::Lab(_, LabEnd::Client)) => {
            in_namespace(lab.client(), || open(interface, settings))?
        }
        (Some(lab), _) => in_namespace(lab.dataplane(), || open(interface, settings))?,
        (None, _) => open(interface, settings),
    };
    let Opened { nic, program, pool, description } =
        opened.with_context(|| format!("cannot open interface '{interface}' for the gateway"))?;
    let mut config = GatewayConfig {
        tunnel: settings.tunnel,
        links: Links { local: nic.capabilities().mac, remote: next_hop },
        tenants: settings.tenants,
        steering: settings.steering,
        servers: settings.servers,
    };
    if let Some(steering) = &mut config.steering {
        // Whoever knew it could aim all sessions at one tenant.
        rustix::rand::getrandom(&mut steering.key, rustix::rand::GetRandomFlags::empty())
            .context("drawing a key for the steering")?;
    }
    let announcement = announcement(settings, &config, interface, &description);
    config.check().context("cannot make the gateway")?;
    let parts = Mutex::new(Some((nic, pool)));
    let prepared = Prepared { counters: Arc::default(), announcement, config, parts };
    Ok((prepared, Held { _program: program, _lab: lab }))
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
    match Lab::attach(name) {
        Ok(lab) if lab.queues() != 1 => bail!(
            "lab '{name}' is up with {} queues, and a gateway has one: `tailplane lab down --name \
             {name}` lets it be made anew",
            lab.queues()
        ),
        Ok(lab) => Ok(lab),
        Err(LabError::NotUp { .. }) => {
            let prefix = name.to_owned();
            let wanted = LabConfig { prefix, lifetime: Lifetime::Process, ..LabConfig::default() };
            Lab::create(wanted).context("cannot make the lab")
        }
        Err(error) => Err(error.into()),
    }
}

/// Opens the queue, in the namespace of the calling thread. GRE to the tunnel's end is ours, all else the
/// kernel's.
fn open(interface: &str, settings: &GatewaySettings) -> anyhow::Result<Opened> {
    let memory = &settings.memory;
    let region = Region::map(memory.chunks, memory.huge_pages.into())?;
    let mut queue = AfXdpConfig::new(interface, settings.queue);
    // Half of the memory is lent out for reception at most, the rest is for what tenants send.
    let half = memory.chunks / 2;
    queue.rx_buffers = queue.rx_buffers.min(u32::try_from(half).unwrap_or(u32::MAX));
    let socket = XdpSocket::open(&queue, &region)?;
    let mut program = XdpProgram::attach(interface, &XdpFilter::tunnel(settings.tunnel.local))?;
    program.register(settings.queue, socket.fd())?;
    let nic = AfXdp::new(socket)?;
    let capabilities = nic.capabilities();
    let pages = if region.is_huge() { "2 MB pages" } else { "4 KiB pages" };
    let (driver, mode) = (capabilities.driver, capabilities.mode);
    let description = format!("{driver} {mode}, {} XDP, {pages}", program.mode().name());
    Ok(Opened { nic, program, pool: Pool::new(&region, half), description })
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
