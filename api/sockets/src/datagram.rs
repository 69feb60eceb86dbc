//! A UDP socket: its port, and the datagrams that it holds.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use domain::{Calls, Full};
use wire::Endpoint;

/// Bytes of bookkeeping that each datagram counts for: an empty one takes some memory, too.
pub(crate) const EACH_BYTES: usize = 64;

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// `bind` waits for the dataplane's answer, or has not reported it yet.
    pub bind_unreported: bool,
    /// From whom alone datagrams come, and to whom they go.
    pub peer: Option<Endpoint>,
    pub received: VecDeque<(Endpoint, Vec<u8>)>,
    /// Payload bytes, and [`EACH_BYTES`].
    pub received_bytes: usize,
    pub unsent: VecDeque<(Endpoint, Vec<u8>)>,
    /// Payload bytes, and [`EACH_BYTES`].
    pub unsent_bytes: usize,
    pub reads_no_more: bool,
    pub sends_no_more: bool,
}

impl Datagrams {
    /// Sends what is queued, in order.
    pub fn issue(&mut self, local_port: u16, calls: &mut Calls<'_>) -> Result<(), Full> {
        while let Some((peer, bytes)) = self.unsent.front() {
            calls.udp_sendv(local_port, *peer, &[bytes])?;
            self.unsent_bytes -= bytes.len() + EACH_BYTES;
            self.unsent.pop_front();
        }
        Ok(())
    }
}
