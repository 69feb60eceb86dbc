//! TCP options: MSS, window scale, timestamps, SACK (RFC 9293 §3.2, RFC 7323, RFC 2018).
//!
//! An established segment nearly always has exactly `NOP NOP TIMESTAMP`; both directions have a fast path for it.
//! `TcpOptions::parse` ends on any bytes: what it cannot read it leaves out, and says so in `malformed`.

use core::cmp::Ordering;
use core::ops::Deref;

use crate::SeqNumber;

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// `NOP NOP TIMESTAMP 10`, the layout of RFC 7323 appendix A.
pub(crate) const ALIGNED_TIMESTAMP: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMP, 10]);
/// Bytes of the aligned timestamp option.
pub(crate) const ALIGNED_TIMESTAMP_LEN: usize = 12;

/// Most bytes of options: the data offset has four bits, counts 32-bit words, and five of them are the header.
pub const MAX_OPTIONS_LEN: usize = 40;
/// Most SACK blocks that fit in one segment without other options (RFC 2018 §3).
pub const MAX_SACK_BLOCKS: usize = 4;
/// Largest window scale; a larger one is read as this (RFC 7323 §2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

/// The timestamps option (RFC 7323 §3.2).
#[derive(Debug, Copy, Clone, PartialEq, Eq, Default)]
pub struct Timestamp {
    /// The sender's clock when it sent this segment (TSval).
    pub value: u32,
    /// The latest `value` it received (TSecr); zero without an ACK.
    pub echo: u32,
}

/// Up to four blocks of received sequence space, left edge and the number after the right edge (RFC 2018 §3); the
/// first reports the most recent segment. Reads as a slice; what is behind it is zero.
#[derive(Debug, Copy, Clone, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(SeqNumber, SeqNumber); MAX_SACK_BLOCKS],
    count: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const EMPTY: SackBlocks =
        SackBlocks { blocks: [(SeqNumber(0), SeqNumber(0)); MAX_SACK_BLOCKS], count: 0 };

    /// Appends a block; returns whether there was room.
    #[inline]
    pub fn push(&mut self, left: SeqNumber, right: SeqNumber) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.count)) else { return false };
        *slot = (left, right);
        self.count += 1;
        true
    }

    /// Puts the blocks in the order of the stream.
    pub fn sort(&mut self) {
        self.blocks[..usize::from(self.count).min(MAX_SACK_BLOCKS)].sort_unstable_by(
            |one, other| {
                if one.0.before(other.0) { Ordering::Less } else { Ordering::Greater }
            },
        );
    }

    /// The blocks that there are.
    #[inline]
    pub fn as_slice(&self) -> &[(SeqNumber, SeqNumber)] {
        &self.blocks[..usize::from(self.count).min(MAX_SACK_BLOCKS)]
    }
}

impl Deref for SackBlocks {
    type Target = [(SeqNumber, SeqNumber)];

    #[inline]
    fn deref(&self) -> &Self::Target {
        self.as_slice()
    }
}

impl FromIterator<(SeqNumber, SeqNumber)> for SackBlocks {
    /// The first four blocks; later ones are left out.
    fn from_iter<I: IntoIterator<Item = (SeqNumber, SeqNumber)>>(blocks: I) -> Self {
        let mut result = SackBlocks::EMPTY;
        for (left, right) in blocks.into_iter().take(MAX_SACK_BLOCKS) {
            result.push(left, right);
        }
        result
    }
}

/// The options of one segment.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Default)]
pub struct TcpOptions {
    /// Largest segment that the sender of this SYN receives, in bytes of payload (RFC 9293 §3.7.1).
    pub mss: Option<u16>,
    /// How far the sender's later windows are shifted, 0 to 14 (RFC 7323 §2).
    pub window_scale: Option<u8>,
    /// Whether SACK may be sent to the sender of this SYN (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 §3).
    pub timestamp: Option<Timestamp>,
    /// Selective acknowledgements (RFC 2018 §3).
    pub sack_blocks: SackBlocks,
    /// Whether an option had an illegal length (RFC 9293 §3.1, MUST-7); it and all after it are left out. Has no
    /// meaning when sending.
    pub malformed: bool,
}

impl TcpOptions {
    /// No options.
    pub const NONE: TcpOptions = TcpOptions {
        mss: None,
        window_scale: None,
        sack_permitted: false,
        timestamp: None,
        sack_blocks: SackBlocks::EMPTY,
        malformed: false,
    };

    /// The options of an established segment.
    #[inline]
    pub const fn with_timestamp(timestamp: Timestamp) -> TcpOptions {
        TcpOptions { timestamp: Some(timestamp), ..TcpOptions::NONE }
    }

    /// The timestamp when `bytes` is exactly `NOP NOP TIMESTAMP`: the header prediction's question, answered without
    /// building a `TcpOptions`. `None` says nothing about what else there is.
    #[inline]
    pub fn parse_aligned_timestamp(bytes: &[u8]) -> Option<Timestamp> {
        let bytes = <&[u8; ALIGNED_TIMESTAMP_LEN]>::try_from(bytes).ok()?;
        let [a, b, c, d, v0, v1, v2, v3, e0, e1, e2, e3] = *bytes;
        if u32::from_be_bytes([a, b, c, d]) != ALIGNED_TIMESTAMP {
            return None;
        }
        Some(Timestamp {
            value: u32::from_be_bytes([v0, v1, v2, v3]),
            echo: u32::from_be_bytes([e0, e1, e2, e3]),
        })
    }

    /// Reads the bytes between header and payload. Unknown options are skipped by their length (RFC 9293 §3.2), the
    /// end-of-list option ends the reading, and the last of several equal options counts.
    #[inline]
    pub fn parse(bytes: &[u8]) -> TcpOptions {
        if bytes.is_empty() {
            return TcpOptions::NONE;
        }
        match Self::parse_aligned_timestamp(bytes) {
            Some(timestamp) => TcpOptions::with_timestamp(timestamp),
            None => Self::parse_any(bytes),
        }
    }

    /// Any layout. Each step consumes at least one byte, so it ends.
    #[inline(never)]
    fn parse_any(bytes: &[u8]) -> TcpOptions {
        let mut options = TcpOptions::NONE;
        let mut rest = bytes;
        while let [kind, tail @ ..] = rest {
            match *kind {
                END => break,
                NOP => rest = tail,
                kind => {
                    // The length counts kind and length bytes too; less than two would not move on.
                    let option = match tail {
                        [len, ..] if *len >= 2 => rest.split_at_checked(usize::from(*len)),
                        _ => None,
                    };
                    let Some((option, tail)) = option else {
                        options.malformed = true;
                        break;
                    };
                    if !options.read_option(kind, &option[2..]) {
                        options.malformed = true;
                        break;
                    }
                    rest = tail;
                }
            }
        }
        options
    }

    /// Takes in one option; returns whether its length is legal for its kind.
    fn read_option(&mut self, kind: u8, value: &[u8]) -> bool {
        match (kind, value) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (TIMESTAMP, &[a, b, c, d, e, f, g, h]) => {
                self.timestamp = Some(Timestamp {
                    value: u32::from_be_bytes([a, b, c, d]),
                    echo: u32::from_be_bytes([e, f, g, h]),
                });
            }
            (SACK, value) if !value.is_empty() && value.len() % 8 == 0 => {
                let (blocks, _) = value.as_chunks::<8>();
                self.sack_blocks = blocks
                    .iter()
                    .map(|&[a, b, c, d, e, f, g, h]| {
                        let left = u32::from_be_bytes([a, b, c, d]);
                        let right = u32::from_be_bytes([e, f, g, h]);
                        (SeqNumber(left), SeqNumber(right))
                    })
                    .collect();
            }
            (MSS | WINDOW_SCALE | SACK_PERMITTED | TIMESTAMP | SACK, _) => return false,
            _ => {}
        }
        true
    }

    /// Whether these are exactly the options of an established segment.
    #[inline]
    pub(crate) fn only_timestamp(&self) -> Option<Timestamp> {
        if self.mss.is_some()
            || self.window_scale.is_some()
            || self.sack_permitted
            || self.sack_blocks.count != 0
        {
            return None;
        }
        self.timestamp
    }

    /// Bytes that `emit` writes: a multiple of 4, at most 40.
    #[inline]
    pub fn len(&self) -> usize {
        if self.only_timestamp().is_some() {
            return ALIGNED_TIMESTAMP_LEN;
        }
        let fixed = self.fixed_len();
        match self.sack_blocks_that_fit(fixed) {
            0 => fixed,
            count => fixed + 4 + 8 * count,
        }
    }

    /// Whether there is nothing to send.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all options but SACK blocks, padding included.
    fn fixed_len(&self) -> usize {
        let mss = if self.mss.is_some() { 4 } else { 0 };
        let window_scale = if self.window_scale.is_some() { 4 } else { 0 };
        let timestamp = match (self.timestamp.is_some(), self.sack_permitted) {
            (true, _) => ALIGNED_TIMESTAMP_LEN,
            (false, true) => 4,
            (false, false) => 0,
        };
        mss + window_scale + timestamp
    }

    /// How many blocks there is room for: three beside a timestamp (RFC 2018 §3), else four.
    fn sack_blocks_that_fit(&self, fixed_len: usize) -> usize {
        let room = (MAX_OPTIONS_LEN - fixed_len).saturating_sub(4) / 8;
        self.sack_blocks.len().min(room)
    }

    /// Writes the options in the usual layout, padded with NOPs so that every option ends on a 32-bit boundary, into
    /// the first `len()` bytes of `out`. SACK blocks for which there is no room are left out, last ones first.
    ///
    /// # Panics
    /// When `out` has fewer than `len()` bytes.
    pub fn emit(&self, out: &mut [u8]) {
        let blocks = self.sack_blocks_that_fit(self.fixed_len());
        let mut out = Writer { out };
        if let Some(mss) = self.mss {
            let [a, b] = mss.to_be_bytes();
            out.put([MSS, 4, a, b]);
        }
        match (self.timestamp, self.sack_permitted) {
            (Some(_), true) => out.put([SACK_PERMITTED, 2, TIMESTAMP, 10]),
            (Some(_), false) => out.put(ALIGNED_TIMESTAMP.to_be_bytes()),
            (None, true) => out.put([NOP, NOP, SACK_PERMITTED, 2]),
            (None, false) => {}
        }
        if let Some(timestamp) = self.timestamp {
            out.put(timestamp.value.to_be_bytes());
            out.put(timestamp.echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.put([NOP, WINDOW_SCALE, 3, shift]);
        }
        if blocks > 0 {
            out.put([NOP, NOP, SACK, (2 + 8 * blocks) as u8]);
            for (left, right) in &self.sack_blocks[..blocks] {
                out.put(left.0.to_be_bytes());
                out.put(right.0.to_be_bytes());
            }
        }
    }
}

/// Appends 32-bit words to a buffer.
struct Writer<'a> {
    out: &'a mut [u8],
}

impl Writer<'_> {
    fn put(&mut self, word: [u8; 4]) {
        let (head, rest) = core::mem::take(&mut self.out).split_at_mut(4);
        head.copy_from_slice(&word);
        self.out = rest;
    }
}
