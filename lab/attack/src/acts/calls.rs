//! Attacks by what is asked for.

use domain::Handle;
use rand::{Rng, RngExt};

use super::{Attacker, pick, send, shuffle};
use crate::crowd::{CLIENT, DATAGRAM_PORT, PORT};
use crate::lies::{ACCEPT, CLOSE, CONNECT, Call, DATAGRAM, DONE_WITH, SEND, neighbour, odd};

/// All calls on a connection.
const ON_CONNECTIONS: [u64; 6] = [ACCEPT, SEND | 1 << 32, DONE_WITH, CLOSE, 5, 6];
/// Forged calls in a batch.
const MANY: usize = 64;

/// Random handles, such beside those of open connections, generations 0 and highest.
pub fn forged_handles(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve_turned(|liar, calls| {
        for _ in 0..MANY {
            let own = liar.open.last().copied().unwrap_or(0);
            let random = &mut liar.random;
            let handle = match random.random_range(0..3) {
                0 => random.random(),
                1 => odd(random, own),
                _ => neighbour(own, random),
            };
            // One that happens to be an open connection's would be no forgery.
            if !liar.open.contains(&handle) {
                let kind = pick(liar, &ON_CONNECTIONS);
                calls.push([kind, handle, 64, 0]);
            }
        }
    })
}

/// Closes and aborts, and goes on with the handles.
pub fn stale_handles(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve_turned(|liar, calls| {
        if liar.random.random_bool(0.1)
            && let Some(&handle) = liar.open.first()
        {
            calls.push([pick(liar, &[CLOSE, 5]), handle, 0, 0]);
        }
        for handle in liar.stale.clone() {
            calls.push([pick(liar, &ON_CONNECTIONS), handle, 64, 0]);
        }
    })
}

/// The same batch again and again; done without a batch, and with numbers of others.
pub fn replayed(attacker: &mut Attacker) -> anyhow::Result<()> {
    while attacker.serve(20) {
        for _ in 0..20 {
            // What stands in the array stays there.
            if attacker.hear() {
                attacker.done();
            }
        }
        for ahead in [1, 2, 1 << 16, 1 << 31, u32::MAX, u32::MAX - 1] {
            attacker.joined.done(attacker.batch().wrapping_add(ahead));
        }
    }
    Ok(())
}

/// Honest calls in any order: sent after closed, given back before received.
pub fn reordered(attacker: &mut Attacker) -> anyhow::Result<()> {
    let mut later = Vec::new();
    attacker.serve_turned(|liar, calls| {
        calls.append(&mut later);
        shuffle(liar, calls);
        let keep = calls.len() / 2;
        later = calls.split_off(keep);
        later.truncate(64);
    })
}

/// Lengths, offsets, counts and first pieces at every boundary, in all combinations.
pub fn lengths_and_offsets(attacker: &mut Attacker) -> anyhow::Result<()> {
    let geometry = attacker.joined.geometry;
    let (arena, pieces) = (attacker.joined.arena.len() as u64, u64::from(geometry.arena_chunks));
    let around = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
    let mut offsets = vec![0, 1, (1 << 48) - 1, 1 << 47, 1 << 32, u64::MAX >> 16];
    offsets.extend(around(arena));
    let lens = [0, 1, 63, 64, 65, 1_447, 1_448, 1_449, 2_047, 2_048, 2_049, 65_534, 65_535];
    let mut counts = vec![0, 1, 2, u64::from(u32::MAX), u64::from(u32::MAX) - 1, 1 << 31];
    counts.extend(around(pieces));
    let firsts = counts.clone();
    let mut told: Vec<u64> = around(geometry.call_records() as u64).to_vec();
    told.extend([0, 1, u64::from(u32::MAX), 1 << 31]);
    while attacker.hear() {
        let mut calls = attacker.liar.answers();
        let liar = &mut attacker.liar;
        let handle = liar.open.last().copied().unwrap_or(0);
        for _ in 0..16 {
            let offset = pick(liar, &offsets);
            let piece = offset << 16 | pick(liar, &lens);
            let (first, count) = (pick(liar, &firsts), pick(liar, &counts));
            calls.push(send(handle, piece));
            calls.push([SEND | count << 32, handle, piece, first]);
            calls.push([DATAGRAM | 9 << 16 | count << 32, piece, liar.peers[0], first]);
            let given = pick(liar, &[0, 1, u64::from(u32::MAX), u64::MAX, 1 << 32]);
            calls.push([DONE_WITH, handle, given, 0]);
        }
        let lies = liar.random.random_bool(0.1);
        let count = if lies { pick(liar, &told) } else { calls.len() as u64 };
        let piece_count = pick(liar, &counts);
        attacker.hand_over(&calls, count as u32, piece_count as u32, u64::MAX);
    }
    Ok(())
}

/// Bytes outside of the arena.
pub fn outside_arena(attacker: &mut Attacker) -> anyhow::Result<()> {
    let arena = attacker.joined.arena.len() as u64;
    attacker.serve_turned(|liar, calls| {
        for _ in 0..MANY {
            let beyond = match liar.random.random_range(0..3) {
                0 => arena - liar.random.random_range(0..1_000),
                1 => arena + liar.random.random_range(0..1 << 30),
                _ => liar.random.random::<u64>() >> 16,
            };
            let piece = beyond << 16 | liar.random.random_range(1_000..=65_535);
            let handle = liar.handle();
            calls.push(send(handle, piece));
            calls.push([DATAGRAM | 9 << 16 | 1 << 32, piece, liar.peers[0], 0]);
        }
    })
}

/// As many calls as the array holds.
pub fn flood(attacker: &mut Attacker) -> anyhow::Result<()> {
    let most = attacker.joined.geometry.call_records();
    attacker.serve_turned(|liar, calls| {
        let handles = liar.open.clone();
        let mut handles = handles.iter().cycle();
        let peer = liar.peers[0];
        while calls.len() < most {
            let handle = handles.next().copied().unwrap_or(0);
            calls.push(send(handle, 1_448));
            calls.push([DATAGRAM | 9 << 16 | 1 << 32, 1_400, peer, 0]);
            calls.push([6, handle, 0, 0]);
        }
    })
}

/// Connections to everybody.
pub fn connect_flood(attacker: &mut Attacker) -> anyhow::Result<()> {
    let most = attacker.joined.geometry.call_records();
    attacker.serve_turned(|liar, calls| {
        while calls.len() < most {
            let peer = match liar.random.random_range(0..4) {
                0 => liar.random.random::<u64>() >> 16,
                1 => 0x0a08_0000_0000 | liar.random.random::<u64>() & 0xff_ffff,
                _ => pick(liar, &liar.peers.clone()),
            };
            let cookie = liar.random.next_u64();
            calls.push([CONNECT, cookie, peer, 0]);
        }
    })
}

/// Accepts, and sends on, every handle that the next connection could have.
pub fn accept_unannounced(attacker: &mut Attacker) -> anyhow::Result<()> {
    const GROUPS: u16 = 128;
    attacker.serve_turned(|liar, calls| {
        let (slot, generation) = (liar.random.random_range(0..2), liar.random.random_range(0..4));
        for group in 0..GROUPS {
            let handle = Handle::new(group, slot, generation).to_bits();
            calls.extend([[ACCEPT, handle, 1, 0], send(handle, 64)]);
        }
    })
}

/// Connects and sends datagrams to the client, from ports of its own and of others.
pub fn reach_denied(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve_turned(|liar, calls| {
        for _ in 0..MANY {
            let (own, port) = match liar.random.random_bool(0.5) {
                true => (DATAGRAM_PORT, DATAGRAM_PORT),
                false => (liar.random.random(), PORT),
            };
            let peer = u64::from(CLIENT.to_bits()) << 16 | u64::from(port);
            calls.push([DATAGRAM | u64::from(own) << 16 | 1 << 32, 64, peer, 0]);
            calls.push([CONNECT, 1, peer, 0]);
        }
    })
}

/// Receives, and gives nothing back.
pub fn never_consuming(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve_turned(|_, calls| calls.retain(|call| call[0] == ACCEPT))
}

/// Answers, and keeps all buffers; of knocks it lets every second one wait for ever.
pub fn hold_everything(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve_turned(|_, calls| {
        let holds = |call: &Call| call[0] == DONE_WITH || call[0] == CLOSE;
        calls.retain(|call| !holds(call) && (call[0] != ACCEPT || call[1] % 2 == 0));
    })
}

/// Makes every piece as long as one may be, and serves a while: how many pieces and calls there may be.
fn with_longest_pieces(attacker: &mut Attacker) -> (u32, usize) {
    let geometry = attacker.joined.geometry;
    for index in 0..geometry.arena_chunks as usize {
        attacker.joined.write(geometry.piece(index), 65_535);
    }
    attacker.serve(50);
    (geometry.arena_chunks, geometry.call_records())
}

/// Every call sends the whole arena, several times over; every second batch is of calls that fail, so that the next
/// one has more events than go over at once.
pub fn exhaust_transmit(attacker: &mut Attacker) -> anyhow::Result<()> {
    let (pieces, most) = with_longest_pieces(attacker);
    let count = u64::from(pieces) << 32;
    let mut fails = false;
    while attacker.hear() {
        fails = !fails;
        let handles = attacker.liar.open.clone();
        let mut calls: Vec<Call> = attacker.liar.answers();
        calls.retain(|call| call[0] == ACCEPT);
        if fails {
            calls.resize(most, [DONE_WITH, u64::MAX >> 1, 1, 0]);
        }
        for handle in handles.iter().cycle().take(if fails { 0 } else { most }) {
            calls.push([SEND | count, *handle, 0, 0]);
            calls.push([DATAGRAM | 9 << 16 | count, 0, attacker.liar.peers[0], 0]);
        }
        calls.truncate(most);
        attacker.hand_over(&calls, calls.len() as u32, pieces, 0);
    }
    Ok(())
}

/// As many calls that fail as fit, so that there are more events than go over at once; to those, sends of more bytes
/// to one connection than its counters hold.
pub fn many_events(attacker: &mut Attacker) -> anyhow::Result<()> {
    let geometry = attacker.joined.geometry;
    let (pieces, most) = with_longest_pieces(attacker);
    while attacker.hear() {
        let mut calls = attacker.liar.answers();
        // A full array of events is one of several.
        let handle = attacker.liar.open.first().copied().unwrap_or(0);
        if attacker.joined.told().count() >= geometry.events as usize {
            calls.clear();
            calls.resize(40, [SEND | u64::from(pieces) << 32, handle, 0, 0]);
        } else {
            calls.resize(most, [DONE_WITH, handle, u64::from(u32::MAX), 0]);
        }
        calls.truncate(most);
        attacker.hand_over(&calls, calls.len() as u32, pieces, 0);
    }
    Ok(())
}
