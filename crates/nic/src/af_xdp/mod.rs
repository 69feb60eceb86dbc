//! AF_XDP: frames between a NIC's queue and this process through four rings in shared memory.
//!
//! ```no_run
//! # use tailplane_nic as nic;
//! use mem::{HugePages, Pool, Region};
//! use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
//! use nic::xdp_program::{XdpFilter, XdpProgram};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::map(16_384, HugePages::Try)?;
//! let socket = XdpSocket::open(&AfXdpConfig::new("eth0", 0), &region)?;
//! let mut program = XdpProgram::attach("eth0", &XdpFilter::address("10.0.0.2".parse()?))?;
//! program.register(0, socket.fd())?;
//! let mut driver = AfXdp::new(socket)?;
//! let mut pool = Pool::new(&region, 8_192);
//! # Ok(()) }
//! ```
//!
//! | ring | producer | entry |
//! | --- | --- | --- |
//! | fill | driver | chunk for the kernel to receive into |
//! | receive | kernel | received frame |
//! | transmit | driver | frame to send |
//! | completion | kernel | chunk of a sent frame |
//!
//! Opening needs privileges, driving does not: a control plane opens and binds a socket and passes
//! its descriptor on ([`XdpSocket::adopt`]).

mod adopt;
mod config;
mod driver;
mod lending;
mod socket;
mod unsafe_map;

pub use crate::blaster;
pub use crate::reflector;
pub use adopt::AdoptedQueue;
pub use config::{AfXdpConfig, AfXdpError, BindMode};
pub use driver::AfXdp;
pub use socket::XdpSocket;
