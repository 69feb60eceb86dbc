//! A key-value server on the lab's server core, under the load of our own dataplane at the client's: what the demo, IX's
//! Figures 7 and 13 and Table 3 measure alike.

use std::cell::Cell;
use std::net::SocketAddrV4;
use std::time::Duration;

use load::{LoadConfig, LoadReport, Mode, WorkloadConfig};
use measure::Disturbance;

use super::config::SLO_P99_US;
use super::systems::{Memcached, Tailplane};
use super::window::window;
use service::lab::Lab;

/// Connections of the load.
pub const CONNECTIONS: u32 = 64;
/// Window of a search: some ten thousand requests, and seldom one of the milliseconds in which a host takes a virtual
/// processor away without counting it.
pub const SEARCH_WINDOW_MS: u64 = 200;

/// The server; it ends when dropped.
#[derive(Debug)]
pub enum KvServer {
    /// Ours.
    Tailplane(Tailplane),
    /// memcached on the kernel's stack.
    Memcached(Memcached),
}

/// How many windows were measured, and how many of them something disturbed to the last try.
#[derive(Clone, Copy, Debug, Default)]
pub struct Windows {
    /// All.
    pub measured: u32,
    /// Disturbed ones.
    pub disturbed: u32,
}

/// See the module's comment.
pub struct KvTest<'a> {
    /// Where it runs.
    pub lab: &'a Lab,
    /// The server.
    pub server: KvServer,
    /// What it is asked.
    pub workload: WorkloadConfig,
    /// Of arrivals and keys.
    pub seed: u64,
    /// Windows so far.
    pub windows: Cell<Windows>,
}

impl<'a> KvTest<'a> {
    /// Of this server.
    pub fn new(lab: &'a Lab, server: KvServer, workload: &WorkloadConfig, seed: u64) -> Self {
        Self { lab, server, workload: workload.clone(), seed, windows: Cell::default() }
    }

    /// Where the server listens.
    pub fn target(&self) -> SocketAddrV4 {
        match self.server {
            KvServer::Tailplane(_) => Tailplane::TARGET,
            KvServer::Memcached(_) => Memcached::TARGET,
        }
    }

    /// The processes that we started for it.
    pub fn processes(&self) -> Vec<u32> {
        match &self.server {
            KvServer::Tailplane(_) => Vec::new(),
            KvServer::Memcached(memcached) => vec![memcached.pid()],
        }
    }

    /// Processor time with which the server has served so far; `None` where the kernel does not say.
    pub fn busy(&self) -> Option<Duration> {
        match &self.server {
            KvServer::Tailplane(tailplane) => Some(tailplane.busy()),
            KvServer::Memcached(memcached) => memcached.busy(),
        }
    }

    /// A load on it.
    pub fn load(&self, mode: Mode, connections: u32, measure_ms: u64) -> LoadConfig {
        LoadConfig {
            mode,
            connections,
            warmup_ms: 50,
            measure_ms,
            preload: false,
            // A late request's latency counts from its intended time anyway, and the objective
            // judges that; on veth a transmit burst alone takes 100 us.
            lag_limit_us: SLO_P99_US as u64,
            seed: self.seed,
            ..LoadConfig::new(self.workload.clone())
        }
    }

    /// One window; again while something disturbs it, a few times.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn window(&self, load: &LoadConfig) -> anyhow::Result<(LoadReport, Disturbance)> {
        let found = window(self.lab, &self.processes(), load, self.target())?;
        let mut windows = self.windows.get();
        windows.measured += 1;
        windows.disturbed += u32::from(!found.1.is_quiet());
        self.windows.set(windows);
        Ok(found)
    }

    /// Stores all keys.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn store_keys(&self) -> anyhow::Result<()> {
        let load = LoadConfig { preload: true, ..self.load(Mode::closed(1), 8, 50) };
        self.window(&load).map(drop)
    }

    /// Windows with one request at a time.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn unloaded(&self, windows: u32, measure_ms: u64) -> anyhow::Result<Vec<LoadReport>> {
        let load = self.load(Mode::closed(1), 1, measure_ms);
        (0..windows).map(|_| Ok(self.window(&load)?.0)).collect()
    }

    /// One window of a search, at a rate.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn at_rate(&self, rps: f64, measure_ms: u64) -> anyhow::Result<LoadReport> {
        Ok(self.window(&self.load(Mode::open(rps), CONNECTIONS, measure_ms))?.0)
    }

    /// Ends the server.
    ///
    /// # Errors
    /// What it failed with.
    pub fn end(self) -> anyhow::Result<()> {
        match self.server {
            KvServer::Tailplane(tailplane) => tailplane.stop().map(drop),
            KvServer::Memcached(_) => Ok(()),
        }
    }
}
