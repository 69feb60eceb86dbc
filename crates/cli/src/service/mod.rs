//! Services that the command can run: what the configuration says, and the threads for it.

pub mod application;
pub mod builtin;
pub mod config;
pub mod host;
