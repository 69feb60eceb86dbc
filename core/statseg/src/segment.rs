//! The memory of all boards: who makes it, and who reads it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memfile::Memory;

use crate::board::Board;
use crate::counters::ThreadCounters;
use crate::layout::{self as at, GROUPS_MAX, HEADER_BYTES, Layout, MAGIC, THREADS_MAX, VERSION};

/// What goes wrong in code that makes a layout and then another one.
const INSIDE: &str = "the layout is what the memory was made for";

/// A dataplane's side: only this mapping can be written to.
#[derive(Debug)]
pub struct Segment {
    memory: Arc<Memory>,
    layout: Layout,
}

/// A reader's side. What it reads was written by somebody else, who may write anything: numbers may make no
/// sense, and never harm the reader.
#[derive(Debug, Clone)]
pub struct Reading {
    memory: Arc<Memory>,
    layout: Layout,
}

/// How errors about something else than a segment begin.
const NO_SEGMENT: &str = "this is no statistics segment of a dataplane";

/// Why a file is no segment that can be read.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// It cannot be looked at or mapped.
    #[error("cannot map the statistics segment: {0}")]
    System(#[source] io::Error),
    /// It is not sealed against being cut short, or is no memory file: reading it could end this process.
    #[error("{NO_SEGMENT}: no memory file that is sealed at its size")]
    NotSealed,
    /// It is shorter or longer than any segment.
    #[error("{NO_SEGMENT}: it has {found} bytes")]
    Size {
        /// Its bytes.
        found: u64,
    },
    /// It begins with something else.
    #[error("{NO_SEGMENT}: it begins with {found:#018x}")]
    Foreign {
        /// Its first word.
        found: u64,
    },
    /// It has another layout.
    #[error(
        "the statistics segment has version {found}, and this program reads version {VERSION}: use the program that the \
         service was started with"
    )]
    Version {
        /// Its version.
        found: u64,
    },
    /// It says that it is for numbers of threads, flow groups or packets that there cannot be.
    #[error(
        "{NO_SEGMENT}: it says {} threads, {} flow groups, B = {}; allowed: 1 to {THREADS_MAX}, 1 to {GROUPS_MAX}, 1 to {}",
        found[0], found[1], found[2], u32::MAX
    )]
    Numbers {
        /// Threads, flow groups, B.
        found: [u64; 3],
    },
    /// It has another size than it must have by what it says.
    #[error("{NO_SEGMENT}: it has {found} bytes where {expected} belong to what it says")]
    Cut {
        /// Its bytes.
        found: u64,
        /// What they should be.
        expected: u64,
    },
}

impl Segment {
    /// Makes a segment, all zeroes, sealed. `name` is for `/proc/PID/maps`.
    ///
    /// # Errors
    /// `InvalidInput` where there is no such layout; else what the operating system says.
    pub fn create(name: &str, layout: &Layout) -> io::Result<Arc<Self>> {
        if !layout.is_allowed() {
            let reason = format!("no statistics segment is like this: {layout:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let (layout, bytes) = (*layout, layout.bytes());
        let memory = Memory::create_for_readers(name, bytes)?;
        let header: &[AtomicU64; at::HEADER_WORDS] = memory.words(0).expect(INSIDE);
        let set = |word: usize, value: u64| header[word].store(value, Ordering::Relaxed);
        set(at::HEADER_VERSION, VERSION);
        set(at::HEADER_BYTES_TOTAL, bytes as u64);
        set(at::HEADER_THREADS, layout.threads.into());
        set(at::HEADER_GROUPS, layout.groups.into());
        set(at::HEADER_BATCH_MAX, layout.batch_max.into());
        set(at::HEADER_MAGIC, MAGIC);
        Ok(Arc::new(Self { memory, layout }))
    }

    /// Joins the segment of a dataplane, to read it. That may be one that tries to harm the reader.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(file: OwnedFd) -> Result<Arc<Reading>, JoinError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => JoinError::NotSealed,
            _ => JoinError::System(error),
        };
        let found = Memory::untrusted_len(&file).map_err(failed)?;
        let most = Layout { threads: THREADS_MAX, groups: GROUPS_MAX, batch_max: 1 }.bytes() as u64;
        if !(HEADER_BYTES as u64..=most).contains(&found) {
            return Err(JoinError::Size { found });
        }
        let memory = Memory::join_untrusted(file, found as usize).map_err(failed)?;
        let layout = layout_of(&memory, found)?;
        Ok(Arc::new(Reading { memory, layout }))
    }

    /// What it was made for.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// A duplicate of the descriptor, for a reader: it cannot write through it.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor()
    }

    /// The board of a thread, for that thread; none where there is no such thread.
    pub fn board(&self, thread: u16) -> Option<Board<'_>> {
        board(&self.memory, &self.layout, thread)
    }

    /// Tells how many packets of each flow group a thread has received since it began. Only that thread may.
    pub fn tell_groups(&self, thread: u16, packets: &[u64]) {
        if thread >= self.layout.threads {
            return;
        }
        for (group, packets) in (0..self.layout.groups).zip(packets) {
            self.set(self.layout.packets_at(thread, group), *packets);
        }
    }

    /// Tells that a flow group is at home on a thread. Whoever completes migrations of the group may, one after
    /// the other.
    pub fn set_home(&self, group: u16, thread: u16) {
        if group < self.layout.groups {
            self.set(self.layout.home_at(group), u64::from(thread) + 1);
        }
    }

    /// Tells what the counters of the threads' stacks are called, in their order. Any thread may, as all have the same
    /// ones. What is no name that [readers](Reading::stack_names) take, and what is too many, has none.
    pub fn name_stack(&self, names: &[&str]) {
        let header: &[AtomicU64; at::HEADER_WORDS] = self.memory.words(0).expect(INSIDE);
        let places = header[at::HEADER_NAMES..].chunks_exact(at::NAME_WORDS);
        for (place, name) in places.zip(names).filter(|(_, name)| is_name(name.as_bytes())) {
            let mut bytes = [0; 8 * at::NAME_WORDS];
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            for (word, bytes) in place.iter().zip(bytes.chunks_exact(8)) {
                let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                word.store(value, Ordering::Relaxed);
            }
        }
    }

    /// A reader of this very memory.
    pub fn reading(&self) -> Reading {
        Reading { memory: Arc::clone(&self.memory), layout: self.layout }
    }

    fn set(&self, offset: usize, value: u64) {
        self.memory.word64(offset).expect(INSIDE).store(value, Ordering::Relaxed);
    }
}

/// The board of a thread; none where there is no such thread.
fn board<'a>(memory: &'a Memory, layout: &Layout, thread: u16) -> Option<Board<'a>> {
    let is_there = thread < layout.threads;
    is_there.then(|| Board::over(memory.words(layout.thread_at(thread)).expect(INSIDE)))
}

/// Whether a counter may be called so: small letters, digits and underscores, which any format takes as they are.
fn is_name(bytes: &[u8]) -> bool {
    let is_of_names = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    (1..8 * at::NAME_WORDS).contains(&bytes.len()) && bytes.iter().all(is_of_names)
}

/// What a segment says that it is for, where that is so.
fn layout_of(memory: &Memory, bytes: u64) -> Result<Layout, JoinError> {
    let header: &[AtomicU64; at::HEADER_WORDS] = memory.words(0).expect(INSIDE);
    let of = |word: usize| header[word].load(Ordering::Relaxed);
    if of(at::HEADER_MAGIC) != MAGIC {
        return Err(JoinError::Foreign { found: of(at::HEADER_MAGIC) });
    }
    if of(at::HEADER_VERSION) != VERSION {
        return Err(JoinError::Version { found: of(at::HEADER_VERSION) });
    }
    // Read once: the other side may write meanwhile.
    let found = [at::HEADER_THREADS, at::HEADER_GROUPS, at::HEADER_BATCH_MAX].map(of);
    let [threads, groups, batch_max] = found;
    let layout = Layout {
        threads: threads.try_into().unwrap_or(0),
        groups: groups.try_into().unwrap_or(0),
        batch_max: batch_max.try_into().unwrap_or(0),
    };
    if !layout.is_allowed() {
        return Err(JoinError::Numbers { found });
    }
    match layout.bytes() as u64 {
        expected if expected == bytes => Ok(layout),
        expected => Err(JoinError::Cut { found: bytes, expected }),
    }
}

impl Reading {
    /// What the segment was made for.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// A duplicate of the descriptor, for another reader.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.memory.descriptor()
    }

    /// All that a thread shows; none where there is no such thread.
    pub fn thread(&self, thread: u16) -> Option<ThreadCounters> {
        Some(board(&self.memory, &self.layout, thread)?.snapshot())
    }

    /// All threads, in their order.
    pub fn threads(&self) -> Vec<ThreadCounters> {
        (0..self.layout.threads).filter_map(|thread| self.thread(thread)).collect()
    }

    /// What the counters of the threads' stacks are called ([`ThreadCounters::stack`]), each with its place there. What
    /// stands in a name's place and is none is left out.
    pub fn stack_names(&self) -> Vec<(usize, String)> {
        let header: &[AtomicU64; at::HEADER_WORDS] = self.memory.words(0).expect(INSIDE);
        let name = |place: &[AtomicU64]| {
            let words = place.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
            let mut bytes: Vec<u8> = words.flatten().collect();
            let zeroes = bytes.iter().rev().take_while(|byte| **byte == 0).count();
            bytes.truncate(bytes.len() - zeroes);
            is_name(&bytes).then(|| String::from_utf8(bytes).ok()).flatten()
        };
        let names = header[at::HEADER_NAMES..].chunks_exact(at::NAME_WORDS).map(name);
        names.enumerate().filter_map(|(place, name)| Some((place, name?))).collect()
    }

    /// Packets received of each flow group, by all threads together.
    pub fn groups(&self) -> Vec<u64> {
        let of = |group| {
            let of = |thread| self.word(self.layout.packets_at(thread, group));
            (0..self.layout.threads).map(of).fold(0, u64::wrapping_add)
        };
        (0..self.layout.groups).map(of).collect()
    }

    /// The thread that each flow group is at home on; none where that is not known, or the word names no thread.
    pub fn homes(&self) -> Vec<Option<u16>> {
        let home = |group| {
            let word = self.word(self.layout.home_at(group));
            let thread = u16::try_from(word.checked_sub(1)?).ok()?;
            (thread < self.layout.threads).then_some(thread)
        };
        (0..self.layout.groups).map(home).collect()
    }

    fn word(&self, offset: usize) -> u64 {
        self.memory.word64(offset).expect(INSIDE).load(Ordering::Relaxed)
    }
}
