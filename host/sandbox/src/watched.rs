//! Learning of a process's end without racing on its number, which the kernel gives to another as soon
//! as the process is gone and waited for.
//!
//! ```no_run
//! use std::time::Duration;
//! use sandbox::Watched;
//! let mut child = std::process::Command::new("sleep").arg("1").spawn()?;
//! let watched = Watched::of_child(&child)?;
//! assert!(!watched.wait(Duration::from_millis(10))?);
//! watched.kill()?;
//! assert!(watched.wait(Duration::from_secs(1))?);
//! child.wait()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::SandboxError;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A process, whatever becomes of its number. Its descriptor (`AsFd`) is readable when the process has
/// ended, so it fits in any poll or epoll set.
#[derive(Debug)]
pub struct Watched {
    pidfd: OwnedFd,
}

impl Watched {
    /// Watches a child that the caller has not waited for; until it does, the number cannot change hands.
    ///
    /// # Errors
    /// The system refuses.
    pub fn of_child(child: &Child) -> Result<Self, SandboxError> {
        Self::open(i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    }

    fn open(pid: Option<Pid>) -> Result<Self, SandboxError> {
        let pidfd = pid
            .ok_or(Errno::SRCH)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()))
            .map_err(system("watch a process", "it must be there, and not have been waited for"))?;
        Ok(Self { pidfd })
    }

    /// Waits for the end, `timeout` at most; whether it has come. A zero timeout asks.
    ///
    /// # Errors
    /// The system refuses.
    pub fn wait(&self, timeout: Duration) -> Result<bool, SandboxError> {
        let failed = system("wait for a process", "look at the error");
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(|_| failed(Errno::INVAL))?;
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// How a child of the caller ended; `None` while it runs. It stays to be waited for.
    ///
    /// # Errors
    /// The system refuses, also where it is no child of the caller or has been waited for.
    pub fn ended(&self) -> Result<Option<Ended>, SandboxError> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options).map_err(
            system("ask how a process ended", "only its parent may, and before it waits"),
        )?;
        Ok(found.and_then(|status| {
            let signal = || status.terminating_signal().map(Ended::Killed);
            status.exit_status().map(Ended::Exited).or_else(signal)
        }))
    }

    /// Kills it. That it has ended already is no error.
    ///
    /// # Errors
    /// The caller may not.
    pub fn kill(&self) -> Result<(), SandboxError> {
        match rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => {
                Err(system("kill a process", "the caller must be root or its user")(errno))
            }
        }
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn system(tried: &'static str, advice: &'static str) -> impl Fn(Errno) -> SandboxError {
    move |errno| SandboxError::refused(tried, std::io::Error::from(errno), advice)
}
