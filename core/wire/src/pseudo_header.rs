//! The pseudo-header that the checksums of transports cover (RFC 9293 §3.1, RFC 768; RFC 8200 §8.1 for IPv6).
//!
//! One sum for both versions: what is in front of a mapped IPv4 address adds nothing to a ones'-complement sum, as its
//! only word that is not zero is all ones; and the two versions place length and protocol in other words, whose sum is
//! the same.

use crate::{Address, Protocol, Sum};

/// The sum of the pseudo-header. `len` is that of the transport's header and payload, in bytes, at most 65,535.
#[inline]
pub fn pseudo_header_sum(
    src: impl Into<Address>,
    dst: impl Into<Address>,
    protocol: Protocol,
    len: usize,
) -> Sum {
    Sum::from_words(pseudo_header_words(src.into(), dst.into(), protocol, len))
}

/// The pseudo-header's words in memory order, added: below 2^36, so that a header's fields can be added to it without
/// looking after carries.
#[inline(always)]
pub(crate) fn pseudo_header_words(
    src: Address,
    dst: Address,
    protocol: Protocol,
    len: usize,
) -> u64 {
    // Protocol and length are added as values: both are below 2^16, their sum is below 2^32.
    let protocol_len = u32::from(protocol.0).wrapping_add(len as u32);
    address_words(src) + address_words(dst) + u64::from(protocol_len.to_be())
}

/// The words of an address in memory order, added: below 2^34.
#[inline(always)]
pub(crate) fn address_words(address: Address) -> u64 {
    let octets = address.octets();
    let (words, _) = octets.as_chunks::<4>();
    words.iter().map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}
