//! How kernel sockets carry a load: to whom, on which threads, and how these wait.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::config::LoadConfig;
use crate::setting::{ConfigError, check_range};

/// Most threads of one run.
const THREADS_MAX: u32 = 256;

/// How a thread waits for something to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// It never blocks: the lowest latency, a whole core.
    Spin,
    /// It sleeps in `epoll_wait` until bytes arrive or the next request is due.
    Block,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Spin => "spin",
            Self::Block => "block",
        })
    }
}

impl FromStr for Wait {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text {
            "spin" => Ok(Self::Spin),
            "block" => Ok(Self::Block),
            _ => Err(ConfigError::new("wait", text, "spin, block")),
        }
    }
}

/// How kernel sockets carry a load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelConfig {
    /// The service.
    pub target: SocketAddr,
    /// How the threads wait.
    pub wait: Wait,
    /// Number of threads; the connections are divided among them.
    pub threads: u32,
    /// The core of each thread; empty leaves them where the kernel puts them.
    pub cores: Vec<usize>,
}

impl KernelConfig {
    /// One spinning thread, not pinned.
    pub const fn new(target: SocketAddr) -> Self {
        Self { target, wait: Wait::Spin, threads: 1, cores: Vec::new() }
    }

    /// Checks every setting against the load that is to be carried.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self, load: &LoadConfig) -> Result<(), ConfigError> {
        check_range("threads", self.threads, 1, load.connections.min(THREADS_MAX))?;
        if !self.cores.is_empty() && self.cores.len() != self.threads as usize {
            let allowed = format!("one core for each of the {} threads, or none", self.threads);
            return Err(ConfigError::new("cores", format!("{:?}", self.cores), allowed));
        }
        for &core in &self.cores {
            check_range("cores", core, 0, rustix::thread::CpuSet::MAX_CPU - 1)?;
        }
        if self.target.port() == 0 {
            return Err(ConfigError::new("target", self.target, "an address with a port above 0"));
        }
        Ok(())
    }
}
