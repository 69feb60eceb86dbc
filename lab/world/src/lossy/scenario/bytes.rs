//! The bytes of streams, which both ends can reckon and compare.

use crate::dice::mix;

/// Byte `offset` of the stream that `key` names: any lost, doubled or misplaced byte shows.
pub fn byte_at(key: u64, offset: u64) -> u8 {
    (mix(key ^ (offset >> 3)) >> (8 * (offset & 7))) as u8
}

/// Bytes of a stream.
pub fn bytes_of(key: u64, start: u64, count: usize) -> impl Iterator<Item = u8> {
    (start..start + count as u64).map(move |offset| byte_at(key, offset))
}

/// Compares `data` with the stream `key` at `offset`.
///
/// # Errors
/// Where it differs.
pub fn compare(key: u64, offset: u64, data: &[u8]) -> Result<(), String> {
    match data.iter().copied().zip(bytes_of(key, offset, data.len())).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(index) => Err(format!("byte {} of the stream is wrong", offset + index as u64)),
    }
}
