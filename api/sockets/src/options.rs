//! What a socket keeps of its options. Setting and getting them is in `option_calls`.

use clock::Duration;

/// Linux's default of a stream's send buffer once it has grown a little (`net.core.wmem_default`).
pub(crate) const SEND_BYTES: u32 = 212_992;
/// Linux's smallest send buffer (`SOCK_MIN_SNDBUF`), and its smallest receive buffer.
pub(crate) const LEAST_BYTES: u32 = 4_608;
/// Linux's largest value of either (`net.core.wmem_max`, `rmem_max`), which it doubles.
pub(crate) const MOST_BYTES: u32 = 212_992;

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub reuse_address: bool,
    pub reuse_port: bool,
    /// Bytes that may be queued and not acknowledged (stream), or not sent (datagrams).
    pub send_bytes: u32,
    /// Bytes of datagrams that may wait to be read.
    pub receive_bytes: u32,
    /// How long `close` waits; zero: it resets.
    pub linger: Option<Duration>,
    /// Short segments do not wait for acknowledgments (Nagle's algorithm).
    pub no_delay: bool,
    /// Short segments wait for more to come.
    pub cork: bool,
}

impl Options {
    pub fn new() -> Self {
        let (send_bytes, receive_bytes) = (SEND_BYTES, MOST_BYTES);
        let (reuse_address, reuse_port, linger) = (false, false, None);
        let (no_delay, cork) = (false, false);
        Self { reuse_address, reuse_port, send_bytes, receive_bytes, linger, no_delay, cork }
    }
}
