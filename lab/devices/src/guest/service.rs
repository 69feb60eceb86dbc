//! `tailplane run` in the guest: started, looked at, ended.

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::command::{OutputFile, one_line, wait_for, wait_until};
use super::rig::{DATAPLANE, has_carrier};
use crate::protocol::{Mode, Task};

/// The service's name for `tailplane ctl`.
pub const NAME: &str = "devices";
/// The service's address; the prefix is 24.
pub const ADDRESS: &str = "10.9.0.2";
/// The service's port.
pub const PORT: u16 = 11_211;
/// Longest time until a service is announced or refused: emulated, with a link that comes up anew.
pub const START_LIMIT: Duration = Duration::from_secs(40);
/// `dataplane.end_ms`: fifteen times the usual time, since the processors are that much slower at least.
pub const END_MS: u32 = 7500;
/// Longest time from SIGTERM to the end.
pub const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Chunks of packet memory of the usual service: few, since the guest has little memory.
pub const CHUNKS: u32 = 4096;
/// Bytes of an output that an error quotes.
const QUOTED_BYTES: usize = 400;

/// What a service is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Elastic threads.
    pub threads: u32,
    /// `dataplane.domain`; absent: the product's own choice.
    pub domain: Option<&'static str>,
    /// `dataplane.scheduler`; absent: the product's own choice.
    pub scheduler: Option<&'static str>,
    /// `memory.chunks`; absent: the product's own choice.
    pub chunks: Option<u32>,
    /// The last part of its address.
    pub host: u8,
    /// `network.mode`, in place of the task's.
    pub mode: Option<Mode>,
}

impl Config {
    /// The usual one.
    pub fn with_threads(threads: u32) -> Self {
        Self { threads, domain: None, scheduler: None, chunks: Some(CHUNKS), host: 2, mode: None }
    }

    /// The configuration's file. Its last table is `[control]`.
    pub fn text(&self, demanded: Option<Mode>) -> String {
        let key = |name: &str, value: Option<String>| {
            value.map_or(String::new(), |value| format!("{name} = \"{value}\"\n"))
        };
        let name = if self.host == 2 { NAME.to_owned() } else { format!("{NAME}-{}", self.host) };
        let chunks = self.chunks.map_or(String::new(), |chunks| format!("chunks = {chunks}\n"));
        [
            "[service]\napp = \"kv\"\n[network]\n".to_owned(),
            key("interface", Some(DATAPLANE.to_owned())),
            key("address", Some(format!("10.9.0.{}/24", self.host))),
            key("mode", self.mode.or(demanded).map(|mode| mode.to_string())),
            format!("[dataplane]\nthreads = {}\nend_ms = {END_MS}\n", self.threads),
            key("domain", self.domain.map(str::to_owned)),
            key("scheduler", self.scheduler.map(str::to_owned)),
            format!("[memory]\n{chunks}huge_pages = \"no\"\n[control]\n"),
            key("name", Some(name)),
        ]
        .concat()
    }
}

/// A service that runs; dropped, it ends.
#[derive(Debug)]
pub struct Service {
    child: Child,
    output: OutputFile,
    /// How frames travel, as it was announced.
    pub driver: String,
    /// Whether the link was up when it was announced.
    pub had_carrier: bool,
}

/// How a service ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status; absent where it had to be killed.
    pub status: Option<ExitStatus>,
    /// All that it printed.
    pub output: String,
}

impl Ended {
    /// The status, in words.
    pub fn how(&self) -> String {
        match self.status {
            Some(status) => format!("ended with {status}"),
            None => "had to be killed".to_owned(),
        }
    }
}

impl Service {
    /// Starts one and waits for its announcement.
    ///
    /// # Errors
    /// It ended, or announced nothing in time: with what it printed.
    pub fn start(task: &Task, config: &Config) -> anyhow::Result<Self> {
        let mut service = Self::begin(task, config)?;
        let mut ended = None;
        let mut said = String::new();
        wait_until(START_LIMIT, || {
            ended = service.child.try_wait().ok().flatten();
            said = service.output.text();
            ended.is_some() || announced_driver(&said).is_some()
        });
        service.had_carrier = has_carrier();
        match (announced_driver(&said), ended) {
            (Some(driver), None) => service.driver = driver,
            (_, Some(status)) => {
                bail!("it ended with {status}: {}", quoted(&service.output.text()))
            }
            (None, None) => {
                let limit_s = START_LIMIT.as_secs();
                bail!("announced nothing within {limit_s} s, and printed: {}", quoted(&said));
            }
        }
        Ok(service)
    }

    /// Starts one and waits for nothing.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn begin(task: &Task, config: &Config) -> anyhow::Result<Self> {
        let file = format!("/tmp/{NAME}-{}.toml", config.host);
        fs::write(&file, config.text(task.demanded)).context("writing the configuration")?;
        let mut command = Command::new("tailplane");
        command.args(["run", &file]);
        Self::spawn(command)
    }

    /// Starts one by this command.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn spawn(mut command: Command) -> anyhow::Result<Self> {
        let output = OutputFile::new()?;
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null());
        command.stdout(output.writer()?).stderr(output.writer()?);
        let child = command.spawn().context("cannot start `tailplane run`")?;
        Ok(Self { child, output, driver: String::new(), had_carrier: false })
    }

    /// Its process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed until now.
    pub fn output(&self) -> String {
        self.output.text()
    }

    /// Whether it has been announced.
    pub fn is_announced(&self) -> bool {
        self.output().contains("control ")
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Waits for its end, for `limit` at most, kills it then, and returns how it ended.
    pub fn wait(mut self, limit: Duration) -> Ended {
        let status = wait_for(&mut self.child, limit);
        Ended { status, output: self.output.text() }
    }

    /// Ends it by SIGTERM.
    pub fn terminate(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait(STOP_LIMIT)
    }

    /// Ends it by SIGKILL.
    pub fn kill(self) -> Ended {
        self.signal(Signal::KILL);
        self.wait(STOP_LIMIT)
    }

    fn signal(&self, signal: Signal) {
        // One that has ended needs none.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.has_ended() {
            self.signal(Signal::TERM);
            if wait_for(&mut self.child, STOP_LIMIT).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

/// What an announcement that is complete says of the driver.
fn announced_driver(output: &str) -> Option<String> {
    let field = |name: &str| {
        let line = output.lines().find_map(|line| line.trim_start().strip_prefix(name));
        line.map(|line| line.trim().to_owned())
    };
    field("control ")?;
    field("driver ")
}

/// What an output has of errors, else its end, on one line.
pub fn quoted(output: &str) -> String {
    let is_error = |line: &&str| {
        line.starts_with("tailplane: ") || line.starts_with("Error") || line.contains("panicked")
    };
    let errors: Vec<&str> = output.lines().filter(is_error).collect();
    let line = if errors.is_empty() { one_line(output) } else { one_line(&errors.join(" ")) };
    let from = line.len().saturating_sub(QUOTED_BYTES);
    let from = (from..line.len()).find(|&at| line.is_char_boundary(at)).unwrap_or(line.len());
    if line.is_empty() { "nothing".to_owned() } else { line[from..].to_owned() }
}

/// Packets that threads took, and those that they forwarded to each other, by the report at the end of a run:
/// `thread 0: 12 packets in, ... 3 forwarded`.
pub fn forwarded(output: &str) -> Option<(u64, u64)> {
    let lines =
        output.lines().filter(|line| line.starts_with("thread ") && line.contains(" packets in"));
    let before = |line: &str, word: &str| -> Option<u64> {
        let (before, _) = line.split_once(word)?;
        before.trim_end().rsplit([' ', ',']).next()?.parse().ok()
    };
    let counts = lines.map(|line| Some((before(line, "packets in")?, before(line, "forwarded")?)));
    let counts: Vec<(u64, u64)> = counts.collect::<Option<_>>()?;
    if counts.is_empty() {
        return None;
    }
    Some(counts.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_complete_with_its_control_socket() {
        let begun = "Kv at 10.9.0.2:11211\n  driver     af_xdp copy, native XDP\n";
        assert_eq!(announced_driver(begun), None);
        let whole = format!("{begun}  threads    4\n  control    at /run/x.sock\n");
        assert_eq!(announced_driver(&whole).as_deref(), Some("af_xdp copy, native XDP"));
    }

    #[test]
    fn errors_are_quoted_before_the_end_of_an_output() {
        let failed = "Kv at x\ntailplane: it is taken\nthread 0: 1\n";
        assert_eq!(quoted(failed), "tailplane: it is taken");
        assert_eq!(quoted("Kv at x\n  thread  0\n"), "Kv at x thread 0");
        assert_eq!(quoted(""), "nothing");
        assert!(quoted(&"\u{e9}".repeat(300)).len() <= QUOTED_BYTES);
    }

    #[test]
    fn forwarded_packets_are_summed_over_threads() {
        let report = "thread 0: 10 packets in, 9 out, 1 cycles, 2 left, 0 reset, 3 forwarded\n  x: 1\n\
                      thread 1: 30 packets in, 9 out, 0 reset, 4 forwarded\n";
        assert_eq!(forwarded(report), Some((40, 7)));
        assert_eq!(forwarded("nothing"), None);
    }

    #[test]
    fn a_configuration_names_what_was_chosen() {
        let mut config = Config::with_threads(4);
        assert!(!config.text(None).contains("mode") && !config.text(None).contains("domain"));
        config.domain = Some("inline");
        let text = config.text(Some(Mode::Copy));
        assert!(
            text.contains("mode = \"copy\"\n") && text.contains("domain = \"inline\"\n"),
            "{text}"
        );
    }
}
