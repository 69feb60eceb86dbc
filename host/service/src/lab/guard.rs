//! Who removes the labs of a process that was killed.
//!
//! A process that is killed (SIGKILL) cleans nothing up, and the next lab to be made may be made days later. So a command
//! that makes a lab for itself starts a guard first: this program once more, in a session of its own, which holds the
//! reading end of a pipe, and nothing else. When the pipe's other end is closed and the process is dead, however it
//! ended, the guard removes the labs of processes that have died, and ends. A process that ends in order says so in the
//! pipe, and removes its lab itself.

use std::fs::File;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::pipe::{PipeFlags, pipe_with};

use super::removal::remove_leftovers;
use super::state::Owner;

/// The command's name for it; not shown to users.
pub const COMMAND: &str = "guard";

/// A process that has closed its files is dead within this time, or its labs wait for the next to be made.
const DYING_MAX: Duration = Duration::from_secs(30);

/// A guard of this process's labs, until it is dropped. Drop the lab first.
#[derive(Debug)]
pub struct Guard {
    // In this order: the pipe is closed before the guard's end is waited for.
    pipe: Option<File>,
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
        let mut guard = Self { pipe: Some(File::from(writer)), child };
        let owner = serde_json::to_string(&Owner::this_process()).context("naming this process")?;
        guard.say(&owner).context("telling the lab's guard whom it guards")?;
        Ok(guard)
    }

    fn say(&mut self, line: &str) -> std::io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(format!("{line}\n").as_bytes()))
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A guard that is not there any more cannot be told, nor waited for.
        let _ = self.say("done");
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
    if has_ended_in_order(std::io::stdin().lock()) {
        return Ok(());
    }
    remove_leftovers().context("removing the labs of processes that were killed")
}

/// Waits until the process is gone that holds the pipe's other end. False: it was killed.
///
/// A process that is killed closes its files some time before it is dead, and the labs of a living one are not removed.
fn has_ended_in_order(pipe: impl BufRead) -> bool {
    // A line that is torn is as good as the pipe's end.
    let mut lines = pipe.lines().map_while(Result::ok);
    let ward: Option<Owner> = lines.next().and_then(|line| serde_json::from_str(&line).ok());
    if lines.next().is_some() {
        return true;
    }
    let deadline = Instant::now() + DYING_MAX;
    while ward.is_some_and(|ward| ward.is_alive()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe(owner: Owner, rest: &str) -> Vec<u8> {
        format!("{}\n{rest}", serde_json::to_string(&owner).unwrap()).into_bytes()
    }

    #[test]
    fn a_ward_whose_files_are_closed_is_waited_for_until_it_is_dead() {
        let mut ward = Command::new("sleep").arg("60").spawn().expect("sleep");
        let owner = Owner::of(ward.id()).expect("it runs");
        std::thread::scope(|scope| {
            let guard = scope.spawn(|| has_ended_in_order(&pipe(owner, "")[..]));
            std::thread::sleep(Duration::from_millis(50));
            let waited = !guard.is_finished();
            // Nobody asks for its status yet: dead all the same.
            ward.kill().expect("it is ours");
            assert!(!guard.join().expect("no panic"), "it was killed");
            assert!(waited && !owner.is_alive());
        });
        ward.wait().expect("it is ours");
    }

    #[test]
    fn a_ward_that_takes_its_leave_is_not_waited_for() {
        let living = Owner::this_process();
        assert!(has_ended_in_order(&pipe(living, "done\n")[..]));
        assert!(!has_ended_in_order(&b"{"[..]));
        assert!(!has_ended_in_order(&b""[..]));
    }
}
