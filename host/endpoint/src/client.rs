//! Who controls a service.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::packet::{self, MESSAGE_MAX, Received, Sent};
use crate::printable::printable;
use crate::protocol::{Answer, Ask, Description, Done, Refused, Request};

/// How long a service may take to let a client in, and to describe itself.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two attempts to be let in, where many wait.
const KNOCK: Duration = Duration::from_millis(5);
/// Requests that wait here for a server that does not read.
const OUTBOX_MAX: usize = 256;
/// Answers that are kept for a caller who has not asked for them yet.
const INBOX_MAX: usize = 512;
/// Descriptors of segments that are kept.
const SEGMENTS_MAX: usize = 8;
/// Messages that one call reads: a service that never ends its speech keeps nobody for ever.
const READ_MAX: usize = 256;

/// Why a client could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody is there.
    #[error(
        "no service listens at '{}': {source} (`tailplane status` lists those that run)",
        path.display()
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The service has gone, or has dropped this client.
    #[error("the service has ended the connection")]
    Gone,
    /// It said no.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// It did not answer.
    #[error("the service has not answered within {} ms", .0.as_millis())]
    Late(Duration),
    /// It said something that is no answer.
    #[error("the service's message makes no sense: {0}; is it of another version?")]
    Sense(String),
    /// A request that does not fit into a message, or too many of them that the service does not read.
    #[error("{0}")]
    TooMuch(String),
    /// What the socket could not do.
    #[error("the control socket: {0}")]
    System(#[from] Errno),
}

impl ClientError {
    /// Whether the socket's service has ended without removing it, as one does that is killed: the next service of that name
    /// replaces it.
    pub fn is_left_behind(&self) -> bool {
        matches!(self, Self::Connect { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused)
    }
}

type Result<T> = std::result::Result<T, ClientError>;

/// A connection to a service. Only [`describe`](Self::describe) and [`wait`](Self::wait) wait, no longer than
/// they say.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    next: u64,
    /// Requests that the server's socket has no room for.
    outbox: VecDeque<Vec<u8>>,
    /// Answers that somebody else waits for.
    inbox: VecDeque<Answer>,
    /// Segments that came with descriptions.
    segments: Vec<(u64, OwnedFd)>,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to the service at this path.
    ///
    /// # Errors
    /// [`ClientError::Connect`].
    pub fn connect(path: &Path) -> Result<Self> {
        let failed =
            |errno: Errno| ClientError::Connect { path: path.into(), source: errno.into() };
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = socket.map_err(failed)?;
        let began = Instant::now();
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                // As many as the kernel holds wait to be let in.
                Err(Errno::AGAIN | Errno::INTR) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(KNOCK);
                }
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(Self {
            socket,
            next: 1,
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            segments: Vec::new(),
            buffer: packet::buffer(),
        })
    }

    /// Asks what the service is. With the descriptor of its statistics segment.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn describe(&mut self) -> Result<(Description, OwnedFd)> {
        let id = self.ask(Request::Describe)?;
        let Done::Described(description) = self.wait(id, PATIENCE)? else {
            return Err(ClientError::Sense("it has described nothing".into()));
        };
        let segment = self.segment(id);
        let segment =
            segment.ok_or_else(|| ClientError::Sense("it has given no segment".into()))?;
        Ok((*description, segment))
    }

    /// Sends a request. Answers its number.
    ///
    /// # Errors
    /// [`ClientError::TooMuch`], [`ClientError::Gone`].
    pub fn ask(&mut self, request: Request) -> Result<u64> {
        let id = self.next;
        let bytes = serde_json::to_vec(&Ask { id, request });
        let bytes = bytes.map_err(|error| ClientError::TooMuch(error.to_string()))?;
        if bytes.len() > MESSAGE_MAX {
            let reason =
                format!("a request of {} bytes; allowed: {MESSAGE_MAX}: ask for less", bytes.len());
            return Err(ClientError::TooMuch(reason));
        }
        if self.outbox.len() >= OUTBOX_MAX {
            let reason = format!("{OUTBOX_MAX} requests wait, as the service does not read them");
            return Err(ClientError::TooMuch(reason));
        }
        self.next += 1;
        self.outbox.push_back(bytes);
        self.flush()?;
        Ok(id)
    }

    /// All answers that have come and that nobody has waited for, in their order.
    ///
    /// # Errors
    /// [`ClientError::Gone`], and what the server says of the connection; answers that came before are still
    /// given by the next call.
    pub fn answers(&mut self) -> Result<Vec<Answer>> {
        match self.listen() {
            Err(error) if self.inbox.is_empty() => Err(error),
            _ => Ok(self.inbox.drain(..).collect()),
        }
    }

    /// Waits for the answer to a request. Other answers are kept.
    ///
    /// # Errors
    /// [`ClientError::Refused`], [`ClientError::Late`]: it may still come; others.
    pub fn wait(&mut self, id: u64, most: Duration) -> Result<Done> {
        let began = Instant::now();
        loop {
            let heard = self.listen();
            if let Some(at) = self.inbox.iter().position(|answer| answer.id == id) {
                let answer = self.inbox.remove(at).expect("it was found there");
                return Ok(answer.result?);
            }
            heard?;
            let left = most.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Err(ClientError::Late(most));
            }
            self.pause(left)?;
        }
    }

    /// The descriptor of the statistics segment that came with the description of this number, once.
    pub fn segment(&mut self, id: u64) -> Option<OwnedFd> {
        let at = self.segments.iter().position(|(other, _)| *other == id)?;
        Some(self.segments.swap_remove(at).1)
    }

    /// To wait for answers together with other things: readable when there are some.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn flush(&mut self) -> Result<()> {
        while let Some(bytes) = self.outbox.front() {
            match packet::send(&self.socket, bytes, None)? {
                Sent::Whole => drop(self.outbox.pop_front()),
                Sent::NotNow => return Ok(()),
                // What it has said before is still there to be read.
                Sent::HungUp => {
                    self.outbox.clear();
                    self.take_some()?;
                    return Err(ClientError::Gone);
                }
            }
        }
        Ok(())
    }

    fn listen(&mut self) -> Result<()> {
        self.flush()?;
        self.take_some()
    }

    fn take_some(&mut self) -> Result<()> {
        for _ in 0..READ_MAX {
            if !self.take()? {
                break;
            }
        }
        Ok(())
    }

    /// Takes one message. Answers whether there was one.
    fn take(&mut self) -> Result<bool> {
        if self.inbox.len() >= INBOX_MAX || self.segments.len() > SEGMENTS_MAX {
            let reason =
                format!("it sends more than {INBOX_MAX} answers or {SEGMENTS_MAX} segments");
            return Err(ClientError::Sense(reason));
        }
        let mut segment = None;
        let len = match packet::receive(&self.socket, &mut self.buffer, Some(&mut segment))? {
            Received::Nothing => return Ok(false),
            Received::HungUp => return Err(ClientError::Gone),
            Received::Message(len) => len,
        };
        if len > MESSAGE_MAX {
            return Err(ClientError::Sense(format!("it is longer than {MESSAGE_MAX} bytes")));
        }
        let answer = serde_json::from_slice::<Answer>(&self.buffer[..len]);
        let answer = answer.map_err(|error| ClientError::Sense(printable(&error.to_string())))?;
        let answer = answer.printable();
        if let (0, Err(refused)) = (answer.id, &answer.result) {
            return Err(refused.clone().into());
        }
        self.segments.extend(segment.map(|segment| (answer.id, segment)));
        self.inbox.push_back(answer);
        Ok(true)
    }

    fn pause(&self, most: Duration) -> Result<()> {
        let most = Timespec::try_from(most).ok();
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.outbox.is_empty());
        match poll(&mut [PollFd::new(&self.socket, flags)], most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}
