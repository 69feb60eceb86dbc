//! Who removes the labs of a process that was killed.
//!
//! A process that is killed (SIGKILL) cleans nothing up, and the next lab to be made may be made days later. So a command
//! that makes a lab for itself starts a guard first: this program once more, in a session of its own, which holds the
//! reading end of a pipe, and nothing else. When the pipe's other end is closed, however that process ended, the guard
//! removes the labs of processes that have died, and ends.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The command's name for it; not shown to users.
pub const COMMAND: &str = "guard";

/// A guard of this process's labs, until it is dropped. Drop the lab first.
#[derive(Debug)]
pub struct Guard {
    // In this order: the pipe is closed before the guard's end is waited for.
    pipe: Option<OwnedFd>,
    child: Child,
}

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// This program cannot be started again.
    pub fn start() -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("finding this program's file")?;
        let (reader, writer) =
            pipe_with(PipeFlags::CLOEXEC).context("making a pipe for the lab's guard")?;
        let mut command = Command::new(own);
        command.args(["lab", COMMAND]).stdin(Stdio::from(reader)).stdout(Stdio::null());
        // What is sent to the terminal's processes is not for it.
        command.process_group(0);
        let child = command.spawn().context("starting the lab's guard")?;
        Ok(Self { pipe: Some(writer), child })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        // It ends by itself, and soon.
        let _ = self.child.wait();
    }
}

/// The guard's own part: waits until its standard input is closed, and removes what dead processes have left.
///
/// # Errors
/// The record of labs cannot be locked.
pub fn keep() -> anyhow::Result<()> {
    let mut byte = [0u8];
    loop {
        match rustix::io::read(std::io::stdin(), &mut byte) {
            Err(Errno::INTR) => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    super::remove_leftovers().context("removing the labs of processes that were killed")
}
