//! Programs that a test starts: their output in files, their end certain.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use super::{PATIENCE, TemporaryDirectory};

/// The variable that names the directory of control sockets.
pub const RUN_DIR: &str = "TAILPLANE_RUN_DIR";

/// A program that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Fails unless the program says that all went well.
    #[track_caller]
    pub fn assert_success(&self) -> &Self {
        assert!(self.status.success(), "{}\n{}{}", self.status, self.stdout, self.stderr);
        self
    }

    /// Fails unless the program failed and said each of these.
    #[track_caller]
    pub fn assert_failure(&self, parts: &[&str]) {
        assert!(!self.status.success(), "it should have failed: {}{}", self.stdout, self.stderr);
        assert!(self.status.code().is_some(), "it did not end by itself: {}", self.status);
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is not in: {}", self.stderr);
        }
    }
}

/// A program that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Running {
    /// Starts `command` by means of `spawn`, with its output in files of `directory`.
    pub fn start(
        directory: &TemporaryDirectory,
        tag: &str,
        mut command: Command,
        spawn: impl FnOnce(&mut Command) -> io::Result<Child>,
    ) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = |what: &str| directory.file(&format!("{tag}-{number}.{what}"));
        let (stdout, stderr) = (path("out"), path("err"));
        command.stdin(Stdio::null()).stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        // Whatever it leaves in its run directory goes with the test.
        if command.get_envs().all(|(key, _)| key != RUN_DIR) {
            command.env(RUN_DIR, directory.file("run"));
        }
        let name = format!("{command:?}");
        let child = spawn(&mut command)?;
        Ok(Self { child, name, stdout, stderr })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// The file that it writes to.
    pub fn stdout_path(&self) -> &PathBuf {
        &self.stdout
    }

    /// What it has complained of so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Fails where it has ended.
    pub fn assert_runs(&mut self) {
        if let Some(status) = self.child.try_wait().expect("a child of ours") {
            panic!("{} ended, {status}: {}{}", self.name, self.stdout(), self.stderr());
        }
    }

    /// Sends a signal and waits for the end.
    pub fn interrupt(self, signal: Signal) -> Finished {
        // The child is not waited for before: the number is still its own.
        kill_process(Pid::from_child(&self.child), signal).expect("a child of ours");
        self.finish()
    }

    /// Waits for the end.
    pub fn finish(mut self) -> Finished {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return Finished { status, stdout: self.stdout(), stderr: self.stderr() };
            }
            if Instant::now() >= deadline {
                let (out, err) = (self.stdout(), self.stderr());
                panic!("{} did not end within {PATIENCE:?}: {out}{err}", self.name);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended is not killed: `Child` remembers that it was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(path: &PathBuf) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The processes of a service, by what it says of them.
#[derive(Clone, Copy, Debug)]
pub struct Three {
    pub starter: u32,
    pub dataplane: u32,
    pub application: u32,
}

impl Three {
    pub fn of(service: &Running) -> Self {
        let said = service.stdout();
        let number = |name: &str| -> u32 {
            let after = said.split(&format!("protection {name}: pid ")).nth(1);
            let digits = after.and_then(|after| after.split(',').next());
            digits.and_then(|digits| digits.parse().ok()).unwrap_or_else(|| panic!("{said}"))
        };
        Self {
            starter: service.id(),
            dataplane: number("dataplane"),
            application: number("application"),
        }
    }

    pub fn all(self) -> [u32; 3] {
        [self.starter, self.dataplane, self.application]
    }
}

/// Lets this process open that many files; false, which is printed, where it may not.
pub fn may_open(files: u64) -> bool {
    let now = getrlimit(Resource::Nofile);
    if now.current.is_none_or(|limit| limit >= files) {
        return true;
    }
    let maximum = now.maximum.map(|limit| limit.max(files));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(files), maximum });
    if raised.is_err() {
        println!("skipped: this process may not open {files} files");
    }
    raised.is_ok()
}
