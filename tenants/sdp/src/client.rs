//! The tenant's library: join, submit, poll, wait.

use std::fmt::Display;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use handshake::One;
use qwait::Region;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::geometry::{Geometry, SLOT_BYTES_MAX, Shape, WAITING};
use crate::join::{self, Answer};
use crate::link;
use crate::queue_pair::{SubmitError, TenantPair};
use crate::tenant_memory;
use memfile::{Doorbell, Memory};

/// How long a plane may take to answer an ask.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a tenant could not join, or lost its plane.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The plane refused: its own words, what it found and what to do.
    #[error("{0}")]
    Refused(String),
    /// The plane is gone; what is outstanding will not be answered.
    #[error("the plane is gone")]
    Gone,
    /// Nobody listens there, what came in time is nothing that a plane says, or the operating system refused.
    #[error("{0}")]
    Failed(String),
}

fn no_answer(found: &str) -> TenantError {
    TenantError::Failed(format!("no answer that a plane gives: {found}"))
}

fn os<E: Display>(tried: &'static str) -> impl Fn(E) -> TenantError {
    move |error| TenantError::Failed(format!("{tried} failed: {error}"))
}

/// A reply, in the tenant's own memory until the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What the service answered.
    pub bytes: &'a [u8],
    /// The plane refused the request, as its length was impossible. This library never sends such.
    pub refused: bool,
}

/// How the plane is told of a request.
#[derive(Debug)]
enum Bells {
    /// By ready word: doorbell, ready bit, and a wake-up where the plane sleeps.
    ReadyBits(Vec<Option<qwait::Tenant>>),
    /// By queue: the doorbell alone; the plane looks at all of them.
    Doorbells(Vec<Doorbell>),
}

/// A tenant: queue pairs to a plane. One thread uses it; a process may join more than once.
#[derive(Debug)]
pub struct Tenant {
    socket: OwnedFd,
    id: u64,
    geometry: Geometry,
    pub(crate) memory: Arc<Memory>,
    pairs: Vec<TenantPair>,
    bells: Bells,
    buffer: Box<[u8]>,
    /// Where `wait` begins to look, so that queues are found in turn.
    next_ready: usize,
}

impl Tenant {
    /// Joins the plane at a path.
    ///
    /// # Errors
    /// [`TenantError`]: nobody there, refused (with the reason), or no memory to be had.
    pub fn join(path: impl AsRef<Path>, shape: Shape) -> Result<Self, TenantError> {
        Self::ask(path.as_ref(), join::Ask { shape, class: None })
    }

    /// As [`join`](Self::join), in a class below the one that its user has: 0 is served first. The plane
    /// refuses where it lets nobody choose ([`ClassPolicy`](crate::ClassPolicy)).
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn join_in_class(
        path: impl AsRef<Path>,
        shape: Shape,
        class: u8,
    ) -> Result<Self, TenantError> {
        Self::ask(path.as_ref(), join::Ask { shape, class: Some(class) })
    }

    fn ask(path: &Path, ask: join::Ask) -> Result<Self, TenantError> {
        let (socket, shape) = (connect(path)?, ask.shape);
        rustix::net::send(&socket, &join::ask(ask), SendFlags::NOSIGNAL)
            .map_err(os("asking the plane"))?;
        let Answer::Offered(offered, memory, wakes) = answer(&socket)? else {
            return Err(no_answer("joined, before anything was offered"));
        };
        let geometry = shape
            .check_over(offered.sets)
            .map_err(|error| TenantError::Refused(error.to_string()))?;
        tenant_memory::allocate(&memory, &geometry).map_err(os("allocating the shared memory"))?;
        let tenant = Self::over(socket, offered, geometry, memory, wakes)?;
        rustix::net::send(&tenant.socket, &join::MAPPED, SendFlags::NOSIGNAL)
            .map_err(os("confirming the memory"))?;
        match answer(&tenant.socket)? {
            Answer::Joined => Ok(tenant),
            _ => Err(no_answer("a second offer")),
        }
    }

    /// Maps what the plane passed.
    pub(crate) fn over(
        socket: OwnedFd,
        offered: join::Offered,
        geometry: Geometry,
        file: OwnedFd,
        wakes: Vec<OwnedFd>,
    ) -> Result<Self, TenantError> {
        const MAPPING: &str = "mapping the plane's memory";
        let memory = Memory::join(file, geometry.memory_bytes()).map_err(os(MAPPING))?;
        let bells = if offered.ready_bits {
            let file = memory.descriptor().map_err(os(MAPPING))?;
            let region = Region::join(file).map_err(os(MAPPING))?;
            let bell = |word| ready_bell(&geometry, word, &region, &wakes).map_err(os(MAPPING));
            Bells::ReadyBits((0..geometry.words()).map(bell).collect::<Result<_, _>>()?)
        } else {
            let bell = |queue| Doorbell::new(&memory, geometry.doorbell(queue));
            Bells::Doorbells((0..geometry.shape().queues).filter_map(bell).collect())
        };
        let queues = geometry.shape().queues;
        Ok(Self {
            socket,
            id: offered.id,
            geometry,
            memory,
            pairs: (0..queues).map(|queue| TenantPair::new(&geometry, queue)).collect(),
            bells,
            buffer: vec![0; SLOT_BYTES_MAX as usize].into_boxed_slice(),
            next_ready: 0,
        })
    }

    /// The plane's number for this tenant.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What it asked for, and how its queues are dealt out.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Requests on a queue whose reply was not polled.
    pub fn outstanding(&self, queue: u32) -> u32 {
        self.pairs.get(queue as usize).map_or(0, TenantPair::outstanding)
    }

    /// Sends a request. Never blocks and never overwrites; no system call unless the plane sleeps.
    ///
    /// # Errors
    /// [`SubmitError::Full`]: poll for replies, then try again. The others are the caller's mistakes.
    #[inline]
    pub fn submit(&mut self, queue: u32, request: &[u8]) -> Result<(), SubmitError> {
        let queues = self.geometry.shape().queues;
        let pair = self.pairs.get_mut(queue as usize);
        let pair = pair.ok_or(SubmitError::NoSuchQueue { queue, queues })?;
        pair.submit(&self.memory, request)?;
        self.ring(queue);
        Ok(())
    }

    /// Says that one request was enqueued.
    #[inline]
    pub(crate) fn ring(&self, queue: u32) {
        match &self.bells {
            Bells::ReadyBits(words) => {
                let (word, bit) = self.geometry.word_of(queue);
                if let Some(Some(bell)) = words.get(word as usize) {
                    // The queue is one of the word's: checked when it was made.
                    let _ = bell.ring(bit);
                }
            }
            Bells::Doorbells(doorbells) => {
                if let Some(doorbell) = doorbells.get(queue as usize) {
                    // Release: the request is before it.
                    doorbell.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
    }

    /// The next reply of a queue, in the order of its requests, if there is one.
    #[inline]
    pub fn poll(&mut self, queue: u32) -> Option<Reply<'_>> {
        let room = &mut self.buffer[..self.geometry.shape().slot_bytes as usize];
        let (len, refused) = self.pairs.get_mut(queue as usize)?.poll(&self.memory, room)?;
        Some(Reply { bytes: &self.buffer[..len], refused })
    }

    /// Whether a queue has a reply.
    pub fn is_ready(&self, queue: u32) -> bool {
        self.pairs.get(queue as usize).is_some_and(|pair| pair.is_ready(&self.memory))
    }

    /// A queue that has a reply, if one has; each in turn.
    pub fn ready(&mut self) -> Option<u32> {
        let queues = self.pairs.len();
        let found = (0..queues)
            .map(|step| (self.next_ready + step) % queues)
            .find(|&queue| self.pairs[queue].is_ready(&self.memory))?;
        self.next_ready = (found + 1) % queues;
        Some(found as u32)
    }

    /// Sleeps until a queue has a reply: which. `None`: `timeout` has passed, or nothing is
    /// outstanding that could be replied to.
    ///
    /// # Errors
    /// [`TenantError::Gone`], once no reply is left.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<u32>, TenantError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(queue) = self.ready() {
                return Ok(Some(queue));
            }
            if self.pairs.iter().all(|pair| pair.outstanding() == 0) {
                return Ok(None);
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            self.sleep(left)?;
        }
    }

    /// Says "I wait", looks once more, and sleeps on the connection.
    fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), TenantError> {
        let memory = Arc::clone(&self.memory);
        let Some(waiting) = memory.word(WAITING) else { return Err(TenantError::Gone) };
        let tenant = link::tenant(waiting);
        let is_ready = || self.pairs.iter().any(|pair| pair.is_ready(&memory));
        if tenant.arm(link::TENANT, |One| is_ready()).is_quiet() {
            let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            // An interruption ends the sleep early, and the caller looks again.
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], timeout.as_ref());
            tenant.disarm(link::TENANT);
        }
        self.drain_wakes()
    }

    /// Takes the wake-ups that came: more than one where we timed out in between.
    fn drain_wakes(&mut self) -> Result<(), TenantError> {
        for _ in 0..64 {
            match rustix::net::recv(&self.socket, &mut [0; 8], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Err(TenantError::Gone),
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(Errno::CONNRESET | Errno::PIPE) => return Err(TenantError::Gone),
                Err(errno) => return Err(os("receiving a wake-up")(errno)),
            }
        }
        Ok(())
    }
}

impl AsFd for Tenant {
    /// The connection: hangs up when the plane is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What the plane answers, within a time. A refusal is an error.
fn answer(socket: &OwnedFd) -> Result<Answer, TenantError> {
    let timeout = Timespec::try_from(ANSWER_TIMEOUT).ok();
    let ready = poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref())
        .map_err(os("waiting for the answer"))?;
    if ready == 0 {
        return Err(no_answer("it took too long"));
    }
    let answer = join::receive_answer(socket.as_fd()).map_err(|errno| match errno {
        Errno::CONNRESET => TenantError::Gone,
        errno => os("receiving the answer")(errno),
    })?;
    match answer {
        Answer::Refused(why) => Err(TenantError::Refused(why)),
        Answer::Nonsense => Err(no_answer("another version, or another program")),
        Answer::Offered(..) | Answer::Joined => Ok(answer),
    }
}

fn connect(path: &Path) -> Result<OwnedFd, TenantError> {
    let failed = |errno: Errno| {
        TenantError::Failed(format!(
            "joining {} failed: {errno}; is the plane running, and may this user connect?",
            path.display()
        ))
    };
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)
        .map_err(os("making a socket"))?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    Ok(socket)
}

/// The bell of a ready word; `None` where the word has no queues.
fn ready_bell(
    geometry: &Geometry,
    word: u32,
    region: &Arc<Region>,
    wakes: &[OwnedFd],
) -> io::Result<Option<qwait::Tenant>> {
    let Some(word) = geometry.word(word) else { return Ok(None) };
    let wake = wakes.get(word.set as usize).ok_or(io::ErrorKind::InvalidData)?.try_clone()?;
    qwait::Tenant::over(word.place(region), wake).map(Some).map_err(io::Error::other)
}
