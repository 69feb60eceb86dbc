//! A UDP socket: its port, and the datagrams that it holds.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use domain::{Calls, Cookie, Full, Transport};
use wire::Endpoint;

use crate::stream::PortState;

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    /// `None`: no port is open.
    pub port: Option<PortState>,
    /// The port was asked for by `bind`, which has not answered so yet.
    pub is_news: bool,
    /// From whom alone datagrams come, and to whom they go.
    pub peer: Option<Endpoint>,
    pub received: VecDeque<(Endpoint, Vec<u8>)>,
    pub received_bytes: usize,
    pub unsent: VecDeque<(Endpoint, Vec<u8>)>,
    pub unsent_bytes: usize,
    pub reads_no_more: bool,
    pub sends_no_more: bool,
}

impl Datagrams {
    /// Issues the calls that are due, in order.
    pub fn issue(
        &mut self,
        cookie: Cookie,
        local_port: u16,
        calls: &mut Calls<'_>,
    ) -> Result<(), Full> {
        if self.port == Some(PortState::Wanted) {
            calls.listen(cookie, Transport::Udp, local_port, 1)?;
            self.port = Some(PortState::Asked);
        }
        while let Some((peer, bytes)) = self.unsent.front() {
            calls.udp_sendv(local_port, *peer, &[bytes])?;
            self.unsent_bytes -= bytes.len();
            self.unsent.pop_front();
        }
        Ok(())
    }
}
