//! Two dataplanes joined by shared memory: a wire without a NIC, as memif is.
//!
//! ```
//! use nic::Nic;
//! use nic::shm::{ShmConfig, ShmNic, ShmOffer};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One process makes the memory and offers three descriptors, which travel over a Unix socket.
//! let (mut near, offer) = ShmNic::create(&ShmConfig::default())?;
//! // The other joins.
//! let mut far = ShmNic::join(offer, &ShmConfig::default().far())?;
//!
//! let region = mem::Region::heap(64);
//! let mut pool = mem::Pool::new(&region, 64);
//! let mut frame = pool.alloc()?;
//! frame.append(b"sixty bytes or more")?;
//! near.transmit(clock::Instant::ZERO, &mut pool, &mut [frame.into_tx()].into());
//! let mut received = Vec::new();
//! assert_eq!(far.receive(clock::Instant::ZERO, &mut pool, &mut received, 64), 1);
//! # received.drain(..).for_each(|mbuf| pool.free(mbuf));
//! # Ok(()) }
//! ```
//!
//! A frame is copied twice: into the lane by the sender, out of it by the receiver. Neither maps
//! the other's packet memory, so a peer can send garbage and nothing else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use rustix::event::{EventfdFlags, eventfd};
use wire::MacAddr;

use crate::unsafe_shm::{MAX_FRAME_BYTES, MAX_SLOTS, MIN_SLOTS, Memory, Receiver, Refused, Sender};
use crate::{Armed, Capabilities, Closed, Nic, NicStats};

/// One end of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmConfig {
    /// Frames that each direction holds: a power of two, 2 to 65,536. The creator decides.
    pub slots: u32,
    /// This end's link address.
    pub mac: MacAddr,
    /// Report received checksums as verified. True by default, as memory does not corrupt; a peer
    /// that is not trusted may still send wrong ones, to its own harm.
    pub rx_checksums_verified: bool,
}

impl Default for ShmConfig {
    fn default() -> Self {
        Self { slots: 1024, mac: MacAddr([2, 0, 0, 0, 1, 1]), rx_checksums_verified: true }
    }
}

impl ShmConfig {
    /// The same with another link address, for the other end.
    pub fn far(&self) -> Self {
        Self { mac: MacAddr([2, 0, 0, 0, 1, 2]), ..self.clone() }
    }
}

/// What a joiner needs: descriptors that can travel over a Unix socket.
#[derive(Debug)]
pub struct ShmOffer {
    /// The memory file.
    pub memory: OwnedFd,
    /// An eventfd that wakes the creator.
    pub wake_creator: OwnedFd,
    /// An eventfd that wakes the joiner.
    pub wake_joiner: OwnedFd,
}

/// Why the memory could not be made or joined.
#[derive(Debug, thiserror::Error)]
pub enum ShmError {
    /// The number of slots is not allowed.
    #[error("`slots` = {slots}: allowed are powers of two from {MIN_SLOTS} to {MAX_SLOTS}")]
    BadSlots {
        /// What was asked for.
        slots: u32,
    },
    /// The operating system refused.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The memory that was offered is not what it should be.
    #[error(
        "the shared memory that was offered is not usable: {source}; both sides must run the same \
         version, and the creator must seal its size"
    )]
    BadOffer {
        /// What was wrong.
        source: io::Error,
    },
}

/// One end of a wire through shared memory.
#[derive(Debug)]
pub struct ShmNic {
    sender: Sender,
    receiver: Receiver,
    /// Wakes us; readable when the peer rang.
    own_bell: Option<OwnedFd>,
    /// Wakes the peer.
    peer_bell: Option<OwnedFd>,
    config: ShmConfig,
    stats: NicStats,
}

/// Lane from the creator to the joiner, and back.
const FORTH: usize = 0;
const BACK: usize = 1;

impl ShmNic {
    /// Makes the memory and one end; the offer is for the other.
    ///
    /// # Errors
    /// [`ShmError::BadSlots`], [`ShmError::Os`].
    pub fn create(config: &ShmConfig) -> Result<(Self, ShmOffer), ShmError> {
        check(config)?;
        let os = |tried| move |source: io::Error| ShmError::Os { tried, source };
        let memory = Memory::create(config.slots).map_err(os("making shared memory"))?;
        let bell = || -> io::Result<[OwnedFd; 2]> {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok([bell.try_clone()?, bell])
        };
        let [own, wake_creator] = bell().map_err(os("making an eventfd"))?;
        let [peer, wake_joiner] = bell().map_err(os("making an eventfd"))?;
        let file = memory.file().ok_or(io::ErrorKind::InvalidInput.into());
        let file = file
            .and_then(|file: BorrowedFd<'_>| file.try_clone_to_owned())
            .map_err(os("duplicating the memory file"))?;
        let nic = Self::over(&memory, FORTH, BACK, Some(own), Some(peer), config)?;
        Ok((nic, ShmOffer { memory: file, wake_creator, wake_joiner }))
    }

    /// Joins memory that a peer offers. `config.slots` does not matter.
    ///
    /// # Errors
    /// [`ShmError::BadOffer`] where the memory does not hold what it should.
    pub fn join(offer: ShmOffer, config: &ShmConfig) -> Result<Self, ShmError> {
        let memory = Memory::join(offer.memory).map_err(|source| ShmError::BadOffer { source })?;
        let (own, peer) = (Some(offer.wake_joiner), Some(offer.wake_creator));
        Self::over(&memory, BACK, FORTH, own, peer, config)
    }

    /// The creator's end in another process than the one that [created](Self::create) it: the offer's descriptors are
    /// the same for both ends. The one that `create` made must have been dropped, as a lane has one sender.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn take_over(offer: ShmOffer, config: &ShmConfig) -> Result<Self, ShmError> {
        let memory = Memory::join(offer.memory).map_err(|source| ShmError::BadOffer { source })?;
        let (own, peer) = (Some(offer.wake_creator), Some(offer.wake_joiner));
        Self::over(&memory, FORTH, BACK, own, peer, config)
    }

    /// Two ends in one process, on heap memory and without descriptors: for two threads that spin.
    /// Their [`arm`](Nic::arm) works, but nothing wakes a sleeper.
    ///
    /// # Errors
    /// [`ShmError::BadSlots`].
    pub fn pair(near: &ShmConfig, far: &ShmConfig) -> Result<(Self, Self), ShmError> {
        check(near)?;
        let memory = Memory::heap(near.slots)
            .map_err(|source| ShmError::Os { tried: "making shared memory", source })?;
        let near = Self::over(&memory, FORTH, BACK, None, None, near)?;
        let far = Self::over(&memory, BACK, FORTH, None, None, far)?;
        Ok((near, far))
    }

    fn over(
        memory: &Arc<Memory>,
        out: usize,
        back: usize,
        own_bell: Option<OwnedFd>,
        peer_bell: Option<OwnedFd>,
        config: &ShmConfig,
    ) -> Result<Self, ShmError> {
        let unfit = || ShmError::BadOffer { source: io::ErrorKind::InvalidData.into() };
        Ok(Self {
            sender: Sender::new(memory, out).ok_or_else(unfit)?,
            receiver: Receiver::new(memory, back).ok_or_else(unfit)?,
            own_bell,
            peer_bell,
            config: ShmConfig { slots: memory.slots(), ..config.clone() },
            stats: NicStats::default(),
        })
    }

    /// Wakes the peer.
    #[cold]
    fn ring(&mut self) {
        self.stats.wakeups += 1;
        if let Some(bell) = &self.peer_bell {
            // A full counter means that the peer is being woken already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }
}

fn check(config: &ShmConfig) -> Result<(), ShmError> {
    let slots = config.slots;
    if slots.is_power_of_two() && (MIN_SLOTS..=MAX_SLOTS).contains(&slots) {
        return Ok(());
    }
    Err(ShmError::BadSlots { slots })
}

impl Nic for ShmNic {
    fn receive(
        &mut self,
        _now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let ready = self.receiver.ready(u32::try_from(limit).unwrap_or(u32::MAX));
        let mut received = 0;
        for _ in 0..ready {
            match self.receiver.pop(pool) {
                Some(Ok(mbuf)) => {
                    self.stats.rx_bytes += mbuf.len() as u64;
                    out.push(mbuf);
                    received += 1;
                }
                Some(Err(Refused::BadLength)) => self.stats.rx_bad_descriptors += 1,
                Some(Err(Refused::NoBuffer)) => self.stats.rx_no_buffer += 1,
                None => break,
            }
        }
        if ready > 0 {
            self.receiver.release();
            self.stats.rx_frames += received as u64;
        }
        received
    }

    fn transmit(&mut self, _now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        if frames.is_empty() {
            return 0;
        }
        let room = self.sender.room(u32::try_from(frames.len()).unwrap_or(u32::MAX));
        let taken = frames.len().min(room as usize);
        for frame in frames.drain(..taken) {
            if self.sender.push(frame.bytes()) {
                self.stats.tx_frames += 1;
                self.stats.tx_bytes += frame.len() as u64;
            } else {
                self.stats.tx_dropped += 1;
            }
            // It is copied: the driver's claim ends here.
            pool.complete(frame);
        }
        if taken > 0 && self.sender.submit() {
            self.ring();
        }
        taken
    }

    /// Nothing: frames are copied, and returned at once, by `transmit`.
    fn reclaim(&mut self, _pool: &mut Pool) -> usize {
        0
    }

    /// Nothing comes back, as nothing is held. What was sent stays in the lane: the peer reads on.
    fn close(self, _pool: &mut Pool) -> Closed {
        Closed::default()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            driver: "shm",
            mode: if self.own_bell.is_some() { "shared" } else { "in-process" },
            mac: self.config.mac,
            max_frame_bytes: MAX_FRAME_BYTES.min(1514),
            rx_checksums_verified: self.config.rx_checksums_verified,
            tx_checksum_offload: false,
            tx_ring_frames: self.config.slots as usize,
        }
    }

    fn stats(&self) -> NicStats {
        self.stats
    }

    fn rx_backlog(&self) -> usize {
        self.receiver.backlog() as usize
    }

    fn arm(&mut self) -> Armed {
        if self.receiver.arm() {
            return Armed::Quiet;
        }
        self.disarm();
        Armed::HasWork
    }

    fn disarm(&mut self) {
        self.receiver.disarm();
        if let Some(bell) = &self.own_bell {
            // Clears the counter; empty is an error that says so.
            let _ = rustix::io::read(bell, &mut [0u8; 8]);
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.own_bell.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::Region;

    fn frame(pool: &mut Pool, tag: u32) -> TxFrame {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&tag.to_be_bytes()).expect("fits");
        mbuf.into_tx()
    }

    #[test]
    fn two_threads_exchange_frames_in_order() {
        let total: u32 = if cfg!(miri) { 40 } else { 50_000 };
        let config = ShmConfig { slots: 16, ..ShmConfig::default() };
        let (mut near, mut far) = ShmNic::pair(&config, &config.far()).expect("memory");
        let regions = [Region::heap(128), Region::heap(128)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut pool = Pool::new(&regions[0], 128);
                let (mut sent, mut frames) = (0, Vec::new());
                while sent < total || !frames.is_empty() {
                    while sent < total && frames.len() < 20 {
                        frames.push(frame(&mut pool, sent));
                        sent += 1;
                    }
                    near.transmit(Instant::ZERO, &mut pool, &mut frames);
                    std::thread::yield_now();
                }
            });
            let mut pool = Pool::new(&regions[1], 128);
            let (mut expected, mut out) = (0, Vec::new());
            while expected < total {
                far.receive(Instant::ZERO, &mut pool, &mut out, 7);
                for mbuf in out.drain(..) {
                    assert_eq!(mbuf.bytes(), expected.to_be_bytes());
                    expected += 1;
                    pool.free(mbuf);
                }
                std::thread::yield_now();
            }
        });
        assert_eq!(far.stats().rx_frames, u64::from(total));
        assert!(regions.iter().all(|region| region.depot_len() == 128));
    }

    #[test]
    fn a_full_lane_leaves_frames_with_the_caller() {
        let config = ShmConfig { slots: 4, ..ShmConfig::default() };
        let (mut near, mut far) = ShmNic::pair(&config, &config.far()).expect("memory");
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut frames: Vec<_> = (0..6).map(|tag| frame(&mut pool, tag)).collect();
        assert_eq!(near.transmit(Instant::ZERO, &mut pool, &mut frames), 4);
        assert_eq!((frames.len(), far.rx_backlog(), pool.available()), (2, 4, 62));
        let mut out = Vec::new();
        assert_eq!(far.receive(Instant::ZERO, &mut pool, &mut out, 64), 4);
        assert_eq!(near.transmit(Instant::ZERO, &mut pool, &mut frames), 2);
        out.drain(..).for_each(|mbuf| pool.free(mbuf));
        assert_eq!(pool.available(), 64);
    }

    #[cfg(not(miri))]
    #[test]
    fn the_creators_end_can_be_taken_over() {
        let (near, offer) = ShmNic::create(&ShmConfig::default()).expect("memory");
        drop(near);
        let twice = |fd: &OwnedFd| fd.try_clone().expect("a duplicate");
        let copy = ShmOffer {
            memory: twice(&offer.memory),
            wake_creator: twice(&offer.wake_creator),
            wake_joiner: twice(&offer.wake_joiner),
        };
        let mut near = ShmNic::take_over(copy, &ShmConfig::default()).expect("the same memory");
        let mut far = ShmNic::join(offer, &ShmConfig::default().far()).expect("joined");
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut frames = [frame(&mut pool, 7)].into();
        assert_eq!(far.arm(), Armed::Quiet);
        near.transmit(Instant::ZERO, &mut pool, &mut frames);
        assert_eq!((near.stats().wakeups, far.rx_backlog()), (1, 1));
        let mut frames = [frame(&mut pool, 8)].into();
        far.transmit(Instant::ZERO, &mut pool, &mut frames);
        assert_eq!(near.rx_backlog(), 1);
        let mut out = Vec::new();
        near.receive(Instant::ZERO, &mut pool, &mut out, 64);
        far.receive(Instant::ZERO, &mut pool, &mut out, 64);
        out.drain(..).for_each(|mbuf| pool.free(mbuf));
    }

    #[test]
    fn senseless_sizes_are_refused() {
        for slots in [0, 3, 1 << 20] {
            let config = ShmConfig { slots, ..ShmConfig::default() };
            let error = ShmNic::pair(&config, &config).expect_err("no size");
            assert!(error.to_string().contains("slots"), "{error}");
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn a_sleeper_is_woken() {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let (mut near, offer) = ShmNic::create(&ShmConfig::default()).expect("memory");
        let mut far = ShmNic::join(offer, &ShmConfig::default().far()).expect("joined");
        let mut pool = Pool::new(&Region::heap(64), 64);
        let readable = |nic: &ShmNic, seconds| {
            let fd = nic.wait_fd().expect("a doorbell");
            let mut polled = [PollFd::new(&fd, PollFlags::IN)];
            let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
            poll(&mut polled, Some(&timeout)).expect("poll") == 1
        };
        assert_eq!(far.arm(), Armed::Quiet);
        assert!(!readable(&far, 0));
        let mut frames = [frame(&mut pool, 1)].into();
        near.transmit(Instant::ZERO, &mut pool, &mut frames);
        assert!(readable(&far, 10));
        assert_eq!(near.stats().wakeups, 1);
        assert_eq!(far.arm(), Armed::HasWork);
        assert!(!readable(&far, 0), "disarmed and cleared");
        // Awake: no system call.
        let mut frames = [frame(&mut pool, 2)].into();
        near.transmit(Instant::ZERO, &mut pool, &mut frames);
        assert_eq!((near.stats().wakeups, far.rx_backlog()), (1, 2));
        let mut out = Vec::new();
        far.receive(Instant::ZERO, &mut pool, &mut out, 64);
        out.drain(..).for_each(|mbuf| pool.free(mbuf));
    }
}
