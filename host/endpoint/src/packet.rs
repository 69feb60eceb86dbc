//! One message: JSON in one packet, whole or not at all, with at most one descriptor beside it. No call waits.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let room = if descriptor.is_some() { &mut space[..] } else { &mut [] };
    let mut ancillary = RecvAncillaryBuffer::new(room);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut was_reset = false;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            // Said once where the other end has gone without reading all: its last words are behind it.
            Err(Errno::CONNRESET) if !was_reset => was_reset = true,
            Err(Errno::CONNRESET) => return Ok(Received::HungUp),
            other => break other?,
        }
    };
    let found = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut found) => found.next(),
        _ => None,
    });
    if let Some(wanted) = descriptor {
        *wanted = found;
    }
    Ok(match received.bytes {
        0 => Received::HungUp,
        bytes => Received::Message(bytes),
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        debug_assert!(fits, "there is room for one");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Sent::NotNow),
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(Sent::HungUp),
            other => return other.map(|_| Sent::Whole),
        }
    }
}
