//! Attacks at the joining: what the application passes on as its arena.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use memfile::Memory;
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send};

use super::Attacker;
use crate::joined::{Greeted, bell};
use crate::lies::{DATAGRAM, Liar, MIXED};

/// What [`oversized`] passes on: little enough for a machine that tests, more than any arena needs.
const OVERSIZED: u64 = 1 << 30;
/// As a dataplane wants them.
const SEALED: SealFlags = SealFlags::SHRINK.union(SealFlags::FUTURE_WRITE);
/// Bytes of a huge page.
const HUGE_PAGE: u64 = 2 << 20;

fn file(bytes: u64, seals: SealFlags, further: MemfdFlags) -> anyhow::Result<OwnedFd> {
    let file = memfd_create("attack", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | further)?;
    ftruncate(&file, bytes)?;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}

/// Another kind with each seed. Those that are let in attack on.
pub fn arenas(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let honest = Memory::create_for_readers("attack-arena", 1 << 20)?;
    let right = || honest.descriptor();
    let (files, bytes): (Vec<OwnedFd>, u64) = match seed % 15 {
        0 => (vec![right()?], (1 << 20) + 4_096),
        1 => (vec![right()?], u64::MAX),
        2 => (vec![right()?], 0),
        3 => (vec![file(1 << 20, SealFlags::empty(), MemfdFlags::empty())?], 1 << 20),
        4 => (vec![file(1 << 20, SealFlags::GROW, MemfdFlags::empty())?], 1 << 20),
        5 => (vec![rustix::pipe::pipe()?.0], 1 << 20),
        6 => (vec![std::fs::File::open("/dev/zero")?.into()], 1 << 20),
        7 => (vec![std::fs::File::open("/proc/self/exe")?.into()], 4_096),
        8 => (vec![], 1 << 20),
        9 => (vec![right()?, right()?, right()?], 1 << 20),
        10 => (vec![greeted.packets.descriptor()?], greeted.packets.len() as u64),
        11 => (vec![greeted.calls.descriptor()?], greeted.calls.len() as u64),
        // A byte, and nothing behind it.
        12 => (vec![file(1, SEALED, MemfdFlags::empty())?], 1),
        // Pages of it could be given back.
        13 => (vec![file(1 << 20, SealFlags::SHRINK, MemfdFlags::empty())?], 1 << 20),
        // Huge pages, where there are some: they may be taken away.
        _ => match file(2 << 20, SEALED, MemfdFlags::HUGETLB) {
            Ok(file) => (vec![file], 2 << 20),
            Err(_) => (vec![greeted.events.descriptor()?], greeted.events.len() as u64),
        },
    };
    let borrowed: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let joined = greeted.answer_with(honest, &borrowed, bytes)?;
    attack_on(joined, liar, seed)
}

/// Another kind of call array with each seed.
pub fn calls(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let bytes = greeted.geometry.call_bytes() as u64;
    let other: OwnedFd = match seed % 8 {
        0 => file(bytes, SealFlags::empty(), MemfdFlags::empty())?,
        1 => file(bytes, SealFlags::SHRINK, MemfdFlags::empty())?,
        2 => file(bytes, SealFlags::FUTURE_WRITE, MemfdFlags::empty())?,
        3 => file(bytes - 4_096, SEALED, MemfdFlags::empty())?,
        4 => file(bytes + 4_096, SEALED, MemfdFlags::empty())?,
        5 => std::fs::File::open("/dev/zero")?.into(),
        // What the dataplane writes itself, where it is as large.
        6 => greeted.events.descriptor()?,
        // Nothing is ever written there that the attacker means.
        _ => file(bytes, SEALED, MemfdFlags::empty())?,
    };
    let joined = greeted.answer_with_calls(other.as_fd())?;
    attack_on(joined, liar, seed)
}

/// Another kind of bell with each seed: things that are none, one that is full, one that has been hung up, one that the
/// application empties and makes wait.
pub fn bells(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let (own, other) = bell()?;
    let joined = match seed % 7 {
        0 => greeted.answer_with_bell(rustix::pipe::pipe()?.0.as_fd(), own)?,
        1 => greeted.answer_with_bell(std::fs::File::open("/dev/zero")?.as_fd(), own)?,
        2 => {
            let inet = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            greeted.answer_with_bell(inet.as_fd(), own)?
        }
        3 => {
            let file = file(4_096, SealFlags::empty(), MemfdFlags::empty())?;
            greeted.answer_with_bell(file.as_fd(), own)?
        }
        4 => {
            while send(&own, &[1; 4_096], SendFlags::DONTWAIT).is_ok() {}
            greeted.answer_with_bell(other.as_fd(), own)?
        }
        // The far end of the dataplane's is gone.
        5 => greeted.answer_with_bell(other.as_fd(), bell()?.0)?,
        // The dataplane's end is the application's, too: it can have it wait, and take what was rung.
        _ => {
            let flags = rustix::fs::fcntl_getfl(&other)?;
            rustix::fs::fcntl_setfl(&other, flags - rustix::fs::OFlags::NONBLOCK)?;
            let joined = greeted.answer_with_bell(other.as_fd(), own)?;
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while recv(&other, &mut bytes[..], RecvFlags::empty()).is_ok_and(|got| got.0 > 0) {}
            });
            joined
        }
    };
    attack_on(joined, liar, seed)
}

/// An arena as large as many, in which nothing is: memory that the dataplane takes by looking at it.
pub fn oversized(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let file = file(OVERSIZED, SEALED, MemfdFlags::empty())?;
    let own = Memory::create_for_readers("attack-arena", 1 << 20)?;
    let joined = greeted.answer_with(own, &[file.as_fd()], OVERSIZED)?;
    attack_on(joined, liar, seed)
}

/// An arena of huge pages, which are taken away once the dataplane has seen them: it has to fault where there is
/// no page any more. Where the machine has no huge pages there is nothing to take.
pub fn huge_pages(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let huge = || file(HUGE_PAGE, SEALED, MemfdFlags::HUGETLB);
    let arena = huge()?;
    let own = Memory::create_for_readers("attack-arena", 1 << 20)?;
    let joined = greeted.answer_with(own, &[arena.as_fd()], HUGE_PAGE)?;
    let mut attacker = Attacker { joined, liar, seed, seen: 0 };
    attacker.serve(20);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Sealed, it is not to work; the pages may also go with whoever else has some.
    let _ = fallocate(&arena, punch, 0, HUGE_PAGE);
    // All that there are, until there are no more.
    let mut taken = Vec::new();
    while let Ok(file) = huge()
        && fallocate(&file, FallocateFlags::empty(), 0, HUGE_PAGE).is_ok()
    {
        taken.push(file);
    }
    attacker.serve_turned(|liar, calls| {
        let peer = liar.peers[0];
        calls.push([DATAGRAM | 9 << 16 | 1 << 32, 4_096 << 16 | 64, peer, 0]);
    })
}

fn attack_on(joined: crate::joined::Joined, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let mut attacker = Attacker { joined, liar, seed, seen: 0 };
    attacker.liar.set_falsehood(MIXED);
    for _ in 0..200 {
        if attacker.joined.wait(attacker.seen, Duration::from_millis(50)).is_none() {
            return Ok(());
        }
        if attacker.hear() {
            let arena = Arc::clone(&attacker.joined.arena);
            attacker.liar.lie(&attacker.joined);
            let _ = arena.copy_in(0, b"changed");
            attacker.done();
        }
    }
    Ok(())
}
