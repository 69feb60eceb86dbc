//! What an application started and did not wait for: with it, it ends.
//!
//! A process whose parent ends becomes the child of its nearest ancestor that adopts (`PR_SET_CHILD_SUBREAPER`). The
//! starter does, so that whatever an application leaves behind is found among the starter's own children.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::Context;
use control::sysfs::stat_field;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

/// How long it is tried. A chain of processes of which each starts the next can go on for longer: a starter that is root
/// ends those with their PID namespace.
const WITHIN: Duration = Duration::from_millis(500);
/// How often somebody looks whether they have ended.
const LOOK: Duration = Duration::from_millis(2);

/// Adopts what is started from now on, and ends what is left of it.
#[derive(Debug)]
pub struct Orphans {
    /// Children that were there before, and are others' business.
    before: BTreeSet<i32>,
}

impl Orphans {
    /// From now on this process adopts.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn adopt() -> anyhow::Result<Self> {
        set_child_subreaper(Some(getpid()))
            .context("adopting what the application leaves behind")?;
        Ok(Self { before: children() })
    }

    /// Ends all children that came since, and those of theirs that are adopted then. To be called when nobody waits for
    /// any of them any more. Answers how many there were.
    pub fn end(self) -> usize {
        let began = Instant::now();
        let mut ended = BTreeSet::new();
        loop {
            let left: Vec<i32> = children().difference(&self.before).copied().collect();
            if left.is_empty() || began.elapsed() > WITHIN {
                return ended.len();
            }
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                ended.insert(pid.as_raw_nonzero().get());
                // A child keeps its number until it is waited for, which only happens here.
                let _ = kill_process(pid, Signal::KILL);
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The children of this process.
fn children() -> BTreeSet<i32> {
    let own = getpid().as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|&pid| parent(pid) == Some(own)).collect()
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat_field(&stat, 1)?.parse().ok()
}
