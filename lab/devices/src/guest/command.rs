//! Programs that the guest runs, each within a time, and waits that end.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// A program that has not ended after this time is killed: `ip`, `ethtool` and the like take milliseconds.
pub const LIMIT: Duration = Duration::from_secs(20);
/// How often to look.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `is_so`, for `limit` at most, and returns whether it became so.
pub fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Waits until a program ends; `None`: it has not after `limit`.
pub fn wait_for(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let mut status = None;
    wait_until(limit, || {
        status = child.try_wait().ok().flatten();
        status.is_some()
    });
    status
}

/// Runs a program with its arguments, separated by blanks, and returns its standard output.
///
/// # Errors
/// It cannot be started, fails, or does not end: with all that it printed.
pub fn run(line: &str) -> anyhow::Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    run_words(&words, LIMIT)
}

/// Runs a program within `limit`, and returns its standard output.
///
/// # Errors
/// As [`run`].
pub fn run_words(words: &[&str], limit: Duration) -> anyhow::Result<String> {
    let line = words.join(" ");
    let (program, arguments) = words.split_first().context("no program")?;
    let (out, err) = (OutputFile::new()?, OutputFile::new()?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out.writer()?).stderr(err.writer()?);
    let mut child = command.spawn().with_context(|| format!("cannot start `{line}`"))?;
    let Some(status) = wait_for(&mut child, limit) else {
        child.kill()?;
        child.wait()?;
        bail!("`{line}` did not end within {} s: {}", limit.as_secs(), one_line(&err.text()));
    };
    if !status.success() {
        let printed = format!("{} {}", out.text(), err.text());
        bail!("`{line}` ended with {status}: {}", one_line(&printed));
    }
    Ok(out.text())
}

/// A text with single blanks between its words.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// A file for a program's output: a pipe that is not read would fill.
#[derive(Debug)]
pub struct OutputFile(File);

impl OutputFile {
    /// Makes one.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self(tempfile::tempfile().context("making a file for output")?))
    }

    /// What the program writes to.
    ///
    /// # Errors
    /// The descriptor cannot be copied.
    pub fn writer(&self) -> anyhow::Result<Stdio> {
        Ok(Stdio::from(self.0.try_clone()?))
    }

    /// What was written until now; nothing where it cannot be read. The offset, which the program shares, stays.
    pub fn text(&self) -> String {
        let mut bytes = vec![0; self.0.metadata().map_or(0, |file| file.len() as usize)];
        let read = self.0.read_exact_at(&mut bytes, 0);
        read.map_or(String::new(), |()| String::from_utf8_lossy(&bytes).into_owned())
    }
}
