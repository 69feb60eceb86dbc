//! Messages on a TCP connection: four bytes of length, big endian, and that many bytes of JSON. A
//! frame of length zero says only that its sender is alive.
//!
//! A length beyond the limit is refused before anything is allocated, and memory grows with the
//! bytes that have arrived, not with those that were announced.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest frame of a handshake: before it is over, nobody is trusted with more.
pub(super) const HANDSHAKE_BYTES_MAX: usize = 4 << 10;
/// Longest frame after it: a window in 4,096 intervals, each with a histogram, is some megabytes.
pub(super) const FRAME_BYTES_MAX: usize = 64 << 20;
/// Memory that is allocated at once for a frame whose bytes have not come yet.
const FIRST_BYTES: usize = 64 << 10;

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

/// Sends `message`.
pub(super) fn write<M: Serialize>(out: &mut impl Write, message: &M) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|error| FrameError::Malformed(error.to_string()))?;
    let length = bytes.len() - 4;
    let announced = u32::try_from(length)
        .ok()
        .filter(|_| length <= FRAME_BYTES_MAX)
        .ok_or(FrameError::TooLong { length, limit: FRAME_BYTES_MAX })?;
    bytes[..4].copy_from_slice(&announced.to_be_bytes());
    out.write_all(&bytes)?;
    Ok(())
}

/// Says that this end is alive.
pub(super) fn write_alive(out: &mut impl Write) -> Result<(), FrameError> {
    Ok(out.write_all(&[0; 4])?)
}

/// The next message of at most `limit` bytes; `None` for a sign of life.
pub(super) fn read<M: DeserializeOwned>(
    from: &mut impl Read,
    limit: usize,
) -> Result<Option<M>, FrameError> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > limit {
        return Err(FrameError::TooLong { length, limit });
    }
    if length == 0 {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(length.min(FIRST_BYTES));
    from.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(FrameError::Closed);
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
        write(&mut bytes, &vec![1u32, 2]).expect("written");
        write_alive(&mut bytes).expect("written");
        let mut from = &bytes[..];
        assert_eq!(read::<Vec<u32>>(&mut from, 100).expect("read"), Some(vec![1, 2]));
        assert_eq!(read::<Vec<u32>>(&mut from, 100).expect("read"), None);
        assert!(matches!(read::<Vec<u32>>(&mut from, 100), Err(FrameError::Closed)));
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_unread() {
        let error = read::<u32>(&mut &b"GET / HTTP/1.1"[..], 4_096).expect_err("no frame");
        assert!(matches!(error, FrameError::TooLong { length: 0x4745_5420, .. }), "{error}");
        let error = read::<u32>(&mut &framed(9, b"1")[..], 8).expect_err("too long");
        assert!(matches!(error, FrameError::TooLong { length: 9, limit: 8 }), "{error}");
        let error = read::<u32>(&mut &framed(1 << 25, b"1")[..], 1 << 26).expect_err("cut off");
        assert!(matches!(error, FrameError::Closed), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut from = &bytes[..];
            while read::<super::super::message::ToAgent>(&mut from, 1 << 20).is_ok() {}
            let mut from = &framed(bytes.len() as u32, &bytes)[..];
            let message = read::<super::super::message::ToCoordinator>(&mut from, 1 << 20);
            prop_assert!(message.is_err() || bytes.is_empty());
        }
    }
}
