//! The protocol: requests and responses of sixteen bytes, and their assembly from a stream.
//!
//! | bytes | meaning |
//! | --- | --- |
//! | 0 to 7 | service time, in nanoseconds, big endian |
//! | 8 to 15 | sequence number: anything that the client chooses, big endian |
//!
//! The response to a request is the same sixteen bytes. Responses come in the order of the
//! requests.

use tailplane::Duration;

/// Bytes of a request, and of a response.
pub const FRAME_BYTES: usize = 16;
/// The longest service time, in nanoseconds: a request that asks for more ends its connection.
pub const SERVICE_NS_MAX: u64 = 1_000_000_000;

/// A request, or the response to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// For how long the service spins, in nanoseconds.
    pub service_ns: u64,
    /// What the client tells its requests apart by.
    pub sequence: u64,
}

impl Frame {
    /// Reads a frame.
    pub const fn from_bytes(bytes: &[u8; FRAME_BYTES]) -> Self {
        let [s0, s1, s2, s3, s4, s5, s6, s7, n0, n1, n2, n3, n4, n5, n6, n7] = *bytes;
        Self {
            service_ns: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            sequence: u64::from_be_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
        }
    }

    /// Writes the frame.
    pub fn to_bytes(self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[..8].copy_from_slice(&self.service_ns.to_be_bytes());
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    /// The service time; `None` where it is longer than is served.
    pub const fn service(self) -> Option<Duration> {
        if self.service_ns <= SERVICE_NS_MAX {
            Some(Duration::from_nanos(self.service_ns))
        } else {
            None
        }
    }
}

/// Cuts a stream into frames, wherever its buffers begin and end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assembler {
    part: [u8; FRAME_BYTES],
    /// Bytes of `part` that are there: always fewer than a frame.
    len: usize,
}

impl Assembler {
    /// Takes bytes from the front of `data` up to the end of one frame: that frame, and the bytes
    /// behind it. `None` where the bytes end first; they are kept.
    pub fn next<'a>(&mut self, data: &'a [u8]) -> Option<(Frame, &'a [u8])> {
        if self.len == 0
            && let Some((whole, rest)) = data.split_first_chunk::<FRAME_BYTES>()
        {
            return Some((Frame::from_bytes(whole), rest));
        }
        let (taken, rest) = data.split_at(data.len().min(FRAME_BYTES - self.len));
        self.part[self.len..self.len + taken.len()].copy_from_slice(taken);
        self.len += taken.len();
        debug_assert!(self.len <= FRAME_BYTES);
        if self.len < FRAME_BYTES {
            return None;
        }
        self.len = 0;
        Some((Frame::from_bytes(&self.part), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let frame = Frame { service_ns: 0x0102_0304, sequence: 0xA0_B0C0 };
        let bytes = frame.to_bytes();
        assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0xA0, 0xB0, 0xC0]);
        assert_eq!(Frame::from_bytes(&bytes), frame);
    }

    #[test]
    fn a_second_is_served_and_more_is_not() {
        let frame = |service_ns| Frame { service_ns, sequence: 0 };
        assert_eq!(frame(SERVICE_NS_MAX).service(), Some(Duration::from_secs(1)));
        assert_eq!(frame(0).service(), Some(Duration::ZERO));
        assert_eq!(frame(SERVICE_NS_MAX + 1).service(), None);
        assert_eq!(frame(u64::MAX).service(), None);
    }

    proptest! {
        #[test]
        fn any_split_of_a_stream_gives_its_frames(
            sent in prop::collection::vec((any::<u64>(), any::<u64>()), 0..40),
            cuts in prop::collection::vec(1usize..50, 1..20),
        ) {
            let sent: Vec<_> = sent
                .into_iter()
                .map(|(service_ns, sequence)| Frame { service_ns, sequence })
                .collect();
            let stream: Vec<u8> = sent.iter().flat_map(|frame| frame.to_bytes()).collect();
            let mut assembler = Assembler::default();
            let mut found = Vec::new();
            let mut rest = &stream[..];
            for &cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (mut piece, behind) = rest.split_at(cut.min(rest.len()));
                while let Some((frame, left)) = assembler.next(piece) {
                    found.push(frame);
                    piece = left;
                }
                rest = behind;
            }
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn frames_survive_their_bytes(service_ns: u64, sequence: u64) {
            let frame = Frame { service_ns, sequence };
            prop_assert_eq!(Frame::from_bytes(&frame.to_bytes()), frame);
        }
    }
}
