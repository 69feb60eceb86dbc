//! A service that `tailplane run` started, with all that belongs to it.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use endpoint::Client;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::super::Outcome;
use super::super::victim::Silence;
use super::{LOOK, PATIENCE, WITHIN};
use crate::acts::GOT_IN;

/// Processes of a service at most: its own three, an init, what the attack "fork" makes.
const PROCESSES_MAX: usize = 64;
/// What the starter prints once the service serves.
const SERVES: &str = "scheduler";

/// See the module's comment. No process outlives this value.
pub struct Service {
    starter: Child,
    status: Option<ExitStatus>,
    /// All that were ever seen.
    descendants: Vec<Descendant>,
    folder: PathBuf,
    name: &'static str,
}

struct Descendant {
    pid: u32,
    pidfd: OwnedFd,
    is_attacker: bool,
}

impl Service {
    /// Starts one on a processor. `program` are arguments of this program, which then is the service's.
    ///
    /// # Errors
    /// A file or a process could not be made.
    pub fn start(
        folder: &Path,
        name: &'static str,
        config: &str,
        program: &[String],
        cpu: usize,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program's file")?;
        let path = folder.join(format!("{name}.toml"));
        fs::write(&path, config).context("writing a configuration")?;
        let file = |kind| File::create(folder.join(format!("{name}.{kind}")));
        let mut command = Command::new(&own);
        command.args(["run", "--seconds", "300"]).arg(path).stdin(Stdio::null());
        command.stdout(file("out")?).stderr(file("err")?);
        command.env("TAILPLANE_RUN_DIR", folder.join("run"));
        if !program.is_empty() {
            command.arg("--").arg(own).args(program);
        }
        // What the thread starts is bound to its processor, as the thread is.
        let spawn = move || -> anyhow::Result<Child> {
            measure::pin(cpu)?;
            crate::unsafe_os::no_priority()?;
            command.spawn().context("starting 'tailplane run'")
        };
        let starter = std::thread::spawn(spawn).join();
        let starter = starter.map_err(|_| anyhow::anyhow!("the starting thread panicked"))??;
        let folder = folder.to_owned();
        Ok(Self { starter, status: None, descendants: Vec::new(), folder, name })
    }

    /// Waits until it serves. False: it ended before.
    ///
    /// # Errors
    /// It does neither within `patience`.
    pub fn serves(&mut self, patience: Duration) -> anyhow::Result<bool> {
        let began = Instant::now();
        loop {
            if self.output("out").contains(SERVES) {
                return Ok(true);
            }
            if self.has_ended()? {
                return Ok(false);
            }
            anyhow::ensure!(
                began.elapsed() < patience,
                "it does not serve: {}",
                self.output("err")
            );
            self.look();
            std::thread::sleep(LOOK);
        }
    }

    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        if self.status.is_none() {
            self.status = self.starter.try_wait().context("waiting for the starter")?;
        }
        Ok(self.status.is_some())
    }

    pub fn output(&self, kind: &str) -> String {
        let bytes = fs::read(self.folder.join(format!("{}.{kind}", self.name)));
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }

    /// Why it did not serve.
    pub fn refusal(&self) -> String {
        self.output("err").lines().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Looks which processes belong to it.
    fn look(&mut self) {
        let mut parents = vec![self.starter.id()];
        while let Some(parent) = parents.pop() {
            let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
            let children = children.unwrap_or_default();
            let pids = children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok());
            for pid in pids.take(PROCESSES_MAX) {
                parents.push(pid);
                if self.descendants.len() < PROCESSES_MAX
                    && self.descendants.iter().all(|known| known.pid != pid)
                    && let Some(number) = Pid::from_raw(pid as i32)
                    && let Ok(pidfd) = pidfd_open(number, PidfdFlags::empty())
                {
                    self.descendants.push(Descendant { pid, pidfd, is_attacker: false });
                }
            }
        }
        for known in self.descendants.iter_mut().filter(|known| !known.is_attacker) {
            // It may have become another program since.
            let line = fs::read(format!("/proc/{}/cmdline", known.pid)).unwrap_or_default();
            known.is_attacker = line.split(|byte| *byte == 0).any(|word| word == b"act");
        }
    }

    /// Has the attackers go on, or stops them.
    pub fn let_act(&mut self, may: bool) {
        self.look();
        let signal = if may { Signal::CONT } else { Signal::STOP };
        for attacker in self.descendants.iter().filter(|known| known.is_attacker) {
            // One that has just ended needs none.
            let _ = pidfd_send_signal(&attacker.pidfd, signal);
        }
    }

    /// Requires an answer at the control socket in time.
    pub fn check_answers(&mut self, outcome: &mut Outcome) {
        let began = Silence::begin();
        let path = endpoint::socket_path(&self.folder.join("run"), self.name);
        let asked = path.context("naming its socket").and_then(|path| {
            let mut client = Client::connect(&path)?;
            Ok(client.describe()?)
        });
        let took = began.lasted();
        match asked {
            Ok(_) if took < WITHIN => {}
            Ok(_) => outcome.fail(format!("the starter answered after {took:?}")),
            // It ended by itself meanwhile.
            Err(_) if self.has_ended().unwrap_or(false) => {}
            Err(error) => outcome.fail(format!("the starter does not answer: {error:#}")),
        }
    }

    /// Asks the starter to end, and requires that it does in time.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn end(&mut self, outcome: &mut Outcome) -> anyhow::Result<()> {
        self.look();
        let began = Silence::begin();
        if !self.has_ended()? {
            rustix::process::kill_process(Pid::from_child(&self.starter), Signal::TERM)
                .context("ending the starter")?;
        }
        while !self.has_ended()? {
            if began.lasted() > PATIENCE {
                outcome.fail(format!("did not end within {PATIENCE:?}"));
                break;
            }
            std::thread::sleep(LOOK);
        }
        let took = began.lasted();
        outcome.ended_in(took);
        if took > WITHIN {
            outcome.fail(format!("took {took:?} to end"));
        }
        Ok(())
    }

    /// Requires that none of its processes is left, and takes over what it printed of them.
    pub fn check_remains(&mut self, outcome: &mut Outcome) {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let has_ended = |known: &&Descendant| {
            !poll(&mut [PollFd::new(&known.pidfd, PollFlags::IN)], Some(&now))
                .is_ok_and(|count| count > 0)
        };
        for left in self.descendants.iter().filter(has_ended) {
            outcome.fail(format!("process {} is left", left.pid));
        }
        let (out, error) = (self.output("out"), self.output("err"));
        let odd = [&out, &error].into_iter().flat_map(|text| text.chars());
        if let Some(odd) = odd.into_iter().find(|&c| c.is_control() && c != '\n' && c != '\t') {
            outcome.fail(format!("{odd:?} was printed"));
        }
        if error.contains(&format!("exit status: {GOT_IN}")) {
            outcome.fail("it could change memory that it may only read");
        }
        // The first process of its namespace ends with 128 and the signal's number, as a shell does.
        let fault = ["signal: 11", "exit status: 139"];
        outcome.faulted += u64::from(fault.into_iter().any(|words| error.contains(words)));
        let before = |words: &str| -> u64 {
            let lines = out.lines().filter(|line| line.starts_with("domain "));
            let heads = lines.filter_map(|line| line.split(words).next()?.split(' ').next_back());
            heads.filter_map(|number| number.parse::<u64>().ok()).sum()
        };
        outcome.crossings += before(" crossings");
        outcome.violations += before(" calls without sense");
        outcome.refused += before(" beyond the room");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // All of them have ended, unless the suite gives up.
        let _ = self.starter.kill();
        let _ = self.starter.wait();
        for known in &self.descendants {
            let _ = pidfd_send_signal(&known.pidfd, Signal::KILL);
        }
    }
}
