//! Messages on a TCP connection: four bytes of length, big endian, and that many bytes of JSON. A
//! frame of length zero says only that its sender is alive. Where both ends have a secret, each frame after the handshake
//! ends with its [`Seal`], so that somebody on the path can neither change nor repeat nor leave out a frame.
//!
//! A length beyond the limit is refused before anything is allocated, and memory grows with the
//! bytes that have arrived, not with those that were announced.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::Sha256;

/// Longest frame of a handshake: before it is over, nobody is trusted with more.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 4 << 10;
/// Longest frame after it: a window in 4,096 intervals, each with a histogram, is some megabytes.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Memory that is allocated at once for a frame whose bytes have not come yet.
const FIRST_BYTES: usize = 64 << 10;
/// Bytes of a frame's seal.
const SEAL_BYTES: usize = 32;

/// Authenticates the frames of one direction of one connection: HMAC-SHA-256 over the number of the frame, its length
/// and its bytes, under a key of this direction alone.
#[derive(Clone)]
pub(super) struct Seal {
    keyed: Hmac<Sha256>,
    /// Frames so far: one that is left out, repeated or moved is sealed with another number.
    frames: u64,
}

impl std::fmt::Debug for Seal {
    /// Not the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Seal({} frames)", self.frames)
    }
}

impl Seal {
    /// The seal of a direction whose key is `key`; none where HMAC takes no such key.
    pub fn new(key: &[u8]) -> Option<Self> {
        Some(Self { keyed: Hmac::new_from_slice(key).ok()?, frames: 0 })
    }

    /// The keyed hash of the next frame, whose length and bytes are `frame`.
    fn next(&mut self, frame: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        mac.update(&self.frames.to_be_bytes());
        for part in frame {
            mac.update(part);
        }
        self.frames += 1;
        mac
    }
}

/// Why there is no message.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The peer closed the connection between two frames.
    #[error("the connection was closed")]
    Closed,
    /// Nothing came for too long.
    #[error("nothing was heard in time")]
    Silent,
    /// The announced length is beyond the limit: as a rule, not our protocol at all.
    #[error(
        "a frame of {length} bytes was announced, {limit} are allowed: not a peer of this protocol?"
    )]
    TooLong {
        /// Announced.
        length: usize,
        /// Allowed.
        limit: usize,
    },
    /// The frame's seal is not the peer's.
    #[error(
        "a frame is not the peer's own: something between the two machines changed the connection"
    )]
    Forged,
    /// Not the JSON that was expected.
    #[error("a frame that cannot be read: {0}")]
    Malformed(String),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
}

impl From<io::Error> for FrameError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Closed,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Silent,
            _ => Self::Io(error),
        }
    }
}

/// Sends `message`, sealed where there is a `seal`.
pub(super) fn write<M: Serialize>(
    out: &mut impl Write,
    message: &M,
    seal: Option<&mut Seal>,
) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length = bytes.len() - 4;
    let announced = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_BYTES_MAX)
        .ok_or(FrameError::TooLong { length, limit: FRAME_BYTES_MAX })?;
    bytes[..4].copy_from_slice(&announced.to_be_bytes());
    send(out, bytes, seal)
}

/// Says that this end is alive.
pub(super) fn write_alive(out: &mut impl Write, seal: Option<&mut Seal>) -> Result<(), FrameError> {
    send(out, vec![0; 4], seal)
}

fn send(
    out: &mut impl Write,
    mut frame: Vec<u8>,
    seal: Option<&mut Seal>,
) -> Result<(), FrameError> {
    if let Some(seal) = seal {
        let sealed = seal.next(&[&frame]).finalize().into_bytes();
        frame.extend_from_slice(&sealed);
    }
    Ok(out.write_all(&frame)?)
}

/// The next message of at most `limit` bytes; `None` for a sign of life. Nothing of a frame whose seal is not the
/// peer's is parsed.
pub(super) fn read<M: DeserializeOwned>(
    from: &mut impl Read,
    limit: usize,
    seal: Option<&mut Seal>,
) -> Result<Option<M>, FrameError> {
    let mut announced = [0; 4];
    from.read_exact(&mut announced)?;
    let length = u32::from_be_bytes(announced) as usize;
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    let mut bytes = Vec::with_capacity(length.min(FIRST_BYTES));
    from.by_ref().take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(FrameError::Closed);
    }
    if let Some(seal) = seal {
        let mut sealed = [0; SEAL_BYTES];
        from.read_exact(&mut sealed)?;
        let expected = seal.next(&[&announced, &bytes]);
        expected.verify_slice(&sealed).map_err(|_| FrameError::Forged)?;
    }
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes);
    message.map(Some).map_err(|error| FrameError::Malformed(error.to_string()))
}

/// A connection that is read until a moment, however slowly its bytes come.
#[derive(Debug)]
pub(super) struct Until<'a> {
    /// The connection.
    pub stream: &'a TcpStream,
    /// When it is over.
    pub deadline: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_micros(1) {
            return Err(ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(length: u32, body: &[u8]) -> Vec<u8> {
        [&length.to_be_bytes(), body].concat()
    }

    #[test]
    fn what_was_written_is_read() {
        let mut bytes = Vec::new();
        write(&mut bytes, &vec![1u32, 2], None).expect("written");
        write_alive(&mut bytes, None).expect("written");
        let mut from = &bytes[..];
        assert_eq!(read::<Vec<u32>>(&mut from, 100, None).expect("read"), Some(vec![1, 2]));
        assert_eq!(read::<Vec<u32>>(&mut from, 100, None).expect("read"), None);
        assert!(matches!(read::<Vec<u32>>(&mut from, 100, None), Err(FrameError::Closed)));
    }

    /// Three sealed frames, of which the second is a sign of life.
    fn sealed_frames() -> [Vec<u8>; 3] {
        let mut seal = Seal::new(b"of one direction").expect("any key");
        let mut frames = [const { Vec::new() }; 3];
        write(&mut frames[0], &1u32, Some(&mut seal)).expect("written");
        write_alive(&mut frames[1], Some(&mut seal)).expect("written");
        write(&mut frames[2], &1u32, Some(&mut seal)).expect("written");
        frames
    }

    #[test]
    fn a_frame_that_was_changed_repeated_or_left_out_is_refused() {
        let seal = || Seal::new(b"of one direction").expect("any key");
        let next = |bytes: &[u8], seal: &mut Seal| read::<u32>(&mut &bytes[..], 100, Some(seal));
        let frames = sealed_frames();
        let mut ours = seal();
        assert_eq!(next(&frames[0], &mut ours).expect("read"), Some(1));
        assert_eq!(next(&frames[1], &mut ours).expect("read"), None);
        assert_eq!(next(&frames[2], &mut ours).expect("read"), Some(1));

        for bit in 0..frames[0].len() * 8 {
            let mut changed = frames[0].clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            next(&changed, &mut seal()).expect_err("one bit was changed");
        }
        let mut repeated = seal();
        next(&frames[0], &mut repeated).expect("the first time");
        assert!(matches!(next(&frames[0], &mut repeated), Err(FrameError::Forged)));
        assert!(matches!(next(&frames[1], &mut seal()), Err(FrameError::Forged)));
        let mut other = Seal::new(b"of the other").expect("any key");
        assert!(matches!(next(&frames[0], &mut other), Err(FrameError::Forged)));
        assert!(!format!("{ours:?}").contains("direction"));
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_unread() {
        let error = read::<u32>(&mut &b"GET / HTTP/1.1"[..], 4_096, None).expect_err("no frame");
        assert!(matches!(error, FrameError::TooLong { length: 0x4745_5420, .. }), "{error}");
        let error = read::<u32>(&mut &framed(9, b"1")[..], 8, None).expect_err("too long");
        assert!(matches!(error, FrameError::TooLong { length: 9, limit: 8 }), "{error}");
        let cut_off = framed(1 << 25, b"1");
        let error = read::<u32>(&mut &cut_off[..], 1 << 26, None).expect_err("cut off");
        assert!(matches!(error, FrameError::Closed), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut from = &bytes[..];
            while read::<super::super::message::ToAgent>(&mut from, 1 << 20, None).is_ok() {}
            let mut from = &framed(bytes.len() as u32, &bytes)[..];
            let message = read::<super::super::message::ToCoordinator>(&mut from, 1 << 20, None);
            prop_assert!(message.is_err() || bytes.is_empty());
            let mut seal = Seal::new(b"of one direction").expect("any key");
            let mut from = &bytes[..];
            prop_assert!(read::<u32>(&mut from, 1 << 20, Some(&mut seal)).is_err());
        }
    }
}
