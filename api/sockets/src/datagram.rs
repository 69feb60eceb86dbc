//! A UDP socket: its port, and the datagrams that it holds.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use domain::{Calls, Full, LocalEndpoint};
use wire::Endpoint;

/// Bytes of bookkeeping that each datagram counts for: an empty one takes some memory, too.
pub(crate) const EACH_BYTES: usize = 64;

/// A datagram, with the ends that it is between.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub local: LocalEndpoint,
    pub peer: Endpoint,
    pub bytes: Vec<u8>,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// `bind` waits for the dataplane's answer, or has not reported it yet.
    pub bind_unreported: bool,
    /// From whom alone datagrams come, and to whom they go.
    pub peer: Option<Endpoint>,
    pub received: VecDeque<Datagram>,
    /// Payload bytes, and [`EACH_BYTES`].
    pub received_bytes: usize,
    pub unsent: VecDeque<Datagram>,
    /// Payload bytes, and [`EACH_BYTES`].
    pub unsent_bytes: usize,
    /// The ends of the datagram that was read last.
    pub last_read: Option<(LocalEndpoint, Endpoint)>,
    pub reads_no_more: bool,
    pub sends_no_more: bool,
}

impl Datagrams {
    /// From where a datagram leaves: what answers the datagram that was read last from the address to which that came
    /// (RFC 1122 §4.1.3.5), any other from the end that the socket is `bound` to.
    pub fn source_to(&self, peer: Endpoint, bound: LocalEndpoint) -> LocalEndpoint {
        self.last_read.filter(|(_, of)| *of == peer).map_or(bound, |(local, _)| local)
    }

    /// Sends what is queued, in order.
    pub fn issue(&mut self, calls: &mut Calls<'_>) -> Result<(), Full> {
        while let Some(Datagram { local, peer, bytes }) = self.unsent.front() {
            calls.udp_sendv(*local, *peer, &[bytes])?;
            self.unsent_bytes -= bytes.len() + EACH_BYTES;
            self.unsent.pop_front();
        }
        Ok(())
    }
}
