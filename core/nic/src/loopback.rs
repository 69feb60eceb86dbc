//! Two ends of a wire in one thread: for tests, simulation, and instruction counts.
//!
//! ```
//! use mem::{Pool, Region};
//! use nic::Nic;
//! use nic::loopback::{self, LoopbackConfig};
//! let (mut near, mut far) = loopback::pair(LoopbackConfig::default());
//! let mut pool = Pool::new(&Region::heap(256), 128);
//! let mut frame = pool.alloc().unwrap();
//! frame.append(&[0; 60]).unwrap();
//! let mut frames = vec![frame.into_tx()];
//! near.transmit(clock::Instant::ZERO, &mut pool, &mut frames);
//! let mut received = Vec::new();
//! assert_eq!(far.receive(clock::Instant::ZERO, &mut pool, &mut received, 64), 1);
//! assert_eq!(near.reclaim(&mut pool), 1);
//! # received.drain(..).for_each(|mbuf| pool.free(mbuf));
//! ```
//!
//! A frame lies in the wire as the sender's own `TxFrame` and is copied once, at `receive`, into a
//! buffer of the receiver's pool. Nothing is allocated after [`pair`].

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

use clock::Instant;
use mem::{CHUNK_SIZE, Mbuf, Pool, RX_HEADROOM, TxFrame};
use wire::MacAddr;

use crate::pieces::Pieces;
use crate::{Armed, Capabilities, Closed, Nic, NicStats, chunks, complete_checksum};

/// What happens to a frame for which the receiver's ring has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It is dropped and counted at the receiver (`rx_dropped`), as a wire does.
    #[default]
    Drop,
    /// It stays with the sender, which sees a full transmit ring.
    Wait,
}

/// How the wire behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopbackConfig {
    /// Frames that wait at each receiver; at least one.
    pub ring_frames: usize,
    /// What a full ring does.
    pub when_full: WhenFull,
    /// Report received checksums as verified, so that the stack skips them. False by default: the
    /// stack then does the work that it does on a wire.
    pub rx_checksums_verified: bool,
    /// Complete partial checksums on the way, as a device with checksum offload does. False by default.
    pub tx_checksum_offload: bool,
    /// Link addresses of the two ends.
    pub macs: [MacAddr; 2],
    /// Largest frame in bytes, with the Ethernet header.
    pub max_frame_bytes: usize,
    /// Chunks that a frame to send has at most: with several, those larger than one chunk arrive as AF_XDP has them, as
    /// TCP segments [of one chunk each](crate::pieces).
    pub frame_chunks: usize,
}

impl Default for LoopbackConfig {
    fn default() -> Self {
        Self {
            ring_frames: 4096,
            when_full: WhenFull::Drop,
            rx_checksums_verified: false,
            tx_checksum_offload: false,
            macs: [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])],
            max_frame_bytes: 1514,
            frame_chunks: 1,
        }
    }
}

/// One direction.
#[derive(Debug)]
struct Lane {
    /// Sent and not yet reclaimed, in order.
    frames: Vec<TxFrame>,
    /// How many of them, from the front, have been received.
    received: usize,
    /// Frames that found the receiver's ring full; they too wait for the sender to reclaim them.
    dropped: Vec<TxFrame>,
    /// All of these since the beginning.
    overflowed: u64,
}

impl Lane {
    fn new(ring_frames: usize) -> Rc<RefCell<Self>> {
        Rc::new(RefCell::new(Self {
            frames: Vec::with_capacity(2 * ring_frames),
            received: 0,
            dropped: Vec::with_capacity(2 * ring_frames),
            overflowed: 0,
        }))
    }

    /// Receives up to `limit` frames of one chunk, and answers how many it took off the wire: without a buffer one is lost.
    #[inline]
    fn copy_to<const OFFLOADS: bool>(
        &mut self,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let before = out.len();
        let mut taken = 0;
        for frame in &self.frames[self.received..] {
            if out.len() - before == limit {
                break;
            }
            taken += 1;
            out.extend(copy::<OFFLOADS>(frame, pool));
        }
        self.received += taken;
        taken
    }

    /// The same of frames of any number of chunks. Answers how many chunks it took, and how many frames it lost, without a
    /// buffer and as no sound segments.
    fn join_to(
        &mut self,
        pieces: &mut Pieces,
        verified: bool,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> [usize; 2] {
        let mut received = pieces.take(out, limit);
        let [mut no_buffer, mut unfit] = [0; 2];
        for frame in chunks::frames(&self.frames[self.received..]) {
            if received == limit {
                break;
            }
            self.received += frame.len();
            if let [only] = frame
                && only.len() <= CHUNK_SIZE - RX_HEADROOM
            {
                let copy = copy::<true>(only, pool);
                (received, no_buffer) =
                    (received + copy.iter().len(), no_buffer + usize::from(copy.is_none()));
                out.extend(copy);
            } else if !pieces.copy(frame.iter().map(TxFrame::bytes), pool) {
                no_buffer += 1;
            } else {
                // A partial checksum is completed with each of the pieces.
                let is_partial = frame[0].partial_checksum().is_some();
                unfit += usize::from(pieces.finish(verified || is_partial, pool).is_err());
                received += pieces.take(out, limit - received);
            }
        }
        [no_buffer, unfit]
    }

    /// Chunks that wait to be received.
    fn travelling(&self) -> usize {
        self.frames.len() - self.received
    }
}

/// One end of the wire. Both ends live in one thread and may be polled in any order.
///
/// An end that is dropped while its frames travel loses their chunks; call
/// [`close`](Nic::close) or [`drain`](LoopbackNic::drain) first.
#[derive(Debug)]
pub struct LoopbackNic {
    outgoing: Rc<RefCell<Lane>>,
    incoming: Rc<RefCell<Lane>>,
    config: LoopbackConfig,
    mac: MacAddr,
    /// What arrived in several chunks.
    pieces: Pieces,
    stats: NicStats,
}

/// Makes a wire and answers its two ends.
pub fn pair(config: LoopbackConfig) -> (LoopbackNic, LoopbackNic) {
    let frame_chunks = config.frame_chunks.max(1);
    let config = LoopbackConfig {
        ring_frames: config.ring_frames.max(frame_chunks),
        max_frame_bytes: config.max_frame_bytes.min(frame_chunks * (CHUNK_SIZE - RX_HEADROOM)),
        frame_chunks,
        ..config
    };
    let (there, back) = (Lane::new(config.ring_frames), Lane::new(config.ring_frames));
    let end = |outgoing: &Rc<RefCell<Lane>>, incoming: &Rc<RefCell<Lane>>, mac| LoopbackNic {
        outgoing: Rc::clone(outgoing),
        incoming: Rc::clone(incoming),
        config,
        mac,
        pieces: Pieces::new(),
        stats: NicStats::default(),
    };
    (end(&there, &back, config.macs[0]), end(&back, &there, config.macs[1]))
}

impl LoopbackNic {
    /// Takes all of this end's frames off the wire, received or not, and returns their chunks.
    /// Answers how many.
    pub fn drain(&mut self, pool: &mut Pool) -> usize {
        let mut lane = self.outgoing.borrow_mut();
        let Lane { frames, received, dropped, .. } = &mut *lane;
        let count = frames.len() + dropped.len();
        frames.drain(..).chain(dropped.drain(..)).for_each(|frame| pool.complete(frame));
        *received = 0;
        count
    }

    /// Receives up to `limit` frames of any number of chunks, and answers how many found no buffer.
    #[cold]
    #[inline(never)]
    fn receive_long(&mut self, pool: &mut Pool, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let verified = self.config.rx_checksums_verified;
        let Self { incoming, pieces, .. } = self;
        let [no_buffer, unfit] = incoming.borrow_mut().join_to(pieces, verified, pool, out, limit);
        self.stats.rx_unfit += unfit as u64;
        no_buffer
    }
}

/// A copy of `frame` in a buffer of the receiver; `OFFLOADS`: its checksum may be partial.
fn copy<const OFFLOADS: bool>(frame: &TxFrame, pool: &mut Pool) -> Option<Mbuf> {
    let mut mbuf = pool.alloc().ok()?;
    // Received frames start where a device would put them. `transmit` refused what does not fit.
    if mbuf.reset(RX_HEADROOM).and_then(|()| mbuf.append(frame.bytes())).is_err() {
        pool.free(mbuf);
        return None;
    }
    if OFFLOADS {
        complete_checksum(frame.partial_checksum(), mbuf.bytes_mut());
    }
    Some(mbuf)
}

impl Nic for LoopbackNic {
    fn receive(
        &mut self,
        _now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let before = out.len();
        let no_buffer = if self.config.frame_chunks > 1 {
            self.receive_long(pool, out, limit)
        } else {
            let taken = match self.config.tx_checksum_offload {
                false => self.incoming.borrow_mut().copy_to::<false>(pool, out, limit),
                true => self.incoming.borrow_mut().copy_to::<true>(pool, out, limit),
            };
            taken - (out.len() - before)
        };
        let received = &out[before..];
        self.stats.rx_no_buffer += no_buffer as u64;
        self.stats.rx_frames += received.len() as u64;
        self.stats.rx_bytes += received.iter().map(|mbuf| mbuf.len() as u64).sum::<u64>();
        received.len()
    }

    fn transmit(&mut self, _now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let max = self.config.max_frame_bytes;
        let lane = &mut *self.outgoing.borrow_mut();
        let ring = self.config.ring_frames;
        // The first bound makes a sender that never reclaims run out of transmit ring.
        let room = (2 * ring).saturating_sub(lane.frames.len() + lane.dropped.len());
        let mut count = frames.len().min(room);
        // Nearly never: the stack knows the limit.
        let mut refused = 0;
        if frames[..count].iter().any(|frame| frame.len() > max) {
            let long = frames.extract_if(..count, |frame| frame.len() > max);
            refused = long.map(|frame| pool.complete(frame)).count();
            count -= refused;
        }
        let mut fitting = count.min(ring.saturating_sub(lane.travelling()));
        if self.config.frame_chunks > 1 {
            count = chunks::whole(frames, count);
            fitting = chunks::whole(frames, fitting);
        }
        let taken = if self.config.when_full == WhenFull::Drop { count } else { fitting };
        self.stats.tx_frames += taken as u64;
        if self.config.frame_chunks > 1 {
            let continued = frames[..taken].iter().filter(|frame| frame.is_continued()).count();
            self.stats.tx_frames -= continued as u64;
        }
        self.stats.tx_bytes += frames[..taken].iter().map(|frame| frame.len() as u64).sum::<u64>();
        self.stats.tx_dropped += refused as u64;
        lane.overflowed += (taken - fitting) as u64;
        lane.frames.extend(frames.drain(..fitting));
        lane.dropped.extend(frames.drain(..taken - fitting));
        refused + taken
    }

    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        let mut lane = self.outgoing.borrow_mut();
        let Lane { frames, received, dropped, .. } = &mut *lane;
        let count = *received + dropped.len();
        frames.drain(..*received).for_each(|frame| pool.complete(frame));
        dropped.drain(..).for_each(|frame| pool.complete(frame));
        *received = 0;
        count
    }

    /// Takes this end's frames off the wire, received or not.
    fn close(mut self, pool: &mut Pool) -> Closed {
        self.pieces.close(pool);
        Closed { returned: self.drain(pool) as u32, lost: 0 }
    }

    fn in_flight(&self) -> usize {
        let lane = self.outgoing.borrow();
        lane.frames.len() + lane.dropped.len()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            driver: "loopback",
            mode: match self.config.when_full {
                WhenFull::Drop => "drop",
                WhenFull::Wait => "wait",
            },
            mac: self.mac,
            max_frame_bytes: self.config.max_frame_bytes,
            rx_checksums_verified: self.config.rx_checksums_verified,
            tx_checksum_offload: self.config.tx_checksum_offload,
            tx_ring_frames: self.config.ring_frames,
        }
    }

    fn stats(&self) -> NicStats {
        NicStats { rx_dropped: self.incoming.borrow().overflowed, ..self.stats }
    }

    fn rx_backlog(&self) -> usize {
        self.incoming.borrow().travelling() + self.pieces.segments()
    }

    fn arm(&mut self) -> Armed {
        if self.rx_backlog() > 0 { Armed::HasWork } else { Armed::Quiet }
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZero;

    use super::*;
    use mem::{PartialChecksum, Region};

    fn frame(pool: &mut Pool, tag: u8, len: usize) -> TxFrame {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[tag; 1514][..len]).expect("fits");
        mbuf.into_tx()
    }

    fn rig(config: LoopbackConfig) -> (LoopbackNic, LoopbackNic, Pool, Pool) {
        let (near, far) = pair(config);
        let pool = || Pool::new(&Region::heap(256), 256);
        (near, far, pool(), pool())
    }

    #[test]
    fn frames_cross_in_order_and_all_chunks_come_back() {
        let (mut near, mut far, mut here, mut there) = rig(LoopbackConfig::default());
        let mut frames: Vec<_> = (0..100).map(|tag| frame(&mut here, tag, 60)).collect();
        assert_eq!(near.transmit(Instant::ZERO, &mut here, &mut frames), 100);
        assert_eq!((far.rx_backlog(), far.arm()), (100, Armed::HasWork));
        let mut out = Vec::new();
        assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 64), 64);
        assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 64), 36);
        assert_eq!(far.arm(), Armed::Quiet);
        for (tag, mbuf) in out.drain(..).enumerate() {
            assert_eq!(mbuf.bytes(), [tag as u8; 60]);
            there.free(mbuf);
        }
        assert_eq!(here.available(), 156);
        assert_eq!(near.reclaim(&mut here), 100);
        assert_eq!((here.available(), there.available()), (256, 256));
        assert_eq!((near.stats().tx_frames, far.stats().rx_bytes), (100, 6000));
    }

    #[test]
    fn a_full_ring_drops_and_counts_or_waits() {
        for when_full in [WhenFull::Drop, WhenFull::Wait] {
            let config = LoopbackConfig { ring_frames: 8, when_full, ..LoopbackConfig::default() };
            let (mut near, far, mut here, _) = rig(config);
            let mut frames: Vec<_> = (0..10).map(|tag| frame(&mut here, tag, 60)).collect();
            let taken = near.transmit(Instant::ZERO, &mut here, &mut frames);
            let dropped = far.stats().rx_dropped;
            match when_full {
                WhenFull::Drop => assert_eq!((taken, dropped, frames.len()), (10, 2, 0)),
                WhenFull::Wait => assert_eq!((taken, dropped, frames.len()), (8, 0, 2)),
            }
            frames.drain(..).for_each(|frame| here.complete(frame));
            assert_eq!(near.drain(&mut here), taken);
            assert_eq!(here.available(), 256);
            assert_eq!(far.rx_backlog(), 0);
        }
    }

    #[test]
    fn a_sender_that_never_reclaims_is_stopped() {
        let config = LoopbackConfig { ring_frames: 4, ..LoopbackConfig::default() };
        let (mut near, _far, mut here, _) = rig(config);
        let mut frames: Vec<_> = (0..20).map(|tag| frame(&mut here, tag, 60)).collect();
        assert_eq!(near.transmit(Instant::ZERO, &mut here, &mut frames), 8);
        frames.drain(..).for_each(|frame| here.complete(frame));
        near.drain(&mut here);
    }

    #[test]
    fn want_of_a_buffer_and_oversize_are_counted() {
        let (mut near, mut far, mut here, _) = rig(LoopbackConfig::default());
        let mut there = Pool::new(&Region::heap(1), 1);
        let mut frames: Vec<_> = (0..3).map(|tag| frame(&mut here, tag, 60)).collect();
        frames.push({
            let mut big = here.alloc().expect("a chunk");
            big.extend(1600).expect("fits the chunk").fill(1);
            big.into_tx()
        });
        assert_eq!(near.transmit(Instant::ZERO, &mut here, &mut frames), 4);
        assert_eq!(near.stats().tx_dropped, 1);
        let mut out = Vec::new();
        assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 64), 1);
        assert_eq!(far.stats().rx_no_buffer, 2);
        out.drain(..).for_each(|mbuf| there.free(mbuf));
        assert_eq!(near.reclaim(&mut here), 3);
        assert_eq!(here.available(), 256);
    }

    /// Whether the far end gets it as it is, copied by a relay, or held back and doubled by a bad network.
    #[test]
    fn partial_checksums_are_completed_on_every_way() {
        use crate::QueueSet;
        use crate::fault::{FaultNic, Faults};

        let config = LoopbackConfig { tx_checksum_offload: true, ..LoopbackConfig::default() };
        let partial = PartialChecksum { start: 2, offset: NonZero::new(2).expect("not zero") };
        let frame = |pool: &mut Pool| {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[9, 9, 0x01, 0x02, 0x12, 0x34, 0x05]).expect("fits");
            mbuf.into_tx().with_partial_checksum(Some(partial))
        };
        let region = Region::heap(512);
        let [mut here, mut there] = [(); 2].map(|()| Pool::new(&region, 256));
        let arrives = |far: &mut LoopbackNic, there: &mut Pool, count| {
            let mut out = Vec::new();
            assert_eq!(far.receive(Instant::ZERO, there, &mut out, 64), count);
            for mbuf in out {
                assert_eq!(mbuf.bytes(), [9, 9, 0x01, 0x02, 0xe7, 0xc9, 0x05]);
                there.free(mbuf);
            }
        };

        let (near, mut far) = pair(config);
        assert!(near.capabilities().tx_checksum_offload);
        let mut sets = QueueSet::deal(vec![near], 2).expect("a queue");
        for sender in [1, 0] {
            let mut frames = vec![frame(&mut here)];
            assert_eq!(sets[sender].transmit(Instant::ZERO, &mut here, &mut frames), 1);
        }
        arrives(&mut far, &mut there, 2);
        sets.into_iter().rev().for_each(|set| _ = set.close(&mut here));

        let (near, mut far) = pair(config);
        let doubles = Faults { duplicate: 1.0, ..Faults::perfect() };
        let mut faulty = FaultNic::new(near, 1, Faults::perfect(), doubles).expect("sound");
        assert!(faulty.capabilities().tx_checksum_offload);
        let mut frames = vec![frame(&mut here)];
        assert_eq!(faulty.transmit(Instant::ZERO, &mut here, &mut frames), 1);
        arrives(&mut far, &mut there, 2);
        faulty.close(&mut here);
        far.close(&mut there);
        assert_eq!(here.available() + there.available(), 512);
    }

    #[test]
    fn frames_of_several_chunks_arrive_as_segments_and_only_whole() {
        use crate::test_frames::{chunks, partial_chunks, payload_len, segment};
        for tx_checksum_offload in [false, true] {
            let config = LoopbackConfig {
                ring_frames: 7,
                when_full: WhenFull::Wait,
                max_frame_bytes: 9014,
                frame_chunks: 6,
                tx_checksum_offload,
                ..LoopbackConfig::default()
            };
            let (mut near, mut far, mut here, mut there) = rig(config);
            let (long, short) = (segment(8_945), segment(10));
            let make = if tx_checksum_offload { partial_chunks } else { chunks };
            let mut frames = make(&short, 1_789, &mut here);
            frames.extend(make(&long, 1_789, &mut here));
            frames.extend(make(&long, 1_789, &mut here));
            // Six chunks of the first long one fit beside the short one, and nothing more.
            assert_eq!(
                (frames.len(), near.transmit(Instant::ZERO, &mut here, &mut frames)),
                (13, 7)
            );
            assert_eq!((near.stats().tx_frames, far.rx_backlog()), (2, 7));
            assert_eq!(
                near.transmit(Instant::ZERO, &mut here, &mut frames),
                0,
                "no room for a whole one"
            );
            let mut out = Vec::new();
            // Of the segments that became of it, some are left for later.
            assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 3), 3);
            assert_eq!(far.rx_backlog(), 4);
            assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 64), 4);
            assert_eq!(near.reclaim(&mut here), 7);
            assert_eq!(near.transmit(Instant::ZERO, &mut here, &mut frames), 6);
            far.receive(Instant::ZERO, &mut there, &mut out, 1);
            let total: usize = out.iter().map(payload_len).sum();
            out.drain(..).for_each(|mbuf| there.free(mbuf));
            assert!(total > 8_955, "{total}");
            // What was not taken of a frame comes back, too.
            far.close(&mut there);
            near.close(&mut here);
            assert_eq!((here.available(), there.available()), (256, 256));
        }
    }

    #[test]
    fn a_frame_of_several_chunks_without_buffers_or_with_a_wrong_checksum_is_lost_and_counted() {
        use crate::test_frames::{chunks, segment};
        let config =
            LoopbackConfig { max_frame_bytes: 9014, frame_chunks: 6, ..LoopbackConfig::default() };
        let (mut near, mut far, mut here, _) = rig(config);
        let mut there = Pool::new(&Region::heap(3), 3);
        let mut long = segment(8_000);
        let mut frames = chunks(&long, 1_789, &mut here);
        long.truncate(4_054);
        frames.extend(chunks(&long, 1_789, &mut here));
        near.transmit(Instant::ZERO, &mut here, &mut frames);
        let mut out = Vec::new();
        assert_eq!(far.receive(Instant::ZERO, &mut there, &mut out, 64), 0);
        assert_eq!((far.stats().rx_no_buffer, far.stats().rx_unfit), (1, 1));
        near.reclaim(&mut here);
        assert_eq!((here.available(), there.available()), (256, 3));
    }
}
