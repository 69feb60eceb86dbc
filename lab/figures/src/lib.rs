//! The papers' figures and tables, the main job measured beside memcached, and the commands of `tailplane-lab`.
//!
//! - [`commands`]: one file per subcommand; the only place that knows about arguments and printing.
//! - [`demo`]: the main job, measured beside memcached.
//! - [`pareto`]: static configurations of a machine, simulated or measured, and what follows from them.
//! - [`reproduce`]: one small file for each figure and table of the papers.

pub mod commands;
pub mod demo;
pub mod pareto;
pub mod reproduce;
