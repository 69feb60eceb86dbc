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
use endpoint::{Client, ClientError, Description};
use rustix::time::{ClockId, clock_gettime};
use statseg::{Reading, Segment};

pub use sample::{CountView, MoveView, ServiceView, Snapshot, ThreadView};

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
        let (homes, stack_names) = (self.reading.homes(), shown::stack_counters(&self.reading));
        // After the counters: see `ThreadCounters::counters`.
        Snapshot { at_ns: now_ns(), threads, groups, homes, stack_names }
    }
}

/// All services of the run directory by name, or why one cannot be looked at.
///
/// # Errors
/// The directory cannot be read.
pub fn all() -> anyhow::Result<Vec<(String, anyhow::Result<Service>)>> {
    all_in(&endpoint::run_dir())
}

/// A socket that a killed service has left behind is none.
fn all_in(directory: &Path) -> anyhow::Result<Vec<(String, anyhow::Result<Service>)>> {
    let found = endpoint::services(directory)
        .with_context(|| format!("reading the run directory '{}'", directory.display()))?;
    let connected = found.into_iter().map(|(name, path)| (name, Service::connect(&path)));
    Ok(connected.filter(|(_, service)| !is_left_behind(service)).collect())
}

fn is_left_behind(service: &anyhow::Result<Service>) -> bool {
    let error = service.as_ref().err().and_then(|error| error.downcast_ref::<ClientError>());
    error.is_some_and(ClientError::is_left_behind)
}

/// The service of this name, or the only one.
///
/// # Errors
/// There is none, or more than one and no name.
pub fn one(name: Option<&str>) -> anyhow::Result<Service> {
    if let Some(name) = name {
        return Service::named(name);
    }
    let mut found = all()?;
    match (found.pop(), found.len()) {
        (None, _) => bail!(
            "no service runs (looked in '{}'; `tailplane run CONFIG.toml` starts one)",
            endpoint::run_dir().display()
        ),
        (Some((_, service)), 0) => service,
        (Some(last), _) => {
            found.push(last);
            bail!("more than one service runs; name one of: {}", names(&found))
        }
    }
}

fn names(found: &[(String, anyhow::Result<Service>)]) -> String {
    found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
}

/// `CLOCK_MONOTONIC`, in nanoseconds: the clock of the segments.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
    };

    use super::*;

    #[test]
    fn sockets_of_killed_services_are_no_services() {
        let run = crate::private::directory("watched").expect("made");
        let services = run.path().join("services");
        std::fs::create_dir(&services).expect("made");
        let listener = |name: &str| {
            let socket =
                socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                    .expect("a socket");
            let path = services.join(format!("{name}.sock"));
            bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("bound");
            listen(&socket, 1).expect("it listens");
            socket
        };
        drop((listener("echo"), listener("service")));
        assert!(all_in(run.path()).expect("readable").is_empty());
        // One that runs and is of no use is one.
        let _alive = listener("kv");
        std::fs::write(services.join("file.sock"), "").expect("written");
        let names: Vec<String> =
            all_in(run.path()).expect("readable").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["kv"]);
    }
}
