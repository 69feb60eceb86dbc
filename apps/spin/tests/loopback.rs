//! The service end to end between two dataplanes joined in memory, in all forms: requests
//! pipelined and cut anywhere, served in order, each for as long as it asks.

use std::cell::Cell;
use std::sync::Arc;

use clock::{Clock, Duration, Instant, VirtualClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use mem::{Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, pair};
use spin::{DelayedSpin, FRAME_BYTES, Frame, SERVICE_NS_MAX, Spin};
use stack::{Secrets, Shared, StackConfig};
use tailplane::{Server, SharedServer, SharedSlots};
use wire::{Endpoint, Ipv4Addr, MacAddr};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const CYCLE_NS: u64 = 2_000;

/// A clock that moves by a microsecond with every look at it: spinning ends, and its length can
/// be told from the number of looks.
#[derive(Default)]
struct Ticking {
    now_ns: Cell<u64>,
}

impl Clock for &Ticking {
    fn now(&self) -> Instant {
        self.now_ns.set(self.now_ns.get() + 1_000);
        Instant::from_nanos(self.now_ns.get())
    }
}

fn thread(address: Ipv4Addr, last: u8, nic: LoopbackNic) -> ElasticThread<LoopbackNic> {
    let mut config = StackConfig::new(address, 24, MacAddr([2, 0, 0, 0, 0, last]));
    config.tcp_listen = vec![7];
    let secrets =
        Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 };
    let shared = Arc::new(Shared::new(config, &secrets, 1));
    let pool = Pool::new(&Region::heap(2_048), 2_048);
    let ports = ForwardPorts::default();
    ElasticThread::new(0, shared, nic, pool, ports, ElasticConfig::default(), Instant::ZERO)
}

/// Sends its frames in pieces of `piece` bytes, one a batch, and notes when each answer is there.
struct Client {
    stream: Vec<u8>,
    piece: usize,
    sent: usize,
    handle: Option<Handle>,
    started: bool,
    received: Vec<u8>,
    /// When each frame's last byte came.
    answered: Vec<Instant>,
    first_sent: Option<Instant>,
    expected: usize,
    eof: bool,
    dead: bool,
}

impl Client {
    fn new(frames: &[Frame], piece: usize) -> Self {
        Self {
            stream: frames.iter().flat_map(|frame| frame.to_bytes()).collect(),
            piece,
            sent: 0,
            handle: None,
            started: false,
            received: Vec::new(),
            answered: Vec::new(),
            first_sent: None,
            expected: frames.len(),
            eof: false,
            dead: false,
        }
    }

    fn frames(&self) -> Vec<Frame> {
        let (whole, rest) = self.received.as_chunks::<FRAME_BYTES>();
        assert!(rest.is_empty(), "an answer in pieces at the end");
        whole.iter().map(Frame::from_bytes).collect()
    }
}

impl Service for Client {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if !self.started {
            self.started = true;
            calls.connect(Cookie(5), Endpoint::new(SERVER, 7)).expect("room");
        }
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    self.handle = Some(outcome.expect("connects").0)
                }
                Event::Recv { handle, data, .. } => {
                    self.received.extend_from_slice(data);
                    self.answered.resize(self.received.len() / FRAME_BYTES, now);
                    calls.recv_done(handle, data.len()).expect("room");
                    if self.answered.len() == self.expected {
                        calls.close(handle).expect("room");
                    }
                }
                Event::Eof { handle, .. } => {
                    self.eof = true;
                    calls.close(handle).expect("room");
                }
                Event::Dead { .. } => self.dead = true,
                _ => {}
            }
        }
        if let Some(handle) = self.handle
            && self.sent < self.stream.len()
            && !self.eof
        {
            self.first_sent.get_or_insert(now);
            let until = self.stream.len().min(self.sent + self.piece);
            calls.sendv(handle, &[&self.stream[self.sent..until]]).expect("room");
            self.sent = until;
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        (self.sent < self.stream.len()).then_some(Instant::ZERO)
    }
}

/// Runs the service in one of its forms until the client's connection has ended: the connections that it still has.
type Form = fn(&Ticking, &mut Client) -> usize;

const BUSY: Form = |clock, client| run(Server::new(Spin::new(clock)), Server::connections, client);
const PARALLEL: Form = |_, client| run(DelayedSpin::parallel(), DelayedSpin::connections, client);
const DELAY: Form = |_, client| run(DelayedSpin::new(), DelayedSpin::connections, client);
/// As core 1 of two, whose connections the other one could serve too.
const SHARED: Form = |clock, client| {
    let slots = Arc::new(SharedSlots::new(2, 64));
    run(Server::shared(1, Spin::new(clock), slots), SharedServer::connections, client)
};
const FORMS: [(&str, Form); 4] =
    [("busy", BUSY), ("delay", DELAY), ("shared", SHARED), ("parallel", PARALLEL)];

fn run<S: Service>(
    mut service: S,
    connections: impl Fn(&S) -> usize,
    client: &mut Client,
) -> usize {
    let (a, b) = pair(LoopbackConfig::default());
    let (mut server, mut far) = (thread(SERVER, 1, a), thread(CLIENT, 2, b));
    let mut clock = VirtualClock::default();
    for _ in 0..1_000_000 {
        far.run_cycle(clock.now(), client);
        server.run_cycle(clock.now(), &mut service);
        clock.advance(Duration::from_nanos(CYCLE_NS));
        if client.dead {
            break;
        }
    }
    assert!(client.dead, "the connection ends");
    assert_eq!(server.stack().stats().tcp_retransmissions, 0);
    connections(&service)
}

fn requests(times_us: &[u64]) -> Vec<Frame> {
    let frame = |(index, us): (usize, &u64)| Frame {
        service_ns: us * 1_000,
        sequence: 0xABCD_0000 + index as u64,
    };
    times_us.iter().enumerate().map(frame).collect()
}

#[test]
fn pipelined_requests_in_pieces_come_back_in_order() {
    let times_us: Vec<u64> = (0..200).map(|n| (n * 7) % 23).collect();
    let frames = requests(&times_us);
    for (name, form) in FORMS {
        // Whole, several at once, and cut in every way.
        for piece in [FRAME_BYTES, 5 * FRAME_BYTES, 1, 7, 37, 1_200] {
            let mut client = Client::new(&frames, piece);
            let left = form(&Ticking::default(), &mut client);
            assert_eq!(client.frames(), frames, "{name} in pieces of {piece}");
            assert_eq!(left, 0);
        }
    }
}

#[test]
fn spinning_takes_the_time_that_was_asked_for() {
    let ticking = Ticking::default();
    let mut client = Client::new(&requests(&[0, 100, 50, 1]), FRAME_BYTES);
    BUSY(&ticking, &mut client);
    let spun_us = ticking.now_ns.get() / 1_000;
    // Each request looks once before, and its last look may be a microsecond late.
    assert!((151..=151 + 8).contains(&spun_us), "{spun_us} us");
}

#[test]
fn delayed_answers_are_those_of_one_core() {
    // All sent at once: each waits for those before it.
    let times_us = [100u64, 300, 20, 500];
    let mut client = Client::new(&requests(&times_us), 4 * FRAME_BYTES);
    DELAY(&Ticking::default(), &mut client);
    let begin = client.first_sent.expect("was sent");
    let mut sum_us = 0;
    for (answered, us) in client.answered.iter().zip(times_us) {
        sum_us += us;
        let after_us = answered.since(begin).as_nanos() as u64 / 1_000;
        // Up to four cycles on the way.
        assert!((sum_us..=sum_us + 8).contains(&after_us), "{after_us} of {sum_us}");
    }
    assert_eq!(client.answered.len(), 4);
}

#[test]
fn answers_in_parallel_wait_for_those_of_their_connection_only_where_these_take_longer() {
    let times_us = [100u64, 300, 20, 500];
    let mut client = Client::new(&requests(&times_us), 4 * FRAME_BYTES);
    PARALLEL(&Ticking::default(), &mut client);
    let begin = client.first_sent.expect("was sent");
    for (answered, us) in client.answered.iter().zip([100, 300, 300, 500]) {
        let after_us = answered.since(begin).as_nanos() as u64 / 1_000;
        assert!((us..=us + 8).contains(&after_us), "{after_us} of {us}");
    }
    assert_eq!(client.answered.len(), 4);
}

#[test]
fn a_request_that_asks_for_too_much_ends_its_connection() {
    for (name, form) in FORMS {
        let mut frames = requests(&[3, 4, 0, 5]);
        frames[2].service_ns = SERVICE_NS_MAX + 1;
        let mut client = Client::new(&frames, 4 * FRAME_BYTES);
        let left = form(&Ticking::default(), &mut client);
        assert!(client.eof, "{name}: the service closes");
        assert_eq!(client.frames(), frames[..2], "{name}: what came before is answered");
        assert_eq!(left, 0);
    }
}

#[test]
fn only_the_shared_form_runs_anywhere() {
    let ticking = Ticking::default();
    let slots = Arc::new(SharedSlots::new(2, 64));
    assert!(!Server::new(Spin::new(&ticking)).runs_anywhere());
    assert!(Server::shared(1, Spin::new(&ticking), slots).runs_anywhere());
    assert!(!DelayedSpin::new().runs_anywhere() && !DelayedSpin::parallel().runs_anywhere());
}

#[test]
fn datagrams_are_answered_one_by_one() {
    use tailplane::Protocol;
    let ticking = Ticking::default();
    let mut spin = spin::Spin::new(&ticking);
    let mut answers = Vec::new();
    let good = Frame { service_ns: 5_000, sequence: 1 }.to_bytes();
    let long = Frame { service_ns: SERVICE_NS_MAX + 1, sequence: 2 }.to_bytes();
    for data in [&good[..], &good[..15], &long[..], &[][..]] {
        spin.datagram(Instant::ZERO, data, &mut |reply| answers.push(reply.to_vec()));
    }
    assert_eq!(answers, [good.to_vec()]);
    assert!(ticking.now_ns.get() >= 5_000);
}
