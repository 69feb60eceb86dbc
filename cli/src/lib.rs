//! The parts of the `tailplane` command.
//!
//! - [`commands`]: one file per subcommand; the only place that knows about arguments and printing.
//! - [`lab`]: a playground without a NIC, two network namespaces joined by a veth pair.
//! - [`doctor`]: what this machine can and cannot do, and what each missing piece costs.
//! - [`port`]: an interface opened for a dataplane; [`service`]: configuration and threads of a service.
//! - [`demo`]: the main job, measured beside memcached; [`huge_pages`]: borrowed for a run.
//! - [`pareto`]: static configurations of a machine, simulated or measured, and what follows from them.
//! - [`watch`]: running services, looked at from outside.
//! - [`cleanup`]: removals that must happen even when the process is interrupted.

pub mod cleanup;
pub mod commands;
pub mod demo;
pub mod doctor;
pub mod huge_pages;
pub mod lab;
pub mod local_wire;
pub mod pareto;
pub mod port;
pub mod private;
pub mod reproduce;
pub mod service;
pub mod terminal;
pub mod watch;
