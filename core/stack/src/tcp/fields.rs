//! The fields of a received segment.

use wire::{Endpoint, FlowKey, SeqNumber, TcpFlags, Timestamp};

/// What a received segment says. Its payload is the mbuf beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// RSS hash of the packet.
    pub hash: u32,
    pub flow: FlowKey,
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    pub flags: TcpFlags,
    pub window: u16,
    pub payload_len: u32,
    pub timestamp: Option<Timestamp>,
    /// Only read where SYN is set.
    pub syn: SynOptions,
}

/// Options that only a SYN carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SynOptions {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
}

impl Segment {
    /// The peer.
    pub fn remote(&self) -> Endpoint {
        self.flow.remote()
    }

    /// SEG.LEN: payload, SYN and FIN.
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        self.payload_len
            + self.flags.contains(TcpFlags::SYN) as u32
            + self.flags.contains(TcpFlags::FIN) as u32
    }
}
