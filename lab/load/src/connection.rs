//! One connection: what is outstanding on it, and the bytes that its transport did not take yet.

use std::collections::VecDeque;

use crate::codec::{Outcome, ResponseParser, Violation};
use crate::workload::{Request, Workload};

/// What carries the bytes: sockets, or the dataplane.
pub trait Sender {
    /// Takes bytes from the front of `bytes` for connection `connection` and returns how many.
    /// Fewer than all means that there is no room: the transport calls `on_writable` when there
    /// is. The bytes are copied, not borrowed. A broken connection takes none, and is reported by
    /// `on_closed` later.
    fn send(&mut self, connection: u32, bytes: &[u8]) -> usize;

    /// Ends `connection` at once: its peer does not keep to the protocol. Needs no `on_closed`.
    fn abort(&mut self, connection: u32);
}

/// A request whose response has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outstanding {
    /// When it was meant to be sent: latency counts from here.
    pub intended_ns: u64,
    /// What was asked.
    pub request: Request,
    /// Whether the response's bytes are compared.
    pub verify: bool,
}

/// The generator's half of one connection. Responses come in the order of the requests.
#[derive(Debug)]
pub(crate) struct Connection {
    open: bool,
    depth: usize,
    /// Never more than `depth`, so that it never grows after the start.
    outstanding: VecDeque<Outstanding>,
    parser: ResponseParser,
    /// Bytes that the transport had no room for, from `unsent_from` on. Grows only when the peer
    /// stops reading, up to `depth` requests.
    unsent: Vec<u8>,
    unsent_from: usize,
}

impl Connection {
    /// A closed connection that will carry at most `depth` requests at a time.
    pub fn new(depth: u32) -> Self {
        let depth = depth as usize;
        Self {
            open: false,
            depth,
            outstanding: VecDeque::with_capacity(depth),
            parser: ResponseParser::default(),
            unsent: Vec::new(),
            unsent_from: 0,
        }
    }

    /// A fresh connection in the place of an old one.
    pub fn reopen(&mut self) {
        self.open = true;
        self.outstanding.clear();
        self.parser = ResponseParser::default();
        self.unsent.clear();
        self.unsent_from = 0;
    }

    /// Ends the connection; the requests that were outstanding are handed to `lost`.
    pub fn close(&mut self, lost: impl FnMut(Outstanding)) {
        self.open = false;
        self.outstanding.drain(..).for_each(lost);
        self.unsent.clear();
        self.unsent_from = 0;
    }

    /// Whether the connection can be used.
    pub const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether one more request may be outstanding.
    pub fn has_room(&self) -> bool {
        self.open && self.outstanding.len() < self.depth
    }

    /// Requests that wait for a response.
    pub fn in_flight(&self) -> usize {
        self.outstanding.len()
    }

    /// Notes a request whose bytes are about to be sent.
    pub fn push(&mut self, item: Outstanding) {
        debug_assert!(self.has_room(), "the pipelining bound is checked by the caller");
        self.outstanding.push_back(item);
    }

    /// The requests without a response, oldest first.
    pub fn outstanding(&self) -> impl Iterator<Item = &Outstanding> {
        self.outstanding.iter()
    }

    /// Takes received bytes from the front of `bytes` up to the end of one response: how it ended, and
    /// what it answers; `None` where all bytes were taken before its end.
    ///
    /// # Errors
    /// The bytes are no response to what is outstanding.
    pub fn receive(
        &mut self,
        workload: &Workload,
        bytes: &mut &[u8],
    ) -> Result<Option<(Outcome, Outstanding)>, Violation> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let front = *self.outstanding.front().ok_or(Violation::Unasked)?;
        let progress = self.parser.advance(workload, front.request, front.verify, bytes)?;
        *bytes = &bytes[progress.consumed..];
        debug_assert!(progress.outcome.is_some() || bytes.is_empty());
        let Some(outcome) = progress.outcome else { return Ok(None) };
        self.outstanding.pop_front();
        Ok(Some((outcome, front)))
    }

    /// Hands `bytes` to the transport, after those that wait already.
    pub fn send(&mut self, id: u32, bytes: &[u8], sender: &mut impl Sender) {
        let taken = if self.unsent.is_empty() { sender.send(id, bytes) } else { 0 };
        debug_assert!(taken <= bytes.len(), "a transport takes what it was given");
        if let Some(rest) = bytes.get(taken..) {
            self.unsent.extend_from_slice(rest);
        }
    }

    /// Offers the waiting bytes to the transport again.
    pub fn flush(&mut self, id: u32, sender: &mut impl Sender) {
        let waiting = self.unsent.get(self.unsent_from..).unwrap_or_default();
        if waiting.is_empty() {
            return;
        }
        self.unsent_from += sender.send(id, waiting);
        if self.unsent_from >= self.unsent.len() {
            self.unsent.clear();
            self.unsent_from = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadConfig;

    /// Takes `room` bytes, then no more.
    struct Narrow {
        room: usize,
        taken: Vec<u8>,
    }

    impl Sender for Narrow {
        fn send(&mut self, _: u32, bytes: &[u8]) -> usize {
            let n = bytes.len().min(self.room);
            self.room -= n;
            self.taken.extend_from_slice(&bytes[..n]);
            n
        }
        fn abort(&mut self, _: u32) {}
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_transport_takes() {
        let mut connection = Connection::new(4);
        connection.reopen();
        let mut sender = Narrow { room: 3, taken: Vec::new() };
        connection.send(0, b"abcde", &mut sender);
        connection.send(0, b"fgh", &mut sender);
        assert_eq!(sender.taken, b"abc");
        sender.room = 3;
        connection.flush(0, &mut sender);
        connection.send(0, b"ij", &mut sender);
        assert_eq!(sender.taken, b"abcdef");
        sender.room = 100;
        connection.flush(0, &mut sender);
        connection.send(0, b"k", &mut sender);
        assert_eq!(sender.taken, b"abcdefghijk");
    }

    #[test]
    fn responses_are_matched_in_order_and_unasked_ones_refused() {
        let workload = Workload::new(&WorkloadConfig::usr(), 1).expect("valid");
        let mut connection = Connection::new(2);
        connection.reopen();
        let item = |key| Outstanding { intended_ns: 5, request: Request::set(key), verify: true };
        connection.push(item(1));
        connection.push(item(2));
        assert!(!connection.has_room());
        let mut bytes = &b"STORED\r\nERROR\r\nSTORED\r\n"[..];
        let first = connection.receive(&workload, &mut bytes);
        assert_eq!((first, bytes.len()), (Ok(Some((Outcome::Complete, item(1)))), 15));
        let second = connection.receive(&workload, &mut bytes);
        assert_eq!(second, Ok(Some((Outcome::Error, item(2)))));
        assert_eq!(connection.receive(&workload, &mut bytes), Err(Violation::Unasked));
    }

    #[test]
    fn closing_gives_back_what_is_outstanding() {
        let mut connection = Connection::new(2);
        connection.reopen();
        connection.push(Outstanding { intended_ns: 1, request: Request::get(1), verify: false });
        let mut lost = 0;
        connection.close(|_| lost += 1);
        assert_eq!((lost, connection.in_flight()), (1, 0));
        assert!(!connection.has_room());
    }
}
