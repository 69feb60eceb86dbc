//! A TCP socket: what it is at, and the bytes that it holds.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use clock::{Duration, Instant};
use domain::{Calls, ConnectionInfo, Cookie, Full, Handle, LocalEndpoint};
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
    pub local: LocalEndpoint,
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

/// What a connection is about to be asked about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// The call is to be issued.
    Wanted,
    /// It was issued.
    Issued,
    /// The answer came at this moment; `None`: there was no memory for it.
    Answered(Option<Box<ConnectionInfo>>, Instant),
}

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Stream {
    pub phase: Phase,
    pub peer: Option<Endpoint>,
    pub handle: Option<Handle>,
    /// The call that opens the connection is to be issued: `connect`, or `accept`.
    pub open_due: bool,
    /// An attempt to connect has succeeded, and `connect` has not answered so yet.
    pub connect_unreported: bool,
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
    /// The connection has ended.
    pub is_dead: bool,
    /// Until when what does not fill a segment waits for more.
    pub hold_until: Option<Instant>,
    pub asked: Asked,
    /// When `close` stops waiting; of a socket without a descriptor: when the connection is reset.
    pub close_by: Option<Instant>,
    /// Its entry among the sockets' timers.
    pub timer: Option<Instant>,
}

impl Stream {
    pub fn new(phase: Phase) -> Self {
        Self {
            phase,
            peer: None,
            handle: None,
            open_due: false,
            connect_unreported: false,
            window: 0,
            in_flight: 0,
            unsent: VecDeque::new(),
            received: VecDeque::new(),
            read: 0,
            eof: false,
            reads_no_more: false,
            sending: Sending::Open,
            is_dead: false,
            hold_until: None,
            asked: Asked::Nothing,
            close_by: None,
            timer: None,
        }
    }

    /// The socket of a connection that was accepted.
    pub fn accepted(knocking: Knocking) -> Self {
        let Knocking { handle, peer, window, ended, .. } = knocking;
        let is_dead = ended.is_some();
        let (peer, handle, open_due) = (Some(peer), Some(handle), !is_dead);
        Self { peer, handle, open_due, window, is_dead, ..Self::new(Phase::Open) }
    }

    /// The connection ended, or is being reset.
    pub fn end(&mut self) {
        (self.is_dead, self.in_flight) = (true, 0);
        self.unsent.clear();
    }

    /// The peer acknowledged so many bytes, and has so much room.
    pub fn acknowledged(&mut self, bytes: u32, window: u32) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.window = window;
    }

    /// When it has something to do by itself.
    pub fn next_timer(&self, is_abandoned: bool, now: Instant) -> Option<Instant> {
        let at = if is_abandoned { self.close_by } else { self.hold_until };
        at.filter(|at| *at > now)
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
        let is_ending = self.sending != Sending::Open;
        let is_held = (options.cork || self.hold_until.is_some())
            && self.hold_until.is_none_or(|until| now < until);
        let waits = is_held || !options.no_delay && self.in_flight > 0;
        match waits && !is_ending {
            true => all - all % segment_bytes.max(1),
            false => all,
        }
    }

    /// Issues the calls that are due, in order. Answers whether a socket that is abandoned is done with: its connection is
    /// closed, and the dataplane's alone.
    pub fn issue(
        &mut self,
        (cookie, local, is_abandoned): (Cookie, LocalEndpoint, bool),
        (options, segment_bytes, now): (&Options, usize, Instant),
        calls: &mut Calls<'_>,
    ) -> Result<bool, Full> {
        if self.open_due {
            match (self.handle, self.peer) {
                (Some(handle), _) => calls.accept(handle, cookie)?,
                (None, Some(peer)) => calls.connect_from(cookie, local, peer)?,
                (None, None) => {}
            }
            self.open_due = false;
        }
        let Some(handle) = self.handle.filter(|_| !self.is_dead) else {
            return Ok(is_abandoned);
        };
        if is_abandoned && self.close_by.is_some_and(|by| by <= now) {
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
        if is_abandoned {
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
