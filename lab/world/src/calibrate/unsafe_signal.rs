//! A signal to one thread: the kick of a scheduler on stock Linux.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// The handler has run.
static KICKED: AtomicBool = AtomicBool::new(false);

/// A thread to be kicked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target(libc::pid_t);

/// A real-time signal that the C library leaves free.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

extern "C" fn on_kick(_: libc::c_int) {
    // Nothing but a store: allowed in a handler wherever it interrupts.
    KICKED.store(true, Ordering::Release);
}

/// Installs the handler, for the whole process.
///
/// # Errors
/// What the operating system said.
pub(super) fn install() -> io::Result<()> {
    // SAFETY: all zeros is a valid `sigaction` (no flags, an empty mask); the handler is async-signal-safe
    // and lives as long as the program.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(libc::c_int) = on_kick;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal(), &raw const action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The calling thread.
pub(super) fn this_thread() -> Target {
    Target(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Whether this process was kicked since the last call.
pub(super) fn take() -> bool {
    KICKED.load(Ordering::Relaxed) && KICKED.swap(false, Ordering::Acquire)
}

impl Target {
    /// Sends the signal. A thread that has ended is not an error: nobody is kicked.
    pub(super) fn kick(self) {
        // SAFETY: the call takes numbers only, and the signal has a handler or, before `install`, is never
        // sent: targets are made by threads that wait for it.
        unsafe {
            libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, signal());
        }
    }
}
