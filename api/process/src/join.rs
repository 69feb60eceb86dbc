//! How the two processes come together, over a Unix socket (`SOCK_SEQPACKET`: a message is read whole or not at
//! all). The dataplane speaks first.
//!
//! ```text
//! dataplane    hello   magic, lanes, geometry, waiting, sizes  + packets, then of each lane: events
//! application  ready   magic, lanes, whether it runs anywhere  + of each lane: transmit arena, calls, bell
//! either       hang-up the other one is gone
//! ```
//!
//! Either side makes what it writes, and seals it before it passes it on: at its size, so that nobody can make the
//! other one fault, and against further writers. The latter also keeps its pages where they are: one who gives pages
//! back, of which the other side has mappings, has the kernel interrupt each processor that runs it.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mem::{HugePages, Pool, Region};
use memfile::{Memory, passing};
use rustix::net::sockopt::socket_domain;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

use crate::far::{Far, FarParts};
use crate::layout::{Geometry, PACKET_BYTES_MAX};
use crate::near::{Near, NearParts};
use crate::place::Place;
use crate::waiting::Waiting;

/// What both sides speak: a name and a version.
const MAGIC: u64 = u64::from_le_bytes(*b"tpdom\0\0\x08");
/// Most elastic threads: three descriptors each go over in one message.
const LANES_MAX: usize = 64;
/// What the application sends of each elastic thread: an arena, a call array, a bell.
const FROM_APPLICATION: usize = 3;
const DESCRIPTORS_MAX: usize = FROM_APPLICATION * LANES_MAX;
/// Words of a message.
const WORDS: usize = 10;

/// Why the two did not come together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JoinError(String);

impl From<mem::RegionError> for JoinError {
    fn from(error: mem::RegionError) -> Self {
        Self(error.to_string())
    }
}

fn system(tried: &'static str) -> impl Fn(std::io::Error) -> JoinError {
    move |error| JoinError(format!("{tried} failed: {error}"))
}

/// The packet memory is no memory file.
fn unshown() -> JoinError {
    JoinError(
        "packet memory on the heap cannot be shown to another process: map it (`Region::map`)"
            .into(),
    )
}

/// The other side sent something else.
fn nonsense(from: &str, found: impl Display, expected: &str) -> JoinError {
    JoinError(format!("the {from} sent {found}; expected: {expected}"))
}

fn send(
    socket: BorrowedFd<'_>,
    words: &[u64],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), JoinError> {
    let mut bytes = [0; WORDS * 8];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    passing::send(socket, &bytes, descriptors, SendFlags::empty())
        .map_err(|errno| system("sending over the domain's socket")(errno.into()))
}

fn receive(
    socket: BorrowedFd<'_>,
    from: &'static str,
    expected: &'static str,
) -> Result<([u64; WORDS], Vec<OwnedFd>), JoinError> {
    let mut bytes = [0; WORDS * 8 + 1];
    let received = passing::receive(socket, &mut bytes, DESCRIPTORS_MAX, RecvFlags::empty())
        .map_err(|errno| system("receiving over the domain's socket")(errno.into()))?;
    let (len, descriptors) = (received.len, received.descriptors);
    let words: [u64; WORDS] = std::array::from_fn(|index| {
        let at = bytes.get(8 * index..8 * index + 8);
        at.and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
    });
    let found = match len {
        0 => "nothing, and hung up".to_owned(),
        _ if len != WORDS * 8 => format!("{len} bytes"),
        _ if words[0] != MAGIC => format!("a message that begins with {:#x}", words[0]),
        _ => return Ok((words, descriptors)),
    };
    Err(nonsense(from, found, expected))
}

/// What the dataplane tells its application at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// How large the arrays of each lane are.
    pub geometry: Geometry,
    /// How either side waits.
    pub waiting: Waiting,
    /// Payload bytes that one frame carries: what the application's calls are cut into.
    pub segment_bytes: usize,
    /// Whether the payloads of connections are summed as the dataplane copies them: not where its device completes
    /// checksums. The application does not hear of it.
    pub sums: bool,
}

/// The dataplane's side: the event arrays of all elastic threads.
#[derive(Debug)]
pub struct Host {
    hello: Hello,
    lanes: Vec<Arc<Memory>>,
    region: Arc<Region>,
    /// The same memory, to be read whoever writes there meanwhile.
    packets: Arc<Memory>,
}

impl Host {
    /// Makes the arrays for `lanes` elastic threads whose packets are in `region`.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn new(hello: Hello, lanes: usize, region: &Arc<Region>) -> Result<Self, JoinError> {
        if !(1..=LANES_MAX).contains(&lanes) {
            return Err(JoinError(format!(
                "{lanes} elastic threads cannot have an application of their own: at most {LANES_MAX} can"
            )));
        }
        let packets = region.memfd().ok_or_else(unshown)?;
        let bytes = region.len_bytes();
        if bytes as u64 > PACKET_BYTES_MAX {
            return Err(JoinError(format!(
                "{bytes} bytes of packet memory cannot be shown to another process: at most {PACKET_BYTES_MAX} can"
            )));
        }
        let packets = packets
            .try_clone_to_owned()
            .and_then(|packets| Memory::join_read_only(packets, region.len_bytes()))
            .map_err(system("mapping the packet memory to be read"))?;
        let lane = |_| {
            let geometry = hello.geometry;
            let events = Memory::create_for_readers("tailplane-events", geometry.event_bytes())
                .map_err(system("making memory for the domain's arrays"))?;
            let placement = hello.waiting.placement;
            Place { placement, ..Place::default() }.tell(&events, geometry);
            Ok(events)
        };
        let lanes = (0..lanes).map(lane).collect::<Result<_, JoinError>>()?;
        Ok(Self { hello, lanes, region: Arc::clone(region), packets })
    }

    /// Shows the packet memory and the arrays to the application at the other end of `socket`. From then on nobody
    /// can map the packet memory for writing who has not done so.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn greet(&self, socket: BorrowedFd<'_>) -> Result<(), JoinError> {
        self.region.seal_writes().map_err(system("sealing the packet memory"))?;
        let Hello { geometry, waiting, segment_bytes, .. } = self.hello;
        let words = [
            MAGIC,
            self.lanes.len() as u64,
            geometry.events.into(),
            geometry.calls.into(),
            geometry.arena_chunks.into(),
            waiting.looks.into(),
            segment_bytes as u64,
            self.region.len_bytes() as u64,
        ];
        let packets = self.region.memfd().ok_or_else(unshown)?;
        let arrays = self.lanes.iter().map(|events| events.file());
        let all: Vec<_> = [packets].into_iter().chain(arrays).collect();
        send(socket, &words, &all)
    }

    /// Waits for the application's answer, as long as the socket's time-out says, and makes each elastic thread's
    /// side. `gone` is to be set when the application has gone.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn meet(
        self,
        socket: BorrowedFd<'_>,
        gone: &Arc<AtomicBool>,
    ) -> Result<Vec<Near<'static>>, JoinError> {
        const EXPECTED: &str = "that it is ready, with a sealed arena, sealed calls and a bell for each elastic thread";
        let (words, descriptors) = receive(socket, "application", EXPECTED)?;
        let nonsense = |found: String| nonsense("application", found, EXPECTED);
        let [_, lanes, anywhere, bytes, ..] = words;
        let count = descriptors.len();
        if lanes != self.lanes.len() as u64 || count != FROM_APPLICATION * self.lanes.len() {
            return Err(nonsense(format!("{count} descriptors for {lanes} threads")));
        }
        // All of it is mapped here: not more than was agreed upon.
        let most = Region::mapped_bytes(self.hello.geometry.arena_chunks as usize) as u64;
        if bytes > most {
            return Err(nonsense(format!("arenas of {bytes} bytes, more than {most}")));
        }
        let joined = |memory, bytes: usize, what: &str| {
            Memory::join_untrusted(memory, bytes).map_err(|error| {
                nonsense(format!("{what} that is no sealed memory of ordinary pages: {error}"))
            })
        };
        let mut descriptors = descriptors.into_iter();
        let mut nears = Vec::new();
        for events in self.lanes {
            let mut next =
                || descriptors.next().ok_or_else(|| nonsense("too few descriptors".into()));
            let (arena, calls, bell) = (next()?, next()?, next()?);
            // Of other things, looking at them may take as long as the application likes.
            if socket_domain(&bell).ok() != Some(AddressFamily::UNIX) {
                return Err(nonsense("a bell that is no Unix socket".into()));
            }
            nears.push(Near::new(NearParts {
                events,
                calls: joined(calls, self.hello.geometry.call_bytes(), "a call array")?,
                arena: joined(arena, bytes as usize, "an arena")?,
                region: Arc::clone(&self.region),
                packets: Arc::clone(&self.packets),
                geometry: self.hello.geometry,
                segment_bytes: self.hello.segment_bytes,
                sums: self.hello.sums,
                gone: Arc::clone(gone),
                runs_anywhere: anywhere == 1,
                bell: Some(bell),
            }));
        }
        Ok(nears)
    }
}

/// The application's side: what the dataplane has shown it.
#[derive(Debug)]
pub struct Application {
    fars: Vec<Far>,
    /// The dataplane's ends of what wakes its threads. Pairs of sockets: what one side does to the flags of its end is
    /// no matter of the other.
    bells: Vec<OwnedFd>,
    socket: Arc<OwnedFd>,
}

impl Application {
    /// Joins the dataplane at the other end of `socket`.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(socket: OwnedFd) -> Result<Self, JoinError> {
        const EXPECTED: &str = "the domain's arrays and the packet memory";
        let (words, descriptors) = receive(socket.as_fd(), "dataplane", EXPECTED)?;
        let nonsense = |found: String| nonsense("dataplane", found, EXPECTED);
        let [_, lanes, events, calls, chunks, looks, segment, packet_bytes, ..] = words;
        let small = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        let geometry =
            Geometry { events: small(events), calls: small(calls), arena_chunks: small(chunks) };
        let whole = descriptors.len() as u64 == lanes.saturating_add(1);
        let (true, true) = (geometry.is_valid(), whole) else {
            return Err(nonsense(format!("{} descriptors for {lanes} threads", descriptors.len())));
        };
        let mapped = |memory: std::io::Result<Arc<Memory>>| {
            memory.map_err(system("mapping the domain's memory"))
        };
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(|| nonsense("too few descriptors".into()));
        let packets = mapped(Memory::join_read_only(next()?, packet_bytes as usize))?;
        let socket = Arc::new(socket);
        let (mut fars, mut bells) = (Vec::new(), Vec::new());
        for _ in 0..lanes {
            let (bell, other) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                    .map_err(|errno| system("making a bell for the domain")(errno.into()))?;
            bells.push(other);
            let parts = FarParts {
                events: mapped(Memory::join_read_only(next()?, geometry.event_bytes()))?,
                calls: Memory::create_for_readers("tailplane-calls", geometry.call_bytes())
                    .map_err(system("making memory for the domain's arrays"))?,
                bell,
                packets: Arc::clone(&packets),
                geometry,
                looks: small(looks),
                segment_bytes: segment as usize,
                socket: Arc::clone(&socket),
            };
            let arena = Region::map(geometry.arena_chunks as usize, HugePages::No)?;
            // All of it is for sending: nothing is received into it, so that nothing need stay free.
            fars.push(Far::new(parts, Pool::new(&arena, 0)));
        }
        Ok(Self { fars, bells, socket })
    }

    /// Elastic threads that the dataplane has.
    pub fn lanes(&self) -> usize {
        self.fars.len()
    }

    /// Tells the dataplane that the application is ready; answers its side of each elastic thread, in their order,
    /// to be [run](Far::run) by a thread each. `runs_anywhere` is what its services say of themselves
    /// ([`domain::Service::runs_anywhere`]).
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn begin(self, runs_anywhere: bool) -> Result<Vec<Far>, JoinError> {
        let Self { fars, bells, socket } = self;
        let bytes = fars.first().map_or(0, |far| far.arena().len_bytes());
        let mut files = Vec::new();
        for (far, bell) in fars.iter().zip(&bells) {
            far.arena().seal_writes().map_err(system("sealing the transmit arena"))?;
            let arena = far.arena().memfd().ok_or_else(unshown)?;
            files.extend([arena, far.parts().calls.file(), bell.as_fd()]);
        }
        let (lanes, anywhere) = (fars.len() as u64, runs_anywhere.into());
        send(socket.as_fd(), &[MAGIC, lanes, anywhere, bytes as u64], &files)?;
        Ok(fars)
    }
}
