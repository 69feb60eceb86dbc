//! A TCP socket: what it is at, and the bytes that it holds.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use clock::{Duration, Instant};
use domain::{Calls, ConnectionInfo, Cookie, Full, Handle, Transport};
use wire::Endpoint;

use crate::errno::Errno;
use crate::options::Options;

/// For how long a short segment waits for more to come (`MSG_MORE`, `TCP_CORK`), as on Linux.
pub(crate) const CORKED_FOR: Duration = Duration::from_millis(200);

/// What a socket is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Neither connected nor listening.
    Fresh,
    /// It listens.
    Listening(Listener),
    /// A connection is opened to the peer.
    Connecting,
    /// Connected, or it was.
    Open,
}

/// A connection that was opened by a peer and not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Knocking {
    pub handle: Handle,
    pub peer: Endpoint,
    pub window: u32,
    /// It has ended since, with this error.
    pub ended: Option<Errno>,
}

/// What a listening socket keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Connections to be accepted, oldest first: the stack bounds their number by the backlog.
    pub queue: VecDeque<Knocking>,
    pub backlog: u16,
    pub port: PortState,
}

/// How a port of the dataplane comes to be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortState {
    /// The call is to be issued.
    Wanted,
    /// It was issued.
    Asked,
    /// The port is open.
    Open,
    /// Another socket had it opened.
    Shared,
}

/// The way to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    Open,
    /// A FIN is to go behind what is queued.
    Ending,
    /// The call was issued.
    Ended,
}

/// What is to become of a connection that has no descriptor any more, or is about to have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Stays,
    /// Behind what is queued.
    Closes,
    /// At once, with a reset.
    Aborts,
}

/// What a connection is about to be asked about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// The call is to be issued.
    Wanted,
    /// It was issued.
    Issued,
    /// The answer came, or there was none.
    Answered(Option<Box<ConnectionInfo>>),
}

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Stream {
    pub phase: Phase,
    pub peer: Option<Endpoint>,
    pub handle: Option<Handle>,
    /// The call that begins the connection is to be issued: `connect`, or `accept`.
    pub begins: bool,
    /// An attempt to connect has succeeded, and `connect` has not answered so yet.
    pub is_news: bool,
    /// Bytes that may be sent now.
    pub window: u32,
    /// Bytes sent and not acknowledged.
    pub in_flight: u32,
    /// Bytes to be sent.
    pub unsent: VecDeque<u8>,
    /// Received bytes to be read: the stack's receive window bounds them, which opens as they are.
    pub received: VecDeque<u8>,
    /// Bytes that were read and not given back.
    pub read: usize,
    /// The peer sends no more.
    pub eof: bool,
    /// The application reads no more.
    pub reads_no_more: bool,
    pub sending: Sending,
    pub leaving: Leaving,
    /// The connection has ended.
    pub is_dead: bool,
    /// Until when what does not fill a segment waits for more.
    pub hold_until: Option<Instant>,
    pub asked: Asked,
    /// When `close` stops waiting.
    pub linger_until: Option<Instant>,
}

impl Stream {
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            peer: None,
            handle: None,
            begins: false,
            is_news: false,
            window: 0,
            in_flight: 0,
            unsent: VecDeque::new(),
            received: VecDeque::new(),
            read: 0,
            eof: false,
            reads_no_more: false,
            sending: Sending::Open,
            leaving: Leaving::Stays,
            is_dead: false,
            hold_until: None,
            asked: Asked::Nothing,
            linger_until: None,
        }
    }

    /// The socket of a connection that was accepted.
    pub fn accepted(knocking: Knocking) -> Self {
        let Knocking { handle, peer, window, ended } = knocking;
        let is_dead = ended.is_some();
        let (peer, handle, begins) = (Some(peer), Some(handle), !is_dead);
        Self { peer, handle, begins, window, is_dead, ..Self::new(Phase::Open) }
    }

    /// Bytes that the application gave and that are not acknowledged.
    pub fn queued(&self) -> usize {
        self.unsent.len() + self.in_flight as usize
    }

    /// Whether the connection is one: it was opened and has not ended.
    pub fn is_connected(&self) -> bool {
        self.phase == Phase::Open && !self.is_dead
    }

    /// Whether bytes may be given to be sent.
    pub fn may_send(&self) -> bool {
        self.is_connected() && self.sending == Sending::Open
    }

    /// Whether no byte will come any more.
    pub fn is_at_end(&self) -> bool {
        self.eof || self.reads_no_more || self.is_dead
    }

    /// How many of the unsent bytes may go now: all but a short end that waits, for an acknowledgment (Nagle's algorithm)
    /// or for more of it.
    fn due(&self, options: &Options, segment_bytes: usize, now: Instant) -> usize {
        let all = self.unsent.len();
        let is_ending = self.sending != Sending::Open || self.leaving != Leaving::Stays;
        let is_held = (options.cork || self.hold_until.is_some())
            && self.hold_until.is_none_or(|until| now < until);
        let waits = is_held || !options.no_delay && self.in_flight > 0;
        match waits && !is_ending {
            true => all - all % segment_bytes.max(1),
            false => all,
        }
    }

    /// Issues the calls that are due, in order. Answers whether the socket is done with: its connection was closed and is
    /// the dataplane's alone.
    pub fn issue(
        &mut self,
        (cookie, local_port): (Cookie, Option<u16>),
        (options, segment_bytes, now): (&Options, usize, Instant),
        calls: &mut Calls<'_>,
    ) -> Result<bool, Full> {
        if let Phase::Listening(Listener { port: port @ PortState::Wanted, backlog, .. }) =
            &mut self.phase
        {
            calls.listen(cookie, Transport::Tcp, local_port.unwrap_or(0), *backlog)?;
            *port = PortState::Asked;
        }
        if self.begins {
            match (self.handle, self.peer, local_port) {
                (Some(handle), ..) => calls.accept(handle, cookie)?,
                (None, Some(peer), Some(port)) => calls.connect_from(cookie, port, peer)?,
                (None, Some(peer), None) => calls.connect(cookie, peer)?,
                (None, None, _) => {}
            }
            self.begins = false;
        }
        let Some(handle) = self.handle.filter(|_| !self.is_dead) else {
            return Ok(self.leaving != Leaving::Stays && self.phase != Phase::Connecting);
        };
        if self.leaving == Leaving::Aborts {
            calls.abort(handle)?;
            return Ok(true);
        }
        if self.read > 0 {
            calls.recv_done(handle, self.read)?;
            self.read = 0;
        }
        if self.asked == Asked::Wanted {
            calls.inform(handle)?;
            self.asked = Asked::Issued;
        }
        self.send(handle, (options, segment_bytes, now), calls)?;
        if !self.unsent.is_empty() {
            return Ok(false);
        }
        if self.leaving == Leaving::Closes {
            calls.close(handle)?;
            return Ok(true);
        }
        if self.sending == Sending::Ending {
            calls.shutdown(handle)?;
            self.sending = Sending::Ended;
        }
        Ok(false)
    }

    fn send(
        &mut self,
        handle: Handle,
        (options, segment_bytes, now): (&Options, usize, Instant),
        calls: &mut Calls<'_>,
    ) -> Result<(), Full> {
        let due = self.due(options, segment_bytes, now).min(self.window as usize);
        let mut left = due;
        while left > 0 {
            // In pieces: one call that asks for more packet memory than there is is refused in every batch.
            let len = left.min(16 * segment_bytes.max(1));
            let (first, second) = self.unsent.as_slices();
            let first = &first[..first.len().min(len)];
            let second = &second[..len - first.len()];
            calls.sendv(handle, &[first, second])?;
            self.unsent.drain(..len);
            self.window -= len as u32;
            self.in_flight += len as u32;
            left -= len;
        }
        if self.unsent.is_empty() {
            self.hold_until = None;
        }
        Ok(())
    }
}
