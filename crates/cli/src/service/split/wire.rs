//! The starter's side of a wire: opened with its privileges, passed on, and held open.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::Context;
use mem::{HugePages, Region};
use nic::af_xdp::XdpSocket;
use nic::shm::ShmOffer;
use nic::steer_program::SteerProgram;
use nic::xdp_program::XdpProgram;
use tailplane::runtime::Register;

use super::control::send;
use super::{Order, PassedWire, Role, Start};
use crate::lab::Lab;
use crate::local_wire::OfferedWire;
use crate::port::{OpenPort, PortConfig};
use crate::service::config::RunConfig;
use crate::service::host;

/// Packet memory of each queue of a farewell: half of it is the kernel's for reception, and of the rest those
/// connections that are under way hold a chunk each ([`half_open`](super::half_open)).
const FAREWELL_CHUNKS: usize = 2048;

/// A wire that this process has open.
#[derive(Debug)]
pub enum OpenWire {
    /// An interface of this machine, and its indirection table.
    Port(Box<OpenPort>, PortConfig, Option<Box<SteerProgram>>),
    /// A wire in shared memory.
    Local(OfferedWire),
}

/// What a starter holds as long as the dataplane runs: the wire ends with it.
#[derive(Debug)]
pub enum Held {
    /// The program that takes the dataplane's packets, the one that steers them to its queues, and the register of
    /// the dataplane's peers.
    Port(Box<XdpProgram>, PortConfig, Option<Box<SteerProgram>>, OwnedFd),
    /// Where joiners of a wire knock.
    Local(Box<dyn std::fmt::Debug>),
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
                let mut opened = OpenPort::open(&port)?;
                let table = host::steering(lab);
                if table.is_some() {
                    opened.description.push_str(host::STEERED);
                }
                Ok(Self::Port(Box::new(opened), port, table))
            }
        }
    }

    /// How frames travel, for conditions.
    pub fn driver(&self) -> &str {
        match self {
            Self::Port(port, ..) => &port.description,
            Self::Local(wire) => &wire.description,
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
            Self::Port(port, opened, table) => {
                let OpenPort { region, sockets, rx_buffers, program, .. } = *port;
                let memory = memory(&region)?;
                let register = Register::create(config.tcp.max_connections)
                    .context("making the register of peers")?;
                let given = [memory.as_fd(), domain.as_fd(), register.as_fd()];
                let given: Vec<_> = given.into_iter().chain(sockets_of(&sockets)).collect();
                let wire = af_xdp(&sockets, rx_buffers, table.as_deref())?;
                send(control, &start(wire), &given)?;
                Held::Port(Box::new(program), opened, table, register)
            }
            Self::Local(wire) => {
                let memory = memory(&wire.region)?;
                let ShmOffer { memory: lanes, wake_creator, wake_joiner } = &wire.near;
                let given = [&memory, &domain, lanes, wake_creator, wake_joiner].map(AsFd::as_fd);
                send(control, &start(PassedWire::Shm), &given)?;
                Held::Local(Box::new(wire.into_door()))
            }
        };
        // Sockets and memory were closed at the end of their arms.
        drop(domain);
        send(control, &Order::Alone, &[])?;
        Ok(held)
    }
}

impl Held {
    /// Opens the port's sockets anew, for a dataplane that resets what comes and whom the register names. False: this wire has none.
    ///
    /// # Errors
    /// What could not be opened; the dataplane at the other end of `control` has gone.
    pub fn pass_again(&mut self, control: &OwnedFd, config: &RunConfig) -> anyhow::Result<bool> {
        let Self::Port(program, port, table, register) = self else { return Ok(false) };
        let chunks = FAREWELL_CHUNKS * port.queues as usize;
        let small = PortConfig { chunks, huge_pages: HugePages::No, ..port.clone() };
        let opened = small.open_queues()?;
        for (number, socket) in opened.sockets.iter().enumerate() {
            program.register(number as u32, socket.fd())?;
        }
        let memory = memory(&opened.region)?;
        let given = [memory.as_fd(), register.as_fd()];
        let given: Vec<_> = given.into_iter().chain(sockets_of(&opened.sockets)).collect();
        let wire = af_xdp(&opened.sockets, opened.rx_buffers, table.as_deref())?;
        send(control, &Order::Start(Start::of(config, Role::Farewell, wire)), &given)?;
        drop((opened, memory));
        send(control, &Order::Alone, &[])?;
        Ok(true)
    }
}

fn memory(region: &Arc<Region>) -> anyhow::Result<OwnedFd> {
    let memfd = region.memfd().context("packet memory is no memory file")?;
    memfd.try_clone_to_owned().context("duplicating packet memory")
}

fn sockets_of(sockets: &[XdpSocket]) -> impl Iterator<Item = BorrowedFd<'_>> {
    sockets.iter().map(XdpSocket::fd)
}

/// What a dataplane must know of these sockets.
fn af_xdp(
    sockets: &[XdpSocket],
    rx_buffers: u32,
    table: Option<&SteerProgram>,
) -> anyhow::Result<PassedWire> {
    let link = sockets.first().context("no queue was asked for")?.interface();
    Ok(PassedWire::AfXdp {
        name: link.name.clone(),
        index: link.index,
        mac: link.mac.0,
        mtu: link.mtu,
        hardware_type: link.hardware_type,
        rx_buffers,
        rss_key: host::key_of(table).map(|key| key.0.to_vec()),
    })
}
