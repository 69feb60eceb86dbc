//! The machine itself: [`World`] over the run directory and real processes; its moment; what it lacks.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::process::geteuid;
use rustix::time::{ClockId, clock_gettime};

use crate::bell::Bell;
use crate::config::Config;
use crate::connection::Connector;
use crate::process::{Held, Identity, Process, session};
use crate::unsafe_session::own_session;
use crate::world::{Launch, Reached, World};

/// Processes whose command lines are looked at, at most.
const PROCESSES_MAX: usize = 65_536;
/// Longest command line that is compared, in bytes; what is longer is no service's.
const COMMAND_LINE_BYTES_MAX: u64 = 1 << 20;
/// What systemd tells the daemon and nobody else.
const NOT_FOR_CHILDREN: [&str; 6] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
];

/// The moment by CLOCK_MONOTONIC, in nanoseconds: the clock of the segments.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The moment by the wall's clock, in milliseconds since 1970.
pub fn unix_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// See the module's comment.
pub struct Outside {
    run_directory: PathBuf,
    proc: PathBuf,
    connector: Connector,
}

impl Outside {
    /// Of a configuration; `bell` rings when a service was reached.
    pub fn new(config: &Config, bell: &Arc<Bell>) -> Self {
        let proc = config.machine.proc.clone();
        let connector = Connector::new(&proc, bell);
        Self { run_directory: config.run_directory.clone(), proc, connector }
    }
}

impl World for Outside {
    fn list(&mut self) -> io::Result<Vec<(String, PathBuf)>> {
        endpoint::services(&self.run_directory)
    }

    fn connect(&mut self, name: &str, path: &Path) {
        self.connector.connect(name, path);
    }

    fn connected(&mut self) -> Vec<(String, Result<Reached, String>)> {
        self.connector.connected()
    }

    fn spawn(&mut self, launch: &Launch) -> io::Result<Box<dyn Process>> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).stdin(Stdio::null());
        command.env(endpoint::RUN_DIR_VARIABLE, &self.run_directory);
        for name in NOT_FOR_CHILDREN {
            command.env_remove(name);
        }
        own_session(&mut command);
        let child = command.spawn()?;
        Ok(Box::new(Held::child(&self.proc, child)?))
    }

    fn again(&mut self, identity: &Identity) -> io::Result<Box<dyn Process>> {
        Ok(Box::new(Held::again(&self.proc, identity)?))
    }

    fn find(&mut self, launch: &Launch) -> Option<Box<dyn Process>> {
        let entries = std::fs::read_dir(&self.proc).ok()?;
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<u32>().ok();
        let numbers = entries.flatten().filter_map(number).take(PROCESSES_MAX);
        numbers.filter(|&pid| is_launched(&self.proc, pid, launch)).find_map(|pid| {
            let held = Held::adopt(&self.proc, pid).ok()?;
            // Once more, now that it cannot become another one.
            is_launched(&self.proc, pid, launch).then(|| Box::new(held) as Box<dyn Process>)
        })
    }
}

/// Whether the daemon may have started this process: it is the daemon's user's, leads a session of its own, and has
/// exactly this command line. Any user can give a process such a command line.
fn is_launched(proc: &Path, pid: u32, launch: &Launch) -> bool {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let user = std::fs::metadata(proc.join(pid.to_string())).map(|about| about.uid());
    let leads = session(proc, pid).is_ok_and(|leader| leader == u64::from(pid));
    if !leads || user.ok() != Some(geteuid().as_raw()) {
        return false;
    }
    let Ok(file) = std::fs::File::open(proc.join(format!("{pid}/cmdline"))) else { return false };
    let mut found = Vec::new();
    if file.take(COMMAND_LINE_BYTES_MAX).read_to_end(&mut found).is_err() {
        return false;
    }
    let words = std::iter::once(launch.program.as_os_str())
        .chain(launch.arguments.iter().map(std::ffi::OsString::as_os_str));
    let wanted = words.flat_map(|word| word.as_bytes().iter().copied().chain([0]));
    wanted.eq(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Signal;

    #[test]
    fn a_process_of_another_user_or_session_is_not_one_that_was_started() {
        use std::os::unix::process::CommandExt;
        let bell = Arc::new(Bell::new().expect("a descriptor"));
        let mut outside = Outside::new(&Config::default(), &bell);
        let seconds = format!("62.{}", std::process::id());
        let launch = Launch { program: "sleep".into(), arguments: vec![(&seconds).into()] };
        let imitate = |change: &dyn Fn(&mut Command)| {
            let mut command = Command::new("sleep");
            change(command.arg(&seconds));
            command.spawn().expect("sleep")
        };
        let mut imitations = vec![imitate(&|_| {})];
        if geteuid().is_root() {
            imitations.push(imitate(&|command| {
                command.uid(65_534).gid(65_534);
                own_session(command);
            }));
        } else {
            println!("needs root: a process of another user cannot be started");
        }
        for child in &imitations {
            let line = std::fs::read_to_string(format!("/proc/{}/cmdline", child.id()));
            assert!(line.expect("it runs").contains(&seconds), "it is what it pretends to be");
        }
        let found = outside.find(&launch).map(|found| found.identity().pid);
        for child in &mut imitations {
            child.kill().and_then(|()| child.wait()).expect("it is ours");
        }
        assert_eq!(found, None, "an imitation was taken for the service");
    }

    #[test]
    fn programs_are_started_apart_and_found_by_their_whole_command_line() {
        let bell = Arc::new(Bell::new().expect("a descriptor"));
        let mut outside = Outside::new(&Config::default(), &bell);
        let seconds = format!("61.{}", std::process::id());
        let launch = Launch { program: "sleep".into(), arguments: vec![(&seconds).into()] };
        assert!(outside.find(&launch).is_none());
        let mut started = outside.spawn(&launch).expect("started");
        let found = outside.find(&launch).map(|found| found.identity().clone());
        let longer = Launch { arguments: vec![seconds.into(), "1".into()], ..launch };
        let other = outside.find(&longer).is_some();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", started.identity().pid));
        started.signal(Signal::KILL).expect("it is ours");
        let until = monotonic_ns() + 60_000_000_000;
        while started.ended().is_none() {
            assert!(monotonic_ns() < until, "it does not end");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(found.as_ref(), Some(started.identity()));
        assert!(!other);
        let stat = stat.expect("it ran");
        let fields: Vec<&str> = stat.split_whitespace().collect();
        assert_eq!(fields[5], started.identity().pid.to_string(), "a session of its own: {stat}");
        let missing = Launch { program: "/nonexistent/program".into(), arguments: vec![] };
        assert!(outside.spawn(&missing).is_err());
    }
}
