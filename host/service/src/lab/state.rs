//! The record of labs under `/run/tailplane`: what exists, who owns it, what must be put back.
//!
//! One JSON file per lab, written before the first namespace is made and deleted after the last is
//! gone. A lab whose owner has died (SIGKILL runs no cleanup) is thereby found and removed by the
//! next process that makes a lab. All changes happen under one file lock ([`StateDirectory::lock`]).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use control::sysfs::stat_field;
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use serde::{Deserialize, Serialize};

use super::constants::STATE_DIRECTORY;
use super::error::LabError;

/// How often to try the lock again.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process, told apart from a later one with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process number.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub start_ticks: u64,
}

impl Owner {
    /// The calling process.
    pub fn this_process() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self { pid, start_ticks: 0 })
    }

    /// The process that has this number now, unless it is dead.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // A dead one is shown until somebody has asked for its status.
        let is_dead = matches!(stat_field(&stat, 0)?, "Z" | "X");
        let start_ticks = stat_field(&stat, 22 - 3)?.parse().ok()?;
        (!is_dead).then_some(Self { pid, start_ticks })
    }

    /// Whether that very process still runs.
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid) == Some(*self)
    }
}

/// What is recorded of one lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabState {
    /// Its name.
    pub prefix: String,
    /// Queue pairs of the veth pair.
    pub queues: u32,
    /// Whose end is the lab's end; absent where it stays until `tailplane lab down`.
    pub owner: Option<Owner>,
    /// Whether it relies on the list of allowed congestion controls that a lab has widened.
    pub claims_congestion_control: bool,
}

/// A directory of state files. Only tests use another than [`STATE_DIRECTORY`].
#[derive(Clone, Debug)]
pub struct StateDirectory {
    path: PathBuf,
}

impl Default for StateDirectory {
    fn default() -> Self {
        Self::at(STATE_DIRECTORY)
    }
}

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct StateLock {
    /// Closing the file gives the lock back.
    _file: File,
}

impl StateDirectory {
    /// The directory at `path`, made when first written to.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// A file of the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn lab_file(&self, prefix: &str) -> PathBuf {
        self.file(&format!("lab-{prefix}.json"))
    }

    /// Waits for the lock, `wait` at most.
    ///
    /// # Errors
    /// [`LabError::Failed`]: after `wait`, or where the directory cannot be written.
    pub fn lock(&self, wait: Duration) -> Result<StateLock, LabError> {
        let path = self.file("lock");
        fs::create_dir_all(&self.path).map_err(file_error("create", &self.path))?;
        let file = File::options().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(file_error("open", &path))?;
        // Who may read it may lock it.
        fchmod(&file, Mode::RUSR | Mode::WUSR)
            .map_err(|errno| file_error("restrict", &path)(errno.into()))?;
        let deadline = Instant::now() + wait;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(StateLock { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                    thread::sleep(LOCK_POLL_INTERVAL);
                }
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(LabError::Failed(format!(
                        "another process has been making or removing a lab for {} s (it holds {}): \
                         wait for it or end it",
                        wait.as_secs(),
                        path.display()
                    )));
                }
                Err(errno) => return Err(file_error("lock", &path)(errno.into())),
            }
        }
    }

    /// The lab of that name; `None` where there is none, or where its file is unreadable (which a
    /// process killed while writing leaves: such a lab is as good as unknown).
    pub fn load(&self, prefix: &str) -> Option<LabState> {
        serde_json::from_str(&fs::read_to_string(self.lab_file(prefix)).ok()?).ok()
    }

    /// Writes a lab's record, whole or not at all.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn store(&self, _lock: &StateLock, state: &LabState) -> Result<(), LabError> {
        let path = self.lab_file(&state.prefix);
        let text = serde_json::to_string(state).map_err(io::Error::from);
        self.replace(&path, &text.map_err(file_error("encode", &path))?)
    }

    /// Forgets a lab; one that is not recorded is forgotten.
    ///
    /// # Errors
    /// [`LabError::Failed`].
    pub fn forget(&self, _lock: &StateLock, prefix: &str) -> Result<(), LabError> {
        self.remove_file(&self.lab_file(prefix))
    }

    /// Every recorded lab.
    pub fn labs(&self) -> Vec<LabState> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| self.load(name.strip_prefix("lab-")?.strip_suffix(".json")?))
            .collect()
    }

    /// Labs whose owner has died without removing them.
    pub fn leftovers(&self) -> Vec<LabState> {
        let mut labs = self.labs();
        labs.retain(|lab| lab.owner.is_some_and(|owner| !owner.is_alive()));
        labs
    }

    /// Writes a file by renaming: readers see the old content or the new.
    pub(super) fn replace(&self, path: &Path, text: &str) -> Result<(), LabError> {
        let temporary = path.with_extension("new");
        fs::write(&temporary, text).map_err(file_error("write", &temporary))?;
        fs::rename(&temporary, path).map_err(file_error("rename to", path))
    }

    /// Deletes a file that may be absent.
    pub(super) fn remove_file(&self, path: &Path) -> Result<(), LabError> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(file_error("delete", path)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Turns an I/O error into one that names the file.
pub(super) fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LabError {
    let path = path.to_owned();
    move |error| LabError::Failed(format!("cannot {action} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::fixture_tests::TemporaryDirectory;
    use super::*;

    #[test]
    fn only_its_owner_can_take_the_lock() {
        let directory = TemporaryDirectory::new();
        let path = directory.path.join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let _lock = StateDirectory::at(&directory.path).lock(Duration::ZERO).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fn state(prefix: &str, owner: Option<Owner>) -> LabState {
        LabState { prefix: prefix.to_owned(), queues: 2, owner, claims_congestion_control: true }
    }

    #[test]
    fn what_was_stored_is_loaded_until_forgotten() {
        let directory = TemporaryDirectory::new();
        let states = StateDirectory::at(&directory.path);
        let lock = states.lock(Duration::ZERO).unwrap();
        let lab = state("a-b", Some(Owner::this_process()));
        states.store(&lock, &lab).unwrap();
        assert_eq!(states.load("a-b"), Some(lab.clone()));
        assert_eq!(states.labs(), [lab]);
        states.forget(&lock, "a-b").unwrap();
        states.forget(&lock, "a-b").unwrap();
        assert_eq!(states.labs(), []);
    }

    #[test]
    fn only_labs_of_dead_owners_are_leftovers() {
        let directory = TemporaryDirectory::new();
        let states = StateDirectory::at(&directory.path);
        let lock = states.lock(Duration::ZERO).unwrap();
        let alive = Owner::this_process();
        // The same number, but another start: the owner died and its number was given out again.
        let reused = Owner { start_ticks: alive.start_ticks + 1, ..alive };
        states.store(&lock, &state("alive", Some(alive))).unwrap();
        states.store(&lock, &state("persistent", None)).unwrap();
        states.store(&lock, &state("dead", Some(reused))).unwrap();
        let leftovers: Vec<_> = states.leftovers().into_iter().map(|lab| lab.prefix).collect();
        assert_eq!(leftovers, ["dead"]);
    }

    #[test]
    fn a_torn_record_is_passed_over() {
        let directory = TemporaryDirectory::new();
        let states = StateDirectory::at(&directory.path);
        fs::write(states.lab_file("torn"), "{\"prefix\":").unwrap();
        assert_eq!(states.load("torn"), None);
        assert_eq!(states.labs(), []);
    }

    #[test]
    fn the_lock_is_exclusive_and_the_wait_for_it_bounded() {
        let directory = TemporaryDirectory::new();
        let states = StateDirectory::at(&directory.path);
        let held = states.lock(Duration::ZERO).unwrap();
        let refused = states.lock(Duration::from_millis(20));
        let refused = refused.expect_err("another holds it").to_string();
        assert!(refused.contains("another process has been making"), "{refused}");
        drop(held);
        // A child that another test is starting holds a copy of the file until its exec.
        states.lock(Duration::from_secs(10)).unwrap();
    }
}
