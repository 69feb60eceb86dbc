//! The driver: one queue's four rings behind [`Nic`].
//!
//! Who holds a chunk is checked on every return: `Pool::take_back` and `Pool::complete_address`
//! refuse what was not handed out, so a confused device costs a counter, not memory safety.

use std::os::fd::{AsFd, BorrowedFd};

use clock::Instant;
use mem::{Mbuf, PartialChecksum, Pool, RX_HEADROOM, TX_METADATA, TxFrame};
use rustix::io::Errno;
use rustix::net::sockopt::xdp_statistics;
use rustix::net::xdp::{XdpDesc, XdpDescOptions, XdpRingFlags};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use wire::EthernetRepr;

use super::config::AfXdpError;
use super::lending::Lending;
use super::socket::{MappedSocket, Rings, XdpSocket};
use super::unsafe_map::MappedRing;
use crate::chunks::whole;
use crate::pieces::{MOST, Pieces};
use crate::unsafe_ring::{Consumer, Producer};
use crate::{Armed, Capabilities, Closed, Nic, NicStats};

/// Chunks by which the fill ring must have run down before it is refilled: one store of the shared
/// index for this many (IX §6 refills in bulk to spare the device's doorbell).
const REFILL_BULK: u32 = 32;

/// System calls of one `transmit`. In copy mode each sends 32 frames at most, so this covers a full
/// ring of 2,048; what is left goes out at the next call.
const MAX_KICKS: u32 = 64;

/// One queue pair of an interface, by AF_XDP.
///
/// Dropping it closes the socket, but the chunks that the kernel held stay out of every pool, and so
/// keep their region's memory; [`close`](Nic::close) returns them.
#[derive(Debug)]
pub struct AfXdp {
    // The rings come first: fields drop in order, and a mapping keeps the socket open.
    fill: Producer<u64, MappedRing<u64>>,
    rx: Consumer<XdpDesc, MappedRing<XdpDesc>>,
    tx: Producer<XdpDesc, MappedRing<XdpDesc>>,
    completion: Consumer<u64, MappedRing<u64>>,
    socket: XdpSocket,
    /// The device reads and writes packet memory itself.
    zero_copy: bool,
    /// Chunks that the kernel holds for reception, and how many it should.
    lent: u32,
    lending: Lending,
    /// A frame of several chunks whose last one has not come.
    pieces: Pieces,
    /// Frames that were submitted and have not come back.
    in_flight: u32,
    stats: NicStats,
    tx_error: Option<Errno>,
}

impl AfXdp {
    /// Drives a socket that is bound. Reception starts with the first [`receive`](Nic::receive), which fills the
    /// fill ring.
    ///
    /// # Errors
    /// [`AfXdpError::Os`] where the kernel does not say in which mode it is bound.
    pub fn new(mapped: MappedSocket) -> Result<Self, AfXdpError> {
        let MappedSocket { rings: Rings { fill, rx, tx, completion }, socket } = mapped;
        let zero_copy = socket.is_zero_copy()?;
        let lending = Lending::new(socket.rx_buffers);
        Ok(Self {
            fill,
            rx,
            tx,
            completion,
            socket,
            zero_copy,
            lent: 0,
            lending,
            pieces: Pieces::new(),
            in_flight: 0,
            stats: NicStats::default(),
            tx_error: None,
        })
    }

    /// The socket that is driven.
    pub fn socket(&self) -> &XdpSocket {
        &self.socket
    }

    /// The error for which the device last refused to send, if the last attempt failed for another
    /// reason than being busy (the interface is down, or gone). Frames wait in the ring.
    pub fn tx_error(&self) -> Option<std::io::Error> {
        self.tx_error.map(Into::into)
    }

    /// Tops the fill ring up, in bulk.
    #[inline]
    fn refill(&mut self, pool: &mut Pool) {
        let target = self.lending.target();
        let missing = target.saturating_sub(self.lent);
        if missing < REFILL_BULK.min(target) {
            return;
        }
        let room = self.fill.reserve(missing);
        let mut filled = 0;
        while filled < room {
            let Ok(mbuf) = pool.alloc() else { break };
            match pool.lend(mbuf) {
                Ok(address) => {
                    // Reserved above, so there is room.
                    self.fill.push(address);
                    filled += 1;
                }
                Err(foreign) => {
                    pool.free(foreign);
                    break;
                }
            }
        }
        if filled > 0 {
            self.fill.submit();
            self.lent += filled;
            self.wake_receiver_if_asked();
        }
    }

    /// Takes `ready` chunks out of the ring, appends `limit` frames (no fewer) at most to `out`, and answers how many.
    /// It stops early where a frame of several chunks, the first of them from an earlier call, became that many.
    #[inline]
    fn pop(&mut self, ready: u32, pool: &mut Pool, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let mut received = 0;
        for _ in 0..ready {
            let Some(desc) = self.rx.pop() else { break };
            let whole = !desc.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            match pool.take_back(desc.addr, desc.len as usize) {
                Ok(mbuf) if whole && self.pieces.is_empty() => {
                    self.lent = self.lent.saturating_sub(1);
                    self.stats.rx_bytes += u64::from(desc.len);
                    // By the time that the stack looks at the batch, it is here.
                    mbuf.prefetch_headers();
                    out.push(mbuf);
                    received += 1;
                }
                Ok(mbuf) => {
                    self.lent = self.lent.saturating_sub(1);
                    self.stats.rx_bytes += u64::from(desc.len);
                    self.receive_piece(mbuf, whole, pool);
                    received += self.pieces.take(out, limit - received);
                    if received == limit {
                        break;
                    }
                }
                Err(_) => self.stats.rx_bad_descriptors += 1,
            }
        }
        received
    }

    /// Takes a chunk of a frame that has several.
    #[cold]
    fn receive_piece(&mut self, mbuf: Mbuf, is_last: bool, pool: &mut Pool) {
        self.pieces.push(mbuf, pool);
        if is_last && self.pieces.finish(self.socket.assume_rx_checksums, pool).is_err() {
            self.stats.rx_unfit += 1;
        }
    }

    /// A device that ran out of buffers may wait to be told that there are new ones.
    #[inline]
    fn wake_receiver_if_asked(&mut self) {
        if self.fill.memory().flags() & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0 {
            self.stats.wakeups += 1;
            // No error matters here: it is told again at the next idle poll.
            let _ = recv(&self.socket.fd, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }

    /// Tells the kernel to send until the transmit ring is drained, it makes no progress, or the
    /// bound is reached.
    #[inline]
    fn kick_while_pending(&mut self) {
        for _ in 0..MAX_KICKS {
            let before = self.tx.consumer_index();
            if self.tx.pending() == 0 {
                return;
            }
            if self.tx.memory().flags() & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() == 0 {
                // The device is at it by itself.
                return;
            }
            self.stats.wakeups += 1;
            match send(&self.socket.fd, &[], SendFlags::DONTWAIT) {
                Ok(_) => self.tx_error = None,
                // 32 frames went, or the completion ring or the device's queue is full.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {
                    self.tx_error = None;
                }
                Err(errno) => {
                    self.tx_error = Some(errno);
                    return;
                }
            }
            if self.zero_copy || self.tx.consumer_index() == before {
                return;
            }
        }
    }
}

/// `XDP_TX_METADATA`: metadata lies before the frame (`linux/if_xdp.h`).
const TX_METADATA_OPTION: XdpDescOptions = XdpDescOptions::from_bits_retain(1 << 1);

/// `struct xsk_tx_metadata` that asks the device to complete a checksum: flags (`XDP_TXMD_FLAGS_CHECKSUM`), where to start,
/// where to store from there; a launch time, which is not asked for.
#[inline(always)]
fn checksum_request(partial: PartialChecksum) -> [u8; TX_METADATA] {
    const CHECKSUM: u64 = 1 << 1;
    let mut request = [0; TX_METADATA];
    request[..8].copy_from_slice(&CHECKSUM.to_ne_bytes());
    request[8..10].copy_from_slice(&partial.start.to_ne_bytes());
    request[10..12].copy_from_slice(&partial.offset.get().to_ne_bytes());
    request
}

/// The options of a frame's descriptor, whose metadata is written where it has some.
#[inline]
fn options_of(frame: &mut TxFrame) -> XdpDescOptions {
    let mut options = XdpDescOptions::empty();
    options.set(XdpDescOptions::XDP_PKT_CONTD, frame.is_continued());
    if let Some(partial) = frame.partial_checksum() {
        frame.write_metadata(checksum_request(partial));
        options |= TX_METADATA_OPTION;
    }
    options
}

/// All entries that wait for us.
fn drain<T: crate::unsafe_ring::Entry>(ring: &mut Consumer<T, MappedRing<T>>) -> Vec<T> {
    ring.peek(u32::MAX);
    std::iter::from_fn(|| ring.pop()).collect()
}

/// A driver is made where the privileges are and moves to its elastic thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<AfXdp>();
    is_send::<XdpSocket>();
};

impl Nic for AfXdp {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        // Segments that the last call had no room for.
        let mut received = self.pieces.take(out, limit);
        let mut ready = self.rx.peek(u32::try_from(limit - received).unwrap_or(u32::MAX));
        self.lending.seen(self.rx.known(), now);
        let has_any = ready > 0;
        let mut looked_at = 0;
        loop {
            let frames = self.pop(ready, pool, out, limit - received);
            received += frames;
            if frames >= ready as usize {
                break;
            }
            // Fewer frames than chunks: more are looked for, so that fewer than `limit` frames mean an empty ring. But
            // not for ever, whatever a peer sends.
            looked_at += ready as usize;
            if received == limit || looked_at > 2 * limit + MOST {
                break;
            }
            ready = self.rx.peek(u32::try_from(limit - received).unwrap_or(u32::MAX));
        }
        if has_any {
            self.rx.release();
            self.stats.rx_frames += received as u64;
        } else {
            // Without a full fence after a refill, the device may have asked too late to be seen.
            self.wake_receiver_if_asked();
        }
        self.refill(pool);
        received
    }

    fn transmit(&mut self, _now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let mut taken = 0;
        if !frames.is_empty() {
            // What is in flight must fit the completion ring, else the kernel stops sending.
            let room = self.socket.sizes.completion.saturating_sub(self.in_flight);
            let want = u32::try_from(frames.len()).unwrap_or(u32::MAX).min(room);
            let (mut submitted, mut continued) = (0, 0);
            let reserved = self.tx.reserve(want) as usize;
            taken = if reserved < frames.len() { whole(frames, reserved) } else { frames.len() };
            for mut frame in frames.drain(..taken) {
                let mut options = XdpDescOptions::empty();
                if !frame.is_plain() {
                    options = options_of(&mut frame);
                    continued += u32::from(frame.is_continued());
                }
                match pool.post(frame) {
                    Ok((addr, len)) => {
                        // Reserved above, so there is room. A chunk's length fits a u32.
                        self.tx.push(XdpDesc { addr, len: len as u32, options });
                        self.stats.tx_bytes += len as u64;
                        submitted += 1;
                    }
                    Err(foreign) => {
                        pool.complete(foreign);
                        self.stats.tx_dropped += 1;
                    }
                }
            }
            if submitted > 0 {
                self.tx.submit();
                self.in_flight += submitted;
                self.stats.tx_frames += u64::from(submitted.saturating_sub(continued));
            }
        }
        // In_flight counts what has no completion yet: without it, nothing can be pending, and the
        // shared index (a cache line of the kernel's) need not be read.
        if self.in_flight > 0 {
            self.kick_while_pending();
        }
        taken
    }

    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        if self.in_flight == 0 {
            return 0;
        }
        let ready = self.completion.peek(self.socket.sizes.completion);
        let mut reclaimed = 0;
        for _ in 0..ready {
            let Some(address) = self.completion.pop() else { break };
            match pool.complete_address(address) {
                Ok(()) => reclaimed += 1,
                Err(_) => self.stats.rx_bad_descriptors += 1,
            }
        }
        if ready > 0 {
            self.completion.release();
            self.in_flight = self.in_flight.saturating_sub(reclaimed);
        }
        reclaimed as usize
    }

    /// Closes the socket and returns the chunks that the kernel held. None come back where it may
    /// still write to them: in zero-copy mode (the device may, for a while), and of an adopted
    /// socket (whoever opened it may hold it open).
    fn close(mut self, pool: &mut Pool) -> Closed {
        self.kick_while_pending();
        self.reclaim(pool);
        self.pieces.close(pool);
        // A chunk moves only from the fill ring through the kernel to the receive ring, and from
        // the transmit ring through the kernel to the completion ring, and only we take it off the
        // end. So what is seen in a ring now is ours, wherever it is when the socket is closed;
        // first the rings that the kernel drains are read, then those that it fills.
        let lent_addresses = self.fill.unconsumed();
        let sent_addresses: Vec<u64> = self.tx.unconsumed().iter().map(|desc| desc.addr).collect();
        let received: Vec<XdpDesc> = drain(&mut self.rx);
        let completed: Vec<u64> = drain(&mut self.completion);

        let outstanding = self.lent + self.in_flight;
        let may_still_write = self.zero_copy || self.socket.adopted;
        // Unmapping and closing ends the kernel's use of packet memory before it returns: it
        // unbinds the socket and waits for receivers (`synchronize_net`).
        drop(self);
        if may_still_write {
            return Closed { returned: 0, lost: outstanding };
        }
        let mut returned = 0;
        let chunk_bytes = pool.region().chunk_bytes().get() as u64;
        let lent = lent_addresses.into_iter().chain(received.iter().map(|desc| desc.addr));
        for address in lent.map(|address| address & !(chunk_bytes - 1)) {
            if let Ok(mbuf) = pool.take_back(address + RX_HEADROOM as u64, 0) {
                pool.free(mbuf);
                returned += 1;
            }
        }
        for address in sent_addresses.into_iter().chain(completed) {
            returned += u32::from(pool.complete_address(address).is_ok());
        }
        Closed { returned, lost: outstanding.saturating_sub(returned) }
    }

    fn in_flight(&self) -> usize {
        self.in_flight as usize
    }

    fn capabilities(&self) -> Capabilities {
        let frame = self.socket.link.mtu.saturating_add(EthernetRepr::HEADER_LEN);
        Capabilities {
            driver: "af_xdp",
            mode: if self.zero_copy { "zero-copy" } else { "copy" },
            mac: self.socket.link.mac,
            max_frame_bytes: frame.min(self.socket.region.chunk_bytes().max_frame()),
            rx_checksums_verified: self.socket.assume_rx_checksums,
            tx_checksum_offload: self.socket.tx_checksum_offload,
            tx_ring_frames: self.socket.sizes.tx as usize,
        }
    }

    /// Costs a system call.
    fn stats(&self) -> NicStats {
        let Ok(kernel) = xdp_statistics(&self.socket.fd) else { return self.stats };
        let no_buffer = kernel.rx_fill_ring_empty_descs.unwrap_or(0);
        // The kernel counts a frame without a buffer under `rx_dropped` as well.
        let dropped = kernel.rx_dropped.saturating_sub(no_buffer);
        NicStats {
            rx_no_buffer: no_buffer,
            rx_dropped: dropped + kernel.rx_ring_full.unwrap_or(0),
            rx_bad_descriptors: self.stats.rx_bad_descriptors
                + kernel.rx_invalid_descs
                + kernel.tx_invalid_descs,
            ..self.stats
        }
    }

    fn rx_backlog(&self) -> usize {
        self.rx.backlog() as usize + self.pieces.segments()
    }

    fn arm(&mut self) -> Armed {
        // The kernel signals readability whenever the receive ring is not empty; nothing need be
        // asked of it. Frames that it has not sent need another kick, which no signal announces.
        // A receiver that waits for buffers is woken by a poll of its socket, but not by one of a set with it.
        self.wake_receiver_if_asked();
        let unsent = self.in_flight > 0 && self.tx.pending() > 0 && self.tx_error.is_none();
        if unsent || self.rx_backlog() > 0 { Armed::HasWork } else { Armed::Quiet }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd.as_fd())
    }
}
