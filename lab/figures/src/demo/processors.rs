//! Where servers and clients run: the processor of each, and their priority.

use anyhow::Context;

/// The server's processor.
pub const SERVER_CPU: usize = 0;
/// The client's.
pub const CLIENT_CPU: usize = 1;
/// Both servers and the client run before everything else on the machine, in windows well below
/// the second after which the kernel throttles real-time threads.
pub const REALTIME: u8 = 1;

/// Pins the calling thread.
///
/// # Errors
/// The processor may not be used.
pub fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .with_context(|| format!("pinning a thread to processor {cpu}"))
}
