//! How kernel sockets carry a load: to whom, on which threads, and how these wait.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::config::LoadConfig;
use crate::report::Conditions;
use crate::setting::{ConfigError, check_range};

/// Most threads of one run.
const THREADS_MAX: u32 = 256;

/// How a thread waits for something to happen.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumString,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = ConfigError, parse_err_fn = not_a_wait)]
pub enum Wait {
    /// It never blocks: the lowest latency, a whole core.
    Spin,
    /// It sleeps in `epoll_wait` until bytes arrive or the next request is due.
    Block,
}

fn not_a_wait(text: &str) -> ConfigError {
    ConfigError::new("wait", text, "spin, block")
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<usize>,
}

impl KernelConfig {
    /// One spinning thread, not pinned.
    pub const fn new(target: SocketAddr) -> Self {
        Self { target, wait: Wait::Spin, threads: 1, cores: Vec::new() }
    }

    /// The conditions of `load` over these sockets.
    pub(crate) fn conditions(&self, load: &LoadConfig) -> Conditions {
        let (target, wait) = (self.target.to_string(), self.wait.to_string());
        let mut conditions = Conditions::new(load, "kernel sockets", &target, &wait);
        conditions.threads = self.threads;
        conditions.cores.clone_from(&self.cores);
        conditions
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
