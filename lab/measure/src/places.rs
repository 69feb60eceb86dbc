//! The processors and the priority of a window's two threads.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::window::{Side, WindowError, pin};

/// Where the two threads of a window run: each on its processor, before all ordinary threads where that is allowed.
#[derive(Debug)]
pub struct Places {
    cpus: [usize; 2],
    priority: u8,
    refused: AtomicBool,
}

impl Places {
    /// The consumer's processor and the other thread's, and the real-time priority of both (1 to 99).
    pub fn new(cpus: [usize; 2], priority: u8) -> Self {
        Self { cpus, priority, refused: AtomicBool::new(false) }
    }

    /// Puts the calling thread in its place. Without the privilege for a real-time priority it keeps its own, and the
    /// windows' disturbances show it.
    ///
    /// # Errors
    /// The processor is not there, or not this process's.
    pub fn take(&self, side: Side) -> Result<(), WindowError> {
        pin(self.cpus[usize::from(side == Side::Other)])?;
        if runtime::set_realtime(self.priority).is_err() {
            self.refused.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether no thread was refused its priority.
    pub fn are_realtime(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }
}
