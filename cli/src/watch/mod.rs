//! Looking at running services from outside: `tailplane status` and `tailplane top`.
//!
//! A service is found by its name in the run directory, described by its control socket, and then read from its
//! statistics segment, which it does not notice.
//!
//! - [`Service`]: a connection; [`Snapshot`]: one reading; [`ServiceView`]: what happened between two.
//! - [`events`]: what changed, in words; [`render`]: as text; [`screen`]: as a terminal's screen.

pub mod events;
pub mod render;
mod sample;
pub mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use endpoint::{Client, Description};
use rustix::time::{ClockId, clock_gettime};
use statseg::{Reading, Segment};

pub use sample::{MoveView, ServiceView, Snapshot, ThreadView};

/// A service that runs.
#[derive(Debug)]
pub struct Service {
    /// What it is.
    pub description: Description,
    /// What it shows.
    pub reading: Arc<Reading>,
    /// For requests.
    pub client: Client,
}

impl Service {
    /// Connects to the service whose socket this is.
    ///
    /// # Errors
    /// Nobody listens there, or refuses; what it shows cannot be read.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let mut client = Client::connect(path)?;
        let (description, segment) = client.describe()?;
        let reading = Segment::join(segment)?;
        Ok(Self { description, reading, client })
    }

    /// Connects to the service of this name: in the run directory, or by its socket's path.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), with the services that there are.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let path = match name.contains('/') {
            true => PathBuf::from(name),
            false => endpoint::socket_path(&endpoint::run_dir(), name)?,
        };
        Self::connect(&path).with_context(|| match all() {
            Ok(found) if found.is_empty() => format!("no service '{name}', nor any other"),
            Ok(found) => format!("no service '{name}'; there are: {}", names(&found)),
            Err(_) => format!("no service '{name}'"),
        })
    }

    /// Reads all that it shows now.
    pub fn snapshot(&self) -> Snapshot {
        let (threads, groups) = (self.reading.threads(), self.reading.groups());
        let homes = self.reading.homes();
        // After the counters: see `ThreadCounters::counters`.
        Snapshot { at_ns: now_ns(), threads, groups, homes }
    }
}

/// All services of the run directory: names and sockets.
///
/// # Errors
/// The directory cannot be read.
pub fn all() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let directory = endpoint::run_dir();
    endpoint::services(&directory)
        .with_context(|| format!("reading the run directory '{}'", directory.display()))
}

/// The service of this name, or the only one.
///
/// # Errors
/// There is none, or more than one and no name.
pub fn one(name: Option<&str>) -> anyhow::Result<Service> {
    if let Some(name) = name {
        return Service::named(name);
    }
    let found = all()?;
    match &found[..] {
        [] => bail!(
            "no service runs (looked in '{}'; `tailplane run CONFIG.toml` starts one)",
            endpoint::run_dir().display()
        ),
        [(_, path)] => Service::connect(path),
        _ => bail!("more than one service runs; name one of: {}", names(&found)),
    }
}

fn names(found: &[(String, PathBuf)]) -> String {
    found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// `CLOCK_MONOTONIC`, in nanoseconds: the clock of the segments.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
