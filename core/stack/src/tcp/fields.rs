//! The fields of a received segment.

use wire::{Endpoint, FlowKey, SackBlocks, SeqNumber, TcpFlags, Timestamp};

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
    /// Its packet was marked on the way (CE, RFC 3168 §5).
    pub is_marked: bool,
    pub timestamp: Option<Timestamp>,
    /// Only read where SYN is set.
    pub syn: SynOptions,
    /// What the peer has, and lacks others before it (RFC 2018).
    pub sack_blocks: SackBlocks,
}

/// Options that only a SYN carries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SynOptions {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub sack_permitted: bool,
}

/// Both ends of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    pub local: Endpoint,
    pub remote: Endpoint,
}

impl Segment {
    /// SEG.LEN: payload, SYN and FIN.
    #[inline]
    pub fn sequence_len(&self) -> u32 {
        self.payload_len
            + self.flags.contains(TcpFlags::SYN) as u32
            + self.flags.contains(TcpFlags::FIN) as u32
    }

    /// Whether it belongs to a connection and its sender repeats it until it is acknowledged: data, or a FIN.
    pub fn is_sent_again(&self) -> bool {
        let is_strange = self.flags.intersects(TcpFlags::SYN.union(TcpFlags::RST));
        !is_strange && self.sequence_len() > 0
    }

    /// Whether it is in the receive window of `window` bytes from `rcv_nxt` on: the four cases of RFC 9293 §3.10.7.4,
    /// first. A segment without data may also stand at the right edge: a peer that has filled the window acknowledges
    /// from there, and if what filled it was lost, nothing else that the peer sends would be heard until it is sent again.
    #[inline]
    pub fn is_in_window(&self, rcv_nxt: SeqNumber, window: i32) -> bool {
        let ahead = self.seq - rcv_nxt;
        let len = self.sequence_len() as i32;
        if len == 0 {
            return ahead >= 0 && ahead <= window;
        }
        let end = ahead.wrapping_add(len - 1);
        // A window of zero still takes the ACK of a segment that is right in sequence.
        (ahead >= 0 && ahead < window.max(1)) || (end >= 0 && end < window)
    }
}
