//! A service of this machine: what its configuration says, the interface and the threads or processes that it gets, and how
//! it is looked at while it runs.
//!
//! - [`config`]: the configuration; [`port`]: an interface opened for a dataplane; [`local_wire`]: a wire in shared memory.
//! - [`host`]: dataplane and application in this process; [`split`]: in processes of their own.
//! - [`lab`]: a playground without a NIC, two network namespaces joined by a veth pair.
//! - [`doctor`]: what this machine can and cannot do, and what each missing piece costs.
//! - [`watch`]: running services, looked at from outside.
//! - [`cleanup`]: removals that must happen even when the process is interrupted; [`huge_pages`]: borrowed for a run.

pub mod application;
mod budget;
pub mod builtin;
pub mod cleanup;
pub mod config;
mod config_values;
pub mod control;
pub mod doctor;
pub mod host;
pub mod huge_pages;
pub mod identity;
pub mod lab;
pub mod local_wire;
pub mod network_config;
pub mod policy_config;
pub mod port;
pub mod private;
mod ready;
pub mod report;
pub mod split;
pub mod steering;
pub mod terminal;
pub mod watch;
