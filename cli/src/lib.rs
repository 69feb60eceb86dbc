//! The parts of the `tailplane` command.
//!
//! - [`commands`]: one file per subcommand; the only place that knows about arguments and printing.
//! - [`demo`]: the main job, measured beside memcached.
//! - [`pareto`]: static configurations of a machine, simulated or measured, and what follows from them.

pub mod commands;
pub mod demo;
pub mod pareto;
pub mod reproduce;
