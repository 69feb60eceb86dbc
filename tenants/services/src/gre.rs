//! The GRE header (RFC 2784) with key and sequence number (RFC 2890).
//!
//! Sent: `Header { .. }.emit(&mut out, payload_sum)`. Received: `parse(bytes)` gives header and payload, the checksum
//! verified where there is one.

use wire::Sum;

use crate::refused::{Layer, Refused};

/// Protocol type of IPv4 (RFC 2784 §3).
pub(crate) const PROTOCOL_IPV4: u16 = 0x0800;

/// Checksum and Reserved1 are present (RFC 2784 §2.2).
const CHECKSUM_PRESENT: u16 = 1 << 15;
/// The key is present (RFC 2890 §2.1).
const KEY_PRESENT: u16 = 1 << 13;
/// The sequence number is present (RFC 2890 §2.2).
const SEQUENCE_PRESENT: u16 = 1 << 12;
/// Routing, strict source route and recursion control of RFC 1701: a receiver that knows only their successor must
/// discard what has them (RFC 2784 §2.3). The bits behind them must be ignored (the same section).
const OBSOLETE: u16 = 1 << 14 | 1 << 11 | 1 << 10;
/// The version number's bits, zero for GRE (RFC 2784 §2.3.1).
const VERSION: u16 = 0b111;

/// The meaning of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// What the payload is, an EtherType.
    pub protocol: u16,
    /// Whether a checksum over header and payload is present.
    pub checksum: bool,
    /// Identifies a flow within the tunnel.
    pub key: Option<u32>,
    /// Counts the packets of the tunnel, or of the key.
    pub sequence: Option<u32>,
}

impl Header {
    /// Bytes of the header.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        4 + 4
            * (self.checksum as usize
                + self.key.is_some() as usize
                + self.sequence.is_some() as usize)
    }

    /// Writes the header to the start of `out`, which has at least `len()` bytes. `payload_sum` is looked at only
    /// where a checksum is wanted.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8], payload_sum: Sum) {
        let mut flags = 0;
        let mut at = 4;
        if self.checksum {
            flags |= CHECKSUM_PRESENT;
            out[4..8].fill(0);
            at = 8;
        }
        let words = [(self.key, KEY_PRESENT), (self.sequence, SEQUENCE_PRESENT)];
        for (word, flag) in words {
            if let Some(word) = word {
                flags |= flag;
                out[at..at + 4].copy_from_slice(&word.to_be_bytes());
                at += 4;
            }
        }
        out[..2].copy_from_slice(&flags.to_be_bytes());
        out[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        if self.checksum {
            let checksum = Sum::of(&out[..at]).add(payload_sum).finish();
            out[4..6].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// A header and what it carries.
///
/// # Errors
/// `Truncated`, `Version`, `Malformed` for an obsolete flag, `Checksum`.
#[inline]
pub(crate) fn parse(bytes: &[u8]) -> Result<(Header, &[u8]), Refused> {
    const TRUNCATED: Refused = Refused::Truncated { layer: Layer::Gre };
    let (first, mut rest) = bytes.split_first_chunk::<4>().ok_or(TRUNCATED)?;
    let flags = u16::from_be_bytes([first[0], first[1]]);
    let version = flags & VERSION;
    if version != 0 {
        return Err(Refused::Version { layer: Layer::Gre, found: version as u8, expected: 0 });
    }
    if flags & OBSOLETE != 0 {
        return Err(Refused::Malformed { layer: Layer::Gre, field: "reserved flag (RFC 1701)" });
    }
    let mut word = |flag: u16| -> Result<Option<u32>, Refused> {
        if flags & flag == 0 {
            return Ok(None);
        }
        let (word, after) = rest.split_first_chunk::<4>().ok_or(TRUNCATED)?;
        rest = after;
        Ok(Some(u32::from_be_bytes(*word)))
    };
    let checksum = word(CHECKSUM_PRESENT)?;
    let key = word(KEY_PRESENT)?;
    let sequence = word(SEQUENCE_PRESENT)?;
    if checksum.is_some() && !Sum::of(bytes).is_valid() {
        return Err(Refused::Checksum { layer: Layer::Gre });
    }
    let protocol = u16::from_be_bytes([first[2], first[3]]);
    Ok((Header { protocol, checksum: checksum.is_some(), key, sequence }, rest))
}
