//! What a socket is ready for: the one place that says so, for `poll`, for `epoll` and for calls that wait.

use crate::datagram::Datagrams;
use crate::options::Options;
use crate::stream::{Phase, Sending, Stream};

/// Linux's bits of `poll` and `epoll`.
pub mod events {
    /// Something can be read, or accepted.
    pub const IN: u32 = 0x1;
    /// Urgent data: never.
    pub const PRI: u32 = 0x2;
    /// Something can be written.
    pub const OUT: u32 = 0x4;
    /// An error waits.
    pub const ERR: u32 = 0x8;
    /// Both ways are closed.
    pub const HUP: u32 = 0x10;
    /// The descriptor is none (`poll` alone).
    pub const NVAL: u32 = 0x20;
    /// As [`IN`].
    pub const RDNORM: u32 = 0x40;
    /// As [`OUT`].
    pub const WRNORM: u32 = 0x100;
    /// The peer sends no more.
    pub const RDHUP: u32 = 0x2000;
}
use events::{ERR, HUP, IN, OUT, RDHUP, RDNORM, WRNORM};

/// What can be read, or accepted.
pub(crate) const READ: u32 = IN | RDNORM;
const WRITE: u32 = OUT | WRNORM;

/// These bits, if it is so.
fn when(is_so: bool, bits: u32) -> u32 {
    if is_so { bits } else { 0 }
}

/// Of a TCP socket.
pub(crate) fn of_stream(stream: &Stream, options: &Options, has_error: bool) -> u32 {
    let error = when(has_error, ERR);
    match &stream.phase {
        // Linux says so of a socket that is not connected; after an attempt that failed, both ways are closed.
        Phase::Fresh => WRITE | HUP | error | when(has_error, READ | RDHUP),
        Phase::Listening(listener) => when(!listener.queue.is_empty(), READ) | error,
        Phase::Connecting => error,
        Phase::Open => {
            let is_end = stream.is_at_end();
            let sends_no_more = stream.sending != Sending::Open;
            when(is_end || !stream.received.is_empty(), READ)
                | when(!stream.may_send() || has_room(stream, options), WRITE)
                | when(is_end, RDHUP)
                | when(stream.is_dead || is_end && sends_no_more, HUP)
                | error
        }
    }
}

/// Whether a third of the send buffer is free, at which Linux wakes a writer.
fn has_room(stream: &Stream, options: &Options) -> bool {
    stream.queued() * 3 <= options.send_bytes as usize * 2
}

/// Of a UDP socket.
pub(crate) fn of_datagrams(datagrams: &Datagrams, options: &Options, has_error: bool) -> u32 {
    let Datagrams { reads_no_more, sends_no_more, .. } = *datagrams;
    when(!datagrams.received.is_empty() || reads_no_more, READ)
        | when(datagrams.unsent_bytes * 2 <= options.send_bytes as usize, WRITE)
        | when(reads_no_more, RDHUP)
        | when(reads_no_more && sends_no_more, HUP)
        | when(has_error, ERR)
}
