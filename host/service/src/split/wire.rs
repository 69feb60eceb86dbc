//! The starter's side of a wire: opened with its privileges, passed on, and held open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use anyhow::Context;
use mem::HugePages;
use nic::af_xdp::XdpSocket;
use nic::shm::ShmOffer;
use runtime::Register;

use super::control::{DESCRIPTORS_MAX, send};
use super::orders::{Order, PassedWire, Role, Start};
use super::passed_table::{Answer, PassedTable, Request};
use super::table::{carry_out, requests};
use crate::budget::Budget;
use crate::config::RunConfig;
use crate::lab::Lab;
use crate::lab::constants::DATAPLANE_INTERFACE;
use crate::local_wire::OfferedWire;
use crate::port::{OpenPort, PortConfig, QUEUES_MAX, bind};

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
    /// Its program takes the dataplane's packets. The queues are there until they are bound.
    port: OpenPort,
    config: PortConfig,
    /// How many queues there are.
    count: usize,
    requests: Budget,
    /// The register of the dataplane's peers.
    register: OwnedFd,
}

/// The port that a configuration describes, on this machine or in the lab.
///
/// # Errors
/// An address that is none; neither lab nor interface.
fn port(config: &RunConfig, lab: Option<&Lab>) -> anyhow::Result<PortConfig> {
    let (interface, namespace) = match lab {
        None => (config.network.interface.clone().context("neither lab nor interface")?, None),
        Some(lab) => (DATAPLANE_INTERFACE.to_owned(), Some(lab.dataplane().clone())),
    };
    Ok(PortConfig {
        interface,
        namespace,
        addresses: config.network.own_addresses()?.iter().map(|own| own.address.ip()).collect(),
        threads: config.dataplane.threads,
        chunks: config.memory.chunks,
        huge_pages: config.memory.huge_pages,
        mode: config.network.mode,
        checksums: config.network.checksums,
        rx_buffers: None,
    })
}

impl OpenWire {
    /// Opens what the configuration names.
    ///
    /// # Errors
    /// What could not be opened, and what to do.
    pub fn open(config: &RunConfig, lab: Option<&Lab>) -> anyhow::Result<Self> {
        match &config.network.shm {
            Some(path) => {
                let (chunks, huge_pages) = (config.memory.chunks, config.memory.huge_pages);
                Ok(Self::Local(OfferedWire::open(path, chunks, huge_pages)?))
            }
            None => {
                let port = port(config, lab)?;
                Ok(Self::Port(Box::new(OpenPort::open(&port, lab)?), port))
            }
        }
    }

    /// How frames travel, and what an interface's way costs: for conditions.
    pub fn conditions(&self) -> (String, Option<String>) {
        match self {
            Self::Port(port, _) => (port.description.clone(), Some(port.cost.clone())),
            Self::Local(wire) => (wire.description.clone(), None),
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
        let role = Role::Serve { program };
        let held = match self {
            Self::Port(port, config_of) => {
                let register = Register::create(config.tcp.max_connections)
                    .context("making the register of peers")?;
                let (port, requests) = (*port, requests(Instant::now()));
                let count = port.queues.as_ref().map_or(0, |queues| queues.sockets.len());
                let held = HeldPort { port, config: config_of, count, requests, register };
                held.start(control, config, role, Some(domain.as_fd()))?;
                Held::Port(Box::new(held))
            }
            Self::Local(wire) => {
                let memory = wire.region.memfd().context("packet memory is no memory file")?;
                let ShmOffer { memory: lanes, wake_creator, wake_joiner } = &wire.near;
                let rest = [&domain, lanes, wake_creator, wake_joiner].map(AsFd::as_fd);
                let given: Vec<_> = [memory].into_iter().chain(rest).collect();
                send(control, &Order::Start(Start::of(config, role, PassedWire::Shm)), &given)?;
                Held::Local(Box::new(wire.door))
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
        let Self::Port(held) = self else { return Ok(false) };
        let Some(queues) = held.port.queues.take() else { return Ok(false) };
        bind(&mut held.port.program, queues.sockets.iter())?;
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
            Self::Port(held) => match &mut held.port.steering.table {
                Some(table) if held.requests.take(Instant::now()) => {
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
        !matches!(self, Self::Port(held) if !held.port.watch.has_link())
    }

    /// The name of the interface, where it has gone.
    pub fn gone(&self) -> Option<&str> {
        match self {
            Self::Port(held) if !held.port.watch.is_there() => {
                Some(&held.port.device.interface.name)
            }
            _ => None,
        }
    }

    /// Whether a device's indirection table follows the flow groups.
    pub fn steers(&self) -> bool {
        matches!(self, Self::Port(held) if held.port.steering.table.is_some())
    }

    /// Makes the port's queues anew, for a dataplane that resets what comes and whom the register names. It is to
    /// [map](Told::Mapped) them, and they to be [bound](Self::bind) then. False: this wire has none.
    ///
    /// # Errors
    /// What could not be opened; the dataplane at the other end of `control` has gone.
    pub fn pass_again(&mut self, control: &OwnedFd, config: &RunConfig) -> anyhow::Result<bool> {
        let Self::Port(held) = self else { return Ok(false) };
        let chunks = FAREWELL_CHUNKS * held.count.max(held.config.threads as usize);
        let small = PortConfig { chunks, huge_pages: HugePages::No, ..held.config.clone() };
        held.port.queues = Some(small.make_queues(held.port.way, held.count as u32)?);
        held.start(control, config, Role::Farewell, None)?;
        Ok(true)
    }
}

impl HeldPort {
    /// Gives the queues to the dataplane at the other end of `control`, with its end of the application's socket, where
    /// there is one. They are to be [bound](Held::bind) when it has mapped them.
    fn start(
        &self,
        control: &OwnedFd,
        config: &RunConfig,
        role: Role,
        domain: Option<BorrowedFd<'_>>,
    ) -> anyhow::Result<()> {
        let OpenPort { device, way, steering, queues, .. } = &self.port;
        let queues = queues.as_ref().context("the queues are bound")?;
        let mtu = way.mtu(device);
        let wire = PassedWire::AfXdp {
            interface: device.interface.clone(),
            queues: queues.sockets.len() as u32,
            rx_buffers: queues.rx_buffers,
            chunk_bytes: way.chunk.get(),
            mtu_bytes: mtu.send,
            frame_chunks: mtu.frame_chunks,
            receive_mtu_bytes: mtu.receive,
            tx_checksum_offload: way.tx_checksum_offload,
            table: steering.table.as_deref().map(PassedTable::of),
        };
        let memory = queues.region.memfd().context("packet memory is no memory file")?;
        let given = [Some(memory), domain, Some(self.register.as_fd())].into_iter().flatten();
        let given: Vec<_> = given.chain(queues.sockets.iter().map(XdpSocket::fd)).collect();
        send(control, &Order::Start(Start::of(config, role, wire)), &given)
    }
}
