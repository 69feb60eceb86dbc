//! Running the probe, freely or confined.

use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sandbox::{Confinement, Ended, Watched};

/// Users that own nothing, one for each test that counts a user's processes.
#[allow(dead_code)] // Each test file has its own copy of this module, and not each uses all.
pub const USER: u32 = 30_001;

/// No probe takes longer; one that does is killed and the test fails.
const LONGEST: Duration = Duration::from_millis(2500);
/// For a probe that makes hundreds of processes.
const PATIENCE: Duration = Duration::from_secs(180);

/// Whether this is root; says why a test is skipped where not.
pub fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: a process is given another user and namespaces by root only");
    }
    root
}

/// The probe where every user can reach it, which a build folder may not be. Gone when dropped.
pub struct Place {
    folder: PathBuf,
}

impl Place {
    pub fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("sandbox-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the probe");
        let place = Self { folder };
        // By another process: a copy made here would be open for writing in what other tests fork
        // meanwhile, and a program that is open for writing cannot be started (ETXTBSY).
        let mut copy = Command::new("cp");
        copy.arg(env!("CARGO_BIN_EXE_sandbox-probe")).arg(place.probe());
        assert!(copy.status().expect("cp starts").success());
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&place.folder, all).expect("for every user");
        place
    }

    pub fn probe(&self) -> PathBuf {
        self.folder.join("probe")
    }

    /// The probe's command, its streams piped.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.probe());
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/");
        command
    }

    /// Runs an attempt without any confinement.
    pub fn free(&self, words: &[&str]) -> (String, Ended) {
        finish(self.command(words).spawn().expect("the probe starts"))
    }

    /// Runs an attempt confined.
    pub fn confined(
        &self,
        confinement: &Confinement,
        words: &[&str],
        descriptors: &[(BorrowedFd<'_>, i32)],
    ) -> (String, Ended) {
        finish(confinement.spawn(self.command(words), descriptors).expect("the probe starts"))
    }

    /// The same of what takes longer.
    #[allow(dead_code)] // Each test file has its own copy of this module, and not each uses all.
    pub fn patiently(&self, confinement: &Confinement, words: &[&str]) -> (String, Ended) {
        let child = confinement.spawn(self.command(words), &[]).expect("the probe starts");
        finish_within(child, PATIENCE)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = std::fs::remove_dir_all(&self.folder);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// What it printed and how it ended.
pub fn finish(child: Child) -> (String, Ended) {
    finish_within(child, LONGEST)
}

fn finish_within(mut child: Child, longest: Duration) -> (String, Ended) {
    drop(child.stdin.take());
    let watched = Watched::of_child(&child).expect("a child");
    let in_time = watched.wait(longest).expect("a wait");
    if !in_time {
        watched.kill().expect("a child of ours");
        watched.wait(LONGEST).expect("a wait");
    }
    let ended = watched.ended().expect("a child of ours");
    child.wait().expect("a child of ours");
    assert!(in_time, "the probe did not end in {longest:?}");
    let mut printed = String::new();
    let output = child.stdout.as_mut().expect("piped");
    output.read_to_string(&mut printed).expect("text");
    (printed.trim().to_owned(), ended.expect("it has ended"))
}

/// Whether the process lives. One that has ended and waits for a slow reaper does not.
#[allow(dead_code)] // Each test file has its own copy of this module, and not each uses all.
pub fn lives(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| !matches!(state.trim().chars().next(), Some('Z' | 'X')))
}
