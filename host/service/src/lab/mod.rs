//! A playground without a NIC: a dataplane's and a client's network namespace, joined by a veth pair.
//!
//! ```no_run
//! use std::process::Command;
//! use service::lab::{Lab, LabConfig, in_namespace, spawn_in};
//!
//! let lab = Lab::create(LabConfig { queues: 4, ..LabConfig::unique("demo") })?;
//! let server = spawn_in(lab.dataplane(), Command::new("memcached"))?;
//! let socket = in_namespace(lab.client(), || std::net::UdpSocket::bind("10.77.0.1:0"))?;
//! drop(lab); // ends what still runs inside, and leaves nothing behind
//! # Ok::<(), service::lab::LabError>(())
//! ```
//!
//! Names and addresses: [`constants`]. What a lab changes lives in its namespaces and goes with them;
//! the one exception, the machine's list of allowed congestion controls, is put back. A lab goes when
//! its [`Lab`] is dropped, on Ctrl-C (through [`crate::cleanup`]), and, where its process was killed,
//! when the next lab is made, or at once where there is a [`guard`]. `tailplane lab up` makes the one that stays ([`Lifetime::Persistent`]).

mod config;
pub mod congestion;
pub mod constants;
mod error;
#[cfg(test)]
mod fixture_tests;
pub mod guard;
mod ip;
mod netns;
mod pair;
mod removal;
mod site;
mod state;
mod steering;
mod up;
pub mod uplink;

pub use self::config::{CongestionControl, LabConfig, Lifetime};
pub use self::error::LabError;
pub use self::netns::{Namespace, in_namespace, spawn_in};
pub use self::pair::disable_offloads;
pub use self::removal::{find, remove, remove_leftovers};
pub use self::state::{LabState, Owner};
pub use self::up::{EndInfo, Lab, LabInfo};
