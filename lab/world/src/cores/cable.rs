//! The network of a simulation: one queue pair for each core of the server, one for the client, and what
//! lies between them.
//!
//! The device moves frames by itself: a frame that has arrived is in the receive queue at once, and who
//! takes it pays for that. Everything a core takes or sends is counted, and whether it was its own: this is
//! how the world learns that a core ran another one's network layer, whatever its scheduler.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use clock::Instant;
use mem::{Mbuf, Pool, RX_HEADROOM, TxFrame};
use nic::{Armed, Capabilities, Closed, Nic, NicStats};
use wire::MacAddr;

/// Longest frame, with the Ethernet header.
pub(crate) const FRAME_BYTES_MAX: usize = 1514;
/// Frames that wait in one receive queue at most: more than the client can have outstanding.
const RING_FRAMES: usize = 1 << 16;

/// A frame that nobody's packet memory holds.
pub(crate) type Frame = Vec<u8>;

/// What a step took from the device and gave to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    /// Frames taken from the core's own receive queue.
    pub taken: u64,
    /// Frames taken from other cores' receive queues.
    pub taken_abroad: u64,
    /// Frames sent through any queue.
    pub sent: u64,
    /// Those of them that went through another core's queue.
    pub sent_abroad: u64,
    /// The other core whose queue it was, the last one of them.
    pub abroad: Option<usize>,
}

/// All queues. The last one is the client's.
#[derive(Debug)]
pub(crate) struct Cable {
    queues: Vec<VecDeque<Frame>>,
    /// Sent in the present step, in order.
    pub sent: Vec<Frame>,
    /// Probes that the device was asked for in the present step, each with its queue; and how many there were.
    pub probes: Vec<(usize, Frame)>,
    pub probed: u64,
    /// Memory of frames that have been received.
    spare: Vec<Frame>,
    /// Whose step it is.
    acting: usize,
    pub moved: Moved,
    dropped: u64,
}

/// The cable, as the world and the queue pairs hold it. A lock, and not a cell, so that a scheduler may ask
/// its drivers to be `Send`: nobody ever waits for it.
#[derive(Debug, Clone)]
pub(crate) struct SharedCable(Arc<Mutex<Cable>>);

impl SharedCable {
    /// A cable for `cores` cores and one client.
    pub fn new(cores: usize) -> Self {
        Self(Arc::new(Mutex::new(Cable {
            queues: (0..=cores).map(|_| VecDeque::with_capacity(64)).collect(),
            sent: Vec::with_capacity(64),
            probes: Vec::new(),
            probed: 0,
            spare: Vec::new(),
            acting: 0,
            moved: Moved::default(),
            dropped: 0,
        })))
    }

    /// The cable itself.
    pub fn lock(&self) -> MutexGuard<'_, Cable> {
        // One thread alone runs a world; a panic in it ends the world.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The queue pair number `queue`.
    pub fn port(&self, queue: usize, mac: MacAddr) -> VirtualNic {
        VirtualNic { cable: self.clone(), queue, mac, stats: NicStats::default() }
    }
}

impl Cable {
    /// From now on it is queue `acting`'s core that takes and sends.
    pub fn begin(&mut self, acting: usize) {
        self.acting = acting;
        self.moved = Moved::default();
    }

    /// Puts a frame into a receive queue.
    pub fn deliver(&mut self, queue: usize, frame: Frame) {
        match self.queues.get_mut(queue) {
            Some(waiting) if waiting.len() < RING_FRAMES => waiting.push_back(frame),
            _ => {
                self.dropped += 1;
                self.spare.push(frame);
            }
        }
    }

    /// Frames that found their queue full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// A queue pair as its elastic thread sees it.
#[derive(Debug)]
pub struct VirtualNic {
    cable: SharedCable,
    queue: usize,
    mac: MacAddr,
    stats: NicStats,
}

impl Nic for VirtualNic {
    fn receive(
        &mut self,
        _now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let cable = &mut *self.cable.lock();
        let Some(waiting) = cable.queues.get_mut(self.queue) else { return 0 };
        let mut received = 0;
        while received < limit
            && let Some(frame) = waiting.pop_front()
        {
            match pool.alloc() {
                Ok(mut mbuf) => {
                    if mbuf.reset(RX_HEADROOM).and_then(|()| mbuf.append(&frame)).is_ok() {
                        self.stats.rx_bytes += frame.len() as u64;
                        received += 1;
                        out.push(mbuf);
                    } else {
                        self.stats.rx_dropped += 1;
                        pool.free(mbuf);
                    }
                }
                Err(_) => self.stats.rx_no_buffer += 1,
            }
            cable.spare.push(frame);
        }
        self.stats.rx_frames += received as u64;
        if self.queue == cable.acting {
            cable.moved.taken += received as u64;
        } else {
            cable.moved.taken_abroad += received as u64;
            cable.moved.abroad = Some(self.queue);
        }
        received
    }

    fn transmit(&mut self, _now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        if frames.is_empty() {
            return 0;
        }
        let cable = &mut *self.cable.lock();
        let count = frames.len();
        for frame in frames.drain(..) {
            if frame.len() <= FRAME_BYTES_MAX {
                let mut copy = cable.spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(frame.bytes());
                self.stats.tx_frames += 1;
                self.stats.tx_bytes += copy.len() as u64;
                cable.sent.push(copy);
                cable.moved.sent += 1;
                if self.queue != cable.acting {
                    cable.moved.sent_abroad += 1;
                    cable.moved.abroad = Some(self.queue);
                }
            } else {
                self.stats.tx_dropped += 1;
            }
            // The device has read it: the frame's bytes are on their way.
            pool.complete(frame);
        }
        count
    }

    fn reclaim(&mut self, _pool: &mut Pool) -> usize {
        0
    }

    /// Nothing comes back: the device copies what it is given, and what has arrived is no chunk yet.
    fn close(self, _pool: &mut Pool) -> Closed {
        Closed::default()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            driver: "virtual",
            mode: "multicore",
            mac: self.mac,
            max_frame_bytes: FRAME_BYTES_MAX,
            rx_checksums_verified: true,
            tx_ring_frames: RING_FRAMES,
        }
    }

    fn stats(&self) -> NicStats {
        self.stats
    }

    fn rx_backlog(&self) -> usize {
        self.cable.lock().queues.get(self.queue).map_or(0, VecDeque::len)
    }

    fn arm(&mut self) -> Armed {
        if self.rx_backlog() > 0 { Armed::HasWork } else { Armed::Quiet }
    }
}
