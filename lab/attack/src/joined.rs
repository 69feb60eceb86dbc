//! The attacker's own way to join a dataplane: what an honest application keeps private is at hand here, to be
//! misused. Nothing of the honest application's code is in it.
//!
//! ```text
//! Greeted::receive(socket)?  the dataplane's memories, before an answer
//!     .answer(anywhere)?     the same, joined: of each elastic thread
//! ```

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use memfile::{Memory, passing};
use process::Geometry;
use process::layout::{self, RECORD_WORDS, both};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

/// Words of a message over the domain's socket.
pub const WORDS: usize = 10;
/// Bytes of a chunk of an arena.
const CHUNK_BYTES: usize = 2_048;

/// A dataplane that has spoken, and hears no answer yet.
pub struct Greeted {
    /// The domain's socket.
    pub socket: OwnedFd,
    /// What the dataplane said.
    pub hello: [u64; WORDS],
    /// How large the arrays are.
    pub geometry: Geometry,
    /// The memories of the first elastic thread, and the packets.
    pub packets: Arc<Memory>,
    /// See above.
    pub events: Arc<Memory>,
    /// What the attacker shows as its calls.
    pub calls: Arc<Memory>,
    /// The event arrays of further elastic threads.
    others: Vec<Arc<Memory>>,
}

impl Greeted {
    /// Waits for the dataplane's first message.
    ///
    /// # Errors
    /// None came, or it is not one of a dataplane.
    pub fn receive(socket: OwnedFd) -> anyhow::Result<Self> {
        let mut bytes = [0; WORDS * 8];
        let got = passing::receive(&socket, &mut bytes, 16, RecvFlags::empty())
            .context("receiving the dataplane's first message")?;
        ensure!(got.len == WORDS * 8, "the dataplane's first message has {} bytes", got.len);
        let files = got.descriptors;
        let mut hello = [0; WORDS];
        for (word, eight) in hello.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(eight.try_into()?);
        }
        let [_, _, events, calls, chunks, _, _, packet_bytes, ..] = hello;
        let geometry = Geometry {
            events: u32::try_from(events)?,
            calls: u32::try_from(calls)?,
            arena_chunks: u32::try_from(chunks)?,
        };
        let mut files = files.into_iter();
        let (Some(packets), Some(events)) = (files.next(), files.next()) else {
            bail!("the dataplane's first message lacks descriptors");
        };
        let events_of = |file| Memory::join_read_only(file, geometry.event_bytes());
        Ok(Self {
            socket,
            hello,
            geometry,
            packets: Memory::join_read_only(packets, packet_bytes as usize)?,
            events: events_of(events)?,
            calls: Memory::create_for_readers("attack-calls", geometry.call_bytes())?,
            others: files.map(events_of).collect::<Result<_, _>>()?,
        })
    }

    /// The answer that a well-behaved application gives, with arenas of the usual size; whether it runs anywhere. What
    /// it has of each elastic thread, the first one first.
    ///
    /// # Errors
    /// An arena could not be made, or the dataplane is gone.
    pub fn answer(mut self, anywhere: bool) -> anyhow::Result<Vec<Joined>> {
        let mut lanes = vec![(Arc::clone(&self.events), Arc::clone(&self.calls))];
        for events in std::mem::take(&mut self.others) {
            let calls = Memory::create_for_readers("attack-calls", self.geometry.call_bytes())?;
            lanes.push((events, calls));
        }
        let (mut files, mut joined, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (events, calls) in lanes {
            let arena = self.arena()?;
            bytes = arena.len() as u64;
            let (bell, other) = bell()?;
            files.extend([arena.descriptor()?, calls.descriptor()?, other]);
            let socket = self.socket.try_clone().context("sharing the domain's socket")?;
            let (geometry, packets) = (self.geometry, Arc::clone(&self.packets));
            joined.push(Joined { socket, geometry, packets, events, calls, arena, bell });
        }
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        self.say(self.words(anywhere, bytes), &files)?;
        Ok(joined)
    }

    /// An answer with whatever descriptors as arenas, said to have so many bytes; `arena` is what the attacker uses.
    ///
    /// # Errors
    /// The dataplane is gone.
    pub fn answer_with(
        self,
        arena: Arc<Memory>,
        files: &[BorrowedFd<'_>],
        bytes: u64,
    ) -> anyhow::Result<Joined> {
        let (bell, other) = bell()?;
        let calls = Arc::clone(&self.calls);
        let rest = [calls.file(), other.as_fd()];
        let files: Vec<_> = files.iter().copied().chain(rest).collect();
        self.pass_on(&files, bytes, arena, bell)
    }

    /// An honest arena, with whatever as the calls.
    ///
    /// # Errors
    /// The arena could not be made, or the dataplane is gone.
    pub fn answer_with_calls(self, file: BorrowedFd<'_>) -> anyhow::Result<Joined> {
        let (bell, other) = bell()?;
        let arena = self.arena()?;
        let files = [arena.file(), file, other.as_fd()];
        self.pass_on(&files, arena.len() as u64, Arc::clone(&arena), bell)
    }

    /// An honest arena, with whatever as the bell.
    ///
    /// # Errors
    /// The arena could not be made, or the dataplane is gone.
    pub fn answer_with_bell(self, other: BorrowedFd<'_>, bell: OwnedFd) -> anyhow::Result<Joined> {
        let (arena, calls) = (self.arena()?, Arc::clone(&self.calls));
        let files = [arena.file(), calls.file(), other];
        self.pass_on(&files, arena.len() as u64, Arc::clone(&arena), bell)
    }

    /// An arena of the usual size.
    fn arena(&self) -> anyhow::Result<Arc<Memory>> {
        let bytes = self.geometry.arena_chunks as usize * CHUNK_BYTES;
        Ok(Memory::create_for_readers("attack-arena", bytes)?)
    }

    fn words(&self, anywhere: bool, bytes: u64) -> [u64; WORDS] {
        [self.hello[0], self.hello[1], anywhere.into(), bytes, 0, 0, 0, 0, 0, 0]
    }

    /// Answers with descriptors; what the attacker has then.
    fn pass_on(
        self,
        files: &[BorrowedFd<'_>],
        bytes: u64,
        arena: Arc<Memory>,
        bell: OwnedFd,
    ) -> anyhow::Result<Joined> {
        self.say(self.words(false, bytes), files)?;
        let Self { socket, geometry, packets, events, calls, .. } = self;
        Ok(Joined { socket, geometry, packets, events, calls, arena, bell })
    }

    /// Sends any words and descriptors.
    ///
    /// # Errors
    /// The dataplane is gone.
    pub fn say(&self, words: [u64; WORDS], files: &[BorrowedFd<'_>]) -> anyhow::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        passing::send(&self.socket, &bytes, files, SendFlags::empty())
            .context("answering the dataplane")
    }
}

/// An attacker's view of a dataplane that it has joined.
pub struct Joined {
    /// The domain's socket.
    pub socket: OwnedFd,
    /// How large the arrays are.
    pub geometry: Geometry,
    /// What the NIC received; only to be read.
    pub packets: Arc<Memory>,
    /// What the dataplane tells; only to be read.
    pub events: Arc<Memory>,
    /// What the application asks for.
    pub calls: Arc<Memory>,
    /// What it sends from.
    pub arena: Arc<Memory>,
    /// Rung, it wakes a dataplane that says that it sleeps there.
    pub bell: OwnedFd,
}

/// An honest bell: the application's end, and the dataplane's.
///
/// # Errors
/// No descriptors are left.
pub fn bell() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .context("making a bell")
}

impl Joined {
    /// The number of the batch that was handed over last.
    pub fn batch(&self) -> u32 {
        self.events.word(layout::BATCH).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Waits for another batch than `seen`; none where none came for so long.
    pub fn wait(&self, seen: u32, most: Duration) -> Option<u32> {
        let began = Instant::now();
        loop {
            for _ in 0..1_000 {
                let batch = self.batch();
                if batch != seen {
                    return Some(batch);
                }
                std::hint::spin_loop();
            }
            if began.elapsed() > most {
                return None;
            }
            // Whoever else is on this core, the dataplane perhaps, goes first.
            std::thread::yield_now();
        }
    }

    /// Says that a batch is done.
    pub fn done(&self, batch: u32) {
        if let Some(done) = self.calls.word(layout::BATCH) {
            done.store(batch, Ordering::Release);
        }
        self.wake();
    }

    /// Rings the bell. Full, it has been rung often enough.
    pub fn ring(&self) {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.bell, &[1], flags);
    }

    /// Wakes a dataplane that sleeps until a batch is done.
    pub fn wake(&self) {
        let asleep = self.events.word(layout::ASLEEP);
        if asleep.is_some_and(|asleep| asleep.load(Ordering::SeqCst) != 0)
            && let Some(done) = self.done_word()
        {
            // Nobody sleeps where it was quicker.
            let _ = rustix::thread::futex::wake(done, rustix::thread::futex::Flags::empty(), 1);
            self.ring();
        }
    }

    /// The word that the dataplane waits for.
    pub fn done_word(&self) -> Option<&AtomicU32> {
        self.calls.word(layout::BATCH)
    }

    /// Writes a word of the call array; outside of it, nothing.
    pub fn write(&self, at: usize, value: u64) {
        if let Some(word) = self.calls.word64(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Writes call number `index`.
    pub fn call(&self, index: usize, words: [u64; RECORD_WORDS]) {
        for (word, value) in words.into_iter().enumerate() {
            self.write(self.geometry.record(index) + 8 * word, value);
        }
    }

    /// Says how many calls and pieces there are, and when to be run again.
    pub fn counts(&self, calls: u32, pieces: u32, wish: u64) {
        self.write(layout::CALLS_AND_PIECES, layout::two(calls, pieces));
        self.write(layout::WISH, wish);
    }

    /// The events of the batch at hand.
    pub fn told(&self) -> impl Iterator<Item = [u64; RECORD_WORDS]> + '_ {
        let load = |at| self.events.word64(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let (batch, (_, events)) = (self.batch(), both(load(layout::YIELD_AND_EVENTS)));
        (0..events.min(self.geometry.events) as usize).map(move |index| {
            let at = self.geometry.event(batch, index);
            std::array::from_fn(|word| load(at + 8 * word))
        })
    }
}
