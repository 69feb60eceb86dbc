//! The service behind its event and call arrays, with peers that a test makes read, or not.

use clock::{Duration, Instant};
use domain::{
    BufferRef, CallArray, CallRecord, Calls, Cookie, DeadReason, EventArray, EventRecord, Handle,
    Service,
};
use kv::KvProtocol;
use mem::{Pool, Region};
use tailplane::{Endpoint, Ipv4Addr, Server};

/// Bytes of one received segment.
pub const SEGMENT_BYTES: usize = 1_448;
/// What a peer may send ahead of the application.
pub const RECEIVE_WINDOW_BYTES: usize = 256 << 10;
/// Packet buffers of the rig.
const CHUNKS: u32 = 8_192;

/// What a peer still has to send, and what it has seen.
#[derive(Debug, Default)]
pub struct Peer {
    cookie: u64,
    pub accepted: bool,
    /// Bytes that the service may send it.
    pub window: u32,
    /// Bytes that came from the service, if the peer keeps them.
    pub read: Vec<u8>,
    pub read_bytes: u64,
    /// Bytes that the service has not given back.
    pub unreturned: usize,
    to_send: Vec<u8>,
    pub ended: bool,
    again: bool,
}

/// One elastic thread's service and all of its peers.
pub struct Rig {
    pub server: Server<KvProtocol>,
    pub peers: Vec<Peer>,
    pub now: Instant,
    pool: Pool,
    events: EventArray,
    calls: CallArray,
    /// Peers whose connections the service asked for again.
    asked: Vec<usize>,
    /// Whether peers keep what they read, or only count it.
    pub keeps: bool,
}

impl Rig {
    pub fn new(protocol: KvProtocol) -> Self {
        let region = Region::heap(CHUNKS);
        Self {
            server: Server::new(protocol),
            peers: Vec::new(),
            now: Instant::from_millis(1),
            pool: Pool::new(&region, CHUNKS as usize),
            events: EventArray::growing(),
            calls: CallArray::growing(4_096, SEGMENT_BYTES),
            asked: Vec::new(),
            keeps: true,
        }
    }

    /// A new connection of a peer that grants `window` bytes. Answers its number.
    pub fn open(&mut self, window: u32) -> usize {
        let number = self.peers.len();
        self.peers.push(Peer { window, ..Peer::default() });
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 1_024);
        let handle = handle(number);
        self.event(
            EventRecord::Knock {
                handle,
                local: 11_211.into(),
                peer,
                window: domain::FirstWindow::new(window),
            },
            None,
        );
        self.turn();
        assert!(self.peers[number].accepted, "connection {number} was not accepted");
        number
    }

    /// The peer sends these bytes as far as the receive window lets it, and the rest later.
    pub fn send(&mut self, number: usize, bytes: &[u8]) {
        self.peers[number].to_send.extend_from_slice(bytes);
        self.transmit(number);
    }

    /// The peer sends these bytes and resets its connection before the service has had a turn.
    pub fn send_and_reset(&mut self, number: usize, bytes: &[u8]) {
        let peer = &mut self.peers[number];
        peer.ended = true;
        let (handle, cookie, window) = (handle(number), Cookie(peer.cookie), peer.window);
        for segment in bytes.chunks(SEGMENT_BYTES) {
            peer.unreturned += segment.len();
            let mut mbuf = self.pool.alloc().expect("a chunk");
            mbuf.append(segment).expect("a segment fits a chunk");
            let buffer = BufferRef { index: 0 };
            let record = EventRecord::Recv { handle, cookie, buffer, acked: 0, window };
            assert!(self.events.append(record, Some((Some(handle), mbuf))).is_ok());
        }
        self.event(EventRecord::Dead { handle, cookie, reason: DeadReason::Reset }, None);
        self.turn();
    }

    fn transmit(&mut self, number: usize) {
        while let peer = &mut self.peers[number]
            && !peer.ended
            && !peer.to_send.is_empty()
            && peer.unreturned < RECEIVE_WINDOW_BYTES
        {
            let room = RECEIVE_WINDOW_BYTES - peer.unreturned;
            let count = peer.to_send.len().min(SEGMENT_BYTES).min(room);
            let segment: Vec<u8> = peer.to_send.drain(..count).collect();
            peer.unreturned += count;
            let (cookie, window) = (Cookie(peer.cookie), peer.window);
            let mut mbuf = self.pool.alloc().expect("a chunk");
            mbuf.append(&segment).expect("a segment fits a chunk");
            let (handle, buffer) = (handle(number), BufferRef { index: 0 });
            let record = EventRecord::Recv { handle, cookie, buffer, acked: 0, window };
            assert!(self.events.append(record, Some((Some(handle), mbuf))).is_ok());
            self.turn();
        }
    }

    /// The peer takes `bytes` more.
    pub fn read(&mut self, number: usize, bytes: u32) {
        let peer = &mut self.peers[number];
        if peer.ended {
            return;
        }
        peer.window += bytes;
        let (cookie, window) = (Cookie(peer.cookie), peer.window);
        self.event(EventRecord::Sent { handle: handle(number), cookie, bytes, window }, None);
        self.turn();
        self.transmit(number);
    }

    /// Time passes; the service runs when it wants to.
    pub fn rest(&mut self, time: Duration) {
        let until = self.now + time;
        for _ in 0..10_000_000 {
            match self.server.wake_at() {
                Some(at) if at <= until => self.now = self.now.max(at),
                _ => break,
            }
            self.turn();
        }
        self.now = until;
    }

    fn event(&mut self, record: EventRecord, buffer: Option<domain::Received>) {
        assert!(self.events.append(record, buffer).is_ok(), "a growing array has room");
    }

    /// A batch, and the batches that it asks for.
    pub fn turn(&mut self) {
        self.batch();
        for _ in 0..1_000_000 {
            let waiting = std::mem::take(&mut self.asked);
            if waiting.is_empty() && self.events.is_empty() {
                return;
            }
            for number in waiting {
                let peer = &mut self.peers[number];
                peer.again = false;
                if peer.ended {
                    continue;
                }
                let (cookie, window) = (Cookie(peer.cookie), peer.window);
                self.event(EventRecord::Again { handle: handle(number), cookie, window }, None);
            }
            self.batch();
        }
        panic!("the service asks for its connections again and again");
    }

    fn batch(&mut self) {
        let mut calls = Calls::new(&mut self.calls, &mut self.pool);
        self.server.on_batch(self.now, self.events.view(&()), &mut calls);
        for (_, mbuf) in self.events.drain() {
            self.pool.free(mbuf);
        }
        let (records, mut payloads) = self.calls.take();
        for record in &records {
            self.execute(record, &mut payloads);
        }
        self.calls.restore(records, payloads);
    }

    fn execute(&mut self, record: &CallRecord, payloads: &mut Vec<(mem::Mbuf, wire::Sum)>) {
        match *record {
            CallRecord::Accept { handle, cookie } => {
                let peer = &mut self.peers[handle.slot() as usize];
                (peer.accepted, peer.cookie) = (true, cookie.0);
            }
            CallRecord::Sendv { handle, staged } => {
                let peer = &mut self.peers[handle.slot() as usize];
                for (mbuf, _) in payloads.drain(..staged.count as usize) {
                    assert!(mbuf.len() as u32 <= peer.window, "more than the window");
                    peer.window -= mbuf.len() as u32;
                    peer.read_bytes += mbuf.len() as u64;
                    if self.keeps {
                        peer.read.extend_from_slice(mbuf.bytes());
                    }
                    self.pool.free(mbuf);
                }
            }
            CallRecord::RecvDone { handle, bytes } => {
                let peer = &mut self.peers[handle.slot() as usize];
                peer.unreturned = peer
                    .unreturned
                    .checked_sub(bytes as usize)
                    .expect("no more is given back than was received");
            }
            CallRecord::Close { handle } | CallRecord::Abort { handle } => {
                let peer = &mut self.peers[handle.slot() as usize];
                if peer.accepted && !peer.ended {
                    peer.ended = true;
                    peer.to_send = Vec::new();
                    let (cookie, reason) = (Cookie(peer.cookie), DeadReason::Aborted);
                    self.event(EventRecord::Dead { handle, cookie, reason }, None);
                }
            }
            CallRecord::Again { handle } => {
                let number = handle.slot() as usize;
                if !std::mem::replace(&mut self.peers[number].again, true) {
                    self.asked.push(number);
                }
            }
            CallRecord::Connect { .. }
            | CallRecord::Shutdown { .. }
            | CallRecord::SendvPlaced { .. }
            | CallRecord::Listen { .. }
            | CallRecord::Unlisten { .. }
            | CallRecord::Inform { .. }
            | CallRecord::UdpSendv { .. } => panic!("the service does not {record:?}"),
        }
    }
}

fn handle(number: usize) -> Handle {
    Handle::new(1, number as u32, 1)
}
