//! Middleware: writes every frame, both directions, to a capture that Wireshark reads.
//!
//! ```
//! use nic::{Nic, loopback, pcap::PcapNic};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, _far) = loopback::pair(Default::default());
//! let mut nic = PcapNic::new(near, Vec::new(), std::time::Duration::ZERO)?;
//! let mut pool = mem::Pool::new(&mem::Region::heap(64), 64);
//! nic.receive(clock::Instant::ZERO, &mut pool, &mut vec![], 64);
//! let (_near, capture) = nic.into_parts();
//! assert_eq!(capture.expect("nothing failed").len(), 24); // the file header
//! # Ok(()) }
//! ```
//!
//! A capture never stops the datapath: the first write that fails ends the capture (the file could
//! not be read beyond a torn record anyway), and frames that it misses are counted. Give it a
//! buffered writer.

use std::io::Write;
use std::time::Duration;

use clock::Instant;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapResult, TsResolution};

use crate::Nic;
use crate::tap::{Direction, Tap, Tapped};

/// The capture's header could not be written.
#[derive(Debug, thiserror::Error)]
#[error("starting a packet capture failed: {reason}; is its target writable, with space left?")]
pub struct PcapStartError {
    reason: String,
}

/// Counters of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcapStats {
    /// Frames written.
    pub written: u64,
    /// Frames that passed after the capture had failed.
    pub lost: u64,
}

/// Bytes of a frame that a reader is to expect at most: those of the largest IP packet fit.
const LONGEST: u32 = 1 << 17;

/// Begins a capture of Ethernet frames with timestamps in nanoseconds.
///
/// # Errors
/// The file header cannot be written.
pub fn start<W: Write>(writer: W) -> PcapResult<PcapWriter<W>> {
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        snaplen: LONGEST,
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    PcapWriter::with_header(writer, header)
}

/// Writes a frame, so long after 1970.
///
/// # Errors
/// It cannot be written.
pub fn write_frame(
    writer: &mut PcapWriter<impl Write>,
    at: Duration,
    frame: &[u8],
) -> PcapResult<()> {
    // A chunk's length fits a u32.
    writer.write_packet(&PcapPacket::new(at, frame.len() as u32, frame)).map(|_| ())
}

/// A driver with a capture before it.
pub type PcapNic<N, W> = Tapped<N, Capture<W>>;

/// What writes the capture.
pub struct Capture<W: Write> {
    /// None once a write has failed.
    writer: Option<PcapWriter<W>>,
    epoch: Duration,
    stats: PcapStats,
}

impl<W: Write> Tap for Capture<W> {
    fn see(&mut self, now: Instant, _: Direction, frame: &[u8]) {
        let Some(writer) = &mut self.writer else {
            self.stats.lost += 1;
            return;
        };
        let timestamp = self.epoch.saturating_add(now.since(Instant::ZERO));
        match write_frame(writer, timestamp, frame) {
            Ok(()) => self.stats.written += 1,
            Err(error) => {
                tracing::warn!(%error, "a packet capture failed and ends here");
                self.writer = None;
                self.stats.lost += 1;
            }
        }
    }
}

impl<N: Nic, W: Write> PcapNic<N, W> {
    /// Captures what passes `inner` to `writer`, with timestamps in nanoseconds. `epoch` is the time
    /// since 1970 at [`Instant::ZERO`]; zero where only differences matter.
    ///
    /// # Errors
    /// [`PcapStartError`] where the file header cannot be written.
    pub fn new(inner: N, writer: W, epoch: Duration) -> Result<Self, PcapStartError> {
        let writer = start(writer).map_err(|error| PcapStartError { reason: error.to_string() })?;
        let capture = Capture { writer: Some(writer), epoch, stats: PcapStats::default() };
        Ok(Self::with_tap(inner, capture))
    }

    /// What was captured.
    pub fn pcap_stats(&self) -> PcapStats {
        self.tap.stats
    }

    /// The driver, and the writer (not flushed) unless it failed.
    pub fn into_parts(self) -> (N, Option<W>) {
        (self.inner, self.tap.writer.map(PcapWriter::into_writer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackConfig, WhenFull, pair};
    use mem::{Pool, Region, TxFrame};
    use pcap_file::pcap::PcapReader;

    fn frames(pool: &mut Pool, tags: std::ops::Range<u8>) -> Vec<TxFrame> {
        tags.map(|tag| {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[tag; 60]).expect("fits");
            mbuf.into_tx()
        })
        .collect()
    }

    #[test]
    fn both_directions_are_written_once_with_nanoseconds() {
        let when_full = WhenFull::Wait;
        let config = LoopbackConfig { ring_frames: 4, when_full, ..LoopbackConfig::default() };
        let (near, mut far) = pair(config);
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut nic = PcapNic::new(near, Vec::new(), Duration::from_secs(9)).expect("a header");
        let mut queue = frames(&mut pool, 0..6);
        let mut out = Vec::new();
        let mut now = Instant::from_nanos(1_000_000_001);
        // The ring takes four; the other two are offered again, with one more.
        assert_eq!(nic.transmit(now, &mut pool, &mut queue), 4);
        far.receive(now, &mut pool, &mut out, 64);
        now += Duration::from_nanos(1);
        nic.reclaim(&mut pool);
        queue.append(&mut frames(&mut pool, 6..7));
        assert_eq!(nic.transmit(now, &mut pool, &mut queue), 3);
        let mut reply = frames(&mut pool, 7..8);
        far.transmit(now, &mut pool, &mut reply);
        assert_eq!(nic.receive(now, &mut pool, &mut out, 64), 1);
        assert_eq!(nic.pcap_stats(), PcapStats { written: 8, lost: 0 });

        let (mut near, capture) = nic.into_parts();
        out.drain(..).for_each(|mbuf| pool.free(mbuf));
        near.drain(&mut pool);
        far.drain(&mut pool);
        assert_eq!(pool.available(), 64);
        let capture = capture.expect("nothing failed");
        let mut reader = PcapReader::new(&capture[..]).expect("a capture");
        let mut seen = Vec::new();
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("whole");
            assert_eq!(packet.data.len(), 60);
            seen.push((packet.data[0], packet.timestamp.as_nanos()));
        }
        let expected: Vec<(u8, u128)> = (0..8)
            .map(|tag| (tag, if tag < 6 { 10_000_000_001 } else { 10_000_000_002 }))
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_frame_of_several_chunks_is_one_record() {
        use crate::test_frames::{chunks, segment};
        let config =
            LoopbackConfig { max_frame_bytes: 9014, frame_chunks: 6, ..LoopbackConfig::default() };
        let (near, far) = pair(config);
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut nic = PcapNic::new(near, Vec::new(), Duration::ZERO).expect("a header");
        let long = segment(8_000);
        let mut queue = chunks(&long, 1_789, &mut pool);
        queue.extend(frames(&mut pool, 1..2));
        nic.transmit(Instant::ZERO, &mut pool, &mut queue);
        let (near, capture) = nic.into_parts();
        [near, far].into_iter().for_each(|end| _ = end.close(&mut pool));
        let capture = capture.expect("nothing failed");
        let mut reader = PcapReader::new(&capture[..]).expect("a capture");
        let first = reader.next_packet().expect("one").expect("whole");
        assert!(first.data[..] == long[..]);
        assert_eq!(reader.next_packet().expect("another").expect("whole").data.len(), 60);
        assert!(reader.next_packet().is_none());
    }

    /// Takes the file header and one frame, then is full.
    struct SmallDisk(usize);
    impl Write for SmallDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_the_capture_and_no_frame() {
        assert!(
            PcapNic::new(pair(LoopbackConfig::default()).0, SmallDisk(3), Duration::ZERO).is_err()
        );
        let (near, far) = pair(LoopbackConfig::default());
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut nic =
            PcapNic::new(near, SmallDisk(24 + 16 + 60), Duration::ZERO).expect("a header");
        let mut queue = frames(&mut pool, 0..5);
        assert_eq!(nic.transmit(Instant::ZERO, &mut pool, &mut queue), 5);
        assert_eq!(nic.pcap_stats(), PcapStats { written: 1, lost: 4 });
        assert_eq!(far.rx_backlog(), 5);
        let (mut near, writer) = nic.into_parts();
        assert!(writer.is_none());
        assert_eq!(near.drain(&mut pool), 5);
    }
}
