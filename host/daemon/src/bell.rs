//! Wakes a thread that polls: an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// Rings from any thread; its descriptor is readable until it is heard.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// One that has not rung.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Wakes whoever polls.
    pub fn ring(&self) {
        // It fails only where it has rung 2^64 - 2 times unheard: it is readable then.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// It was heard.
    pub fn hear(&self) {
        // Nothing to read: it has not rung.
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
