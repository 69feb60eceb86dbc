//! One connection after the other under a script of segments, calls and time: bytes become segments near the numbers that
//! both ends have reached, and calls of the application.
//!
//! What must hold after each step, whatever the script has: the stack acknowledges no byte that its peer has not sent, and
//! takes no acknowledgment and no window back; it sends no byte beyond the window; the application has the stream's bytes,
//! each once and in order; one segment has two answers at most. In the end every chunk of memory is back ([`World`]).
//!
//! The fuzzer runs the same interpreter.

use clock::Duration;
use domain::Handle;
use wire::TcpFlags;

use crate::support::{Open, Peer, Seg, Told, World, config, pattern};

/// Bytes of a script that are carried out.
const MAX_SCRIPT: usize = 2_000;
/// Connections of one script at most.
const MAX_CONNECTIONS: u16 = 6;
/// Segments without payload that answer one segment, or one call.
const MOST_ANSWERS: usize = 2;
/// Announced by every segment behind the handshake: a peer that scales.
const WINDOWS: [u16; 6] = [0, 1, 100, 1_000, 8_000, 65_535];

/// The connection as its far end sees it; numbers are relative to the handshake.
struct Flow {
    peer: Peer,
    handle: Handle,
    /// Shifts of the stack's window, and of the peer's.
    shifts: [u8; 2],
    /// The stack's acknowledgment, and the right edge of its window.
    acked: i32,
    edge: i32,
    /// Behind the last byte that the stack has sent, and behind the last that it may send.
    seen: i32,
    allowed: i32,
    /// Behind the last byte that the peer has sent.
    spoken: i32,
    /// Bytes that the application has, and that it may send.
    received: usize,
    room: usize,
}

impl Flow {
    fn open(world: &mut World, number: u16, options: u8) -> Self {
        world.frames_out();
        world.told();
        let open = Open {
            mss: Some([64, 536, 1_400, 1_460][usize::from(options & 3)]),
            window_scale: (options & 4 != 0).then_some(options >> 5),
            timestamp: (options & 8 != 0).then_some(1_000),
            sack: options & 16 != 0,
            ecn: options & 64 != 0,
            window: if options & 128 == 0 { 65_535 } else { 500 },
        };
        let (peer, syn_ack) = Peer::knock(world, 2_000 + number, open);
        world.hear(&peer.seg(1, 1));
        let both = open.window_scale.zip(syn_ack.options.window_scale);
        let (theirs, ours) = both.unwrap_or((0, 0));
        let allowed = 1 + (i32::from(open.window) << theirs);
        let edge = 1 + i32::from(syn_ack.window);
        let handle = world.handle();
        let (seen, shifts, room) = (1, [ours, theirs], 0);
        let mut flow = Self {
            peer,
            handle,
            shifts,
            acked: 1,
            edge,
            seen,
            allowed,
            spoken: 1,
            received: 0,
            room,
        };
        flow.hear(world.told());
        flow
    }

    /// A segment near what both ends have reached, with these bytes of the script.
    fn segment(&mut self, [flags, seq, ack, len, window]: [u8; 5]) -> Seg {
        let near = |byte: u8| match byte {
            0..=95 => 0,
            96..=159 => i32::from(byte) - 128,
            160..=207 => (i32::from(byte) - 184) * 100,
            208.. => (i32::from(byte) - 232) * 1_448,
        };
        let seq = (self.acked + near(seq)).max(1) as u32;
        let ack = self.seen + near(ack);
        let payload = [0, 0, 0, 1, 100, 536, 1_000, 1_400][usize::from(len & 7)];
        let letters = ["S.", "R", "R.", "F.", "P.", "U.", "E.", "W.", "FP."];
        let letters = letters.get(usize::from(flags)).copied().unwrap_or("."); // mostly
        let mut seg = self.peer.seg(seq, ack as u32).flags(letters).len(payload);
        seg = seg.win(WINDOWS[usize::from(window) % WINDOWS.len()]);
        if let Some((value, _)) = self.peer.timestamp.as_mut().filter(|_| window & 128 != 0) {
            *value += 1;
        }
        if window & 64 != 0 {
            let left = self.peer.irs + (self.seen - i32::from(len) * 16) as u32;
            seg.options.sack_blocks = [(left, left + 1_000)].into_iter().collect();
        }
        let is_fin = seg.flags.contains(TcpFlags::FIN);
        self.spoken = self.spoken.max(seq as i32 + payload as i32 + i32::from(is_fin));
        if ack <= self.seen {
            self.allowed = self.allowed.max(ack + (i32::from(seg.window) << self.shifts[1]));
        }
        seg
    }

    /// Checks what the stack sent. Answers whether it is still this connection.
    fn check(&mut self, out: &[Seg]) -> bool {
        for seg in out.iter().filter(|seg| seg.dst == self.peer.here) {
            if seg.flags.contains(TcpFlags::SYN) {
                return false;
            }
            if seg.flags.contains(TcpFlags::RST) {
                continue;
            }
            let text = self.peer.text(seg);
            let (seq, ack) = (seg.seq - self.peer.irs, seg.ack - self.peer.iss);
            let end = seq + seg.payload.len() as i32;
            assert!((self.acked..=self.spoken).contains(&ack), "{text}: {}", self.spoken);
            let edge = ack + (i32::from(seg.window) << self.shifts[0]);
            // Rounded down to what a scaled window can announce (RFC 7323 §2.4).
            let least = self.edge - (1 << self.shifts[0]) + 1;
            assert!(edge >= least, "{text}: the window ended at {}, ends at {edge}", self.edge);
            assert!(seg.payload.is_empty() || end <= self.allowed, "{text}: {}", self.allowed);
            (self.acked, self.edge) = (ack, edge.max(self.edge));
            self.seen = self.seen.max(end + i32::from(seg.flags.contains(TcpFlags::FIN)));
        }
        true
    }

    /// Checks the application's events. Answers whether the connection lives.
    fn hear(&mut self, events: Vec<Told>) -> bool {
        let own = u64::from(self.peer.here.port);
        let mut lives = true;
        for event in events {
            match event {
                Told::Recv { cookie, data } if cookie == own => {
                    let expected = pattern(self.received % 251, data.len());
                    assert!(data == expected, "wrong bytes behind {}", self.received);
                    self.received += data.len();
                    assert!((self.received as i32) < self.spoken, "more than was sent");
                }
                Told::Knock { window, .. } => self.room = window as usize,
                Told::Sent { cookie, window, .. } if cookie == own => self.room = window as usize,
                Told::Dead { cookie, .. } if cookie == own => lives = false,
                _ => {}
            }
        }
        lives
    }
}

/// Carries out a script and checks what must hold.
pub fn run(bytes: &[u8]) {
    let (&first, script) = bytes.split_first().unwrap_or((&0, &[]));
    let mut config = config();
    config.receive_window_bytes = [3_000, 65_535, 256 << 10][usize::from(first) % 3];
    config.retries = 4;
    let mut world = World::sized(config, 1_024, 256);
    let mut number = 0;
    let mut flow = Flow::open(&mut world, number, first);
    for step in script[..script.len().min(MAX_SCRIPT)].chunks_exact(6) {
        let &[kind, first, .., last] = step else { continue };
        let is_heard = kind < 176;
        let handle = flow.handle;
        match kind {
            0..=175 => {
                let seg = flow.segment(step[1..].try_into().expect("five bytes"));
                world.hear(&seg);
            }
            176..=207 => {
                // What goes beyond is trimmed.
                let len = (usize::from(first) << (last % 6)).min(flow.room);
                flow.room -= len;
                send(&mut world, handle, len);
            }
            208..=215 => world.auto_done = first & 1 == 0,
            216..=219 => world.call(|calls| {
                let _ = calls.recv_done(handle, 16 * usize::from(first));
            }),
            220..=223 => world.call(|calls| {
                let _ = calls.shutdown(handle);
            }),
            224..=227 => world.call(|calls| {
                let _ = calls.close(handle);
            }),
            228 => world.call(|calls| {
                let _ = calls.abort(handle);
            }),
            229.. => world.pass(Duration::from_micros(u64::from(first) << (last % 18))),
        }
        let out: Vec<_> = world.segments();
        let answers = out.iter().filter(|seg| seg.payload.is_empty()).count();
        assert!(!is_heard || answers <= MOST_ANSWERS, "{answers} answers to one segment");
        let is_same = flow.check(&out);
        if !(flow.hear(world.told()) && is_same) {
            number += 1;
            if number == MAX_CONNECTIONS {
                break;
            }
            flow = Flow::open(&mut world, number, last);
        }
    }
}

/// The application sends the next bytes of its stream, where the connection is the newest.
fn send(world: &mut World, handle: Handle, len: usize) {
    if world.handle() == handle {
        world.send(len);
    }
}
