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
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Child;

use memfile::peer_pidfd;
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
        Self::open(proc, pid)?.still_running()
    }

    /// The process that connected to this end of a Unix socket, or that listens at the other one.
    ///
    /// The kernel gives its pidfd (`SO_PEERPIDFD`, Linux 6.5). An older kernel gives its number alone, which may belong
    /// to another process by now: whoever calls must then hear from the peer once more.
    ///
    /// # Errors
    /// It has ended, it is in a PID namespace that is not shown here, or no descriptors are left.
    pub fn peer(proc: &Path, socket: &impl AsFd) -> io::Result<Self> {
        let pidfd = match peer_pidfd(socket) {
            Ok(pidfd) => pidfd,
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                let pid = rustix::net::sockopt::socket_peercred(socket)?.pid;
                return Self::adopt(proc, u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0));
            }
            Err(error) => return Err(error),
        };
        Self::of_pidfd(proc, pid_of(proc, &pidfd)?, pidfd)?.still_running()
    }

    /// It runs still: so its number, and the start time read by it, were its own.
    fn still_running(mut self) -> io::Result<Self> {
        match self.ended() {
            None => Ok(self),
            Some(_) => Err(io::Error::other(format!("process {} has ended", self.identity.pid))),
        }
    }

    fn open(proc: &Path, pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let raw = raw.ok_or_else(|| io::Error::other(format!("{pid} is no process's number")))?;
        Self::of_pidfd(proc, pid, pidfd_open(raw, PidfdFlags::empty())?)
    }

    fn of_pidfd(proc: &Path, pid: u32, pidfd: OwnedFd) -> io::Result<Self> {
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

/// The number of a pidfd's process, as `/proc/self/fdinfo` shows it; -1 where it has ended, 0 in another PID namespace.
fn pid_of(proc: &Path, pidfd: &OwnedFd) -> io::Result<u32> {
    let text = read(&proc.join(format!("self/fdinfo/{}", pidfd.as_raw_fd())))?;
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok());
    match pid {
        Some(pid @ 1..) => Ok(pid.unsigned_abs()),
        _ => Err(io::Error::other("the peer's process has ended, or is in another PID namespace")),
    }
}

/// When a process started, in clock ticks since the boot.
fn start_ticks(proc: &Path, pid: u32) -> io::Result<u64> {
    stat_field(proc, pid, 19)
}

/// The session that a process belongs to; 0 where that is another PID namespace's.
pub fn session(proc: &Path, pid: u32) -> io::Result<u64> {
    stat_field(proc, pid, 3)
}

/// A number of `/proc/PID/stat`: the name stands in brackets and may hold any character; `field` counts behind it.
fn stat_field(proc: &Path, pid: u32, field: usize) -> io::Result<u64> {
    let path = proc.join(format!("{pid}/stat"));
    let stat = read(&path)?;
    let found = control::sysfs::stat_field(&stat, field);
    let malformed = || io::Error::other(format!("{} has no field {field}", path.display()));
    found.and_then(|found| found.parse().ok()).ok_or_else(malformed)
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Which boot this is; nothing where that is not shown.
fn boot(proc: &Path) -> String {
    let path = proc.join("sys/kernel/random/boot_id");
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rustix::net::{
        AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketAddrUnix, SocketFlags, SocketType, accept, bind, listen, recv, sendmsg, socket_with,
    };
    use std::process::Stdio;

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

    /// Names the part that this test's own program plays in a PID namespace, and the socket there.
    const PART: &str = "TAILPLANED_TEST_PART";
    const SOCKET: &str = "TAILPLANED_TEST_SOCKET";
    const NUMBER: &str = "TAILPLANED_TEST_NUMBER";
    const REUSED: &str = "process::tests::a_peer_is_not_the_process_that_was_given_its_number";
    const SAID: &str = "the peer was told from the process with its number";

    /// This test again, in another part.
    fn play(program: &mut Command, part: &str, socket: &Path) {
        program.args(["--exact", REUSED, "--nocapture"]).env(PART, part).env(SOCKET, socket);
    }

    #[test]
    fn a_peer_is_not_the_process_that_was_given_its_number() {
        let us = std::env::current_exe().expect("we run");
        let part = std::env::var(PART).unwrap_or_default();
        let socket = std::env::var_os(SOCKET).map(std::path::PathBuf::from).unwrap_or_default();
        match part.as_str() {
            "listener" => return listen_and_leave(&us, &socket),
            "heir" => return serve_for(&socket),
            "namespace" => return reuse_the_number(&us, &socket),
            _ => {}
        }
        if !rustix::process::geteuid().is_root() {
            println!("needs root: a PID namespace cannot be made");
            return;
        }
        let directory = crate::tests::fake::Directory::new("reuse");
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"]).arg(us);
        play(&mut unshare, "namespace", &directory.path().join("socket"));
        let output = unshare.output().expect("unshare");
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(SAID), "{said}");
    }

    /// Listens, gives the socket to a heir, and ends: the kernel names a process that is no more.
    fn listen_and_leave(us: &Path, path: &Path) {
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let listener = listener.expect("a socket");
        bind(&listener, &SocketAddrUnix::new(path).expect("short")).expect("a new path");
        listen(&listener, 4).expect("bound");
        let mut heir = Command::new(us);
        play(&mut heir, "heir", path);
        heir.env(NUMBER, std::process::id().to_string()).stdin(Stdio::from(listener));
        drop(heir.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("our own program"));
    }

    /// Answers at the socket that the listener has left, as the process that this was.
    fn serve_for(path: &Path) {
        let pid = std::env::var(NUMBER).ok().and_then(|number| number.parse().ok()).expect("said");
        let layout = statseg::Layout { threads: 1, groups: 128, batch_max: 64 };
        let segment = statseg::Segment::create("heir", &layout).expect("memory");
        let description = endpoint::Description {
            name: "heir".into(),
            pid,
            started_unix_ms: 1,
            config_path: path.display().to_string(),
            config_text: String::new(),
            threads: 1,
            cpus: vec![None],
            batch_max: 64,
            groups: 128,
            scheduler: "run-to-completion".into(),
            domain: "inline".into(),
            driver: "none".into(),
            steers: false,
            movable: false,
            version: endpoint::PROTOCOL_VERSION,
        };
        std::thread::scope(|scope| {
            loop {
                let client = accept(std::io::stdin()).expect("somebody");
                scope.spawn(|| answer(client, &description, &segment));
            }
        });
    }

    fn answer(client: OwnedFd, description: &endpoint::Description, segment: &statseg::Segment) {
        let mut bytes = vec![0; 1 << 16];
        while let Ok((len, _)) = recv(&client, &mut bytes[..], RecvFlags::empty())
            && len > 0
        {
            let ask: endpoint::Ask = serde_json::from_slice(&bytes[..len]).expect("a request");
            let done = endpoint::Done::Described(Box::new(description.clone()));
            let text = serde_json::to_vec(&endpoint::Answer { id: ask.id, result: Ok(done) });
            let file = segment.descriptor().expect("a duplicate");
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let passed = [file.as_fd()];
            ancillary.push(SendAncillaryMessage::ScmRights(&passed));
            let text = text.expect("plain data");
            let slices = [io::IoSlice::new(&text)];
            sendmsg(&client, &slices, &mut ancillary, SendFlags::NOSIGNAL).expect("it listens");
        }
    }

    /// As the first process of a PID namespace, which ends the others with it.
    fn reuse_the_number(us: &Path, path: &Path) {
        let mut listener = Command::new(us);
        play(&mut listener, "listener", path);
        let mut listener = listener.spawn().expect("our own program");
        let number = listener.id();
        assert!(listener.wait().expect("it is ours").success());
        let client = endpoint::Client::connect(path).expect("the heir listens");
        let stream = client.fd();
        // A thread of the test harness may be quicker to get the number.
        let victim = (0..100).find_map(|_| {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).expect("root");
            let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
            let is_victim = child.id() == number;
            if !is_victim {
                child.kill().and_then(|()| child.wait()).expect("it is ours");
            }
            is_victim.then_some(child)
        });
        let mut victim = victim.expect("the number is given again");
        let credentials = rustix::net::sockopt::socket_peercred(stream).expect("connected");
        assert_eq!(credentials.pid.as_raw_nonzero().get().unsigned_abs(), number);
        let by_number = Held::adopt(Path::new(PROC), number).expect("some process has the number");
        assert_eq!(by_number.identity().pid, victim.id(), "the number alone names another one");
        let peer = Held::peer(Path::new(PROC), &stream);
        assert!(peer.is_err(), "the victim is held: {peer:?}");
        // The same as the daemon comes to it: what answers at the socket has taken the number for its own.
        let mut connection = crate::connection::Connection::reach(path).expect("the heir answers");
        let held = connection.hold(Path::new(PROC));
        assert!(held.is_err(), "the victim is held: {held:?}");
        victim.kill().and_then(|()| victim.wait()).expect("it is ours");
        println!("{SAID}");
    }

    #[test]
    fn a_peer_that_runs_is_held_by_its_pidfd() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let mut held = Held::peer(Path::new(PROC), &near).expect("it is us");
        assert_eq!((held.identity().pid, held.ended()), (std::process::id(), None));
        assert_eq!(
            *held.identity(),
            *Held::adopt(Path::new(PROC), std::process::id()).expect("us").identity()
        );
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        for pid in [0, u32::MAX, i32::MAX as u32] {
            assert!(Held::adopt(Path::new(PROC), pid).is_err(), "{pid}");
        }
    }
}
