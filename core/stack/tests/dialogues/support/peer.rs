//! The far end of a connection, as a script writes it.

use wire::{Endpoint, SeqNumber, TcpFlags, TcpOptions, Timestamp};

use super::{PEER_IP, PORT, STACK_IP, Seg, World, pattern};

/// What a peer's SYN offers, and the window that it announces.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
    pub timestamp: Option<u32>,
    pub sack: bool,
    pub ecn: bool,
    pub window: u16,
}

impl Default for Open {
    /// No options but the MSS: the sequence numbers of a script are then easy to follow.
    fn default() -> Self {
        let (mss, window_scale, timestamp, window) = (Some(1460), None, None, 65_535);
        Self { mss, window_scale, timestamp, sack: false, ecn: false, window }
    }
}

impl Open {
    /// The options of the SYN.
    pub fn options(&self) -> TcpOptions {
        TcpOptions {
            mss: self.mss,
            window_scale: self.window_scale,
            timestamp: self.timestamp.map(|value| Timestamp { value, echo: 0 }),
            sack_permitted: self.sack,
            ..TcpOptions::NONE
        }
    }
}

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Peer {
    pub here: Endpoint,
    pub there: Endpoint,
    /// The peer's initial sequence number.
    pub iss: SeqNumber,
    /// The stack's.
    pub irs: SeqNumber,
    /// What the following segments announce.
    pub window: u16,
    /// The peer's timestamp clock, where timestamps are in use, and what it echoes.
    pub timestamp: Option<(u32, u32)>,
    pub open: Open,
}

impl Peer {
    /// The peer at `port` that has said nothing yet. Its sequence numbers soon wrap around.
    pub fn new(port: u16, open: Open) -> Self {
        Self {
            here: Endpoint::new(PEER_IP, port),
            there: Endpoint::new(STACK_IP, PORT),
            iss: SeqNumber(0xffff_f000 ^ port as u32),
            irs: SeqNumber(0),
            window: open.window,
            timestamp: None,
            open,
        }
    }

    /// A segment with ACK, at these relative numbers.
    pub fn seg(&self, seq: u32, ack: u32) -> Seg {
        let timestamp = self.timestamp.map(|(value, echo)| Timestamp { value, echo });
        Seg {
            src: self.here,
            dst: self.there,
            seq: self.iss + seq,
            ack: self.irs + ack,
            flags: TcpFlags::ACK,
            window: self.window,
            options: TcpOptions { timestamp, ..TcpOptions::NONE },
            payload: Vec::new(),
            stream_offset: (seq as usize).wrapping_sub(1) % 251,
            ttl: 64,
            dscp: 0,
            ecn: 0,
        }
    }

    /// An acknowledgment that says which bytes of ours have come ahead of a gap, or twice.
    pub fn sack(&self, seq: u32, ack: u32, blocks: &[(u32, u32)]) -> Seg {
        let mut seg = self.seg(seq, ack);
        let blocks = blocks.iter().map(|&(left, right)| (self.irs + left, self.irs + right));
        seg.options.sack_blocks = blocks.collect();
        seg
    }

    /// The blocks of the peer's bytes that a segment of the stack tells of.
    pub fn blocks(&self, seg: &Seg) -> Vec<(i32, i32)> {
        let blocks = seg.options.sack_blocks.as_slice().iter();
        blocks.map(|&(left, right)| (left - self.iss, right - self.iss)).collect()
    }

    /// The SYN.
    pub fn syn(&self) -> Seg {
        let flags = if self.open.ecn { "SEW" } else { "S" };
        let mut syn = self.seg(0, 0).flags(flags).options(self.open.options());
        syn.ack = SeqNumber(0);
        syn.window = self.open.window;
        syn
    }

    /// A segment of the stack in tcpdump's notation, with its payload checked.
    pub fn text(&self, seg: &Seg) -> String {
        let letters: String = [
            ('S', TcpFlags::SYN),
            ('F', TcpFlags::FIN),
            ('R', TcpFlags::RST),
            ('E', TcpFlags::ECE),
            ('W', TcpFlags::CWR),
            ('.', TcpFlags::ACK),
        ]
        .into_iter()
        .filter(|&(_, flag)| seg.flags.contains(flag))
        .map(|(letter, _)| letter)
        .collect();
        let seq = seg.seq - self.irs;
        let mut text = format!("{letters} {seq}");
        if !seg.payload.is_empty() {
            let len = seg.payload.len();
            text += &format!(":{}({len})", seq + len as i32);
            let expected = pattern((seq - 1) as usize, len);
            assert!(seg.payload == expected, "the bytes of {text} are those of the stream");
        }
        if seg.flags.contains(TcpFlags::ACK) {
            text += &format!(" ack {}", seg.ack - self.iss);
        }
        text
    }

    /// The handshake up to the stack's SYN-ACK, whose number the peer learns.
    pub fn knock(world: &mut World, port: u16, open: Open) -> (Self, Seg) {
        let mut peer = Self::new(port, open);
        world.hear(&peer.syn());
        let answers = world.segments();
        let [syn_ack] = &answers[..] else { panic!("one answer to a SYN: {answers:?}") };
        assert!(syn_ack.flags.contains(TcpFlags::SYN | TcpFlags::ACK), "{syn_ack:?}");
        peer.irs = syn_ack.seq;
        if let (Some(value), Some(answer)) = (open.timestamp, syn_ack.options.timestamp) {
            assert_eq!(answer.echo, value);
            peer.timestamp = Some((value, answer.value));
        }
        (peer, syn_ack.clone())
    }

    /// An established connection; the application of `world` has accepted it.
    pub fn establish(world: &mut World, port: u16, open: Open) -> Self {
        let (peer, _) = Self::knock(world, port, open);
        world.hear(&peer.seg(1, 1));
        world.silent();
        let told = world.told();
        assert!(matches!(told[..], [super::Told::Knock { .. }]), "{told:?}");
        peer
    }
}
