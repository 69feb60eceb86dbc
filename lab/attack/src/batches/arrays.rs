//! Batches against a dataplane's side with its arrays in hand: what comes out must be calls that an honest
//! application could have made, with sums of the bytes that leave, and no packet memory may be lost.

use std::time::Instant;

use anyhow::ensure;
use domain::{
    CallArray, CallRecord, Calls, Cookie, DeadReason, EventArray, EventRecord, FirstWindow, Handle,
    Service,
};
use mem::{HugePages, Pool, Region};
use process::Geometry;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wire::{Endpoint, Ipv4Addr};

use super::{Domain, Progress, SEGMENT_BYTES, Tally, lock};
use crate::lies::MIXED;

const ROOM: usize = 64;
/// Events of a batch, at most: more than go over at once.
const EVENTS: usize = 40;

/// Each round has a domain of its own.
pub(super) fn one_round(
    batches: u64,
    round: u64,
    seed: u64,
    progress: &mut Progress,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let region = Region::map(256, HugePages::No)?;
    let geometry = Geometry { events: 16, calls: 128, arena_chunks: 64 };
    let seed = seed ^ round << 56;
    let mut domain = Domain::new(&region, geometry, seed, MIXED)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
    let mut pool = Pool::new(&region, 128);
    let mut array = CallArray::new(ROOM, SEGMENT_BYTES);
    let mut events = EventArray::new(EVENTS);
    let before = pool.available();
    for batch in 0..batches {
        let now = clock::Instant::from_nanos(1_000 * batch);
        fill(&mut events, &mut pool, &mut random);
        lock(&domain.other).begin(now);
        let began = Instant::now();
        let calls = &mut Calls::new(&mut array, &mut pool);
        domain.near.on_batch(now, events.view(&()), calls);
        tally.took(began.elapsed(), progress.done);
        domain.check_ends()?;
        check(&mut array, &mut pool, tally)?;
        for (_, mbuf) in events.drain() {
            pool.free(mbuf);
        }
        progress.step();
    }
    ensure!(pool.available() == before, "{} of {before} chunks came back", pool.available());
    tally.add(&domain.near.stats(), lock(&domain.other).liar.heard);
    Ok(())
}

/// Events of all kinds.
fn fill(events: &mut EventArray, pool: &mut Pool, random: &mut impl Rng) {
    let most = if random.random_range(0..64) == 0 { EVENTS } else { 4 };
    for _ in 0..random.random_range(0..=most) {
        let handle = Handle::new(1, random.random_range(0..8), random.random_range(1..3));
        let (cookie, window) = (Cookie(handle.to_bits()), random.random());
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, random.random()), 7);
        let bytes = if random.random_bool(0.5) { pool.alloc().ok() } else { None };
        if let Some(mut mbuf) = bytes {
            // It fits: a chunk has room for it.
            let _ = mbuf.append(b"request");
            let pushed = match random.random_bool(0.8) {
                true => events.push_recv(handle, cookie, mbuf, 0, window),
                false => events.push_datagram(9.into(), peer, mbuf),
            };
            if let Err(mbuf) = pushed {
                pool.free(mbuf);
            }
            continue;
        }
        let reason = DeadReason::Reset;
        let record = match random.random_range(0..5) {
            0 => {
                let window = FirstWindow::new(window);
                EventRecord::Knock { handle, local: 7.into(), peer, window }
            }
            1 => EventRecord::Sent { handle, cookie, bytes: 1, window },
            2 => EventRecord::Eof { handle, cookie },
            3 => EventRecord::Again { handle, cookie, window },
            _ => EventRecord::Dead { handle, cookie, reason },
        };
        // A full array is full.
        let _ = events.push(record);
    }
}

/// See the module's comment.
fn check(array: &mut CallArray, pool: &mut Pool, tally: &mut Tally) -> anyhow::Result<()> {
    let (records, mut payloads) = array.take();
    ensure!(records.len() <= ROOM + EventArray::MAX_RECORDS, "{} calls", records.len());
    let mut next = 0;
    for record in &records {
        let kind = match record {
            CallRecord::Connect { .. } => 0,
            CallRecord::Accept { .. } => 1,
            CallRecord::Sendv { .. } => 2,
            CallRecord::RecvDone { .. } => 3,
            CallRecord::Close { .. } | CallRecord::Shutdown { .. } => 4,
            CallRecord::Abort { .. } => 5,
            CallRecord::Again { .. } => 6,
            CallRecord::UdpSendv { .. } => 7,
            CallRecord::Listen { .. } | CallRecord::Unlisten { .. } => 8,
            CallRecord::Inform { .. } => 9,
            CallRecord::SendvPlaced { .. } => anyhow::bail!("{record:?} beyond the domain"),
        };
        tally.issued[kind] += 1;
        if let CallRecord::Sendv { staged, .. } | CallRecord::UdpSendv { staged, .. } = record {
            ensure!(staged.first == next, "pieces out of the order of their calls: {record:?}");
            next += staged.count;
        }
    }
    ensure!(next as usize == payloads.len(), "{next} of {} buffers have a call", payloads.len());
    for (mbuf, sum) in payloads.drain(..) {
        let right = sum.finish() == wire::Sum::of(mbuf.bytes()).finish();
        pool.free(mbuf);
        ensure!(right, "the sum of a buffer is not that of its bytes");
    }
    array.restore(records, payloads);
    Ok(())
}
