//! An adversary on both sides: a script of bytes becomes frames, calls and time.
//!
//! The same interpreter serves the property tests and the fuzzer, so that a script which one of
//! them found can be replayed by the other. Segments of a script are *plausible*: their numbers are
//! near those that the stack has shown, since random ones never reach the state machine.
//!
//! What must hold, whatever the script says: nothing panics, every frame of the stack is well
//! formed, each step is a bounded amount of work, an honest client is served afterwards, and in the
//! end every chunk of memory is back.

use clock::Duration;
use domain::{Cookie, Handle};
use stack::{CongestionAlgorithm, Ecn};
use wire::{
    ArpOperation, ArpRepr, Endpoint, EtherType, Ipv4Addr, Protocol, SeqNumber, TcpFlags,
    TcpOptions, Timestamp,
};

use crate::support::{
    Open, Out, PEER_IP, PEER_MAC, PORT, Peer, STACK_IP, STACK_MAC, Seg, Told, UDP_PORT, World,
    config, ethernet_frame, host, ip_frame, ms, pattern, ping_frame, too_big_frame, udp_frame,
};

/// Steps of one script that are carried out.
const MAX_STEPS: usize = 400;
/// Frames that one step may make the stack send: whole windows of all connections.
const MAX_FRAMES_A_STEP: usize = 4_096;

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A frame of these bytes.
    Raw(Vec<u8>),
    /// A valid frame of some kind with one byte changed, and cut.
    Mutated { kind: u8, at: u16, xor: u8, cut: u8 },
    /// A segment near the numbers of a flow.
    Segment { flow: u8, flags: u8, seq: i16, ack: i16, len: u8, window: u8, options: u8 },
    /// A router's message about a segment of a flow that was sent as the `back`-th before the last, `off` beside its begin.
    TooBig { flow: u8, back: u8, off: i16, mtu: u16 },
    /// A call of the application.
    Call { kind: u8, target: u8, amount: u16 },
    /// Time passes: `amount` of 2^`scale` us.
    Pass { scale: u8, amount: u8 },
    /// Switches of the world, one bit each.
    Switch(u8),
    /// The frames since the last such step arrive, as one batch.
    Batch,
}

/// Bytes of a script, one after the other; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// A distance: mostly small, sometimes anything.
    fn near(&mut self) -> i16 {
        match self.byte() {
            255 => self.word() as i16,
            small => (small as i8) as i16,
        }
    }
}

impl Step {
    /// The steps that `bytes` spell: every sequence of bytes spells some.
    pub fn decode(bytes: &[u8]) -> Vec<Self> {
        let mut script = Script(bytes);
        let mut steps = Vec::new();
        while !script.0.is_empty() && steps.len() < MAX_STEPS {
            steps.push(match script.byte() {
                0..=15 => {
                    let len = (script.byte() as usize).min(script.0.len());
                    let (raw, rest) = script.0.split_at(len);
                    script.0 = rest;
                    Self::Raw(raw.to_vec())
                }
                16..=39 => Self::Mutated {
                    kind: script.byte(),
                    at: script.word(),
                    xor: script.byte(),
                    cut: script.byte(),
                },
                152..=159 => Self::TooBig {
                    flow: script.byte(),
                    back: script.byte(),
                    off: script.near(),
                    mtu: script.word(),
                },
                40..=151 => Self::Segment {
                    flow: script.byte(),
                    flags: script.byte(),
                    seq: script.near(),
                    ack: script.near(),
                    len: script.byte(),
                    window: script.byte(),
                    options: script.byte(),
                },
                160..=207 => {
                    Self::Call { kind: script.byte(), target: script.byte(), amount: script.word() }
                }
                208..=231 => Self::Pass { scale: script.byte(), amount: script.byte() },
                232..=239 => Self::Switch(script.byte()),
                240..=255 => Self::Batch,
            });
        }
        steps
    }

    /// The bytes that spell the step.
    #[allow(dead_code, reason = "the generator of the fuzzer's seeds needs it")]
    pub fn encode(&self, out: &mut Vec<u8>) {
        let near = |out: &mut Vec<u8>, value: i16| match i8::try_from(value) {
            Ok(small) if small != -1 => out.push(small as u8),
            _ => {
                out.push(255);
                out.extend(value.to_le_bytes());
            }
        };
        match *self {
            Self::Raw(ref raw) => {
                out.extend([0, raw.len() as u8]);
                out.extend(raw);
            }
            Self::Mutated { kind, at, xor, cut } => {
                let [low, high] = at.to_le_bytes();
                out.extend([16, kind, low, high, xor, cut]);
            }
            Self::Segment { flow, flags, seq, ack, len, window, options } => {
                out.extend([40, flow, flags]);
                near(out, seq);
                near(out, ack);
                out.extend([len, window, options]);
            }
            Self::TooBig { flow, back, off, mtu } => {
                out.extend([152, flow, back]);
                near(out, off);
                out.extend(mtu.to_le_bytes());
            }
            Self::Call { kind, target, amount } => {
                let [low, high] = amount.to_le_bytes();
                out.extend([160, kind, target, low, high]);
            }
            Self::Pass { scale, amount } => out.extend([208, scale, amount]),
            Self::Switch(bits) => out.extend([232, bits]),
            Self::Batch => out.push(240),
        }
    }
}

/// A flow as its far end sees it.
#[derive(Clone, Copy)]
struct Flow {
    here: Endpoint,
    there: Endpoint,
    /// What the stack expects next, by its last acknowledgment.
    next: SeqNumber,
    /// Behind all that the stack has sent.
    seen: SeqNumber,
    /// The stack's last timestamp.
    stamp: u32,
    /// Where the last segments of the stack begin, newest first.
    begins: [SeqNumber; 8],
}

/// Carries out a script and checks what must hold.
pub fn run(bytes: &[u8]) {
    let (&size, script) = bytes.split_first().unwrap_or((&0, &[]));
    let mut config = config();
    config.backlog = 24;
    config.max_connections = 48;
    config.max_time_wait = 8;
    config.syn_retries = 3;
    config.retries = 4;
    config.receive_window_bytes = [3_000, 65_535, 256 << 10][size as usize % 3];
    config.ecn = if size < 128 { Ecn::Accept } else { Ecn::Ask };
    config.congestion =
        [CongestionAlgorithm::Cubic, CongestionAlgorithm::NewReno, CongestionAlgorithm::Dctcp]
            [size as usize / 9 % 3];
    let (chunks, frames) = [(96, 4), (512, 64), (1_024, 256)][size as usize / 3 % 3];
    let mut adversary = Adversary {
        world: World::sized(config, chunks, frames),
        flows: Vec::new(),
        batch: Vec::new(),
        stamp: 1_000,
    };
    for step in Step::decode(script) {
        adversary.carry_out(step);
    }
    let mut world = adversary.world;
    serve_an_honest_client(&mut world);
    drop(world);
}

struct Adversary {
    world: World,
    flows: Vec<Flow>,
    /// Frames of the next batch.
    batch: Vec<Vec<u8>>,
    /// The peers' timestamp clock.
    stamp: u32,
}

impl Adversary {
    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Raw(raw) => self.batch.push(raw),
            Step::Mutated { kind, at, xor, cut } => {
                let mut frame = self.valid(kind);
                let at = at as usize % frame.len();
                frame[at] ^= xor;
                frame.truncate(frame.len() - (cut as usize).min(frame.len()) / 8);
                self.batch.push(frame);
            }
            Step::Segment { flow, flags, seq, ack, len, window, options } => {
                let seg = self.segment(flow, flags, seq, ack, len, window, options);
                self.batch.push(seg.frame());
            }
            Step::TooBig { flow, back, off, mtu } => {
                let known = self.flows.get(flow as usize % self.flows.len().max(1)).copied();
                self.batch.extend(known.map(|flow| too_big(&flow, back, off, mtu)));
            }
            Step::Call { kind, target, amount } => self.call(kind, target, amount),
            Step::Pass { scale, amount } => {
                let micros = (amount as u64) << (scale % 20);
                self.world.pass(Duration::from_micros(micros));
            }
            Step::Switch(bits) => {
                self.world.nic_takes = bits & 1 == 0;
                self.world.nic_holds = bits & 2 != 0;
                self.world.auto_accept = bits & 4 == 0;
                self.world.auto_done = bits & 8 == 0;
                if bits & 2 == 0 {
                    self.world.nic_completes();
                }
                self.world.settle();
            }
            Step::Batch => {
                let frames = core::mem::take(&mut self.batch);
                self.world.hear_frames(&frames);
            }
        }
        self.learn();
    }

    /// Takes note of what the stack's segments tell of each flow.
    fn learn(&mut self) {
        let out = self.world.frames_out();
        assert!(out.len() <= MAX_FRAMES_A_STEP, "{} frames in one step", out.len());
        self.world.told();
        for frame in out {
            let Out::Tcp(seg) = frame else { continue };
            let len = seg.payload.len() as u32
                + seg.flags.contains(TcpFlags::SYN) as u32
                + seg.flags.contains(TcpFlags::FIN) as u32;
            let stamp = seg.options.timestamp.map_or(0, |stamp| stamp.value);
            let room = self.flows.len() < 64;
            let known = self.flows.iter_mut().find(|f| f.here == seg.dst && f.there == seg.src);
            match known {
                Some(flow) => {
                    if seg.flags.contains(TcpFlags::ACK) {
                        flow.next = seg.ack;
                    }
                    let fresh = seg.flags.contains(TcpFlags::SYN);
                    let end = seg.seq + len;
                    flow.seen = if fresh { end } else { end.max(flow.seen) };
                    flow.stamp = stamp;
                    if len > 0 {
                        flow.begins.rotate_right(1);
                        flow.begins[0] = seg.seq;
                    }
                }
                None if room => self.flows.push(Flow {
                    here: seg.dst,
                    there: seg.src,
                    next: seg.ack,
                    seen: seg.seq + len,
                    stamp,
                    begins: [seg.seq; 8],
                }),
                None => {}
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a step")]
    fn segment(
        &mut self,
        flow: u8,
        flags: u8,
        seq: i16,
        ack: i16,
        len: u8,
        window: u8,
        options: u8,
    ) -> Seg {
        // Every eighth names a port of its own, the others flows that exist.
        let known = match flow % 8 {
            7 => None,
            _ => self.flows.get(flow as usize % self.flows.len().max(1)).copied(),
        };
        let fresh = Flow {
            here: Endpoint::new(PEER_IP, 1 + (flow / 8) as u16),
            there: Endpoint::new(STACK_IP, PORT),
            next: SeqNumber(0xffff_fff0),
            seen: SeqNumber(0),
            stamp: 0,
            begins: [SeqNumber(0); 8],
        };
        let flow = known.unwrap_or(fresh);
        let mut options_sent = TcpOptions::NONE;
        if options & 1 != 0 {
            self.stamp = self.stamp.wrapping_add((options >> 4) as u32);
            options_sent.timestamp = Some(Timestamp { value: self.stamp, echo: flow.stamp });
        }
        if options & 2 != 0 {
            options_sent.mss = Some([0, 64, 536, 1_460, 65_535][options as usize / 4 % 5]);
            options_sent.window_scale = Some(options >> 4);
        }
        options_sent.sack_permitted = options & 4 != 0;
        if options & 8 != 0 {
            // What was sent last, or before, or never, in pieces of some length.
            let piece = [1, 100, 536, 1_448, 1_460][window as usize % 5];
            let first = flow.seen.0.wrapping_add_signed(i32::from(ack) * piece as i32);
            let blocks = (0..4).map(|n| SeqNumber(first.wrapping_sub(n * (n + 1) * piece)));
            let reach = piece * u32::from(1 + options / 64);
            options_sent.sack_blocks = blocks.map(|left| (left, left + reach)).collect();
        }
        let sized = match len % 16 {
            0..=7 => 0,
            8 => 1,
            9 => len as usize,
            10 => 536,
            11 => 1_448,
            _ => 1_460 - len as usize / 16,
        };
        let mut seg = Seg {
            src: flow.here,
            dst: flow.there,
            seq: SeqNumber(flow.next.0.wrapping_add_signed(seq as i32)),
            ack: SeqNumber(flow.seen.0.wrapping_add_signed(ack as i32)),
            // Mostly an acknowledgment, as in life.
            flags: TcpFlags(if flags < 128 { flags & 0x5f | 0x10 } else { flags }),
            window: [0, 1, 100, 1_000, 4_000, 32_768, 65_535][window as usize % 7],
            options: options_sent,
            payload: pattern(flow.next.0 as usize % 251, sized),
            stream_offset: 0,
            ttl: 64,
            dscp: 0,
            ecn: window >> 6,
        };
        if known.is_none() && flags < 128 {
            let asks = TcpFlags::ECE.union(TcpFlags::CWR);
            seg.flags = TcpFlags::SYN.union(if flags % 2 == 1 { asks } else { TcpFlags::NONE });
        }
        seg
    }

    /// A valid frame, to be mutated.
    fn valid(&mut self, kind: u8) -> Vec<u8> {
        let from = Endpoint::new(PEER_IP, 1_000 + kind as u16);
        match kind % 8 {
            0 => Peer::new(1 + kind as u16 / 8, Open::default()).syn().frame(),
            1 => udp_frame(from, UDP_PORT, &pattern(0, kind as usize)),
            2 => udp_frame(from, 9, &pattern(0, kind as usize)),
            3 => ping_frame(PEER_IP, &[kind; 40]),
            4 => {
                let arp = ArpRepr {
                    operation: ArpOperation::Request,
                    sender_mac: PEER_MAC,
                    sender_ip: Ipv4Addr::new(10, 0, 0, kind),
                    target_mac: STACK_MAC,
                    target_ip: STACK_IP.v4().unwrap_or(Ipv4Addr::UNSPECIFIED),
                };
                let mut bytes = vec![0; ArpRepr::LEN];
                arp.emit(&mut bytes);
                ethernet_frame(STACK_MAC, EtherType::ARP, &bytes)
            }
            5 => ip_frame(PEER_IP, STACK_IP, Protocol(kind), &[kind; 30]),
            6 => self.segment(kind / 8, 0x10, 0, 0, kind, 6, 3).frame(),
            _ => self.segment(kind / 8, 0x18, 0, 0, 0x0f, 6, 1).frame(),
        }
    }

    fn call(&mut self, kind: u8, target: u8, amount: u16) {
        let handles = &self.world.handles;
        let newest = handles.len().checked_sub(1 + target as usize % 16);
        let known = newest.and_then(|index| handles.get(index)).copied();
        // Every sixteenth is forged.
        let handle = match (known, target >= 240) {
            (Some(handle), false) => handle,
            (Some(handle), true) => Handle::from_bits(handle.to_bits() ^ 1 << (amount % 64)),
            (None, _) => Handle::from_bits((amount as u64) << (target % 48)),
        };
        let peer = Endpoint::new(host(2 + target % 4), amount);
        let cookie = Cookie(amount as u64);
        let bytes = pattern(0, amount as usize % 20_000);
        self.world.call(|calls| {
            // A full array, or memory, is the application's to cope with.
            let _ = match kind % 16 {
                0..=5 => calls.sendv(handle, &[&bytes]),
                6..=8 => calls.recv_done(handle, amount as usize % 3_000),
                9 => calls.recv_done(handle, usize::MAX - amount as usize),
                10 => calls.accept(handle, cookie),
                11 => calls.close(handle),
                12 => calls.abort(handle),
                13 => calls.connect(cookie, peer),
                14 => calls.udp_sendv(amount, peer, &[&bytes[..bytes.len().min(2_000)]]),
                _ => calls.sendv(handle, &[&bytes[..bytes.len().min(50)], &[], &[target]]),
            };
        });
    }
}

/// See [`Step::TooBig`].
fn too_big(flow: &Flow, back: u8, off: i16, mtu: u16) -> Vec<u8> {
    let seq = flow.begins[back as usize % 8].0.wrapping_add_signed(off.into());
    let (src_port, dst_port) = (flow.there.port, flow.here.port);
    let mut quoted = ip_frame(flow.there.addr, flow.here.addr, Protocol::TCP, &[])[14..].to_vec();
    quoted.extend([src_port.to_be_bytes(), dst_port.to_be_bytes()].concat());
    quoted.extend(seq.to_be_bytes());
    too_big_frame(PEER_IP, mtu, &quoted)
}

/// Once the adversary's connections are ended, the stack is as good as new.
fn serve_an_honest_client(world: &mut World) {
    world.nic_takes = true;
    world.nic_holds = false;
    world.auto_accept = true;
    world.auto_done = true;
    world.nic_completes();
    world.settle();
    let handles = core::mem::take(&mut world.handles);
    for some in handles.chunks(64) {
        world.call(|calls| {
            for &handle in some {
                calls.abort(handle).expect("room for a call");
            }
        });
    }
    world.pass(ms(200_000));
    world.frames_out();
    world.told();
    let peer = Peer::establish(world, 40_000, Open::default());
    world.hear(&peer.seg(1, 1).len(1_000));
    world.received(0, 1_000);
    world.send(3_000);
    world.expect(
        &peer,
        &[". 1:1461(1460) ack 1001", ". 1461:2921(1460) ack 1001", ". 2921:3001(80) ack 1001"],
    );
    world.hear(&peer.seg(1_001, 3_001).flags("F."));
    world.expect(&peer, &[". 3001 ack 1002"]);
    let told = world.told();
    let [Told::Sent { bytes: 3_000, .. }, Told::Eof { .. }] = told[..] else { panic!("{told:?}") };
    let handle = world.handle();
    world.call(|calls| calls.close(handle).expect("room for a call"));
    world.expect(&peer, &["F. 3001 ack 1002"]);
    world.hear(&peer.seg(1_002, 3_002));
    assert!(matches!(world.told()[..], [Told::Dead { .. }]));
}
