//! A message over a Unix socket, with descriptors beside it: how processes hand each other memory, bells and sockets.
//!
//! Neither side trusts the other: what comes beyond the descriptors that the receiver expects is closed by the kernel, but
//! for the few for which the rounded room is large enough, which are closed here. A receiver that expects none holds none
//! for a moment: the owner of such a file decides how long its close takes.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// What came.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message that are in the buffer; 0: the other end has hung up, or said nothing.
    pub len: usize,
    /// Descriptors that came with it, in their order.
    pub descriptors: Vec<OwnedFd>,
    /// More descriptors came than were expected.
    pub is_too_many: bool,
}

/// Sends `bytes` with `descriptors`, all or nothing where the socket keeps messages apart; without a signal where the
/// other end is gone.
///
/// # Errors
/// What the socket says; [`Errno::MSGSIZE`] for more descriptors than a message can have.
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<()> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::MSGSIZE);
    }
    let flags = flags | SendFlags::NOSIGNAL;
    loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            sent => return sent.map(drop),
        }
    }
}

/// Receives a message into `buffer`, with `most` descriptors at most.
///
/// # Errors
/// What the socket says.
pub fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    most: usize,
    flags: RecvFlags,
) -> Result<Received> {
    let room = if most > 0 { rustix::cmsg_space!(ScmRights(most)) } else { 0 };
    let mut space = vec![MaybeUninit::uninit(); room];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors: Vec<OwnedFd> = rights.flatten().collect();
    // The room is rounded up: a few more than `most` may have come.
    let is_too_many = received.flags.contains(ReturnFlags::CTRUNC) || descriptors.len() > most;
    Ok(Received { len: received.bytes, descriptors, is_too_many })
}
