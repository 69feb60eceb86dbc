//! Joining: what goes over the Unix socket (`SOCK_SEQPACKET`: a message is read whole or not at all).
//!
//! ```text
//! tenant   ask      magic, version | queues, depth, slot bytes, doorbell layout, class + 1 or 0
//! plane    answer   magic, version | offered  | id, sets, flags       + memory, an eventfd per set
//!                   magic, version | refused  | why, in words
//! tenant   mapped   magic, version: the memory's pages are allocated and mapped
//! plane    answer   magic, version | joined   | id: the memory is sealed, the cores serve it
//!                   magic, version | refused  | why, in words
//! plane    1 byte   at any time after: completions are there (asked for by the word `waiting`)
//! either   hang-up  the tenant is gone: its queues are removed and its memory freed
//! ```
//!
//! `tenant_memory` has the reason for the second exchange. A tenant sends nothing after it; one that does
//! is disconnected. Descriptors that come with a message of a tenant are never received: to close one of a
//! file system that the tenant serves could block.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use memfile::passing;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::geometry::{DoorbellLayout, SETS_MAX, Shape};
use crate::limits::refusal;

/// What both sides speak: a name and a version.
const MAGIC: [u8; 8] = *b"tpsdp\0\0\x02";
/// Bytes of an ask.
const ASK_BYTES: usize = 32;
/// Bytes of an answer before its words.
const ANSWER_BYTES: usize = 32;
/// What an answer is.
const REFUSED: u8 = 0;
const OFFERED: u8 = 1;
const JOINED: u8 = 2;
/// Most bytes of a refusal's reason.
const REASON_BYTES: usize = 256;
/// As far as the socket takes it, whatever its other end does.
const AT_ONCE: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// Memory, and an eventfd for each set.
const DESCRIPTORS_MAX: usize = 1 + SETS_MAX as usize;

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// What a tenant asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) shape: Shape,
    /// The class that it wishes; the plane's policy decides.
    pub(crate) class: Option<u8>,
}

/// An ask as it travels.
pub(crate) fn ask(Ask { shape, class }: Ask) -> [u8; ASK_BYTES] {
    let mut bytes = [0; ASK_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    let layout = u32::from(shape.doorbells == DoorbellLayout::Paged);
    let class = class.map_or(0, |class| u32::from(class) + 1);
    let words = [shape.queues, shape.depth, shape.slot_bytes, layout, class];
    for (place, word) in bytes[8..28].chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// What came, where it is an ask; neither shape nor class is checked. Else what is wrong with it.
pub(crate) fn parse_ask(bytes: &[u8]) -> Result<Ask, String> {
    if bytes.len() != ASK_BYTES {
        let found = format_args!("a message of {} bytes", bytes.len());
        return Err(refusal(found, "send an ask, which has 32"));
    }
    if bytes[..7] != MAGIC[..7] {
        return Err(refusal("no ask of a data plane's tenant", "join with this library"));
    }
    if bytes[7] != MAGIC[7] {
        let found = format_args!("version {}, and this plane has {}", bytes[7], MAGIC[7]);
        return Err(refusal(found, "build tenant and plane from one version"));
    }
    let doorbells = match word(bytes, 20) {
        0 => DoorbellLayout::Packed,
        1 => DoorbellLayout::Paged,
        other => {
            let found = format_args!("doorbell layout {other}");
            return Err(refusal(found, "ask for 0, packed, or 1, a page each"));
        }
    };
    let class = match word(bytes, 24) {
        0 => None,
        wish => {
            let found = format!("class {}", wish - 1);
            let wish = u8::try_from(wish - 1);
            Some(wish.map_err(|_| refusal(found, "ask for 0 to 7, or for none"))?)
        }
    };
    if bytes[28..] != [0; 4] {
        return Err(refusal("an ask with more in its last 4 bytes", "set them to zero"));
    }
    let (queues, depth, slot_bytes) = (word(bytes, 8), word(bytes, 12), word(bytes, 16));
    Ok(Ask { shape: Shape { queues, depth, slot_bytes, doorbells }, class })
}

/// Receives an ask. `None`: nothing there yet. An empty message is a hang-up.
pub(crate) fn receive_ask<'a>(
    socket: BorrowedFd<'_>,
    buffer: &'a mut [u8; ASK_BYTES + 1],
) -> Result<Option<&'a [u8]>, Errno> {
    // Without room for descriptors: the kernel closes any that came.
    match rustix::net::recv(socket, &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((_, len)) => Ok(Some(&buffer[..len.min(ASK_BYTES + 1)])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// That the offered memory is mapped, as it travels.
pub(crate) const MAPPED: [u8; 8] = MAGIC;

/// Room for an ask and one byte more, which shows that a message was too long.
pub(crate) const ASK_BUFFER: [u8; ASK_BYTES + 1] = [0; ASK_BYTES + 1];

/// What a tenant is told with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) id: u64,
    /// Over how many sets its queues are dealt out.
    pub(crate) sets: u32,
    /// Whether it is to set ready bits; a plane that spins does not look at them.
    pub(crate) ready_bits: bool,
}

/// An answer without its words.
fn answer(what: u8) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = what;
    bytes
}

/// Offers: the answer and the descriptors, or nothing at all.
pub(crate) fn send_offered(
    socket: BorrowedFd<'_>,
    offered: Offered,
    memory: BorrowedFd<'_>,
    wakes: &[OwnedFd],
) -> Result<(), Errno> {
    let mut bytes = answer(OFFERED);
    bytes[12..16].copy_from_slice(&offered.sets.to_le_bytes());
    bytes[16..24].copy_from_slice(&offered.id.to_le_bytes());
    bytes[24] = u8::from(offered.ready_bits);
    let mut descriptors = vec![memory];
    descriptors.extend(wakes.iter().map(AsFd::as_fd));
    passing::send(socket, &bytes, &descriptors, SendFlags::DONTWAIT)
}

/// Tells a tenant that it has joined. Its empty socket takes that; one that it has filled is its own loss.
pub(crate) fn send_joined(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::net::send(socket, &answer(JOINED), AT_ONCE).map(|_| ())
}

/// Refuses, and says why; as far as the socket takes it.
pub(crate) fn send_refused(socket: BorrowedFd<'_>, why: &str) {
    let why = &why.as_bytes()[..why.len().min(REASON_BYTES)];
    let _ = rustix::net::send(socket, &[&answer(REFUSED)[..], why].concat(), AT_ONCE);
}

/// What the plane answered.
#[derive(Debug)]
pub(crate) enum Answer {
    /// With the memory, and an eventfd for each set.
    Offered(Offered, OwnedFd, Vec<OwnedFd>),
    /// The plane serves the tenant.
    Joined,
    /// Why not.
    Refused(String),
    /// Nothing that a plane answers.
    Nonsense,
}

/// Receives the answer; blocks as long as the socket's time-out says.
pub(crate) fn receive_answer(socket: BorrowedFd<'_>) -> Result<Answer, Errno> {
    let mut bytes = [0; ANSWER_BYTES + REASON_BYTES];
    let received = passing::receive(socket, &mut bytes, DESCRIPTORS_MAX, RecvFlags::empty())?;
    if received.len == 0 {
        return Err(Errno::CONNRESET);
    }
    if received.len < ANSWER_BYTES || bytes[..8] != MAGIC {
        return Ok(Answer::Nonsense);
    }
    if bytes[8] == JOINED {
        return Ok(Answer::Joined);
    }
    if bytes[8] == REFUSED {
        let why = String::from_utf8_lossy(&bytes[ANSWER_BYTES..received.len]);
        return Ok(Answer::Refused(why.into_owned()));
    }
    let (id, sets) =
        (u64::from(word(&bytes, 20)) << 32 | u64::from(word(&bytes, 16)), word(&bytes, 12));
    let mut descriptors = received.descriptors;
    let whole = (1..=SETS_MAX).contains(&sets) && descriptors.len() == 1 + sets as usize;
    if !whole {
        return Ok(Answer::Nonsense);
    }
    let memory = descriptors.remove(0);
    Ok(Answer::Offered(Offered { id, sets, ready_bits: bytes[24] == 1 }, memory, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ask_is_read_as_it_was_written() {
        let shape = Shape { queues: 7, doorbells: DoorbellLayout::Paged, ..Shape::default() };
        for class in [None, Some(0), Some(7), Some(255)] {
            let whole = Ask { shape, class };
            assert_eq!(parse_ask(&ask(whole)), Ok(whole));
        }
    }

    #[test]
    fn what_is_no_ask_is_refused_with_a_reason() {
        let good = ask(Ask { shape: Shape::default(), class: None });
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            parse_ask(&bytes).expect_err("not an ask")
        };
        assert!(with(0, b'x').contains("no ask"));
        assert!(with(7, 9).contains("version 9"));
        assert!(with(20, 2).contains("layout 2"));
        assert!(with(31, 1).contains("zero"));
        assert!(with(26, 1).contains("class 65535"));
        assert!(parse_ask(&good[..31]).expect_err("short").contains("31 bytes"));
        assert!(parse_ask(&[0; 33]).expect_err("long").contains("33 bytes"));
        assert!(parse_ask(&[]).is_err());
    }
}
