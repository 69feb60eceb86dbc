//! Limits of what connections keep, in memory and in time, where one server serves a connection and where
//! several do.

use std::sync::Arc;

use clock::{Duration, Instant};
use domain::Service;
use mem::Pool;

use super::tests::{Turn, pool};
use super::*;

const MEMORY_BYTES: usize = 1 << 20;
/// By so much fewer connections share less memory under Miri.
const FEWER: u32 = if cfg!(miri) { 32 } else { 1 };
const SHARED_BYTES: usize = MEMORY_BYTES / FEWER as usize;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_TIMEOUT: Duration = Duration::from_secs(100);
/// Connections of a service that has a limit on them: as many as slots are allocated together.
const MOST: usize = 64;
/// Bytes of a reply to one byte.
const REPLY_BYTES: usize = 4 << 10;

/// Answers each byte with `REPLY_BYTES`, as far as there is room; a byte 0 begins a request that never ends.
struct Amplifier {
    limits: Limits,
}

impl Protocol for Amplifier {
    type Connection = ();
    const REQUEST_BYTES: usize = 100;

    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }

    fn receive(
        &mut self,
        _: Instant,
        (): &mut (),
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        for (number, byte) in data.iter().enumerate() {
            let left = data.len() - number;
            match byte {
                0 => return Flow::Partial { left, begun: number > 0 },
                _ if output.room() == 0 => return Flow::Yield { left },
                _ => output.put(&[*byte; REPLY_BYTES]),
            }
        }
        Flow::Continue
    }
}

fn memory() -> Arc<ConnectionMemory> {
    Arc::new(ConnectionMemory::new(MEMORY_BYTES))
}

/// Memory that is short where many connections share it.
fn shared_memory() -> Arc<ConnectionMemory> {
    Arc::new(ConnectionMemory::new(SHARED_BYTES))
}

fn limits(memory: &Arc<ConnectionMemory>) -> Limits {
    Limits {
        request_timeout: Some(REQUEST_TIMEOUT),
        idle_timeout: Some(IDLE_TIMEOUT),
        memory: Some(Arc::clone(memory)),
        ..Limits::default()
    }
}

/// Limits of a service that never closes an idle connection while there is room for others.
fn crowded(memory: &Arc<ConnectionMemory>) -> Limits {
    Limits { idle_timeout: None, max_connections: Some(MOST), ..limits(memory) }
}

fn alone(memory: &Arc<ConnectionMemory>) -> Server<Amplifier> {
    Server::new(Amplifier { limits: limits(memory) })
}

fn shared(memory: &Arc<ConnectionMemory>) -> [SharedServer<Amplifier>; 2] {
    shared_with(&limits(memory), 10_000)
}

fn shared_with(limits: &Limits, most: usize) -> [SharedServer<Amplifier>; 2] {
    let slots = Arc::new(SharedSlots::new(2, most));
    [0, 1]
        .map(|core| Server::shared(core, Amplifier { limits: limits.clone() }, Arc::clone(&slots)))
}

/// An accepted connection that grants `window` bytes.
fn open(server: &mut impl Service, pool: &mut Pool, slot: u32, window: u32) -> Turn {
    let mut turn = Turn::new(slot, 1);
    turn.knock(5).on(server, pool);
    assert!(turn.accepted);
    turn.opens(window).on(server, pool);
    turn
}

/// The server's batch without an event, whose calls, which may be about any connection, are executed.
fn wake(server: &mut impl Service, pool: &mut Pool, now: Instant, turns: &mut [Turn]) {
    let mut bare = Turn::new(u32::MAX >> 12, 9);
    bare.run_at(now, server, pool).execute_with(turns, pool);
}

#[test]
fn a_peer_that_does_not_read_costs_no_more_than_a_limit() {
    let (mut pool, memory) = (pool(256), memory());
    let mut server = alone(&memory);
    let mut turn = open(&mut server, &mut pool, 1, 10_000);
    // 4 MiB of replies, and 128 KiB of requests, were they executed.
    for _ in 0..100 {
        turn.recv(&mut pool, &[7; 1_000]).on(&mut server, &mut pool);
    }
    assert_eq!(turn.sent.len(), 10_000);
    let most = OUTPUT_LIMIT_BYTES + REPLY_BYTES;
    assert!(server.stats().kept_bytes <= most as u64, "{:?}", server.stats());
    assert!(memory.stats().kept_bytes <= 2 * (most + 100_000), "{:?}", memory.stats());
    assert!(turn.unreturned >= 99_000, "the peer's window closes: {}", turn.unreturned);
    // It reads slowly, and gets all.
    let part = if cfg!(miri) { 800 } else { 16 };
    while turn.sent.len() < 100_000 * REPLY_BYTES / part {
        let before = turn.sent.len();
        turn.opens(30_000).on(&mut server, &mut pool).again().on(&mut server, &mut pool);
        assert!(
            turn.sent.len() > before && turn.sent.iter().rev().take(100).all(|&byte| byte == 7)
        );
        assert!(memory.stats().kept_bytes <= 2 * (most + 100_000), "{:?}", memory.stats());
    }
    turn.dead().on(&mut server, &mut pool);
    assert!(memory.stats().kept_bytes < 200, "{:?}", memory.stats());
}

#[test]
fn incomplete_requests_time_out_where_cores_share_connections() {
    let (mut pool, memory) = (pool(64), memory());
    let [mut home, mut thief] = shared(&memory);
    let mut turns = [open(&mut home, &mut pool, 1, 1_000), open(&mut home, &mut pool, 2, 1_000)];
    // The thief has the turn in which the request begins: its wake is the one that counts.
    turns[0].recv(&mut pool, &[0]).on(&mut thief, &mut pool);
    let due = thief.wake_at().expect("an entry");
    assert_eq!(due, Instant::ZERO + REQUEST_TIMEOUT);
    wake(&mut thief, &mut pool, due, &mut turns);
    assert!(turns[0].again && !turns[1].again);
    turns[0].again().run_at(due, &mut home, &mut pool).execute(&mut pool);
    assert!(turns[0].aborted && !turns[1].closed);
    assert_eq!((memory.stats().timed_out, home.stats().out_of_turn), (1, 0));
}

#[test]
fn idle_connections_are_closed_where_cores_share_connections() {
    let (mut pool, memory) = (pool(64), memory());
    let [mut home, mut thief] = shared(&memory);
    let mut turns =
        [open(&mut home, &mut pool, 1, 1 << 20), open(&mut home, &mut pool, 2, 1 << 20)];
    let mut now = Instant::ZERO;
    for second in 1..=250 {
        now = Instant::ZERO + Duration::from_secs(second);
        wake(&mut home, &mut pool, now, &mut turns);
        wake(&mut thief, &mut pool, now, &mut turns);
        for turn in &mut turns {
            if turn.again {
                turn.again().run_at(now, &mut thief, &mut pool).execute(&mut pool);
            }
        }
        if second % 50 == 0 {
            turns[1].recv(&mut pool, &[1]).run_at(now, &mut thief, &mut pool).execute(&mut pool);
        }
        assert!(!turns[0].closed || second >= 100, "closed after {second} s");
    }
    assert_eq!(
        (turns[0].closed, turns[0].aborted, turns[1].closed),
        (true, false, false),
        "{now:?}"
    );
    assert_eq!(memory.stats().idle_closed, 1);
}

#[test]
fn the_longest_waiting_are_ended_when_memory_is_short() {
    let (mut pool, memory) = (pool(64), shared_memory());
    let mut server = alone(&memory);
    let mut turns = Vec::new();
    for slot in 0..1_000 / FEWER {
        let mut turn = open(&mut server, &mut pool, slot, 1_000);
        // What is aborted is another connection's, which the calls of this turn name.
        turn.recv(&mut pool, &[0; 1_400]).run_at(
            Instant::from_millis(slot.into()),
            &mut server,
            &mut pool,
        );
        turns.push(turn);
        let last = turns.len() - 1;
        let (others, this) = turns.split_at_mut(last);
        this[0].execute_with(others, &mut pool);
        assert!(memory.stats().kept_bytes <= SHARED_BYTES, "{:?}", memory.stats());
    }
    let ended = turns.iter().take_while(|turn| turn.aborted).count();
    assert_eq!(memory.stats().evicted, ended as u64);
    assert!(
        ended > 300 / FEWER as usize && turns[ended..].iter().all(|turn| !turn.closed),
        "{ended} were ended"
    );
}

#[test]
fn memory_that_cores_share_is_bounded() {
    let (mut pool, memory) = (pool(64), shared_memory());
    let [mut home, mut thief] = shared(&memory);
    let mut turns = Vec::new();
    for slot in 0..2_000 / FEWER {
        let now = Instant::from_millis(slot.into());
        let mut turn = open(&mut home, &mut pool, slot, 1_000);
        turn.recv(&mut pool, &[0; 1_400]);
        match slot % 2 {
            0 => turn.run_at(now, &mut home, &mut pool),
            _ => turn.run_at(now, &mut thief, &mut pool),
        };
        turns.push(turn);
        let last = turns.len() - 1;
        let (others, this) = turns.split_at_mut(last);
        this[0].execute_with(others, &mut pool);
        for number in 0..turns.len() {
            if turns[number].again && !turns[number].closed {
                let mut turn = core::mem::replace(&mut turns[number], Turn::new(20_000, 0));
                turn.again().run_at(now, &mut home, &mut pool).execute_with(&mut turns, &mut pool);
                turns[number] = turn;
            }
        }
        assert!(memory.stats().highest_bytes <= SHARED_BYTES + 4_096, "{:?}", memory.stats());
    }
    assert!(memory.stats().evicted > 300 / u64::from(FEWER), "{:?}", memory.stats());
    let newest = &turns[turns.len() / 20 * 19..];
    let ended = newest.iter().filter(|turn| turn.closed).count();
    assert!(10 * ended < newest.len(), "{ended} of the {} newest were ended", newest.len());
}

#[test]
fn connections_of_one_core_do_not_suffer_for_another_cores() {
    let (mut pool, memory) = (pool(64), shared_memory());
    let (mut attacked, mut other) = (alone(&memory), alone(&memory));
    let mut turns = Vec::new();
    for slot in 0..600 / FEWER {
        let mut turn = open(&mut attacked, &mut pool, slot, 1_000);
        turn.recv(&mut pool, &[0; 1_400]).run(&mut attacked, &mut pool);
        turn.execute_with(&mut turns, &mut pool);
        turns.push(turn);
    }
    assert!(memory.stats().evicted > 0);
    // Some that keep something at the other core, for longer than those that come.
    let mut patient: Vec<Turn> =
        (0..20_u32.div_ceil(FEWER)).map(|slot| open(&mut other, &mut pool, slot, 1_000)).collect();
    for turn in &mut patient {
        turn.recv(&mut pool, &[0; 1_400]).on(&mut other, &mut pool);
    }
    for slot in 600 / FEWER..900 / FEWER {
        let mut turn = open(&mut attacked, &mut pool, slot, 1_000);
        turn.recv(&mut pool, &[0; 1_400]).run(&mut attacked, &mut pool);
        turn.execute_with(&mut turns, &mut pool);
        turns.push(turn);
    }
    assert!(patient.iter().all(|turn| !turn.closed));
    assert!(memory.stats().highest_bytes <= SHARED_BYTES, "{:?}", memory.stats());
}

/// Reads `bytes` of a long reply every `pause`, for so many times. Answers whether the connection was reset.
fn reads_slowly(bytes: u32, pause: Duration, times: u32) -> bool {
    let (mut pool, memory) = (pool(256), memory());
    let mut server = alone(&memory);
    let mut turns = [open(&mut server, &mut pool, 1, 1_000)];
    for _ in 0..100 {
        turns[0].recv(&mut pool, &[7; 1_000]).on(&mut server, &mut pool);
    }
    for number in 1..=times {
        let now = Instant::ZERO + pause * number;
        let sent = turns[0].sent.len();
        turns[0].opens(bytes).run_at(now, &mut server, &mut pool).execute(&mut pool);
        assert!(turns[0].sent.len() > sent, "it takes something each time");
        wake(&mut server, &mut pool, now, &mut turns);
        if turns[0].closed {
            assert_eq!((turns[0].aborted, memory.stats().timed_out), (true, 1));
            return true;
        }
    }
    false
}

#[test]
fn a_peer_that_reads_a_byte_now_and_then_times_out() {
    assert!(reads_slowly(1, REQUEST_TIMEOUT / 2, 4));
    assert!(reads_slowly(OUTPUT_LIMIT_BYTES as u32 / 4, REQUEST_TIMEOUT / 2, 4));
}

#[test]
fn a_peer_that_reads_at_the_least_rate_is_served() {
    let times = if cfg!(miri) { 10 } else { 40 };
    assert!(!reads_slowly(OUTPUT_LIMIT_BYTES as u32 / 2 + 1, REQUEST_TIMEOUT / 2, times));
}

#[test]
fn requests_begun_behind_an_unread_reply_do_not_extend_its_time() {
    let (mut pool, memory) = (pool(64), memory());
    let mut server = alone(&memory);
    let mut turns = [open(&mut server, &mut pool, 1, 0)];
    for number in 0..4 {
        let now = Instant::ZERO + REQUEST_TIMEOUT / 2 * number;
        turns[0].recv(&mut pool, &[1, 0]).run_at(now, &mut server, &mut pool).execute(&mut pool);
        wake(&mut server, &mut pool, now, &mut turns);
    }
    assert!(turns[0].aborted, "{:?}", memory.stats());
}

/// For which connections are opened.
const SECONDS: u64 = if cfg!(miri) { 160 } else { 300 };

/// Opens connections every second, many more than there may be. The first asks every second, the others are
/// idle. Answers the seconds in which connections were reset, by connection.
fn crowd(servers: &mut [impl Service], memory: &Arc<ConnectionMemory>) -> Vec<Option<u64>> {
    let mut pool = pool(64);
    let mut turns: Vec<Turn> = Vec::new();
    let mut ended = Vec::new();
    for second in 0..SECONDS {
        let now = Instant::ZERO + Duration::from_secs(second);
        let mut turn = Turn::new(second as u32, 1);
        turn.knock(5).run_at(now, &mut servers[0], &mut pool).execute_with(&mut turns, &mut pool);
        assert!(turn.accepted, "connection {second}: {:?}", memory.stats());
        turns.push(turn);
        ended.push(None);
        let last = servers.len() - 1;
        turns[0]
            .recv(&mut pool, &[1])
            .run_at(now, &mut servers[last], &mut pool)
            .execute(&mut pool);
        assert!(!turns[0].closed, "it was not idle: second {second}");
        for (turn, ended) in turns.iter_mut().zip(&mut ended) {
            if turn.again && !turn.closed {
                turn.again().run_at(now, &mut servers[last], &mut pool).execute(&mut pool);
            }
            if turn.closed && ended.is_none() {
                *ended = Some(second);
                turn.dead().run_at(now, &mut servers[0], &mut pool);
            }
        }
        let open = ended.iter().filter(|ended| ended.is_none()).count();
        assert!(open <= MOST, "{open} are open in second {second}");
    }
    assert_eq!(memory.stats().crowded, ended.iter().flatten().count() as u64);
    ended
}

#[test]
fn the_longest_idle_is_reset_where_there_are_nearly_as_many_as_may_be() {
    let memory = memory();
    let mut server = [Server::new(Amplifier { limits: crowded(&memory) })];
    let ended = crowd(&mut server, &memory);
    // In the order in which they came, one for each that comes.
    let reset = ended.iter().flatten().count();
    assert!(reset as u64 > SECONDS - 100, "{reset}");
    assert!(ended[1..=reset].iter().is_sorted() && ended[1..=reset].iter().all(Option::is_some));
    assert_eq!(ended[1], Some(MOST as u64 - MOST as u64 / 16 - 1), "no earlier than needed");
}

#[test]
fn idle_connections_make_room_where_cores_share_connections() {
    let memory = memory();
    let ended = crowd(&mut shared_with(&crowded(&memory), MOST), &memory);
    let first = ended.iter().flatten().min();
    assert!(first >= Some(&(MOST as u64 - MOST as u64 / 16 - 1)), "{first:?}");
    // It asks each of them twice at most before it resets it.
    assert!(ended[1..SECONDS as usize - 150].iter().all(Option::is_some), "{ended:?}");
}
