//! A peer of the `shm` driver that breaks the protocol, as a script of bytes says.
//!
//! The same interpreter serves the seeded tests and the fuzzer, so that a script which one of them found can be
//! replayed by the other. What must hold, whatever the script says: nothing panics, no frame is longer than a chunk has
//! room for, memory beside a frame's chunk stays as it is, and in the end every chunk is back.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Instant;
use mem::{CHUNK_SIZE, Mbuf, Pool, RX_HEADROOM, Region};
use memfile::Memory;
use nic::Nic;
use nic::shm::{ShmConfig, ShmNic};

/// Frames that a lane holds.
const SLOTS: usize = 8;
/// Steps of one script that are carried out.
const MAX_STEPS: usize = 256;
/// Chunks of the packet memory: half of them are watched.
const CHUNKS: u32 = 32;
/// What is in the watched chunks.
const PATTERN: u8 = 0xa5;

// As the driver's own comment lays the memory out.
const PAGE: usize = 4096;
const LANE_BYTES: usize = PAGE + SLOTS * 2048;
const PRODUCER: usize = 0;
const CONSUMER: usize = 64;
const ARMED: usize = 128;
const LENGTHS: usize = 192;

/// Bytes of a script, one after the other; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A word that a liar would like: at the edges of what is allowed, far beyond, or nearly right.
    fn odd(&mut self, near: u32) -> u32 {
        let byte = self.byte();
        match byte % 8 {
            0 => u32::MAX - u32::from(byte >> 3),
            1 => u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
            2 => 1 << (byte >> 3),
            3 => near,
            4 => near.wrapping_add(1),
            5 => near.wrapping_sub(1),
            6 => u32::from(byte >> 3),
            _ => (CHUNK_SIZE - RX_HEADROOM) as u32 + u32::from(byte >> 3) - 8,
        }
    }
}

/// Writes one word: an index, a length, whether the peer sleeps, or anything anywhere.
fn lie(memory: &Memory, script: &mut Script<'_>) {
    let lane = PAGE + usize::from(script.byte() % 2) * LANE_BYTES;
    let which = script.byte();
    let at = match which % 8 {
        0 => lane + PRODUCER,
        1 => lane + CONSUMER,
        2 => lane + ARMED,
        3..7 => lane + LENGTHS + 4 * (usize::from(which >> 3) % SLOTS),
        _ => 4 * (script.odd(0) as usize % (memory.len() / 4)),
    };
    let word = memory.word(at).expect("inside");
    let near = match which % 8 {
        0 | 1 => word.load(Ordering::Relaxed),
        _ => (CHUNK_SIZE - RX_HEADROOM) as u32,
    };
    word.store(script.odd(near), Ordering::Relaxed);
}

/// The honest end, and packet memory of which every second chunk is watched.
struct Victim {
    nic: ShmNic,
    region: Arc<Region>,
    pool: Pool,
    watched: Vec<Mbuf>,
    received: Vec<Mbuf>,
}

impl Victim {
    fn new() -> (Self, Arc<Memory>) {
        let config = ShmConfig { slots: SLOTS as u32, ..ShmConfig::default() };
        let (nic, offer) = ShmNic::create(&config).expect("memory");
        let memory: OwnedFd = offer.memory.as_fd().try_clone_to_owned().expect("a descriptor");
        let memory = Memory::join(memory, PAGE + 2 * LANE_BYTES).expect("of this size");
        let region = Region::heap(CHUNKS);
        let mut pool = Pool::new(&region, CHUNKS as usize);
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc().ok()).collect();
        let mut watched = Vec::new();
        for (index, mut mbuf) in all.into_iter().enumerate() {
            if index % 2 == 0 {
                pool.free(mbuf);
                continue;
            }
            mbuf.reset(mem::CHUNK_HEADER).expect("inside");
            mbuf.extend(CHUNK_SIZE - mem::CHUNK_HEADER).expect("the chunk").fill(PATTERN);
            watched.push(mbuf);
        }
        (Self { nic, region, pool, watched, received: Vec::new() }, memory)
    }

    /// One look at the wire, and an answer to what came.
    fn step(&mut self, what: u8) {
        let Self { nic, pool, received, .. } = self;
        match what % 4 {
            0 | 1 => {
                let limit = usize::from(what >> 2);
                let count = nic.receive(Instant::ZERO, pool, received, limit);
                assert!(count <= SLOTS && count == received.len(), "{count} frames at once");
            }
            2 => {
                let mut frames = Vec::new();
                for _ in 0..what >> 4 {
                    let Ok(mut mbuf) = pool.alloc() else { break };
                    mbuf.append(&[what; 60]).expect("room");
                    frames.push(mbuf.into_tx());
                }
                nic.transmit(Instant::ZERO, pool, &mut frames);
                frames.drain(..).for_each(|frame| pool.complete(frame));
            }
            _ => {
                nic.arm();
                assert!(nic.rx_backlog() <= SLOTS);
                nic.disarm();
            }
        }
        for mbuf in received.drain(..) {
            assert!(mbuf.len() <= CHUNK_SIZE - RX_HEADROOM, "{} bytes", mbuf.len());
            pool.free(mbuf);
        }
    }

    fn end(mut self) {
        for mbuf in self.watched.drain(..) {
            assert!(mbuf.bytes().iter().all(|byte| *byte == PATTERN), "a frame ran over");
            self.pool.free(mbuf);
        }
        drop(self.pool);
        assert_eq!(self.region.depot_len(), CHUNKS as usize, "chunks are lost");
    }
}

/// Ends the other thread, also where this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Carries a script out, each step after the other.
pub fn run(script: &[u8]) {
    let (mut victim, memory) = Victim::new();
    let mut script = Script(script);
    for _ in 0..MAX_STEPS {
        if script.0.is_empty() {
            break;
        }
        let what = script.byte();
        if what >= 128 { victim.step(what) } else { lie(&memory, &mut script) }
    }
    victim.end();
}

/// The same with the peer in a thread of its own, which writes what the script says over and over while frames are
/// received. So many looks at the wire.
pub fn race(script: &[u8], looks: u32) {
    let (mut victim, memory) = Victim::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut script = Script(script);
                for _ in 0..MAX_STEPS {
                    lie(&memory, &mut script);
                }
            }
        });
        for look in 0..looks {
            victim.step(look as u8);
        }
    });
    victim.end();
}
