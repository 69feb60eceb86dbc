//! The descriptors of a [`ShmOffer`], over a Unix socket.
//!
//! ```
//! use std::os::unix::net::UnixStream;
//! use nic::shm::{ShmConfig, ShmNic};
//! use nic::shm_offer;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, offer) = ShmNic::create(&ShmConfig::default())?;
//! let (ours, theirs) = UnixStream::pair()?;
//! shm_offer::send(&ours, &offer)?;
//! // In the other process:
//! let offer = shm_offer::receive(&theirs)?;
//! let far = ShmNic::join(offer, &ShmConfig::default().far())?;
//! # let _ = (near, far);
//! # Ok(()) }
//! ```

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use memfile::passing;
use rustix::net::{RecvFlags, SendFlags};

use crate::shm::ShmOffer;

/// What goes with the descriptors: both ends speak of the same.
const GREETING: &[u8; 8] = b"tpshm\0\0\x01";
/// Memory, the creator's bell, the joiner's.
const DESCRIPTORS: usize = 3;

/// Sends the descriptors. The offer stays whole: the receiver gets its own.
///
/// # Errors
/// What the socket could not do.
pub fn send(stream: &UnixStream, offer: &ShmOffer) -> io::Result<()> {
    let descriptors = [&offer.memory, &offer.wake_creator, &offer.wake_joiner].map(AsFd::as_fd);
    Ok(passing::send(stream, GREETING, &descriptors, SendFlags::empty())?)
}

/// Receives them.
///
/// # Errors
/// What the socket could not do; `InvalidData` where something else came than [`send`] sends, which is
/// also what a creator's end looks like that has another joiner already.
pub fn receive(stream: &UnixStream) -> io::Result<ShmOffer> {
    let mut greeting = [0; GREETING.len()];
    let received = passing::receive(stream, &mut greeting, DESCRIPTORS, RecvFlags::empty())?;
    let whole = received.len == GREETING.len() && greeting == *GREETING;
    match <[OwnedFd; DESCRIPTORS]>::try_from(received.descriptors) {
        Ok([memory, wake_creator, wake_joiner]) if whole => {
            Ok(ShmOffer { memory, wake_creator, wake_joiner })
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::shm::{ShmConfig, ShmNic};

    #[test]
    #[cfg_attr(miri, ignore = "receives file descriptors")]
    fn what_is_no_offer_is_refused() {
        for sent in [&b""[..], b"tpshm", &GREETING[..], b"something else"] {
            let (mut ours, theirs) = UnixStream::pair().expect("sockets");
            ours.write_all(sent).expect("a socket with room");
            drop(ours);
            let error = receive(&theirs).expect_err("no descriptors came");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let (_near, offer) = ShmNic::create(&ShmConfig::default()).expect("memory");
        let one = [offer.memory.as_fd()];
        passing::send(&ours, GREETING, &one, SendFlags::empty()).expect("sent");
        let error = receive(&theirs).expect_err("too few came");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
