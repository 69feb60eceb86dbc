//! The starter's side of a wire: opened with its privileges, passed on, and held open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use mem::{HugePages, Region};
use nic::af_xdp::XdpSocket;
use nic::device::{Device, Watch};
use nic::indirection::IndirectionTable;
use nic::shm::ShmOffer;
use nic::xdp_program::XdpProgram;
use runtime::Register;

use super::control::{DESCRIPTORS_MAX, send};
use super::orders::{Order, PassedWire, Role, Start};
use super::passed_table::{Answer, PassedTable, Request};
use super::table::{Bucket, carry_out};
use crate::config::RunConfig;
use crate::host;
use crate::lab::Lab;
use crate::local_wire::OfferedWire;
use crate::port::{OpenPort, PortConfig, QUEUES_MAX, Queues, Way, bind};
use crate::steering::Steering;

/// Packet memory of a farewell for each queue, or for each thread if these are more: half of it is the kernel's for
/// reception, and of the rest those connections that are under way hold a chunk each ([`half_open`](super::half_open)).
const FAREWELL_CHUNKS: usize = 2048;

// With packet memory, the register and the application's socket.
const _: () = assert!(QUEUES_MAX as usize + 3 <= DESCRIPTORS_MAX);

/// A wire that this process has open.
#[derive(Debug)]
pub enum OpenWire {
    /// An interface of this machine.
    Port(Box<OpenPort>, PortConfig),
    /// A wire in shared memory.
    Local(OfferedWire),
}

/// What a starter holds as long as the dataplane runs: the wire ends with it.
#[derive(Debug)]
pub enum Held {
    /// An interface.
    Port(Box<HeldPort>),
    /// Where joiners of a wire knock.
    Local(Box<dyn std::fmt::Debug>),
}

/// An interface that a dataplane drives.
#[derive(Debug)]
pub struct HeldPort {
    /// The queues, until they are bound.
    made: Option<Queues>,
    /// How many there are.
    count: usize,
    /// It takes the dataplane's packets.
    program: XdpProgram,
    device: Device,
    way: Way,
    config: PortConfig,
    steering: Steering,
    requests: Bucket,
    /// The register of the dataplane's peers.
    register: OwnedFd,
    watch: Watch,
}

impl OpenWire {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &RunConfig, lab: Option<&Lab>) -> anyhow::Result<Self> {
        match &config.network.shm {
            Some(path) => {
                let (chunks, huge_pages) = (config.memory.chunks, config.memory.huge_pages.into());
                Ok(Self::Local(OfferedWire::open(path, chunks, huge_pages)?))
            }
            None => {
                let port = host::port(config, lab)?;
                Ok(Self::Port(Box::new(OpenPort::open(&port, lab)?), port))
            }
        }
    }

    /// How frames travel, for conditions.
    pub fn driver(&self) -> &str {
        match self {
            Self::Port(port, _) => &port.description,
            Self::Local(wire) => &wire.description,
        }
    }

    /// What an interface's way costs.
    pub fn cost(&self) -> Option<&str> {
        match self {
            Self::Port(port, _) => Some(&port.cost),
            Self::Local(_) => None,
        }
    }

    /// Gives all to the dataplane at the other end of `control`, with its end of the application's socket, but what
    /// only this process may hold.
    ///
    /// # Errors
    /// The dataplane has gone; the configuration is too long.
    pub fn pass(
        self,
        control: &OwnedFd,
        config: &RunConfig,
        program: String,
        domain: OwnedFd,
    ) -> anyhow::Result<Held> {
        let start = |wire| Order::Start(Start::of(config, Role::Serve { program }, wire));
        let held = match self {
            Self::Port(port, config_of) => {
                let OpenPort { device, way, queues, program, watch, steering, .. } = *port;
                let register = Register::create(config.tcp.max_connections)
                    .context("making the register of peers")?;
                let memory = queues.region.memfd().context("packet memory is no memory file")?;
                let given = [memory, domain.as_fd(), register.as_fd()];
                let given: Vec<_> = given.into_iter().chain(sockets_of(&queues)).collect();
                let wire = af_xdp(&device, way, &queues, steering.table.as_deref());
                send(control, &start(wire), &given)?;
                let count = queues.sockets.len();
                Held::Port(Box::new(HeldPort {
                    count,
                    made: Some(queues),
                    program,
                    device,
                    way,
                    config: config_of,
                    steering,
                    requests: Bucket::full(Instant::now()),
                    register,
                    watch,
                }))
            }
            Self::Local(wire) => {
                let memory = memory(&wire.region)?;
                let ShmOffer { memory: lanes, wake_creator, wake_joiner } = &wire.near;
                let given = [&memory, &domain, lanes, wake_creator, wake_joiner].map(AsFd::as_fd);
                send(control, &start(PassedWire::Shm), &given)?;
                Held::Local(Box::new(wire.into_door()))
            }
        };
        // The memory was closed at the end of its arm.
        drop(domain);
        if matches!(held, Held::Local(_)) {
            send(control, &Order::Alone, &[])?;
        }
        Ok(held)
    }
}

impl Held {
    /// Binds the queues, whose rings the dataplane at the other end of `control` has mapped, lets go of them, and tells
    /// it so. False: there are none that wait for that.
    ///
    /// # Errors
    /// What could not be bound, and what to do; the dataplane has gone.
    pub fn bind(&mut self, control: &OwnedFd) -> anyhow::Result<bool> {
        let Self::Port(port) = self else { return Ok(false) };
        let Some(queues) = port.made.take() else { return Ok(false) };
        bind(&mut port.program, queues.sockets.iter())?;
        drop(queues);
        send(control, &Order::Alone, &[])?;
        Ok(true)
    }

    /// Does with the indirection table what the dataplane at the other end of `control` asks for.
    ///
    /// # Errors
    /// The dataplane has gone, or reads nothing.
    pub fn write_table(
        &mut self,
        control: &OwnedFd,
        number: u64,
        request: &Request,
    ) -> anyhow::Result<()> {
        let answer = match self {
            Self::Port(port) => match &mut port.steering.table {
                Some(table) if port.requests.take(Instant::now()) => {
                    carry_out(table.as_mut(), request)
                }
                _ => Answer::Refused,
            },
            Self::Local(_) => Answer::Refused,
        };
        send(control, &Order::Table { number, answer }, &[])
    }

    /// Whether the wire has a link, as far as one can say.
    pub fn has_link(&self) -> bool {
        !matches!(self, Self::Port(port) if !port.watch.has_link())
    }

    /// The name of the interface, where it has gone.
    pub fn gone(&self) -> Option<&str> {
        match self {
            Self::Port(port) if !port.watch.is_there() => Some(&port.device.interface.name),
            _ => None,
        }
    }

    /// Whether a device's indirection table follows the flow groups.
    pub fn steers(&self) -> bool {
        matches!(self, Self::Port(port) if port.steering.table.is_some())
    }

    /// Makes the port's queues anew, for a dataplane that resets what comes and whom the register names. It is to
    /// [map](Told::Mapped) them, and they to be [bound](Self::bind) then. False: this wire has none.
    ///
    /// # Errors
    /// What could not be opened; the dataplane at the other end of `control` has gone.
    pub fn pass_again(&mut self, control: &OwnedFd, config: &RunConfig) -> anyhow::Result<bool> {
        let Self::Port(port) = self else { return Ok(false) };
        let chunks = FAREWELL_CHUNKS * port.count.max(port.config.threads as usize);
        let small = PortConfig { chunks, huge_pages: HugePages::No, ..port.config.clone() };
        let queues = small.make_queues(port.way, port.count as u32)?;
        let memory = queues.region.memfd().context("packet memory is no memory file")?;
        let given = [memory, port.register.as_fd()];
        let given: Vec<_> = given.into_iter().chain(sockets_of(&queues)).collect();
        let wire = af_xdp(&port.device, port.way, &queues, port.steering.table.as_deref());
        send(control, &Order::Start(Start::of(config, Role::Farewell, wire)), &given)?;
        port.made = Some(queues);
        Ok(true)
    }
}

fn memory(region: &Arc<Region>) -> anyhow::Result<OwnedFd> {
    let memfd = region.memfd().context("packet memory is no memory file")?;
    memfd.try_clone_to_owned().context("duplicating packet memory")
}

fn sockets_of(queues: &Queues) -> impl Iterator<Item = BorrowedFd<'_>> {
    queues.sockets.iter().map(XdpSocket::fd)
}

/// What a dataplane must know of these queues.
fn af_xdp(
    device: &Device,
    way: Way,
    queues: &Queues,
    table: Option<&dyn IndirectionTable>,
) -> PassedWire {
    let mtu = way.mtu(device);
    PassedWire::AfXdp {
        interface: (&device.interface).into(),
        queues: queues.sockets.len() as u32,
        rx_buffers: queues.rx_buffers,
        chunk_bytes: way.chunk.get(),
        mtu_bytes: mtu.send,
        receive_mtu_bytes: mtu.receive,
        table: table.map(PassedTable::of),
    }
}
