//! A queue pair of a simulated host: the network as an elastic thread sees it.
//!
//! Frames to send stay with the device for a while, as they do with a real one, so that the stack
//! meets retransmissions of frames that are still being read. Chunks for reception come from the
//! pool at the moment of arrival.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use mem::{ChunkBytes, Mbuf, Pool, RX_HEADROOM, TxFrame};
use nic::pieces::Pieces;
use nic::{Armed, Capabilities, Closed, Nic, NicStats, chunks, complete_checksum};

use crate::dice::Dice;
use crate::network::SharedNetwork;

/// See the module's comment.
#[derive(Debug)]
pub struct VirtualNic {
    network: SharedNetwork,
    port: usize,
    queue: usize,
    config: PortConfig,
    /// Frames with the device, and until when.
    sending: VecDeque<(Instant, TxFrame)>,
    /// A frame as it leaves.
    completed: Vec<u8>,
    /// What arrived, and is larger than a chunk.
    pieces: Pieces,
    /// The last moment that the driver was told.
    now: Instant,
    dice: Dice,
    stats: NicStats,
}

/// The device's limits.
#[derive(Clone, Copy, Debug)]
pub struct PortConfig {
    /// Largest frame, with the Ethernet header.
    pub max_frame_bytes: usize,
    /// Frames with the device at a time.
    pub ring_frames: usize,
    /// The longest time that a frame to send stays with the device; zero: it has read it at once.
    pub longest_read: Duration,
    /// Nothing damages a frame: checksums count as verified.
    pub rx_checksums_verified: bool,
    /// The device completes partial checksums.
    pub tx_checksum_offload: bool,
}

impl VirtualNic {
    /// Queue pair `queue` of port `port`; `dice` draws how long the device reads.
    pub fn new(
        network: SharedNetwork,
        port: usize,
        queue: usize,
        config: PortConfig,
        dice: Dice,
    ) -> Self {
        let config = PortConfig { ring_frames: config.ring_frames.max(1), ..config };
        Self {
            network,
            port,
            queue,
            config,
            sending: VecDeque::new(),
            completed: Vec::new(),
            pieces: Pieces::new(),
            now: Instant::ZERO,
            dice,
            stats: NicStats::default(),
        }
    }
}

impl Nic for VirtualNic {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        self.now = now;
        let mut network = self.network.borrow_mut();
        let (mut received, mut frames) = (self.pieces.take(out, limit), 0);
        while received < limit
            && let Some(frame) = network.take(self.port, self.queue)
        {
            let before = out.len();
            if frame.len() > ChunkBytes::Small.max_frame() {
                // As a device leaves it, and AF_XDP's driver takes it.
                match self.pieces.copy(std::iter::once(&frame[..]), pool) {
                    true => {
                        let finished = self.pieces.finish(self.config.rx_checksums_verified, pool);
                        self.stats.rx_unfit += u64::from(finished.is_err());
                        frames += u64::from(finished.is_ok());
                        let segments = self.pieces.segments() as u64;
                        network.stats.resegmented += segments.saturating_sub(1);
                        self.pieces.take(out, limit - received);
                    }
                    false => self.stats.rx_no_buffer += 1,
                }
            } else {
                match pool.alloc() {
                    Ok(mut mbuf) => {
                        if mbuf.reset(RX_HEADROOM).and_then(|()| mbuf.append(&frame)).is_ok() {
                            out.push(mbuf);
                            frames += 1;
                        } else {
                            self.stats.rx_dropped += 1;
                            pool.free(mbuf);
                        }
                    }
                    Err(_) => self.stats.rx_no_buffer += 1,
                }
            }
            received += out.len() - before;
            self.stats.rx_bytes += out[before..].iter().map(|mbuf| mbuf.len() as u64).sum::<u64>();
            network.recycle(frame);
        }
        network.taken(self.port, self.queue, frames);
        self.stats.rx_frames += received as u64;
        received
    }

    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        self.now = now;
        let mut network = self.network.borrow_mut();
        let room = self.config.ring_frames.saturating_sub(self.sending.len());
        let taken = chunks::whole(frames, room);
        let mut rest = frames.drain(..taken);
        while let Some(first) = rest.next() {
            let partial = first.partial_checksum();
            let mut frame = vec![first];
            while frame.last().is_some_and(TxFrame::is_continued) {
                frame.extend(rest.next());
            }
            self.completed.clear();
            frame.iter().for_each(|chunk| self.completed.extend_from_slice(chunk.bytes()));
            if self.completed.len() > self.config.max_frame_bytes {
                self.stats.tx_dropped += 1;
                frame.into_iter().for_each(|chunk| pool.complete(chunk));
                continue;
            }
            self.stats.tx_frames += 1;
            self.stats.tx_bytes += self.completed.len() as u64;
            complete_checksum(partial, &mut self.completed);
            network.send_through(now, self.port, self.queue, &self.completed);
            if self.config.longest_read.is_zero() {
                frame.into_iter().for_each(|chunk| pool.complete(chunk));
                continue;
            }
            let read = self.dice.duration(Duration::ZERO, self.config.longest_read);
            // In order, as a ring completes.
            let done = self.sending.back().map_or(now + read, |(last, _)| *last.max(&(now + read)));
            self.sending.extend(frame.into_iter().map(|chunk| (done, chunk)));
        }
        taken
    }

    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        let mut count = 0;
        while self.sending.front().is_some_and(|(done, _)| *done <= self.now)
            && let Some((_, frame)) = self.sending.pop_front()
        {
            pool.complete(frame);
            count += 1;
        }
        count
    }

    /// What the device still reads has been on the network since it was handed over.
    fn close(mut self, pool: &mut Pool) -> Closed {
        self.pieces.close(pool);
        let returned = self.sending.len() as u32;
        self.sending.into_iter().for_each(|(_, frame)| pool.complete(frame));
        Closed { returned, lost: 0 }
    }

    fn in_flight(&self) -> usize {
        self.sending.len()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            driver: "virtual",
            mode: "world",
            mac: self.network.borrow().port(self.port),
            max_frame_bytes: self.config.max_frame_bytes,
            rx_checksums_verified: self.config.rx_checksums_verified,
            tx_checksum_offload: self.config.tx_checksum_offload,
            tx_ring_frames: self.config.ring_frames,
        }
    }

    fn stats(&self) -> NicStats {
        self.stats
    }

    fn rx_backlog(&self) -> usize {
        self.network.borrow().waiting(self.port, self.queue) + self.pieces.segments()
    }

    fn next_event(&self) -> Option<Instant> {
        self.sending.front().map(|(done, _)| *done)
    }

    fn arm(&mut self) -> Armed {
        if self.rx_backlog() > 0 { Armed::HasWork } else { Armed::Quiet }
    }
}
