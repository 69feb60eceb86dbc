//! When the attacker may, and when it is quiet.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

/// Between two looks.
const LOOK: Duration = Duration::from_micros(500);

/// Shared by who attacks and who measures.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    over: AtomicBool,
    present: Mutex<Option<Pid>>,
}

impl Gate {
    fn signal(&self, signal: Signal) {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = *present {
            // One that has just ended needs none.
            let _ = kill_process_group(group, signal);
        }
    }

    /// The attacker of this process group is there.
    pub fn is_there(&self, group: Option<Pid>) {
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = group;
        if self.closed.load(Ordering::Relaxed) {
            self.signal(Signal::STOP);
        }
    }

    /// There is no attacker.
    pub fn is_gone(&self) {
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Stops the attacker, and lets nobody begin.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn open(&self) {
        self.closed.store(false, Ordering::Relaxed);
        self.signal(Signal::CONT);
    }

    /// Waits while it is closed.
    pub fn pass(&self) {
        while self.closed.load(Ordering::Relaxed) && !self.is_over() {
            std::thread::sleep(LOOK);
        }
    }

    /// Ends the attack.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Whether it is to end.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// Ends the attack at the end of a scope, however that comes.
pub struct Ends<'a>(pub &'a Gate);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
        self.0.open();
    }
}
