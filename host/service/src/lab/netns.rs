//! Named network namespaces: make, enter, look inside, remove.
//!
//! A namespace belongs to a *thread*. Work inside one therefore runs on a fresh thread that ends
//! there ([`in_namespace`]); the caller's own threads never change sides. A child inherits the
//! namespace of the thread that starts it ([`spawn_in`]), so no code runs between fork and exec.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::constants::NETNS_DIRECTORY;
use super::error::LabError;
use super::ip::ip;
use crate::split::orphans::parent;

/// How often to look whether terminated programs have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Parents looked up at most, so that a /proc that changes under us cannot make us loop.
const ANCESTORS_MAX: usize = 64;

/// A network namespace by its iproute2 name. The name alone is no proof that it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Names a namespace.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name, as `ip netns` knows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it exists.
    pub fn exists(&self) -> bool {
        self.path().exists()
    }

    fn path(&self) -> PathBuf {
        Path::new(NETNS_DIRECTORY).join(&self.name)
    }

    /// Runs `ip` with these arguments inside the namespace.
    ///
    /// # Errors
    /// What `ip` said.
    pub fn ip(&self, arguments: &[&str]) -> Result<(), LabError> {
        ip(&[&["-n", &self.name][..], arguments].concat()).map(drop)
    }

    /// Makes the namespace.
    ///
    /// # Errors
    /// What `ip netns add` said.
    pub(super) fn create(&self) -> Result<(), LabError> {
        ip(&["netns", "add", &self.name]).map(drop)
    }

    /// Removes the namespace; one that does not exist is removed.
    ///
    /// # Errors
    /// What `ip netns del` said.
    pub(super) fn remove(&self) -> Result<(), LabError> {
        if !self.exists() {
            return Ok(());
        }
        ip(&["netns", "del", &self.name]).map(drop)
    }

    /// Moves the calling thread into the namespace, for good. Meant for a process that goes on to
    /// `exec`; everything else wants [`in_namespace`].
    ///
    /// # Errors
    /// [`LabError::Failed`]: it does not exist, or `CAP_SYS_ADMIN` is missing.
    pub fn enter(&self) -> Result<(), LabError> {
        let file = File::open(self.path()).map_err(|error| self.failed("open", error))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| self.failed("enter", errno.into()))
    }

    fn failed(&self, action: &str, error: io::Error) -> LabError {
        LabError::Failed(format!("cannot {action} network namespace '{}': {error}", self.name))
    }

    /// The processes inside.
    ///
    /// # Errors
    /// What `ip netns pids` said.
    pub fn pids(&self) -> Result<Vec<u32>, LabError> {
        let text = ip(&["netns", "pids", &self.name])?;
        Ok(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// The process `pid`, where it is inside. Its number may be another's since it was listed: only the one that the
    /// descriptor holds, and that is found inside afterwards, is meant.
    fn hold(&self, pid: u32) -> Option<OwnedFd> {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let held = pidfd_open(number, PidfdFlags::empty()).ok()?;
        let of = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let its = of(Path::new(&format!("/proc/{pid}/ns/net")))?;
        // While it has not ended, its number is nobody else's: what was read was its.
        let mut ended = [PollFd::new(&held, PollFlags::IN)];
        let runs = poll(&mut ended, Some(&Timespec::default())) == Ok(0);
        (runs && of(&self.path())? == its).then_some(held)
    }

    /// Ends the programs inside: SIGTERM, and SIGKILL for those that are left after `wait`. The
    /// calling process and its ancestors (a shell in the lab that runs `lab down`) are spared.
    ///
    /// # Errors
    /// What `ip netns pids` said.
    pub(super) fn terminate_programs(&self, wait: Duration) -> Result<(), LabError> {
        let spared = ancestors();
        let others = || -> Result<Vec<OwnedFd>, LabError> {
            let pids = self.pids()?;
            Ok(pids
                .into_iter()
                .filter(|pid| !spared.contains(pid))
                .filter_map(|pid| self.hold(pid))
                .collect())
        };
        send(&others()?, Signal::TERM);
        let deadline = Instant::now() + wait;
        while !others()?.is_empty() {
            if Instant::now() >= deadline {
                send(&others()?, Signal::KILL);
                break;
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// A process that has ended meanwhile is what was wanted: errors say nothing here.
fn send(processes: &[OwnedFd], signal: Signal) {
    for process in processes {
        let _ = pidfd_send_signal(process, signal);
    }
}

/// The calling process, its parent, and so on up.
fn ancestors() -> Vec<u32> {
    let mut found = vec![std::process::id()];
    while found.len() < ANCESTORS_MAX
        && let Some(&last) = found.last()
        && let Some(parent) = parent(last as i32)
        && parent > 1
    {
        found.push(parent as u32);
    }
    found
}

/// Runs `work` inside the namespace, on a fresh thread that ends with it, and returns its result.
///
/// `/sys/class/net` still shows the caller's namespace (a mount decides that); `/proc/sys/net`,
/// sockets and netlink are those of the namespace.
///
/// # Errors
/// [`LabError::Failed`] where the namespace cannot be entered.
///
/// # Panics
/// Where `work` panics: the panic goes on in the caller.
pub fn in_namespace<R: Send>(
    namespace: &Namespace,
    work: impl FnOnce() -> R + Send,
) -> Result<R, LabError> {
    let inside = || namespace.enter().map(|()| work());
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, inside);
        let thread = thread.map_err(|error| namespace.failed("start a thread for", error))?;
        thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
    })
}

/// Starts a program inside the namespace. The caller waits for it and ends it, as for any child;
/// the lab's removal ends those that are left.
///
/// # Errors
/// [`LabError::Failed`] where the namespace cannot be entered, [`LabError::Spawn`] where the
/// program cannot be started.
pub fn spawn_in(namespace: &Namespace, mut command: Command) -> Result<Child, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    in_namespace(namespace, move || command.spawn())?.map_err(|source| LabError::Spawn {
        program,
        namespace: namespace.name.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_namespace_is_an_error_with_its_name() {
        let absent = Namespace::named("tp-absent");
        assert!(!absent.exists());
        let error = in_namespace(&absent, || ()).expect_err("entered what does not exist");
        assert!(error.to_string().contains("'tp-absent'"), "{error}");
    }

    #[test]
    fn a_process_that_is_not_inside_is_not_ended() {
        // The name of this process's own namespace, as iproute2's directory would have it.
        let own = Namespace::named("../../proc/self/ns/net");
        let mut inside = Command::new("sleep").arg("60").spawn().expect("starts");
        let held = own.hold(inside.id()).expect("is inside");
        assert!(Namespace::named("tp-absent").hold(inside.id()).is_none());
        // There is such a file, of another namespace.
        let other = Namespace::named("../../proc/self/ns/uts");
        assert!(other.exists() && other.hold(inside.id()).is_none());
        send(&[held], Signal::KILL);
        inside.wait().expect("it ended");
        assert!(own.hold(inside.id()).is_none(), "it has ended");
    }

    #[test]
    fn ancestors_begin_with_the_process_and_its_parent() {
        let found = ancestors();
        assert_eq!(found.first(), Some(&std::process::id()));
        assert_eq!(found.get(1).copied(), Some(std::os::unix::process::parent_id()));
    }
}
