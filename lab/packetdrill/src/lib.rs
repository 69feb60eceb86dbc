//! The stack and its sockets for google/packetdrill: a shared object that it loads with `--so_filename`, in place of the
//! kernel.
//!
//! ```text
//! packetdrill --so_filename=target/debug/libtailplane_packetdrill.so --local_ip=192.168.0.1 script.pkt
//! ```
//!
//! `machine` is one elastic thread with its sockets over the loopback driver, on a virtual clock; `plugin` is what
//! packetdrill's two threads share: one plays the script and moves the clock, the other sleeps in calls that block.
//! `unsafe_abi` is the interface in C, `settings` the flags, `address` and `info` Linux's layouts.
//!
//! Time passes as packetdrill asks for it: in `usleep`, in `netdev_receive` up to the next packet, and by a microsecond in
//! each `gettimeofday`, on which packetdrill spins. So a script of minutes runs at once, and always the same.

mod address;
mod info;
mod machine;
mod plugin;
mod settings;
mod unsafe_abi;

pub use unsafe_abi::{Interface, packetdrill_interface_init};
