//! Processes that the daemon started or adopted, held so that no other one can be taken for them.
//!
//! ```
//! use daemon::{Ended, Held, Process};
//! use std::path::Path;
//! let mut us = Held::adopt(Path::new("/proc"), std::process::id())?;
//! assert_eq!(us.ended(), None);
//! assert!(Held::again(Path::new("/proc"), us.identity()).is_ok());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A number alone says nothing: it is given to another process some time after the first one has ended. A pidfd
//! means one process for ever; across a restart of the daemon, number, start time and boot do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Which process this is, also after the daemon was started anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since the boot.
    pub start_ticks: u64,
    /// Of which boot.
    pub boot: String,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
    /// Nobody saw: it was no child of ours.
    Unseen,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Unseen => f.write_str("unseen"),
        }
    }
}

/// A process that is held. [`Held`] is the real one.
pub trait Process: Send {
    /// Which.
    fn identity(&self) -> &Identity;
    /// How it ended, once it has.
    fn ended(&mut self) -> Option<Ended>;
    /// Sends it a signal; none where it has ended.
    ///
    /// # Errors
    /// The system refuses.
    fn signal(&mut self, signal: Signal) -> io::Result<()>;
    /// What becomes readable when it ends.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// See the module's comment.
#[derive(Debug)]
pub struct Held {
    identity: Identity,
    pidfd: OwnedFd,
    child: Option<Child>,
    ended: Option<Ended>,
}

impl Held {
    /// A child of ours.
    ///
    /// # Errors
    /// No descriptors are left, or processes are not shown. The child runs on then.
    pub fn child(proc: &Path, child: Child) -> io::Result<Self> {
        let this = Self::open(proc, child.id())?;
        Ok(Self { child: Some(child), ..this })
    }

    /// A process that runs, by its number now. Whoever calls must know by other means that this process is the one
    /// that is meant: it answered after this was made.
    ///
    /// # Errors
    /// It is not there, processes are not shown, or no descriptors are left.
    pub fn adopt(proc: &Path, pid: u32) -> io::Result<Self> {
        let mut this = Self::open(proc, pid)?;
        // It runs still: so the start time read meanwhile was its own.
        if this.ended().is_some() {
            return Err(io::Error::other(format!("process {pid} has ended")));
        }
        Ok(this)
    }

    fn open(proc: &Path, pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::other(format!("{pid} is no process's number")))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty())?;
        let start_ticks = start_ticks(proc, pid)?;
        let identity = Identity { pid, start_ticks, boot: boot(proc) };
        Ok(Self { identity, pidfd, child: None, ended: None })
    }

    /// The process that was held before.
    ///
    /// # Errors
    /// It has ended, whatever bears its number now.
    pub fn again(proc: &Path, identity: &Identity) -> io::Result<Self> {
        let this = Self::adopt(proc, identity.pid)?;
        if this.identity != *identity {
            let reason = format!("process {} is another one by now", identity.pid);
            return Err(io::Error::other(reason));
        }
        Ok(this)
    }
}

impl Process for Held {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn ended(&mut self) -> Option<Ended> {
        if self.ended.is_none() {
            let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            if !matches!(poll(&mut fds, Some(&now)), Ok(1)) {
                return None;
            }
            let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            self.ended = Some(status.map_or(Ended::Unseen, |status| {
                use std::os::unix::process::ExitStatusExt;
                match (status.code(), status.signal()) {
                    (Some(code), _) => Ended::Status(code),
                    (None, Some(signal)) => Ended::Signal(signal),
                    (None, None) => Ended::Unseen,
                }
            }));
        }
        self.ended
    }

    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        // Readable for ever once it has ended: then there is nothing more to wait for.
        self.ended.is_none().then(|| self.pidfd.as_fd())
    }
}

/// `/proc/PID/stat`: the name stands in brackets and may hold any character; the start time is the 20th field behind.
fn start_ticks(proc: &Path, pid: u32) -> io::Result<u64> {
    let path = proc.join(format!("{pid}/stat"));
    let stat = std::fs::read_to_string(&path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let ticks = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19));
    let malformed = || io::Error::other(format!("{} has no start time", path.display()));
    ticks.and_then(|ticks| ticks.parse().ok()).ok_or_else(malformed)
}

/// Which boot this is; nothing where that is not shown.
fn boot(proc: &Path) -> String {
    let path = proc.join("sys/kernel/random/boot_id");
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::{Duration, Instant};

    const PROC: &str = "/proc";

    fn wait(held: &mut Held) -> Ended {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(ended) = held.ended() {
                return ended;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn sleeper() -> Held {
        let child = Command::new("sleep").arg("60").spawn().expect("sleep");
        Held::child(Path::new(PROC), child).expect("held")
    }

    #[test]
    fn a_child_is_ended_and_says_how() {
        let mut held = sleeper();
        assert_eq!(held.ended(), None);
        held.signal(Signal::TERM).expect("it is ours");
        assert_eq!(wait(&mut held), Ended::Signal(15));
        held.signal(Signal::TERM).expect("nobody is there: nothing is done");
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().expect("sh");
        // It may have ended by now; as a child of ours it is there until it is waited for.
        let mut held = Held::child(Path::new(PROC), child).expect("held");
        assert_eq!(wait(&mut held), Ended::Status(3));
    }

    #[test]
    fn who_bears_the_number_of_another_is_not_taken_for_it() {
        let mut held = sleeper();
        let identity = held.identity().clone();
        let mut other = identity.clone();
        other.start_ticks -= 1;
        let again = Held::again(Path::new(PROC), &other);
        assert!(again.unwrap_err().to_string().contains("another one by now"));
        other = Identity { boot: "before".to_owned(), ..identity.clone() };
        assert!(Held::again(Path::new(PROC), &other).is_err());
        let mut again = Held::again(Path::new(PROC), &identity).expect("it runs");
        held.signal(Signal::KILL).expect("it is ours");
        assert_eq!(wait(&mut held), Ended::Signal(9));
        assert_eq!(wait(&mut again), Ended::Unseen, "its end was the other's to see");
        assert!(Held::again(Path::new(PROC), &identity).is_err());
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(Held::adopt(Path::new(PROC), pid).is_err(), "{pid}");
        }
    }
}
