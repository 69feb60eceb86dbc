//! The ends of answers that are lost when they are sent first.

use std::collections::BTreeMap;

use wire::{EtherType, EthernetRepr, Protocol};

use crate::dice::mix;

/// Bytes of a full segment, with timestamps.
const MSS: u32 = 1_448;
/// One answer in so many loses its end: of up to so many segments.
const ONE_IN: u64 = 5;
const SEGMENTS_MAX: u64 = 8;

/// Watches the answers of connections, which come one after the other on each.
#[derive(Debug)]
pub struct Tail {
    seed: u64,
    answer_bytes: u32,
    /// By the client's port: the sequence number of the first byte, and the bytes that have been sent so far.
    streams: BTreeMap<u16, (u32, u32)>,
}

impl Tail {
    /// Nothing was sent yet.
    pub fn new(seed: u64, answer_bytes: u32) -> Self {
        Self { seed, answer_bytes, streams: BTreeMap::new() }
    }

    /// Whether a frame of the server's is lost.
    pub fn dooms(&mut self, frame: &[u8]) -> bool {
        let Some((port, sequence, bytes)) = data_of(frame) else { return false };
        let (first, sent) = self.streams.get(&port).copied().unwrap_or((sequence, 0));
        let at = sequence.wrapping_sub(first);
        let end = at.wrapping_add(bytes);
        // What is sent again ends before the newest byte.
        let is_new = end.wrapping_sub(sent).cast_signed() > 0;
        self.streams.insert(port, (first, if is_new { end } else { sent }));
        is_new && at % self.answer_bytes >= self.lost_from(at / self.answer_bytes)
    }

    /// The byte of an answer from which on it is lost.
    fn lost_from(&self, answer: u32) -> u32 {
        let drawn = mix(self.seed ^ mix(answer.into()));
        if !drawn.is_multiple_of(ONE_IN) {
            return self.answer_bytes;
        }
        let segments = 1 + (drawn / ONE_IN % SEGMENTS_MAX) as u32;
        let last = (self.answer_bytes - 1) % MSS + 1;
        self.answer_bytes.saturating_sub(last + (segments - 1) * MSS)
    }
}

/// The destination port, the sequence number and the payload's length of a TCP segment with data.
fn data_of(frame: &[u8]) -> Option<(u16, u32, u32)> {
    let ip = frame.get(EthernetRepr::HEADER_LEN..)?;
    let is_tcp = frame[12..14] == EtherType::IPV4.0.to_be_bytes() && *ip.get(9)? == Protocol::TCP.0;
    let header = usize::from(ip.first()? & 0xf) * 4;
    let tcp = ip.get(header..).filter(|_| is_tcp)?;
    let (total, offset) = (u16::from_be_bytes([ip[2], ip[3]]), usize::from(tcp.get(12)? >> 4) * 4);
    let bytes = usize::from(total).checked_sub(header + offset).filter(|bytes| *bytes > 0)?;
    let port = u16::from_be_bytes([tcp[2], tcp[3]]);
    Some((port, u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]), bytes as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A segment of so many bytes.
    fn segment(sequence: u32, bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 20 + bytes];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&(40 + bytes as u16).to_be_bytes());
        frame[23] = 6;
        frame[38..42].copy_from_slice(&sequence.to_be_bytes());
        frame[46] = 5 << 4;
        frame
    }

    #[test]
    fn the_ends_of_some_answers_are_lost_once() {
        let answer_bytes = 65_536;
        let mut tail = Tail::new(3, answer_bytes);
        assert!(!tail.dooms(&segment(u32::MAX - 70_000, 0)), "no data");
        let mut lost = vec![0; 200];
        for answer in 0..200_u32 {
            let mut at = 0;
            while at < answer_bytes {
                let bytes = MSS.min(answer_bytes - at);
                let sequence = (u32::MAX - 70_000).wrapping_add(answer * answer_bytes + at);
                let frame = segment(sequence, bytes as usize);
                let is_doomed = tail.dooms(&frame);
                lost[answer as usize] += u32::from(is_doomed);
                assert!(!is_doomed || answer_bytes - at <= 8 * MSS, "only the end");
                assert!(!tail.dooms(&frame), "once");
                // What another connection sends again and again.
                let mut other = segment(1 << 31, 8);
                other[37] = 9;
                assert!(!tail.dooms(&other), "another connection");
                at += bytes;
            }
        }
        let hit = lost.iter().filter(|lost| **lost > 0).count();
        assert!((20..60).contains(&hit), "{hit}");
        let all = (1..=8).all(|segments| lost.contains(&segments));
        assert!(all && lost.iter().all(|lost| *lost <= 8), "{lost:?}");
    }
}
