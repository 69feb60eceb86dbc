//! Writes the seeds: scripts of ordinary and of odd conversations, from which the fuzzer goes on.
//!
//! Run in `fuzz/`; each target's files go to `corpus/<target>/`.

#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../../core/stack/tests/dialogues/chaos.rs"]
mod chaos;
#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../../core/stack/tests/dialogues/fragment_map.rs"]
mod fragment_map;
#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../../core/stack/tests/dialogues/support/mod.rs"]
mod support;

use std::path::Path;

use chaos::Step;
use support::{Open, PEER_IP, Peer, UDP_PORT, icmp_frame, pattern, udp_frame};
use wire::{Endpoint, IcmpRepr};

/// Whether the stack's tests move all flow groups: these seeds are of one stack.
const WANDERS: bool = false;
/// Whether both ends speak IPv6.
const V6: bool = false;
/// Whether the device completes checksums.
const OFFLOADS: bool = false;

const ACK: u8 = 0x10;
const FIN: u8 = 0x11;
const PSH: u8 = 0x18;
const RST: u8 = 0x14;
/// In a step's `len`: a full segment, one byte.
const FULL: u8 = 0x0f;
const ONE: u8 = 8;

fn segment(flags: u8, seq: i16, ack: i16, len: u8) -> Step {
    Step::Segment { flow: 0, flags, seq, ack, len, window: 6, options: 1 }
}

fn call(kind: u8, amount: u16) -> Step {
    Step::Call { kind, target: 0, amount }
}

fn pass(scale: u8, amount: u8) -> Step {
    Step::Pass { scale, amount }
}

/// A handshake, followed by `rest`.
fn conversation(rest: &[Step]) -> Vec<Step> {
    let syn = Step::Segment { flow: 7, flags: 0, seq: 0, ack: 0, len: 0, window: 6, options: 0x33 };
    let mut steps = vec![syn, Step::Batch, segment(ACK, 0, 0, 0), Step::Batch];
    for step in rest {
        steps.push(step.clone());
        if matches!(step, Step::Segment { .. } | Step::Mutated { .. } | Step::Raw(_)) {
            steps.push(Step::Batch);
        }
    }
    steps
}

/// Scripts for the stack: name, size of the world, steps.
// long: a table
fn scripts() -> Vec<(&'static str, u8, Vec<Step>)> {
    let data = |len| segment(PSH, 0, 0, len);
    let mut mutations: Vec<Step> = Vec::new();
    for kind in 0..8 {
        mutations.push(Step::Mutated { kind, at: 0, xor: 0, cut: 0 });
        mutations.push(Step::Mutated { kind, at: 40, xor: 0x81, cut: 9 });
    }
    let frame = Peer::new(3, Open::default()).syn().frame();
    vec![
        ("echo", 8, conversation(&[data(FULL), call(0, 1_000), segment(ACK, 0, 0, 0)])),
        (
            "close",
            8,
            conversation(&[
                call(11, 0),
                segment(ACK, 0, 0, 0),
                segment(FIN, 0, 0, 0),
                pass(19, 200),
            ]),
        ),
        (
            "peer_closes",
            7,
            conversation(&[segment(FIN, 0, 0, 0), call(11, 0), segment(ACK, 0, 0, 0)]),
        ),
        ("reset", 6, conversation(&[data(ONE), segment(RST, 0, 0, 0), call(0, 10)])),
        (
            "out_of_order",
            8,
            conversation(&[segment(ACK, 100, 0, ONE), segment(FIN, 50, 0, ONE), data(FULL)]),
        ),
        (
            "loss",
            8,
            conversation(&[
                call(0, 14_000),
                segment(ACK, 0, -14_000, 0),
                segment(ACK, 0, -14_000, 0),
                segment(ACK, 0, -14_000, 0),
                pass(16, 100),
                segment(ACK, 0, 0, 0),
            ]),
        ),
        ("give_up", 0, conversation(&[call(0, 2_000), pass(19, 250)])),
        (
            "small_memory",
            0,
            conversation(&[Step::Switch(10), data(FULL), data(FULL), call(0, 9_000)]),
        ),
        (
            "blocked_device",
            1,
            conversation(&[Step::Switch(1), call(0, 9_000), data(ONE), pass(14, 99)]),
        ),
        (
            "never_accepted",
            8,
            conversation(&[Step::Switch(4), data(FULL), segment(FIN, 0, 0, ONE)]),
        ),
        (
            "connect",
            8,
            vec![
                call(13, 9_000),
                Step::Segment {
                    flow: 0,
                    flags: 0x92,
                    seq: 0,
                    ack: 0,
                    len: 0,
                    window: 6,
                    options: 3,
                },
                Step::Batch,
                call(15, 40),
            ],
        ),
        ("others", 8, mutations),
        ("raw", 8, vec![Step::Raw(frame), Step::Batch, call(14, 100)]),
    ]
}

fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let open = Open { window_scale: Some(7), timestamp: Some(9), ..Open::default() };
    let peer = Peer::new(5, open);
    let from = Endpoint::new(PEER_IP, 1_000);
    vec![
        ("syn", peer.syn().frame()),
        ("data", peer.seg(1, 1).len(100).ts(1, 2).frame()),
        ("udp", udp_frame(from, UDP_PORT, b"datagram")),
        ("echo", icmp_frame(PEER_IP, IcmpRepr::EchoRequest { ident: 1, seq: 2 }, &pattern(0, 56))),
    ]
}

/// Steps of four bytes: kind, datagram, number of the fragment, what differs.
const FRAGMENTS: [(&str, &[u8]); 3] = [
    ("in_order", &[0, 2, 0, 0, 0, 2, 1, 0, 0, 2, 2, 0]),
    ("again_and_over", &[0, 1, 1, 0, 0, 1, 1, 0, 191, 1, 1, 9, 0, 1, 0, 0, 212, 1, 1, 5]),
    ("too_late", &[0, 3, 0, 0, 250, 0, 3, 0, 0, 3, 1, 0, 250, 0, 3, 0]),
];

const KV: [(&str, &[u8]); 7] = [
    ("set_get", b"set a 0 0 5\r\nhello\r\nget a\r\ngets a b\r\ndelete a\r\n"),
    ("numbers", b"set n 1 0 2\r\n10\r\nincr n 5\r\ndecr n 99\r\ntouch n 100\r\ngat 5 n\r\n"),
    ("append", b"set a 0 0 1\r\nx\r\nappend a 0 0 2 noreply\r\nyz\r\nprepend a 0 0 1\r\nw\r\nget a\r\n"),
    ("cas", b"add a 0 0 1\r\n1\r\ncas a 0 0 1 1\r\n2\r\nreplace a 0 0 0\r\n\r\n"),
    ("meta", b"ms k 3 T60 F1 I\r\nabc\r\nmg k v f t s k Oq\r\nma n N0 J5 v\r\nmd k q\r\nmn\r\nme k\r\n"),
    ("base64", b"ms bWV0YQ== 3 b k Oq c\r\nabc\r\nmg bWV0YQ== b v k\r\n"),
    ("errors", b"get\r\nset a 0 0 9999999\r\nset a b c d\r\nflush_all 0\r\nverbosity 1\r\nversion\r\nquit\r\n"),
];

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)
}

fn main() -> std::io::Result<()> {
    for (name, size, steps) in scripts() {
        let mut bytes = vec![size];
        steps.iter().for_each(|step| step.encode(&mut bytes));
        // A seed that fails is no seed.
        chaos::run(&bytes);
        write("frames", name, &bytes)?;
    }
    for (name, bytes) in frames() {
        write("wire_parse", name, &bytes)?;
    }
    for (name, script) in FRAGMENTS {
        fragment_map::run(script);
        write("fragments", name, script)?;
    }
    for (name, commands) in KV {
        let cuts: [u8; 8] = [3, 0, 7, 1, 250, 2, 19, 5];
        write("kv_protocol", name, &[&cuts, commands].concat())?;
    }
    Ok(())
}
