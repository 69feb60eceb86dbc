//! AF_XDP: frames between a NIC's queue and this process through four rings in shared memory.
//!
//! ```no_run
//! use mem::{HugePages, Pool, Region};
//! use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
//! use nic::xdp_program::{XdpFilter, XdpProgram};
//! use std::net::Ipv4Addr;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let region = Region::map(16_384, HugePages::Try)?;
//! // First the program: a device may set its queues up anew when it comes.
//! let filter = XdpFilter::address(Ipv4Addr::new(10, 0, 0, 2));
//! let mut program = XdpProgram::attach("eth0", &filter)?;
//! let mapped = XdpSocket::open(&AfXdpConfig::new("eth0", 0), &region)?;
//! program.register(0, mapped.socket().fd())?;
//! let mut driver = AfXdp::new(mapped)?;
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
//! Opening needs privileges, driving does not: a control plane makes a socket, passes its descriptor on
//! ([`XdpSocket::adopt`]), and binds it when its rings are mapped there.

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
pub use socket::{MappedSocket, XdpSocket};
