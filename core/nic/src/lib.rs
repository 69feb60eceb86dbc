//! NIC drivers: bursts of frames in and out of one queue pair (DESIGN: `Nic`).
//!
//! A driver is polled by exactly one elastic thread. Time and memory are parameters; nothing here
//! has a thread of its own. Middleware (pcap writer, fault injector, tracer) wraps any driver and
//! is a driver itself.
//!
//! - Drivers: [`loopback`] (two ends in one thread), `shm` (two dataplanes joined by shared memory),
//!   `af_xdp` (Linux, any NIC; `xdp_program` splits the NIC between dataplane and kernel).
//! - Middleware: `pcap` (capture), `fault` (a bad network, seeded by its `dice`), `tracer` (a line per frame).
//! - [`queue_set`]: a device's queue pairs, dealt out to another number of threads: what an elastic thread has.
//! - `rss`: which queue a flow group's frames come to; `indirection`: tables of devices that say so, one of them
//!   `steer_program` (veth); [`probe`]: behind what a queue was given before.
//! - `device`: what an interface can do, before it is opened, as the kernel declares it (`xdp_features`) and by what the
//!   drivers ask (`driver_rules`).
//! - [`chunks`]: frames to send that lie in several chunks; [`pieces`]: received ones.
//! - [`multicast`]: link addresses that an interface accepts beside its own.
//! - [`reflector`] and [`blaster`]: what a driver can do with no stack above it.
extern crate alloc;

/// Methods of [`Nic`] that middleware hands on to the driver within, as they are: those that pass frames back and those
/// of sleep.
#[macro_export]
macro_rules! hand_on {
    ($self:ident, $inner:expr) => {
        fn reclaim(&mut $self, pool: &mut Pool) -> usize {
            ($inner).reclaim(pool)
        }
        fn stats(&$self) -> $crate::NicStats {
            ($inner).stats()
        }
        fn rx_backlog(&$self) -> usize {
            ($inner).rx_backlog()
        }
        fn disarm(&mut $self) {
            ($inner).disarm();
        }
        fn wait_fd(&$self) -> Option<std::os::fd::BorrowedFd<'_>> {
            ($inner).wait_fd()
        }
    };
}

pub mod af_xdp;
pub mod blaster;
pub mod chunks;
pub mod device;
pub mod dice;
mod driver_chunks;
pub mod driver_rules;
pub mod fault;
pub mod indirection;
pub mod loopback;
pub mod multicast;
pub mod pcap;
pub mod pieces;
pub mod probe;
pub mod queue_set;
pub mod reflector;
pub mod rss;
mod rss_error;
pub mod shm;
pub mod shm_offer;
pub mod steer_program;
pub mod tap;
#[cfg(test)]
mod test_frames;
pub mod tracer;
mod unsafe_ethtool;
mod unsafe_interface;
mod unsafe_mapping;
mod unsafe_packet;
mod unsafe_relayed_frames;
mod unsafe_ring;
mod unsafe_shm;
mod unsafe_steer_table;
pub mod xdp_features;
pub mod xdp_program;

pub use queue_set::QueueSet;
pub use unsafe_ethtool::{Channels, Ethtool};
pub use unsafe_interface::Interface;

use alloc::vec::Vec;

use clock::Instant;
use mem::{Mbuf, PartialChecksum, Pool, TxFrame};
use wire::MacAddr;

/// What a driver can do, and what it asks of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The driver's name, as printed in conditions: `af_xdp`, `shm`, `loopback`.
    pub driver: &'static str,
    /// The mode that is active, as printed in conditions: `copy`, `zero-copy`, `native`, …
    pub mode: &'static str,
    /// The link address of the queue's port.
    pub mac: MacAddr,
    /// Largest frame, in bytes, with the Ethernet header and without the frame check sequence.
    pub max_frame_bytes: usize,
    /// Received checksums have been verified by the device or the path is memory that cannot
    /// corrupt them; where false, the stack verifies.
    pub rx_checksums_verified: bool,
    /// The device completes [partial checksums](mem::PartialChecksum); where false, no frame may have one.
    pub tx_checksum_offload: bool,
    /// Frames that a burst should not exceed on transmission.
    pub tx_ring_frames: usize,
}

/// Completes the checksum of a copy of a frame, where it is partial: the device's work, in software, for whatever copies
/// frames on their way to it.
#[inline(always)]
pub fn complete_checksum(partial: Option<PartialChecksum>, copy: &mut [u8]) {
    if let Some(partial) = partial {
        complete(partial, copy);
    }
}

#[inline(never)]
fn complete(PartialChecksum { start, offset }: PartialChecksum, copy: &mut [u8]) {
    wire::complete_checksum(copy, start.into(), offset.get().into());
}

/// Counters of one queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NicStats {
    /// Frames received; of one that was longer than a chunk, each segment that it was cut into.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames dropped for want of a buffer to receive into.
    pub rx_no_buffer: u64,
    /// Frames that the device dropped (ring full, and the like), where it tells.
    pub rx_dropped: u64,
    /// Frames of several chunks that are no sound TCP segments, and were dropped.
    pub rx_unfit: u64,
    /// Descriptors that the device returned without holding them, or that made no sense.
    pub rx_bad_descriptors: u64,
    /// Frames handed to the device.
    pub tx_frames: u64,
    /// Bytes handed to the device.
    pub tx_bytes: u64,
    /// Frames that the driver could not send and dropped.
    pub tx_dropped: u64,
    /// Times that the device had to be told by a system call to go on.
    pub wakeups: u64,
}

impl core::ops::AddAssign for NicStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            rx_frames,
            rx_bytes,
            rx_no_buffer,
            rx_dropped,
            rx_unfit,
            rx_bad_descriptors,
            tx_frames,
            tx_bytes,
            tx_dropped,
            wakeups,
        } = other;
        self.rx_frames += rx_frames;
        self.rx_bytes += rx_bytes;
        self.rx_no_buffer += rx_no_buffer;
        self.rx_dropped += rx_dropped;
        self.rx_unfit += rx_unfit;
        self.rx_bad_descriptors += rx_bad_descriptors;
        self.tx_frames += tx_frames;
        self.tx_bytes += tx_bytes;
        self.tx_dropped += tx_dropped;
        self.wakeups += wakeups;
    }
}

/// What arming a driver for sleep found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is work: do not sleep.
    HasWork,
    /// Nothing to do. The thread may sleep until the driver's descriptor is readable (or, where it
    /// has none, for a bounded time).
    Quiet,
}

/// What closing a driver brought back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// Chunks of the driver and its device that went back to the pool.
    pub returned: u32,
    /// Chunks that the device may still use. Their region's memory stays until the process ends.
    pub lost: u32,
}

impl core::ops::AddAssign for Closed {
    fn add_assign(&mut self, other: Self) {
        self.returned += other.returned;
        self.lost += other.lost;
    }
}

/// One queue pair of a network device.
///
/// Ownership: a frame handed to [`transmit`](Nic::transmit) belongs to the driver until
/// [`reclaim`](Nic::reclaim) returned it to the pool (`Pool::complete` or
/// `Pool::complete_address`); a received mbuf belongs to the caller. A driver that is dropped without
/// [`close`](Nic::close) takes the chunks with it that it holds.
pub trait Nic {
    /// Step 1: appends at most `limit` received frames to `out`, oldest first, and refills the receive ring from `pool`
    /// in bulk. Answers how many: fewer than `limit` where no more wait. A frame for which there is no buffer is dropped
    /// and counted. Never blocks; never allocates beyond `out`'s capacity plus `limit`.
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize;

    /// Step 6: takes frames from the front of `frames` in order, as many as the transmit ring has
    /// room for, and makes sure that the device sends all that it holds. Answers how many it took: of a frame of
    /// [several chunks](chunks), which it can only get where it sends such frames, all or none.
    /// Called with no frames it still tells the device to go on, where it stopped half way.
    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize;

    /// Step 6, in a separate pass: returns the chunks of frames that have been sent. Answers how
    /// many.
    fn reclaim(&mut self, pool: &mut Pool) -> usize;

    /// Ends the driver's and the device's use of packet memory, and returns the chunks that they held.
    /// Frames that have not left by then may be lost: see [`in_flight`](Nic::in_flight). Not for the hot
    /// path: it may have to wait for the device.
    fn close(self, pool: &mut Pool) -> Closed
    where
        Self: Sized;

    /// Frames that [`transmit`](Nic::transmit) took and [`reclaim`](Nic::reclaim) has not returned: the
    /// device may not have sent them yet. None for a driver that is done with a frame at once.
    fn in_flight(&self) -> usize {
        0
    }

    /// What the driver can do.
    fn capabilities(&self) -> Capabilities;

    /// Counters so far.
    fn stats(&self) -> NicStats;

    /// Frames that wait in the receive ring, where that can be told cheaply: the queue depth that
    /// the control plane watches (IX §4.6).
    fn rx_backlog(&self) -> usize {
        0
    }

    /// The next moment at which the driver itself will have something to do without the device's
    /// help (a frame that a fault injector delays, say).
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// First phase of going to sleep: asks the device to signal, then looks once more.
    fn arm(&mut self) -> Armed {
        Armed::HasWork
    }

    /// Undoes [`arm`](Nic::arm).
    fn disarm(&mut self) {}

    /// The descriptor that becomes readable when an armed device has work.
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}
