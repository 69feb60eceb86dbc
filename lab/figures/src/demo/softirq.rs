//! The kernel's deferred packet work above our spinning threads.
//!
//! On a virtual device a packet is received inside the sender's system call, but the kernel bounds
//! that and leaves the rest to its `ksoftirqd` threads. Below a real-time thread that spins they would
//! wait for the end of the window: both servers and the client would see stalls that no machine with
//! a NIC has. For the time of the demo they run above.

use std::fs;
use std::process::{Command, Stdio};

use super::processors::REALTIME;
use service::cleanup::{self, Registration};

/// `ksoftirqd` at real-time priority, until dropped.
#[derive(Debug)]
pub struct Raised {
    pids: Vec<String>,
    _registration: Registration,
}

impl Drop for Raised {
    fn drop(&mut self) {
        lower(&self.pids);
    }
}

/// Raises all of them. `None` where none was found or the machine does not allow it: conditions say
/// so.
pub fn raise() -> Option<Raised> {
    let pids: Vec<String> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter(|entry| {
            let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            name.starts_with("ksoftirqd/")
        })
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let to_lower = pids.clone();
    let registration = cleanup::register(move || lower(&to_lower)).ok()?;
    let raised = Raised { pids, _registration: registration };
    let priority = (REALTIME + 1).to_string();
    let all = raised.pids.iter().all(|pid| chrt(&["-f", "-p", &priority, pid]));
    (all && !raised.pids.is_empty()).then_some(raised)
}

/// Back to the ordinary priority that the kernel starts them with.
fn lower(pids: &[String]) {
    for pid in pids {
        // Nothing can be done about one that has gone.
        let _ = chrt(&["-o", "-p", "0", pid]);
    }
}

fn chrt(arguments: &[&str]) -> bool {
    let mut command = Command::new("chrt");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
