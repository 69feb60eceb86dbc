//! The transport over kernel TCP sockets: epoll, non-blocking, `TCP_NODELAY`.
//!
//! [`run`] carries any load; [`pingpong`] measures the round-trip time as sockperf does in its
//! non-blocking mode. Each thread has its own connections, epoll instance and generator, and they
//! meet only before the start and after the end.
//!
//! When a run ends its connections are closed by reset, so that a series of runs with thousands of
//! connections does not run out of ports in TIME-WAIT.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, LoadConfig, Mode, check_range};
use crate::error::LoadError;
use crate::measurement::Ran;
use crate::rendezvous::Rendezvous;
use crate::report::{Conditions, LoadReport};
use crate::workload::Workload;

mod dial;
mod drive;
mod poller;
mod sockets;

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

/// What one thread needs to do its part.
struct Part<'a> {
    load: LoadConfig,
    /// Connections, keys and threads of the whole run.
    whole: &'a LoadConfig,
    transport: &'a KernelConfig,
    workload: Arc<Workload>,
    index: u32,
    /// Which of the shares of the keys this thread stores, of how many.
    keys_share: (u64, u64),
    origin: Instant,
    rendezvous: &'a Rendezvous,
}

impl Part<'_> {
    /// Whether the run is to end at once, because another thread has failed or it was told to.
    /// Asked in every round: a plain load of a cache line that nobody writes before it is over.
    fn is_stopped(&self) -> bool {
        self.rendezvous.has_failed()
    }

    /// Nanoseconds since the origin that all threads share.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Carries `load` over kernel sockets and reports what was measured. Takes as long as the
/// connecting, the preloading, the warm-up, the window and the drain.
///
/// # Errors
/// A setting that cannot be used, connections that could not be opened, keys that could not be
/// stored in time, or a core that may not be used. Errors of the service during the run are
/// counted in the report.
pub fn run(load: &LoadConfig, transport: &KernelConfig) -> Result<LoadReport, LoadError> {
    load.validate()?;
    transport.validate(load)?;
    let workload = Arc::new(Workload::new(&load.workload, load.seed)?);
    let rendezvous = Rendezvous::new(transport.threads);
    let place = Place { index: 0, of: 1 };
    let outcomes = run_parts(load, transport, &workload, place, (Instant::now(), &rendezvous))?;
    report(load, transport, outcomes)
}

/// Which of the generators of a run this one is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Its number.
    pub index: u32,
    /// How many there are; all have as many threads.
    pub of: u32,
}

/// Carries `load`, which is the share of the generator at `place`: what each thread brought back.
/// The threads' times count from the `origin`, and they start when the rendezvous lets them.
///
/// # Errors
/// A setting that cannot be used.
pub(crate) fn run_parts(
    load: &LoadConfig,
    transport: &KernelConfig,
    workload: &Arc<Workload>,
    place: Place,
    (origin, rendezvous): (Instant, &Rendezvous),
) -> Result<Vec<Result<Ran, LoadError>>, LoadError> {
    let threads = transport.threads;
    let mut parts = Vec::with_capacity(threads as usize);
    for index in 0..threads {
        let keys_share = (
            u64::from(place.index) * u64::from(threads) + u64::from(index),
            u64::from(place.of) * u64::from(threads),
        );
        parts.push(Part {
            load: load.split(index, threads)?,
            whole: load,
            transport,
            workload: Arc::clone(workload),
            index,
            keys_share,
            origin,
            rendezvous,
        });
    }
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .map(|part| {
                scope.spawn(move || {
                    let outcome = run_part(&part);
                    if outcome.is_err() {
                        part.rendezvous.fail();
                    }
                    outcome
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap_or(Err(LoadError::OtherThread))).collect()
    }))
}

/// Measures the round-trip time of `load`'s requests: one connection, one request at a time, and a
/// spinning thread that never asks epoll. `load`'s mode and connections are not looked at.
///
/// # Errors
/// As [`run`].
pub fn pingpong(load: &LoadConfig, transport: &KernelConfig) -> Result<LoadReport, LoadError> {
    let load = LoadConfig {
        mode: Mode::closed(1),
        pattern: None,
        probe: None,
        connections: 1,
        ..load.clone()
    };
    run(&load, &KernelConfig { wait: Wait::Spin, ..transport.clone() })
}

fn run_part(part: &Part<'_>) -> Result<Ran, LoadError> {
    if let Some(&core) = part.transport.cores.get(part.index as usize) {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|errno| LoadError::Pin { core, source: errno.into() })?;
    }
    match part.load.mode {
        Mode::Churn { .. } => dial::run(part),
        Mode::Open { .. } | Mode::Closed { .. } => drive::run(part),
    }
}

/// One report of all threads.
fn report(
    load: &LoadConfig,
    transport: &KernelConfig,
    outcomes: Vec<Result<Ran, LoadError>>,
) -> Result<LoadReport, LoadError> {
    let target = transport.target.to_string();
    let wait = transport.wait.to_string();
    let mut conditions = Conditions::new(load, "kernel sockets", &target, &wait);
    conditions.threads = transport.threads;
    conditions.cores.clone_from(&transport.cores);
    LoadReport::of_threads(load, conditions, outcomes)
}

#[cfg(test)]
mod tests;
