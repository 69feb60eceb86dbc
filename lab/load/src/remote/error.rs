//! Why a load over several machines did not come to its end.

use std::io;
use std::net::SocketAddr;

use crate::error::LoadError;
use crate::setting::ConfigError;

/// Why there is no report of all agents, or why an agent gave up.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the coordinator itself could not do.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The coordinator's port could not be opened.
    #[error(
        "could not listen for agents on {address}: {source}; is the address this machine's, and the port free?"
    )]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel answered.
        source: io::Error,
    },
    /// What one side wanted of the other and did not get: what was tried, what was found, and what
    /// to do.
    #[error("{0}")]
    Peer(String),
}
