//! Messages between starter and dataplane: JSON, whole or not at all (`SOCK_SEQPACKET`), with descriptors.
//!
//! The dataplane is not trusted: a message of it that makes no sense is an error, of bounded size.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, bail};
use memfile::passing;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest message: a configuration and what goes with it. Below what a socket holds by default.
pub const MESSAGE_MAX: usize = 128 << 10;
/// Most descriptors of a message: of 64 queues and a few more. The kernel's limit is 253.
pub const DESCRIPTORS_MAX: usize = 80;

/// The two ends.
///
/// # Errors
/// No descriptors are left.
pub fn pair() -> anyhow::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .context("making the socket between starter and dataplane")
}

/// Sends a message, without a wait for the other end to read.
///
/// # Errors
/// It is too large; the other end has gone, or has not read what was sent before.
pub fn send(
    socket: impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> anyhow::Result<()> {
    let bytes = serde_json::to_vec(message).context("writing a message")?;
    if bytes.len() > MESSAGE_MAX || descriptors.len() > DESCRIPTORS_MAX {
        bail!(
            "cannot pass the configuration to the dataplane: found {} bytes and {} descriptors; shorten it to {MESSAGE_MAX} \
             and {DESCRIPTORS_MAX} at most",
            bytes.len(),
            descriptors.len()
        );
    }
    match passing::send(socket, &bytes, descriptors, SendFlags::DONTWAIT) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN) => bail!(
            "cannot send to the process at the other end: it does not read what was sent before"
        ),
        Err(errno) => Err(errno).context("sending to the process at the other end"),
    }
}

/// Receives a message, waiting for it. None: the other end has hung up. Where more than `most` descriptors come with
/// it, the others are closed and the message is an error.
///
/// # Errors
/// What came makes no sense.
pub fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    most: usize,
) -> anyhow::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MESSAGE_MAX + 1];
    let received = match passing::receive(socket, &mut bytes, most, RecvFlags::empty()) {
        // It had something to tell us that we will not read, or is gone: hung up in either case.
        Err(Errno::CONNRESET) => return Ok(None),
        other => other.context("receiving from the process at the other end")?,
    };
    match received.len {
        0 => Ok(None),
        _ if received.is_too_many => bail!("a message came with more than {most} descriptors"),
        len if len > MESSAGE_MAX => bail!("a message of more than {MESSAGE_MAX} bytes came"),
        len => {
            let message = serde_json::from_slice(&bytes[..len]).context("reading a message")?;
            Ok(Some((message, received.descriptors)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::orders::{Order, Told};
    use super::*;

    #[test]
    fn messages_go_over_whole_with_their_descriptors() {
        let (near, far) = pair().expect("sockets");
        send(&near, &Told::Failed(vec!["a".into(), "b".into()]), &[near.as_fd(), far.as_fd()])
            .expect("sent");
        send(&near, &Told::Ready { movable: true }, &[]).expect("sent");
        let (told, descriptors) = receive::<Told>(&far, 2).expect("sense").expect("something");
        assert!(matches!(told, Told::Failed(causes) if causes == ["a", "b"]));
        assert_eq!(descriptors.len(), 2);
        let (told, none) = receive::<Told>(&far, 2).expect("sense").expect("something");
        assert!(matches!(told, Told::Ready { movable: true }) && none.is_empty());
        // The end that went over is an end, too.
        drop((near, descriptors));
        assert!(receive::<Told>(&far, 2).expect("no error").is_none(), "hung up");
        let refused = send(&far, &Told::Ready { movable: true }, &[]).expect_err("nobody is there");
        assert!(format!("{refused:#}").contains("other end"), "{refused:#}");
    }

    #[test]
    fn what_makes_no_sense_or_is_too_large_is_an_error() {
        let (near, far) = pair().expect("sockets");
        for bytes in [&b"{}"[..], b"\"Redy\"", b"\xff\xfe", &[b'['; MESSAGE_MAX + 9]] {
            rustix::net::send(&near, bytes, SendFlags::empty()).expect("sent");
            receive::<Order>(&far, 0).expect_err("no order");
        }
        let long = Told::Failed(vec!["x".repeat(MESSAGE_MAX)]);
        let error = send(&near, &long, &[]).expect_err("too long");
        assert!(error.to_string().contains("shorten it"), "{error}");
    }
}
