//! A hostile application of the process domain, as a script of bytes says: its answer to the dataplane's greeting with
//! whatever words and descriptors, and whatever words in the arrays.
//!
//! The same interpreter serves the seeded tests and the fuzzer, so that a script which one of them found can be
//! replayed by the other. What must hold, whatever the script says: nothing panics or waits, only memory that was
//! agreed upon is joined, what is issued are calls that an honest application could have made, with the sums of the
//! bytes that leave, and all packet memory comes back.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clock::Instant;
use domain::{CallArray, CallRecord, Calls, Cookie, EventArray, EventRecord, Handle, Service};
use mem::{HugePages, Pool, Region};
use memfile::Memory;
use process::{Geometry, Hello, Host, Near, Waiting, layout};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Payload bytes of a segment.
const SEGMENT: usize = 1_448;
/// Calls that a batch has room for.
const ROOM: usize = 64;
/// Batches of one script.
const BATCHES: u64 = 24;
/// Words that are written before a batch is done, at most.
const WORDS_PER_BATCH: usize = 96;
/// Words of a message of the domain's socket.
const WORDS: usize = 10;
/// What a dataplane waits for an answer.
const PATIENCE: Duration = Duration::from_millis(200);
const GEOMETRY: Geometry = Geometry { events: 16, calls: 64, arena_chunks: 64 };

/// Bytes of a script, one after the other; zeros behind its end.
#[derive(Clone)]
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// A word that a liar would like: at the edges of what is allowed, far beyond, or nearly right.
    fn odd(&mut self, near: u64) -> u64 {
        let byte = self.byte();
        match byte % 8 {
            0 => u64::MAX - u64::from(byte >> 3),
            1 => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
            2 => 1 << (byte >> 3) << (byte >> 3 & 31),
            3 => near,
            4 => near.wrapping_add(1),
            5 => near.wrapping_sub(1),
            6 => u64::from(byte >> 3),
            _ => u64::from(u16::from_le_bytes([self.byte(), self.byte()])),
        }
    }
}

/// Ends the other thread, also where this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A dataplane that has greeted, and its application's end of the socket with the first word of the greeting.
fn greet(region: &Arc<Region>) -> (Host, OwnedFd, OwnedFd, u64) {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let (near, far) = pair.expect("a socket pair");
    set_socket_timeout(&near, Timeout::Recv, Some(PATIENCE)).expect("a socket's own");
    let hello = Hello {
        geometry: GEOMETRY,
        waiting: Waiting::default(),
        segment_bytes: SEGMENT,
        sums: true,
    };
    let host = Host::new(hello, 1, region).expect("one elastic thread");
    host.greet(near.as_fd()).expect("sent");
    let mut bytes = [0; WORDS * 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    recvmsg(&far, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC).expect("greeted");
    // What came is closed: the application knows its geometry.
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            files.for_each(drop);
        }
    }
    let magic = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    (host, near, far, magic)
}

fn say(socket: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(files.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&files)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
}

/// A memory file of `len` bytes with these seals.
fn file(len: u64, seals: SealFlags, flags: MemfdFlags) -> OwnedFd {
    let flags = flags | MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let file = rustix::fs::memfd_create("hostile", flags).expect("a file without pages");
    rustix::fs::ftruncate(&file, len).expect("sized");
    rustix::fs::fcntl_add_seals(&file, seals).expect("its own");
    file
}

/// A descriptor of some kind, and whether it is such memory of `len` bytes as is agreed upon.
fn odd_descriptor(kind: u8, len: u64) -> (OwnedFd, bool) {
    let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL | SealFlags::FUTURE_WRITE;
    let ordinary = MemfdFlags::empty();
    let open =
        |path: &str| OwnedFd::from(std::fs::File::open(path).expect("a file of each system"));
    let unsealed = match kind % 16 {
        0..6 => return (file(len, sealed, ordinary), true),
        6 => file(len, SealFlags::empty(), ordinary),
        7 => file(len, SealFlags::FUTURE_WRITE, ordinary),
        8 => file(len, SealFlags::SHRINK, ordinary),
        9 => file(len + 4096, sealed, ordinary),
        10 => file(len.saturating_sub(1), sealed, ordinary),
        11 => file(2 << 20, sealed, MemfdFlags::HUGETLB),
        12 => open("/dev/zero"),
        13 => open("/proc/self/stat"),
        14 => OwnedFd::from(std::io::pipe().expect("a pipe").0),
        _ => bell().1,
    };
    (unsealed, false)
}

fn bell() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .expect("a socket pair")
}

/// Answers a greeting with odd words and descriptors. Whether it was joined.
pub fn join(script: &[u8]) -> bool {
    let mut script = Script(script);
    let region = Region::map(64, HugePages::No).expect("mapped");
    let (host, near, far, magic) = greet(&region);
    let arena_bytes = Region::mapped_bytes(GEOMETRY.arena_chunks as usize) as u64;
    let mut words = [magic, 1, 0, arena_bytes, 0, 0, 0, 0, 0, 0];
    // One message in two has honest words, so that its descriptors are looked at.
    if script.byte() % 2 == 0 {
        let which = usize::from(script.byte()) % words.len();
        words[which] = script.odd(words[which]);
    }
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    if script.byte() % 16 == 0 {
        bytes.resize(usize::from(script.byte()), 0xff);
    }
    let (arena, arena_fits) = odd_descriptor(script.byte(), words[3].min(1 << 20));
    let (calls, calls_fit) = odd_descriptor(script.byte(), GEOMETRY.call_bytes() as u64);
    let (_own, bell) = bell();
    let mut files = vec![arena, calls, bell];
    let mut is_honest = arena_fits && calls_fit && bytes.len() == WORDS * 8;
    match script.byte() % 8 {
        0 => drop(files.pop()),
        1 => files.push(odd_descriptor(script.byte(), 4096).0),
        2 => files[2] = odd_descriptor(script.byte() % 14, 4096).0,
        3 => files.rotate_left(1),
        4 => files.clear(),
        _ => {}
    }
    is_honest &= files.len() == 3
        && rustix::net::sockopt::socket_domain(&files[2]).ok() == Some(AddressFamily::UNIX);
    say(&far, &bytes, &files);
    let began = std::time::Instant::now();
    let met = host.meet(near.as_fd(), &Arc::default());
    assert!(began.elapsed() < 20 * PATIENCE, "an answer held the dataplane up");
    let is_joined = met.is_ok();
    assert!(is_honest || !is_joined, "joined with {files:?}, {words:?}");
    if let Err(error) = met {
        assert!(!error.to_string().is_empty());
    }
    is_joined
}

/// The arrays of an application that has answered as an honest one, and the dataplane's side.
struct Joined {
    near: Near<'static>,
    calls: Arc<Memory>,
    arena: Arc<Memory>,
    _far: OwnedFd,
    _bell: OwnedFd,
}

fn joined(region: &Arc<Region>) -> Joined {
    let (host, near, far, magic) = greet(region);
    let bytes = Region::mapped_bytes(GEOMETRY.arena_chunks as usize);
    let arena = Memory::create_for_readers("hostile-arena", bytes).expect("memory");
    let calls = Memory::create_for_readers("hostile-calls", GEOMETRY.call_bytes()).expect("memory");
    let (own, other) = bell();
    let words = [magic, 1, 0, bytes as u64, 0, 0, 0, 0, 0, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let twice = |memory: &Memory| memory.descriptor().expect("a descriptor is left");
    say(&far, &bytes, &[twice(&arena), twice(&calls), other]);
    let mut nears = host.meet(near.as_fd(), &Arc::default()).expect("an honest answer");
    Joined { near: nears.pop().expect("one"), calls, arena, _far: far, _bell: own }
}

/// Writes calls, pieces and counts of any kind.
fn lie(calls: &Memory, arena: &Memory, script: &mut Script<'_>) {
    let write = |at: usize, value: u64| {
        if let Some(word) = calls.word64(at) {
            word.store(value, Ordering::Relaxed);
        }
    };
    let end = arena.len() as u64;
    for _ in 0..usize::from(script.byte()) % WORDS_PER_BATCH {
        let which = script.byte();
        let record = GEOMETRY.record(usize::from(which >> 4));
        match which % 16 {
            0..4 => write(record, u64::from(which >> 4) | script.odd(1) << 32),
            4 => write(record, script.odd(8)),
            5..8 => write(record + 8, script.odd(1)),
            8 | 9 => write(record + 16, script.odd(end) << 16 | script.odd(64) & 0xffff),
            10 => write(record + 24, script.odd(3)),
            11 => {
                let piece = GEOMETRY.piece(usize::from(which >> 4));
                write(piece, script.odd(end) << 16 | script.odd(1_448) & 0xffff);
            }
            12 => write(layout::WISH, script.odd(0)),
            13 => write(8 * (script.odd(4) as usize % (calls.len() / 8)).max(1), script.odd(0)),
            _ => {
                let at = script.odd(64) as usize % arena.len();
                let _ = arena.copy_in(at, &[which]);
            }
        }
    }
    let (count, pieces) = (u64::from(script.byte() % 20), script.byte() % 20);
    let count = if pieces == 19 { script.odd(64) } else { count };
    write(layout::CALLS_AND_PIECES, layout::two(count as u32, pieces.into()));
}

/// Events of several kinds, some with bytes.
fn fill(events: &mut EventArray, pool: &mut Pool, batch: u64) {
    let (handle, cookie) = (Handle::new(1, 1, 1), Cookie(1));
    if !batch.is_multiple_of(3) {
        let mut mbuf = pool.alloc().expect("memory");
        mbuf.append(b"request").expect("room");
        events.push_recv(handle, cookie, mbuf, 0, 1_000).expect("room");
    }
    for _ in 0..batch % 4 {
        events.push(EventRecord::Sent { handle, cookie, bytes: 1, window: 9 }).expect("room");
    }
}

/// Calls that an honest application could have made, with the sums of the bytes that leave. Answers how many.
fn check(array: &mut CallArray, pool: &mut Pool) -> usize {
    let (records, mut payloads) = array.take();
    assert!(records.len() <= ROOM + EventArray::MAX_RECORDS);
    let mut next = 0;
    for record in &records {
        if let CallRecord::Sendv { staged, .. } | CallRecord::UdpSendv { staged, .. } = record {
            assert_eq!(staged.first, next, "pieces stand in the order of their calls");
            next += staged.count;
        }
    }
    assert_eq!(next as usize, payloads.len());
    for (mbuf, sum) in payloads.drain(..) {
        assert_eq!(sum.finish(), wire::Sum::of(mbuf.bytes()).finish(), "a sum of other bytes");
        pool.free(mbuf);
    }
    let count = records.len();
    array.restore(records, payloads);
    count
}

/// Hands so many batches over. Answers how many calls were issued.
fn serve(near: &mut Near<'_>, region: &Arc<Region>, batches: u64) -> usize {
    let mut pool = Pool::new(region, region.chunks() as usize);
    let mut array = CallArray::new(ROOM, SEGMENT);
    let mut events = EventArray::new(GEOMETRY.events as usize);
    let mut issued = 0;
    for batch in 0..batches {
        fill(&mut events, &mut pool, batch);
        let calls = &mut Calls::new(&mut array, &mut pool);
        near.on_batch(Instant::from_nanos(batch), events.view(&()), calls);
        issued += check(&mut array, &mut pool);
        events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
    }
    drop(pool);
    assert_eq!(region.depot_len(), region.chunks() as usize, "memory is lost");
    issued
}

/// Lies about each batch before it is done, all in one thread: a script has the same outcome each time.
/// Answers how many calls were issued.
pub fn arrays(script: &[u8]) -> usize {
    let region = Region::map(256, HugePages::No).expect("mapped");
    let Joined { near, calls, arena, _far, _bell } = joined(&region);
    let mut script = Script(script);
    let mut done = 0;
    let mut near = near.with_meanwhile(move || {
        lie(&calls, &arena, &mut script);
        done = layout::next_batch(done);
        calls.word(layout::BATCH).expect("inside").store(done, Ordering::Release);
        Instant::ZERO
    });
    serve(&mut near, &region, BATCHES)
}

/// Lies all the time, in a thread of its own: words change while they are read. So many batches.
pub fn race(script: &[u8], batches: u64) {
    let region = Region::map(256, HugePages::No).expect("mapped");
    let Joined { near, calls, arena, _far, _bell } = joined(&region);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut script = Script(script);
                while !script.0.is_empty() && !stop.load(Ordering::Relaxed) {
                    lie(&calls, &arena, &mut script);
                }
            }
        });
        let mut done = 0;
        let mut near = near.with_meanwhile(|| {
            done = layout::next_batch(done);
            calls.word(layout::BATCH).expect("inside").store(done, Ordering::Release);
            Instant::ZERO
        });
        serve(&mut near, &region, batches);
    });
}
