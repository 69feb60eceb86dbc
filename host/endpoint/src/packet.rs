//! One message: JSON in one packet, whole or not at all, with at most one descriptor beside it. No call waits.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memfile::passing;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// Largest message, in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;

/// What a look at a socket brought.
#[derive(Debug)]
pub(crate) enum Received {
    /// Nothing is there now.
    Nothing,
    /// The other end has gone.
    HungUp,
    /// A message of so many bytes of the buffer. More than [`MESSAGE_MAX`]: it was cut.
    Message(usize),
}

/// A buffer for [`receive`]: one byte more than a message has.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; MESSAGE_MAX + 1]
}

/// Takes the next message. Descriptors that come with it are closed, but for the first where `descriptor` wants
/// one.
///
/// # Errors
/// What the socket could not do.
pub(crate) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    descriptor: Option<&mut Option<OwnedFd>>,
) -> rustix::io::Result<Received> {
    let most = usize::from(descriptor.is_some());
    let mut was_reset = false;
    let received = loop {
        match passing::receive(&socket, buffer, most, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // Said once where the other end has gone without reading all: its last words are behind it.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Ok(Received::HungUp),
            other => break other?,
        }
    };
    if let Some(wanted) = descriptor {
        *wanted = received.descriptors.into_iter().next();
    }
    Ok(match received.len {
        0 => Received::HungUp,
        len => Received::Message(len),
    })
}

/// What became of a message to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is on its way.
    Whole,
    /// The other end does not read: try again when the socket can be written to.
    NotNow,
    /// The other end has gone.
    HungUp,
}

/// Sends a message.
///
/// # Errors
/// What the socket could not do.
pub(crate) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
) -> rustix::io::Result<Sent> {
    match passing::send(socket, bytes, descriptor.as_slice(), SendFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(Sent::NotNow),
        Err(Errno::PIPE | Errno::CONNRESET) => Ok(Sent::HungUp),
        other => other.map(|()| Sent::Whole),
    }
}
