//! Attacks on and by means of the shared memories.

use std::sync::atomic::Ordering;

use anyhow::ensure;
use process::layout;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};

use super::{Attacker, GOT_IN, any_word, send};
use crate::lies::{MIXED, odd};
use crate::unsafe_os;

/// Serves, and has another thread change all that the dataplane reads.
pub fn changed_while_read(attacker: &mut Attacker) -> anyhow::Result<()> {
    let seed = attacker.seed;
    let (calls, arena) = (
        std::sync::Arc::clone(&attacker.joined.calls),
        std::sync::Arc::clone(&attacker.joined.arena),
    );
    std::thread::spawn(move || {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        loop {
            let at = 8 * random.random_range(layout::HEADER / 8..calls.len() / 8);
            if let Some(word) = calls.word64(at) {
                let changed = word.load(Ordering::Relaxed) ^ 1 << random.random_range(0..64);
                word.store(changed, Ordering::Relaxed);
            }
            let at = 8 * random.random_range(0..arena.len() / 8);
            if let Some(word) = arena.word64(at) {
                word.store(random.random(), Ordering::Relaxed);
            }
        }
    });
    attacker.serve_turned(|liar, calls| {
        for _ in 0..32 {
            let handle = liar.handle();
            calls.push(send(handle, liar.random.random_range(0..1 << 20) << 16 | 1_448));
        }
    })
}

/// Lies, and has another thread write random words, header and all.
pub fn random_corruption(attacker: &mut Attacker) -> anyhow::Result<()> {
    let (seed, calls) = (attacker.seed, std::sync::Arc::clone(&attacker.joined.calls));
    std::thread::spawn(move || {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(!seed);
        loop {
            let hot = random.random_bool(0.1);
            let words = if hot { layout::HEADER / 8 + 32 } else { calls.len() / 8 };
            // The number of the batch is left alone: nothing would be read but now and then.
            if let Some(word) = calls.word64(8 * random.random_range(1..words)) {
                word.store(odd(&mut random, 100), Ordering::Relaxed);
            }
        }
    });
    attacker.liar.set_falsehood(MIXED);
    while attacker.hear() {
        attacker.liar.lie(&attacker.joined);
        let at = any_word(&mut attacker.liar, &attacker.joined);
        attacker.joined.write(at, 0);
        attacker.done();
    }
    Ok(())
}

/// Serves a while; then tries every way to write to what it was shown to read, and a store at last.
pub fn write_received_packets(attacker: &mut Attacker) -> anyhow::Result<()> {
    ensure!(attacker.serve(30), "there was nothing to serve");
    let joined = &attacker.joined;
    for (name, memory) in [("packets", &joined.packets), ("events", &joined.events)] {
        let mut ways = unsafe_os::ways_to_write(memory);
        let file = memory.descriptor()?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let tries = [
            ("ftruncate to nothing", ftruncate(&file, 0)),
            ("ftruncate to more", ftruncate(&file, 1 << 40)),
            ("fallocate to punch a hole", fallocate(&file, punch, 0, 4_096)),
            ("fallocate to zero", fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4_096)),
            ("write", rustix::io::write(&file, b"x").map(|_| ())),
            ("pwrite", rustix::io::pwrite(&file, b"x", 4_096).map(|_| ())),
            ("sealing it further", fcntl_add_seals(&file, SealFlags::WRITE)),
        ];
        ways.extend(tries.iter().filter(|(_, tried)| tried.is_ok()).map(|(way, _)| *way));
        if !ways.is_empty() {
            crate::say(&format!("the {name} can be changed: {}", ways.join(", ")));
            std::process::exit(GOT_IN);
        }
    }
    // A store into the events ends a child, and nobody else.
    match unsafe_os::fork()? {
        None => {
            store(&joined.events);
            std::process::exit(GOT_IN)
        }
        Some(_) => {
            let status = rustix::process::wait(rustix::process::WaitOptions::empty())?;
            let signal = status.and_then(|(_, status)| status.terminating_signal());
            if signal != Some(libc::SIGSEGV) {
                crate::say("a store into the events did not fault");
                std::process::exit(GOT_IN);
            }
        }
    }
    ensure!(attacker.serve(30), "there was nothing to serve");
    store(&attacker.joined.packets);
    std::process::exit(GOT_IN)
}

fn store(memory: &memfile::Memory) {
    if let Some(word) = memory.word64(4_096) {
        word.store(0xdead, Ordering::Relaxed);
    }
}

/// Sends from its arena, whose pages, and those of its calls, it tries to take away from the dataplane all the time:
/// each that went would interrupt the processors on which that runs.
pub fn unsettled_arena(attacker: &mut Attacker) -> anyhow::Result<()> {
    let memories = [&attacker.joined.arena, &attacker.joined.calls].map(std::sync::Arc::clone);
    let len = memories[0].len() as u64;
    attacker.serve_turned(|liar, calls| {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for memory in &memories {
            let pages = memory.len() as u64 / 4_096;
            let at = 4_096 * liar.random.random_range(0..pages);
            let bytes = (4_096 * pages - at).min(1 << 20);
            let taken = fallocate(memory.file(), punch, at, bytes).is_ok()
                || ftruncate(memory.file(), 0).is_ok()
                || unsafe_os::takes_pages_away(memory, at as usize, bytes as usize);
            if taken {
                crate::say("pages of a sealed memory were given back");
                std::process::exit(GOT_IN);
            }
        }
        for _ in 0..64 {
            let handle = liar.handle();
            calls.push(send(handle, liar.random.random_range(0..len - 2_000) << 16 | 1_448));
        }
    })
}
