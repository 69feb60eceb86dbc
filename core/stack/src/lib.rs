//! The TCP/IP stack: a state machine without I/O, clock or threads of its own.
//!
//! A [`Stack`] belongs to one elastic thread and owns the flow groups that are at home there. Each
//! method is the kernel's part of one step of the cycle (IX Figure 2); frames and calls go in,
//! events and frames come out, and time is a parameter:
//!
//! ```text
//! 2. input        frames -> events
//! 4. execute      batched system calls -> frames, events of the next batch
//! 5. run_timers
//! 6. flush        acknowledgments -> frames
//! ```
//!
//! A stack that leaves the network resets its connections and gives back all packet memory:
//! [`Stack::reset_connections`] in cycles without an application, then [`Stack::close`].
//!
//! A flow group moves from stack to stack as one value (IX §4.5): [`Stack::seal`], [`Stack::pack`] and
//! [`Stack::take_in`].
//!
//! IPv4 with ARP and ICMP, IPv6 with neighbour discovery and ICMPv6, UDP and TCP; each mechanism has its file. Received
//! fragments are reassembled up to a chunk of packet memory, none are sent. Not implemented: path MTU discovery for UDP,
//! accurate ECN.
#![no_std]
extern crate alloc;

mod again;
mod arp;
mod budget;
pub mod config;
mod context;
mod elsewhere;
mod execute;
mod fragments;
mod group_set;
mod groups;
mod icmp;
mod input;
mod link_message;
mod nd;
pub mod neighbors;
mod pairs;
pub mod policy;
mod ports;
mod reassembly;
pub mod shared;
mod stack;
pub mod stats;
pub mod tcp;
mod ticks;
mod udp;
mod unsafe_packed;
pub mod wheel;

pub use config::{Ecn, Keepalive, Route, RssKey, StackConfig};
pub use elsewhere::Elsewhere;
pub use group_set::GroupSet;
pub use policy::{Direction, NetworkPolicy, Rule, Transport};
pub use shared::{FLOW_GROUPS, PeerRegister, Secrets, Shared};
pub use stack::{Away, Ended, FORWARDED, Stack};
pub use stats::StackStats;
pub use tcp::congestion::CongestionAlgorithm;
pub use unsafe_packed::PackedGroup;
