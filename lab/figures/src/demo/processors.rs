//! Where servers and clients run: the processor of each, and their priority.

use measure::Places;

/// The server's processor.
pub const SERVER_CPU: usize = 0;
/// The client's.
pub const CLIENT_CPU: usize = 1;
/// Both servers and the client run before everything else on the machine, in windows well below
/// the second after which the kernel throttles real-time threads.
pub const REALTIME: u8 = 1;

/// The places of a window of two threads: one at the server's processor, one at the client's.
pub fn places() -> Places {
    Places::new([SERVER_CPU, CLIENT_CPU], REALTIME)
}
