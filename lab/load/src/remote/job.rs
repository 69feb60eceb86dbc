//! How the agents carry a load: one value for the coordinator and for the report.

use std::net::SocketAddr;

use crate::kernel::Wait;

/// How the agents carry a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The service.
    pub target: SocketAddr,
    /// How the threads wait.
    pub wait: Wait,
    /// Threads of each agent.
    pub threads: u32,
}
