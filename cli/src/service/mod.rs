//! Services that the command can run: what the configuration says, and the threads or processes for it.

pub mod application;
pub mod builtin;
pub mod config;
pub mod control;
pub mod control_config;
pub mod host;
pub mod identity;
pub mod network_config;
pub mod policy_config;
pub mod report;
pub mod split;
pub mod steering;
