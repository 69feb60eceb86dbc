//! A script of the host's, or a shell on the console, in place of the checks.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::channel::Channel;
use crate::protocol::{Event, SCRIPT_FILE};

const CONSOLE: &str = "/dev/ttyS0";

/// Runs the script, and sends what it prints.
///
/// # Errors
/// The shell cannot be started.
pub fn run(channel: &Channel) -> anyhow::Result<()> {
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    let mut command = Command::new("sh");
    command.arg(SCRIPT_FILE).stdin(Stdio::null()).stderr(writer.try_clone()?).stdout(writer);
    let mut child = command.spawn().context("starting the shell")?;
    // The command holds the pipe's writing end.
    drop(command);
    let sending = channel.clone();
    // Programs that the script leaves behind hold the pipe open: the script's own end counts.
    let reading = std::thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            sending.send(&Event::Output { text });
        }
    });
    let status = child.wait().context("waiting for the script")?;
    super::command::wait_until(std::time::Duration::from_millis(500), || reading.is_finished());
    channel.send(&Event::Exit { status: status.code() });
    Ok(())
}

/// Runs a shell on the console until it ends.
///
/// # Errors
/// The shell cannot be started.
pub fn shell() -> anyhow::Result<()> {
    let console = File::options().read(true).write(true).open(CONSOLE).context("the console")?;
    let mut command = Command::new("sh");
    command.arg("-i").env("PS1", "guest# ");
    command.stdin(console.try_clone()?).stdout(console.try_clone()?).stderr(console);
    command.process_group(0);
    command.status().context("starting the shell")?;
    Ok(())
}
