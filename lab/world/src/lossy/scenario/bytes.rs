//! The bytes of streams, which both ends can reckon and compare.

use crate::dice::mix;
use crate::lossy::watch::ensure;

/// Byte `offset` of the stream that `key` names: any lost, doubled or misplaced byte shows.
pub fn byte_at(key: u64, offset: u64) -> u8 {
    (mix(key ^ (offset >> 3)) >> (8 * (offset & 7))) as u8
}

/// Bytes of a stream.
pub fn bytes_of(key: u64, start: u64, count: usize) -> impl Iterator<Item = u8> {
    (start..start + count as u64).map(move |offset| byte_at(key, offset))
}

/// What has come of a stream.
pub struct Received {
    key: u64,
    /// Bytes so far.
    pub bytes: u64,
}

impl Received {
    /// Nothing yet of the stream `key`.
    pub fn of(key: u64) -> Self {
        Self { key, bytes: 0 }
    }

    /// More has come of a stream of `expected` bytes.
    ///
    /// # Errors
    /// It differs, or there is more than that.
    pub fn take(&mut self, data: &[u8], expected: u64) -> Result<(), String> {
        compare(self.key, self.bytes, data)?;
        self.bytes += data.len() as u64;
        if self.bytes > expected { self.is_whole(expected) } else { Ok(()) }
    }

    /// Whether all of `expected` bytes have come.
    ///
    /// # Errors
    /// How many have.
    pub fn is_whole(&self, expected: u64) -> Result<(), String> {
        ensure(self.bytes == expected, || format!("{} bytes came of {expected}", self.bytes))
    }
}

/// Compares `data` with the stream `key` at `offset`.
///
/// # Errors
/// Where it differs.
pub fn compare(key: u64, offset: u64, data: &[u8]) -> Result<(), String> {
    let mut pairs = (offset..).zip(data.iter().copied().zip(bytes_of(key, offset, data.len())));
    let wrong = pairs.find(|(_, (found, expected))| found != expected);
    wrong.map_or(Ok(()), |(at, _)| Err(format!("byte {at} of the stream is wrong")))
}
