//! Servers driven by hand over the arrays of `domain`, as a scheduler would: a connection's turn is run by
//! any of them, and its calls are executed at home.

use std::sync::atomic::{AtomicUsize, Ordering};

use domain::{BufferRef, CallArray, CallRecord, DeadReason, EventArray, EventRecord, Received};
use mem::{Pool, Region};
use proptest::prelude::*;
use shuffle::Ring;
use wire::Ipv4Addr;

use super::*;

/// A window that no test fills.
const WIDE: u32 = 1 << 30;
/// The port of a peer that is rejected.
const UNWELCOME: u16 = 1;

/// Answers each byte with its sum with its number in the stream.
#[derive(Default)]
pub(super) struct Numbering {
    closed: usize,
}

fn numbered(from: u64, data: &[u8]) -> Vec<u8> {
    (from..).zip(data).map(|(number, byte)| byte.wrapping_add(number as u8)).collect()
}

impl Protocol for Numbering {
    /// Bytes that have come.
    type Connection = u64;

    fn open(&mut self, _: Instant, opened: Opened) -> Option<u64> {
        (opened.peer.port != UNWELCOME).then_some(0)
    }

    fn receive(
        &mut self,
        _: Instant,
        seen: &mut u64,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        output.put(&numbered(*seen, data));
        *seen += data.len() as u64;
        Flow::Continue
    }

    fn datagram(&mut self, _: Instant, data: &[u8], reply: &mut dyn FnMut(&[u8])) {
        reply(&numbered(0, data));
    }

    fn closed(&mut self, _: u64) {
        self.closed += 1;
    }
}

/// A connection as the dataplane has it, with what it has for the application and what that asks for.
pub(super) struct Turn {
    pub(super) handle: Handle,
    pub(super) cookie: Cookie,
    pub(super) accepted: bool,
    /// Bytes that may be sent.
    pub(super) window: u32,
    pub(super) sent: Vec<u8>,
    /// Bytes that were received, and those of them that were not given back.
    pub(super) received: Vec<u8>,
    pub(super) unreturned: usize,
    pub(super) closed: bool,
    pub(super) aborted: bool,
    pub(super) again: bool,
    pub(super) events: EventArray,
    pub(super) calls: CallArray,
}

impl Turn {
    pub(super) fn new(slot: u32, generation: u32) -> Self {
        Self {
            handle: Handle::new(3, slot, generation),
            cookie: Cookie(0),
            accepted: false,
            window: WIDE,
            sent: Vec::new(),
            received: Vec::new(),
            unreturned: 0,
            closed: false,
            aborted: false,
            again: false,
            events: EventArray::growing(),
            calls: CallArray::growing(1_024, 1_448),
        }
    }

    fn push(&mut self, record: EventRecord, buffer: Option<Received>) {
        assert!(self.events.append(record, buffer).is_ok(), "a growing array has room");
    }

    pub(super) fn knock(&mut self, port: u16) -> &mut Self {
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 2), port);
        let (handle, window) = (self.handle, self.window);
        self.push(
            EventRecord::Knock {
                handle,
                local: 7.into(),
                peer,
                window: domain::FirstWindow::new(window),
            },
            None,
        );
        self
    }

    pub(super) fn recv(&mut self, pool: &mut Pool, data: &[u8]) -> &mut Self {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(data).expect("it fits a chunk");
        self.received.extend_from_slice(data);
        self.unreturned += data.len();
        let (handle, cookie, window) = (self.handle, self.cookie, self.window);
        let buffer = BufferRef { index: 0 };
        let record = EventRecord::Recv { handle, cookie, buffer, acked: 0, window };
        self.push(record, Some((Some(handle), mbuf)));
        self
    }

    /// The window is now `window`.
    pub(super) fn opens(&mut self, window: u32) -> &mut Self {
        let (handle, cookie) = (self.handle, self.cookie);
        self.window = window;
        self.push(EventRecord::Sent { handle, cookie, bytes: 0, window }, None);
        self
    }

    pub(super) fn eof(&mut self) -> &mut Self {
        let (handle, cookie) = (self.handle, self.cookie);
        self.push(EventRecord::Eof { handle, cookie }, None);
        self
    }

    pub(super) fn dead(&mut self) -> &mut Self {
        let (handle, cookie, reason) = (self.handle, self.cookie, DeadReason::Closed);
        self.push(EventRecord::Dead { handle, cookie, reason }, None);
        self
    }

    /// What `again` asked for, if it did.
    pub(super) fn again(&mut self) -> &mut Self {
        if core::mem::take(&mut self.again) {
            let (handle, cookie, window) = (self.handle, self.cookie, self.window);
            self.push(EventRecord::Again { handle, cookie, window }, None);
        }
        self
    }

    /// Some core's server sees it.
    pub(super) fn run(&mut self, server: &mut impl Service, pool: &mut Pool) -> &mut Self {
        self.run_at(Instant::ZERO, server, pool)
    }

    pub(super) fn run_at(
        &mut self,
        now: Instant,
        server: &mut impl Service,
        pool: &mut Pool,
    ) -> &mut Self {
        let mut calls = Calls::new(&mut self.calls, pool);
        server.on_batch(now, self.events.view(&()), &mut calls);
        for (_, mbuf) in self.events.drain() {
            pool.free(mbuf);
        }
        self
    }

    /// The home core executes the calls.
    pub(super) fn execute(&mut self, pool: &mut Pool) -> &mut Self {
        self.execute_with(&mut [], pool)
    }

    /// The same, where calls may be about `others`, and about connections that have ended.
    pub(super) fn execute_with(&mut self, others: &mut [Self], pool: &mut Pool) -> &mut Self {
        let (records, mut payloads) = self.calls.take();
        for record in &records {
            if let CallRecord::Again { handle } | CallRecord::Abort { handle } = *record
                && handle != self.handle
            {
                let other = others.iter_mut().find(|other| other.handle == handle && !other.closed);
                if let Some(other) = other {
                    let is_abort = matches!(record, CallRecord::Abort { .. });
                    (other.closed, other.aborted) = (is_abort, is_abort);
                    other.again |= !is_abort;
                }
                continue;
            }
            match *record {
                CallRecord::Accept { handle, cookie } => {
                    assert_eq!((handle, self.accepted), (self.handle, false));
                    (self.accepted, self.cookie) = (true, cookie);
                }
                CallRecord::Sendv { handle, staged } => {
                    assert_eq!((handle, self.closed), (self.handle, false));
                    for (mbuf, _) in payloads.drain(..staged.count as usize) {
                        assert!(mbuf.len() as u32 <= self.window, "more than the window");
                        self.window -= mbuf.len() as u32;
                        self.sent.extend_from_slice(mbuf.bytes());
                        pool.free(mbuf);
                    }
                }
                CallRecord::RecvDone { handle, bytes } => {
                    assert_eq!(handle, self.handle);
                    assert!(bytes as usize <= self.unreturned, "more than was received");
                    self.unreturned -= bytes as usize;
                }
                CallRecord::Close { handle } => {
                    assert_eq!((handle, self.closed), (self.handle, false));
                    self.closed = true;
                }
                CallRecord::Again { handle } => {
                    assert_eq!(handle, self.handle);
                    self.again = true;
                }
                CallRecord::Abort { handle } => {
                    assert_eq!((handle, self.closed), (self.handle, false));
                    (self.closed, self.aborted) = (true, true);
                }
                CallRecord::Connect { .. }
                | CallRecord::SendvPlaced { .. }
                | CallRecord::Listen { .. }
                | CallRecord::Unlisten { .. }
                | CallRecord::Inform { .. }
                | CallRecord::Shutdown { .. }
                | CallRecord::UdpSendv { .. } => panic!("a server does not {record:?}"),
            }
        }
        self.calls.restore(records, payloads);
        self
    }

    /// Both.
    pub(super) fn on(&mut self, server: &mut impl Service, pool: &mut Pool) -> &mut Self {
        self.run(server, pool).execute(pool)
    }

    /// All that came was answered, but for what the window had no room for.
    fn check(&self) {
        let expected = numbered(0, &self.received);
        assert!(expected.starts_with(&self.sent), "{:?} is no part of {expected:?}", self.sent);
    }

    fn check_all_sent(&self) {
        self.check();
        assert_eq!((self.sent.len(), self.unreturned), (self.received.len(), 0));
    }
}

pub(super) fn pool(chunks: u32) -> Pool {
    Pool::new(&Region::heap(chunks), chunks as usize)
}

fn servers(max_connections: usize) -> [SharedServer<Numbering>; 2] {
    let slots = Arc::new(SharedSlots::new(2, max_connections));
    [0, 1].map(|core| Server::shared(core, Numbering::default(), Arc::clone(&slots)))
}

#[test]
fn any_core_serves_a_connection_and_its_home_ends_it() {
    let (mut pool, [mut home, mut thief]) = (pool(64), servers(100));
    assert!(home.runs_anywhere() && !Server::new(Numbering::default()).runs_anywhere());
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool);
    assert!(turn.accepted);
    for round in 0..4u8 {
        turn.recv(&mut pool, &[round; 5]).on(&mut thief, &mut pool).check_all_sent();
        turn.recv(&mut pool, &[9]).recv(&mut pool, &[7, round]).on(&mut home, &mut pool);
        turn.check_all_sent();
    }
    assert_eq!((home.connections(), thief.connections()), (1, 0));
    turn.eof().on(&mut thief, &mut pool);
    assert_eq!((turn.closed, thief.protocol().closed, home.protocol().closed), (true, 1, 0));
    turn.dead().on(&mut home, &mut pool);
    assert_eq!((home.connections(), thief.protocol().closed + home.protocol().closed), (0, 1));
    // The slot is used again, and what still names the old connection does not reach the new one.
    let mut next = Turn::new(1, 2);
    next.knock(5).on(&mut home, &mut pool);
    assert_eq!(next.cookie, turn.cookie);
    turn.dead().recv(&mut pool, &[1]).opens(3).eof().on(&mut home, &mut pool);
    next.recv(&mut pool, &[1, 2, 3]).on(&mut thief, &mut pool).check_all_sent();
    let stats = [home.stats(), thief.stats()];
    let counted = |of: ServerStats| (of.accepted, of.ended, of.rejected, of.out_of_turn);
    assert_eq!(stats.map(counted), [(2, 1, 0, 0), (0, 0, 0, 0)]);
    assert_eq!(pool.available(), 64);
}

/// RFC 1122 §4.1.3.5.
#[test]
fn a_datagram_is_answered_from_the_address_to_which_it_came() {
    let (mut pool, [mut server, _]) = (pool(64), servers(100));
    let (mut events, mut calls) = (EventArray::new(1), CallArray::new(4, 1_448));
    let local = domain::LocalEndpoint::new(2, 53);
    let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 2), 9);
    let mut mbuf = pool.alloc().expect("a chunk");
    mbuf.append(&[5, 5]).expect("it fits");
    events.push_datagram(local, peer, mbuf).expect("room");
    server.on_batch(Instant::ZERO, events.view(&()), &mut Calls::new(&mut calls, &mut pool));
    let (records, payloads) = calls.take();
    let staged = domain::Staged { first: 0, count: 1 };
    assert_eq!(records, [CallRecord::UdpSendv { local, peer, staged }]);
    assert_eq!(payloads[0].0.bytes(), [5, 6]);
    let received = events.drain().map(|(_, mbuf)| mbuf);
    received.chain(payloads.into_iter().map(|(mbuf, _)| mbuf)).for_each(|mbuf| pool.free(mbuf));
}

#[test]
fn a_batch_of_one_core_is_none_of_another() {
    let (mut pool, [mut one, mut other]) = (pool(64), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut one, &mut pool);
    Turn::new(2, 1).on(&mut other, &mut pool);
    // The second batch of the one and that of the other, both their third, ...
    for window in [10, 20, 30] {
        turn.window = window;
        turn.recv(&mut pool, &[1; 10]).on(&mut one, &mut pool);
        turn.window = 10;
        turn.recv(&mut pool, &[1; 10]).on(&mut other, &mut pool);
    }
    turn.check_all_sent();
    assert_eq!((one.stats().kept_bytes, other.stats().kept_bytes), (0, 0));
    // Within a batch, what was sent in answer to the first event is not in the second one's window.
    turn.window = 15;
    turn.recv(&mut pool, &[1; 10]).recv(&mut pool, &[2; 10]).on(&mut other, &mut pool);
    assert_eq!((turn.window, other.stats().kept_bytes), (0, 5));
    turn.opens(5).on(&mut one, &mut pool).check_all_sent();
}

/// What happens to a connection: bytes come, or the window opens; and who is told of it.
#[derive(Clone, Debug)]
enum Step {
    Recv(bool, Vec<u8>),
    Opens(bool, u32),
    Again(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        // The answers to equal bytes differ.
        (any::<bool>(), any::<u8>(), 1..1_800usize)
            .prop_map(|(thief, byte, len)| Step::Recv(thief, vec![byte; len])),
        (any::<bool>(), 0..3_000u32).prop_map(|(thief, window)| Step::Opens(thief, window)),
        any::<bool>().prop_map(Step::Again),
    ]
}

/// Runs `steps`; the answers come in order and whole whatever the window, the room in the batch of calls
/// and the packet memory are, and the close after them.
fn keeps_order<S: Service>(
    steps: Vec<Step>,
    capacity: usize,
    chunks: u32,
    [mut home, mut thief]: [S; 2],
) {
    let mut pool = pool(chunks);
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool);
    turn.opens(0).on(&mut home, &mut pool);
    turn.calls = CallArray::growing(capacity, 1_448);
    let mut with = |thieves: bool, turn: &mut Turn, pool: &mut Pool| {
        turn.on(if thieves { &mut thief } else { &mut home }, pool).check();
    };
    for step in steps {
        let thieves = match step {
            Step::Recv(thieves, data) => {
                turn.recv(&mut pool, &data);
                thieves
            }
            Step::Opens(thieves, window) => {
                turn.opens(turn.window.max(window));
                thieves
            }
            Step::Again(thieves) => {
                turn.again();
                thieves
            }
        };
        with(thieves, &mut turn, &mut pool);
    }
    turn.eof();
    with(true, &mut turn, &mut pool);
    // A window that opens ends all waiting, and `again` the want of room: no other event comes.
    turn.opens(WIDE);
    with(true, &mut turn, &mut pool);
    for round in 0..1_000 {
        if !turn.again {
            break;
        }
        turn.again();
        with(round % 2 == 0, &mut turn, &mut pool);
    }
    assert!(turn.closed && !turn.again);
    turn.check_all_sent();
    turn.dead().on(&mut home, &mut pool);
    assert_eq!(pool.available(), chunks as usize);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 200 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_kept_keeps_its_order_on_any_core(
        steps in prop::collection::vec(step(), 0..if cfg!(miri) { 8 } else { 60 }),
        capacity in 1..8usize,
        chunks in 4..20u32,
    ) {
        keeps_order(steps.clone(), capacity, chunks, servers(100));
        let own = || Server::new(Numbering::default());
        // One server by itself: the other one never sees a connection.
        let alone = steps
            .into_iter()
            .map(|step| match step {
                Step::Recv(_, data) => Step::Recv(false, data),
                Step::Opens(_, window) => Step::Opens(false, window),
                Step::Again(_) => Step::Again(false),
            })
            .collect();
        let server = std::cell::RefCell::new(own());
        keeps_order(alone, capacity, chunks, [Same(&server), Same(&server)]);
    }
}

/// One server under two names.
struct Same<'a>(&'a std::cell::RefCell<Server<Numbering>>);
impl Service for Same<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.0.borrow_mut().on_batch(now, events, calls);
    }
}

#[test]
fn what_is_kept_goes_out_as_the_packet_memory_allows() {
    let (mut pool, [mut home, mut thief]) = (pool(8), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool).opens(0).on(&mut home, &mut pool);
    for _ in 0..9 {
        turn.recv(&mut pool, &[7; 1_500]).on(&mut thief, &mut pool);
    }
    assert_eq!((turn.sent.len(), turn.again), (0, false), "it is the window that it waits for");
    // All memory is never enough for all of it.
    turn.opens(WIDE).on(&mut home, &mut pool);
    for rounds in 1.. {
        assert!(turn.again && rounds < 30, "{} bytes went out", turn.sent.len());
        turn.again().on(&mut thief, &mut pool);
        if turn.sent.len() == turn.received.len() {
            break;
        }
    }
    turn.check_all_sent();
}

#[test]
fn received_bytes_are_given_back_once_the_batch_has_room() {
    let (mut pool, [mut home, mut thief]) = (pool(8), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool);
    turn.calls = CallArray::growing(1, 1_448);
    turn.recv(&mut pool, &[7; 100]).on(&mut home, &mut pool);
    assert_eq!((turn.sent.len(), turn.unreturned, turn.again), (100, 100, true));
    turn.again().on(&mut thief, &mut pool).check_all_sent();
    assert!(!turn.again);
}

#[test]
fn one_that_knocks_at_a_full_batch_knocks_again() {
    let (mut pool, [mut home, _]) = (pool(8), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.calls = CallArray::growing(0, 1_448);
    turn.knock(5).on(&mut home, &mut pool);
    assert_eq!((turn.accepted, turn.again, home.connections()), (false, true, 0));
    turn.calls = CallArray::growing(1, 1_448);
    turn.knock(5).on(&mut home, &mut pool);
    assert_eq!((turn.accepted, home.connections()), (true, 1));
}

#[test]
fn connections_beyond_the_limit_are_rejected_until_others_end() {
    let (mut pool, [mut home, mut other]) = (pool(8), servers(slots::PAGE));
    let mut turns: Vec<Turn> = (0..=slots::PAGE as u32).map(|slot| Turn::new(slot, 1)).collect();
    for turn in &mut turns {
        turn.knock(5).on(&mut home, &mut pool);
    }
    let mut last = turns.pop().expect("there are some");
    assert!(turns.iter().all(|turn| turn.accepted && !turn.closed));
    assert_eq!((last.accepted, last.closed, home.stats().rejected), (false, true, 1));
    // Of a connection that was not accepted the cookie is zero, which is no other one's.
    last.dead().on(&mut home, &mut pool);
    assert_eq!(home.connections(), slots::PAGE);
    // One that the protocol rejects takes no slot.
    turns[7].dead().on(&mut home, &mut pool);
    Turn::new(70, 1).knock(UNWELCOME).on(&mut home, &mut pool);
    assert_eq!((home.connections(), home.stats().rejected), (slots::PAGE - 1, 2));
    // The other core has its own part; a connection that moved there and ended gives its slot back.
    let mut there = Turn::new(71, 1);
    there.knock(5).on(&mut other, &mut pool);
    turns[9].dead().on(&mut other, &mut pool);
    assert_eq!((home.connections(), other.connections()), (slots::PAGE - 2, 1));
    for slot in 0..2 {
        let mut turn = Turn::new(slot, 2);
        turn.knock(5).on(&mut home, &mut pool);
        assert!(turn.accepted && [turns[7].cookie, turns[9].cookie].contains(&turn.cookie));
    }
    assert_eq!((home.connections(), home.stats().rejected), (slots::PAGE, 2));
}

#[test]
#[cfg_attr(debug_assertions, should_panic(expected = "another core has the slot"))]
fn a_slot_in_other_hands_is_left_alone() {
    let (mut pool, [mut home, mut thief]) = (pool(8), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool);
    let held = home.slots.get(turn.cookie).expect("nobody has it");
    turn.opens(1).eof().on(&mut thief, &mut pool);
    assert_eq!((turn.closed, thief.stats().out_of_turn), (false, 2));
    drop(held);
}

#[test]
fn cookies_that_were_never_given_out_name_nothing() {
    let (mut pool, [mut home, mut thief]) = (pool(8), servers(100));
    let mut turn = Turn::new(1, 1);
    turn.knock(5).on(&mut home, &mut pool);
    let real = turn.cookie;
    let forged = (0..64).map(|bit| real.0 ^ 1 << bit).chain([0, u64::MAX, 1 << 63 | 127]);
    for cookie in forged {
        turn.cookie = Cookie(cookie);
        turn.recv(&mut pool, &[1]).opens(WIDE).eof().dead().on(&mut thief, &mut pool);
        assert_eq!((turn.sent.len(), home.connections()), (0, 1), "{cookie:x}");
    }
}

#[test]
#[should_panic(expected = "has a server already")]
fn a_part_of_the_slots_has_one_server() {
    let slots = Arc::new(SharedSlots::new(2, 100));
    let _one = Server::shared(1, Numbering::default(), Arc::clone(&slots));
    Server::shared(1, Numbering::default(), slots);
}

#[test]
#[should_panic(expected = "core 2 has no part")]
fn a_server_needs_a_part_of_the_slots() {
    Server::shared(2, Numbering::default(), Arc::new(SharedSlots::new(2, 100)));
}

/// A small generator of numbers, for threads.
struct Draw(u64);
impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const CORES: usize = if cfg!(miri) { 2 } else { 3 };
/// Connections that are at home on each core at a time, and those that follow one another on each.
const LINES: u32 = if cfg!(miri) { 2 } else { 4 };
const GENERATIONS: u32 = if cfg!(miri) { 2 } else { 60 };
/// Turns in which bytes come.
const TURNS: usize = if cfg!(miri) { 4 } else { 40 };
/// Bytes that come at a time, at most.
const LONGEST: u64 = if cfg!(miri) { 50 } else { 1_000 };

/// What the cores hand to each other.
struct Plane {
    /// Turns that any core may take.
    ready: Ring<Box<Turn>>,
    /// Turns that have ended, for their home core.
    ended: Vec<Ring<Box<Turn>>>,
    /// Connections that are still to end.
    open: AtomicUsize,
    stolen: AtomicUsize,
}

fn home_of(turn: &Turn) -> usize {
    turn.handle.slot() as usize % CORES
}

/// There is room for all turns, but a core that was stopped while it took one still has its place.
fn put(ring: &Ring<Box<Turn>>, mut turn: Box<Turn>) {
    while let Err(back) = ring.push(turn) {
        turn = back;
        std::thread::yield_now();
    }
}

/// One core: executes what its own connections asked for and makes their next turns, else runs a turn.
fn core(
    number: usize,
    plane: &Plane,
    mut server: SharedServer<Numbering>,
    region: &Arc<Region>,
) -> ServerStats {
    let (mut pool, mut draw) = (Pool::new(region, 16), Draw(0x9e37_79b9 + number as u64));
    for line in 0..LINES {
        let mut turn = Box::new(Turn::new(line * CORES as u32 + number as u32, 0));
        turn.knock(5).on(&mut server, &mut pool);
        put(&plane.ended[number], turn);
    }
    while plane.open.load(Ordering::Acquire) > 0 {
        if let Some(mut turn) = plane.ended[number].pop() {
            turn.execute(&mut pool).check();
            if turn.closed {
                turn.check_all_sent();
                turn.dead().on(&mut server, &mut pool);
                plane.open.fetch_sub(1, Ordering::AcqRel);
                if turn.handle.generation() + 1 == GENERATIONS {
                    continue;
                }
                let (slot, generation) = (turn.handle.slot(), turn.handle.generation() + 1);
                *turn = Turn::new(slot, generation);
                turn.knock(5).on(&mut server, &mut pool);
            }
            next(&mut turn, &mut draw, &mut pool);
            put(&plane.ready, turn);
        } else if let Some(mut turn) = plane.ready.pop() {
            let home = home_of(&turn);
            plane.stolen.fetch_add((home != number) as usize, Ordering::Relaxed);
            turn.run(&mut server, &mut pool);
            put(&plane.ended[home], turn);
        } else {
            std::thread::yield_now();
        }
    }
    assert_eq!(server.connections(), 0);
    server.stats()
}

/// Something comes for a connection: bytes as long as it is young, then its end, and windows.
fn next(turn: &mut Turn, draw: &mut Draw, pool: &mut Pool) {
    let data = vec![draw.below(256) as u8; 1 + draw.below(LONGEST) as usize];
    if turn.received.len() < TURNS * LONGEST as usize / 2 {
        if draw.below(4) > 0 {
            turn.window = draw.below(2 * LONGEST) as u32;
        }
        turn.again().recv(pool, &data);
    } else if draw.below(2) == 0 {
        turn.opens(WIDE);
    } else {
        turn.again().eof();
    }
}

#[test]
fn turns_that_are_handed_from_core_to_core() {
    let region = Region::heap(if cfg!(miri) { 64 } else { 1_024 });
    let slots = Arc::new(SharedSlots::new(CORES, LINES as usize));
    let all = CORES * (LINES * GENERATIONS) as usize;
    let ring = || Ring::new(CORES * LINES as usize);
    let plane = Plane {
        ready: ring(),
        ended: (0..CORES).map(|_| ring()).collect(),
        open: AtomicUsize::new(all),
        stolen: AtomicUsize::new(0),
    };
    let stats: Vec<ServerStats> = std::thread::scope(|scope| {
        let (plane, region) = (&plane, &region);
        let threads: Vec<_> = (0..CORES)
            .map(|number| {
                let slots = Arc::clone(&slots);
                let server = Server::shared(number, Numbering::default(), slots);
                scope.spawn(move || core(number, plane, server, region))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no core panics")).collect()
    });
    let sum = |of: fn(&ServerStats) -> u64| stats.iter().map(of).sum::<u64>();
    let (accepted, ended) = (sum(|of| of.accepted), sum(|of| of.ended));
    assert_eq!((accepted, ended, sum(|of| of.out_of_turn)), (all as u64, all as u64, 0));
    assert!(sum(|of| of.kept_bytes) > 0, "windows were too small at times");
    assert!(plane.stolen.load(Ordering::Relaxed) > 0, "turns were run elsewhere");
}
