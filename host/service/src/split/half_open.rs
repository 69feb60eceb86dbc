//! What a farewell does of itself: it finds the connections that are half open since their dataplane was killed, and has
//! their peers end them (RFC 9293 §3.5.1).
//!
//! It cannot reset a connection of which it knows nothing but the ends: a reset must hit the peer's next sequence number
//! (RFC 5961 §3.2). So it asks for that number, by opening the connection again:
//!
//! ```text
//! farewell                                    peer, established
//! SYN, from the dead dataplane's end   -->    (RFC 5961 §4.2: no reason to end)
//!                                      <--    challenge ACK
//! RST, its number that acknowledgment  -->    "connection reset" (RFC 9293 §3.10.7.3)
//! SYN, once more, after a time-out     -->
//!                                      <--    RST: there is no connection (any more)
//! ```
//!
//! The last line is how a peer is known to have been told. Each elastic thread tries all peers of the register: those
//! whose flow group is at home on another one fail at once, and succeed there. It has [`UNDER_WAY_MAX`] attempts under
//! way, and gives one up after [`SYN_RETRIES`] repetitions; an answer that comes later is reset all the same, as
//! whatever comes for no connection. Those that did not answer (what was lost is one reason; a peer that answers
//! strangers' SYNs rarely, another) have their turn again, [`ROUNDS`] times in all.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use runtime::PeersLeft;
use runtime::StackConfig;
use runtime::policy::NetworkPolicy;
use tailplane::{Calls, ConnectError, Cookie, Event, Events, Instant, Service};

/// How long a farewell stays at least: two or three retransmissions of a peer in the same network (RFC 6298: 200 ms on
/// Linux, then twice that).
pub const STAYS: Duration = Duration::from_millis(800);
/// How long it stays at most, where that was not enough for all peers of the register to be told.
pub const STAYS_AT_MOST: Duration = Duration::from_secs(3);
/// Attempts of one thread at a time: each holds a chunk of packet memory.
const UNDER_WAY_MAX: usize = 256;
/// Places of the register that are looked at in one cycle: taken or not, it takes a few microseconds.
const PLACES_IN_CYCLE: usize = 8_192;
/// After how long a SYN is repeated. In the network of a machine room it has been answered by then.
const REPEATED_AFTER: Duration = Duration::from_millis(20);
/// Repetitions. The first finds that the peer was told; one is for what was lost.
const SYN_RETRIES: u8 = 2;
/// Turns of a peer that does not answer.
const ROUNDS: u32 = 3;
/// Between the beginnings of two rounds: Linux answers the SYNs for one connection every 500 ms
/// (`tcp_invalid_ratelimit`).
const ROUND_INTERVAL: Duration = Duration::from_millis(550);
/// Resets of one thread in a second: those that it makes its peers ask for are not to go short.
const RESETS_PER_SECOND: u32 = 50_000;

/// The stack's settings for this: it lets nobody in, and does not wait for long.
pub fn settle(stack: &mut StackConfig) {
    stack.tcp_listen.clear();
    stack.udp_bind.clear();
    // It connects to the peers of whatever connections there were.
    stack.policy = NetworkPolicy::default();
    (stack.rto_min, stack.rto_max) = (REPEATED_AFTER, REPEATED_AFTER);
    stack.syn_retries = SYN_RETRIES;
    stack.answers_per_second = RESETS_PER_SECOND;
}

/// What all threads of a farewell share.
#[derive(Debug)]
pub struct Search<'a> {
    left: PeersLeft,
    /// Threads that are not through with the register.
    searching: AtomicUsize,
    stop: &'a AtomicBool,
}

impl<'a> Search<'a> {
    /// Among the peers that are `left`, by so many threads. Once all are through, and [`STAYS`] is over, `stop` is set.
    pub fn new(left: PeersLeft, threads: usize, stop: &'a AtomicBool) -> Self {
        Self { left, searching: AtomicUsize::new(threads), stop }
    }
}

/// How far a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The next round begins at this moment.
    Rests(Instant),
    /// There are places of the register that it has not looked at in this round.
    Opens,
    /// There are none; outcomes are awaited.
    Awaits,
    /// It is through with the register.
    Through {
        /// All others were before.
        is_last: bool,
    },
}

/// One thread's part.
#[derive(Debug)]
pub struct HalfOpen<'a> {
    search: &'a Search<'a>,
    /// When it began.
    began: Option<Instant>,
    phase: Phase,
    /// Rounds that have begun, and when the last one did.
    rounds: u32,
    round_began: Instant,
    /// The place of the register that comes next.
    next: usize,
    /// Attempts whose outcome is not known.
    under_way: usize,
    /// Attempts of this round that nobody answered, or for which there was no memory.
    unanswered: usize,
    wake_at: Option<Instant>,
}

impl<'a> HalfOpen<'a> {
    /// A thread's part in the search.
    pub fn new(search: &'a Search<'a>) -> Self {
        Self {
            search,
            began: None,
            phase: Phase::Rests(Instant::ZERO),
            rounds: 0,
            round_began: Instant::ZERO,
            next: 0,
            under_way: 0,
            unanswered: 0,
            wake_at: Some(Instant::ZERO),
        }
    }

    /// What became of attempts.
    fn hear(&mut self, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            let Event::Connected { outcome, .. } = event else { continue };
            self.under_way = self.under_way.saturating_sub(1);
            match outcome {
                // Somebody listens there, or was just connecting to here.
                Ok((handle, _)) => {
                    if calls.abort(handle).is_err() {
                        // As many calls as attempts have room: it is asked for next time all the same.
                        calls.again(handle);
                    }
                }
                Err(ConnectError::TimedOut | ConnectError::NoMemory) => self.unanswered += 1,
                // It is told, or another thread's, or cannot be reached.
                Err(_) => {}
            }
        }
    }

    /// Opens the next connections of the register, as many as there is room for. Answers whether there are more.
    fn open(&mut self, calls: &mut Calls<'_>) -> bool {
        let places = self.search.left.places();
        let stop_at = places.min(self.next + PLACES_IN_CYCLE);
        while self.next < stop_at && self.under_way < UNDER_WAY_MAX {
            if let Some((own, peer)) = self.search.left.peer(self.next) {
                let cookie = Cookie(self.next as u64);
                if calls.connect_from(cookie, own, peer).is_err() {
                    break;
                }
                self.under_way += 1;
            }
            self.next += 1;
        }
        self.next < places
    }

    /// Goes on; answers when to be asked again although nothing happens.
    fn advance(&mut self, now: Instant, calls: &mut Calls<'_>) -> Option<Instant> {
        let began = *self.began.get_or_insert(now);
        let latest = began + STAYS_AT_MOST;
        if now >= latest {
            self.is_through();
        }
        if let Phase::Rests(until) = self.phase {
            if now < until {
                return Some(until);
            }
            (self.phase, self.round_began) = (Phase::Opens, now);
            (self.next, self.unanswered) = (0, 0);
            self.rounds += 1;
        }
        if self.phase == Phase::Opens {
            if self.open(calls) {
                // With all that may be under way, the next outcome is what it waits for.
                return Some(if self.under_way < UNDER_WAY_MAX { now } else { latest });
            }
            self.phase = Phase::Awaits;
        }
        if self.phase == Phase::Awaits {
            if self.under_way > 0 {
                return Some(latest);
            }
            if self.unanswered > 0 && self.rounds < ROUNDS {
                let until = self.round_began + ROUND_INTERVAL;
                self.phase = Phase::Rests(until);
                return Some(until);
            }
        }
        let ends_at = began + STAYS;
        let is_last = self.is_through();
        if is_last && now >= ends_at {
            self.search.stop.store(true, Ordering::Relaxed);
        }
        (is_last && now < ends_at).then_some(ends_at)
    }

    /// It has nothing more to do. Answers whether it was the last thread that had.
    fn is_through(&mut self) -> bool {
        if let Phase::Through { is_last } = self.phase {
            return is_last;
        }
        let is_last = self.search.searching.fetch_sub(1, Ordering::AcqRel) == 1;
        self.phase = Phase::Through { is_last };
        is_last
    }
}

impl Service for HalfOpen<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.hear(events, calls);
        self.wake_at = self.advance(now, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

#[cfg(test)]
mod tests {
    use domain::{CallArray, CallRecord, EventArray, EventRecord, Handle, LocalEndpoint};
    use mem::{Pool, Region};
    use runtime::Register;

    use super::*;

    const CONNECTIONS: u32 = 1_000;
    /// Of the threads' calls, in one cycle.
    const CALLS: usize = 100;

    /// A thread's part, and the stack below it.
    struct Rig<'a> {
        part: HalfOpen<'a>,
        now: Instant,
        events: EventArray,
        calls: CallArray,
        pool: Pool,
    }

    impl<'a> Rig<'a> {
        fn new(search: &'a Search<'a>) -> Self {
            let (events, calls) = (EventArray::new(1_024), CallArray::new(CALLS, 1_448));
            let (pool, now) = (Pool::new(&Region::heap(8), 8), Instant::from_millis(5_000));
            Self { part: HalfOpen::new(search), now, events, calls, pool }
        }

        /// One cycle. What the part asks for.
        fn cycle(&mut self) -> Vec<CallRecord> {
            let mut calls = Calls::new(&mut self.calls, &mut self.pool);
            self.part.on_batch(self.now, self.events.view(&()), &mut calls);
            self.events.drain().for_each(drop);
            let (records, payloads) = self.calls.take();
            let asked = records.clone();
            self.calls.restore(records, payloads);
            asked
        }

        /// Cycles until nothing more is asked for at this moment. All that was.
        fn ask(&mut self) -> Vec<CallRecord> {
            let mut asked = Vec::new();
            while self.part.wake_at().is_some_and(|at| at <= self.now) {
                asked.extend(self.cycle());
                assert!(self.part.under_way <= UNDER_WAY_MAX, "{:?}", self.part);
            }
            asked
        }

        /// What becomes of so many attempts.
        fn tell(&mut self, count: usize, outcome: Result<Handle, ConnectError>) -> Vec<CallRecord> {
            for _ in 0..count {
                let cookie = Cookie(0);
                let event = match outcome {
                    Ok(handle) => {
                        EventRecord::Connected { cookie, local: 7.into(), handle, window: 9 }
                    }
                    Err(error) => EventRecord::ConnectFailed { cookie, error },
                };
                self.events.push(event).expect("there is room");
            }
            let mut asked = self.cycle();
            asked.extend(self.ask());
            asked
        }
    }

    fn left(peers: u16) -> PeersLeft {
        use runtime::PeerRegister;
        let kept = Register::create(CONNECTIONS).expect("made");
        let copy = kept.try_clone().expect("duplicated");
        let register = Register::join(copy, CONNECTIONS).expect("joined");
        for peer in 0..peers {
            let remote = "10.0.0.9:7".parse().expect("an endpoint");
            let own = LocalEndpoint::new(usize::from(peer) % 3, peer + 1);
            register.opened(peer % 128, u32::from(peer / 128), own, remote);
        }
        Register::left(kept, CONNECTIONS).expect("joined")
    }

    /// The own ports of what is asked for; the own address goes by the port.
    fn ports(asked: &[CallRecord]) -> Vec<u16> {
        let port = |call: &CallRecord| match *call {
            CallRecord::Connect { local, .. } => {
                let position = usize::from(local.port() - 1) % 3;
                assert_eq!(local.position(), Some(position), "from the address of the connection");
                local.port()
            }
            ref other => panic!("{other:?}"),
        };
        let mut ports: Vec<_> = asked.iter().map(port).collect();
        ports.sort_unstable();
        ports
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn each_peer_has_its_turn_and_so_many_at_a_time() {
        let stop = AtomicBool::new(false);
        let search = Search::new(left(1_000), 1, &stop);
        let mut rig = Rig::new(&search);
        let mut asked = rig.ask();
        assert_eq!(asked.len(), UNDER_WAY_MAX);
        while rig.part.under_way > 0 {
            rig.now += Duration::from_millis(1);
            let told = rig.part.under_way.min(50);
            asked.extend(rig.tell(told, Err(ConnectError::Refused)));
        }
        assert_eq!(ports(&asked), (1..=1_000).collect::<Vec<_>>());
        // All have heard: it stays for those who speak by themselves, and ends.
        assert_eq!((rig.part.rounds, stop.load(Ordering::Relaxed)), (1, false));
        let until = rig.part.wake_at().expect("to end");
        assert_eq!(until, Instant::from_millis(5_800));
        rig.now = until;
        assert_eq!((rig.ask(), stop.load(Ordering::Relaxed)), (vec![], true));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn whoever_does_not_answer_has_another_turn_and_not_for_ever() {
        let stop = AtomicBool::new(false);
        let search = Search::new(left(3), 1, &stop);
        let mut rig = Rig::new(&search);
        for round in 1..=ROUNDS {
            assert_eq!(ports(&rig.ask()), [1, 2, 3], "{round}");
            assert_eq!(rig.tell(2, Err(ConnectError::Refused)), []);
            assert_eq!(rig.tell(1, Err(ConnectError::TimedOut)), []);
            // The last round begins when all that is left to wait for is its own end.
            assert_eq!(stop.load(Ordering::Relaxed), round == ROUNDS, "{round}");
            rig.now = rig.part.wake_at().unwrap_or(rig.now);
        }
        assert_eq!((rig.part.wake_at(), rig.part.rounds), (None, ROUNDS));
        assert_eq!(rig.now, Instant::from_millis(5_000) + ROUND_INTERVAL * (ROUNDS - 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn a_connection_that_opens_is_aborted_and_none_is_waited_for_too_long() {
        let stop = AtomicBool::new(false);
        let search = Search::new(left(2), 1, &stop);
        let mut rig = Rig::new(&search);
        assert_eq!(ports(&rig.ask()), [1, 2]);
        let handle = Handle::new(1, 2, 3);
        assert_eq!(rig.tell(1, Ok(handle)), [CallRecord::Abort { handle }]);
        // The other one is never told of.
        rig.now = rig.part.wake_at().expect("to give up");
        assert_eq!(rig.now, Instant::from_millis(5_000) + STAYS_AT_MOST);
        assert_eq!((rig.ask(), stop.load(Ordering::Relaxed)), (vec![], true));
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn the_last_thread_that_is_through_ends_all() {
        let stop = AtomicBool::new(false);
        let search = Search::new(left(1), 2, &stop);
        let (mut one, mut other) = (Rig::new(&search), Rig::new(&search));
        assert_eq!((one.ask().len(), other.ask().len()), (1, 1));
        // At home on the other one.
        assert_eq!(one.tell(1, Err(ConnectError::NoPort)), []);
        assert_eq!(one.part.wake_at(), None);
        one.now += STAYS;
        other.now += STAYS;
        assert_eq!((one.cycle(), stop.load(Ordering::Relaxed)), (vec![], false));
        assert_eq!(other.tell(1, Err(ConnectError::Refused)), []);
        assert!(stop.load(Ordering::Relaxed));
        // And never stops the other's count below nothing.
        assert_eq!((one.cycle(), other.cycle()), (vec![], vec![]));
    }
}
