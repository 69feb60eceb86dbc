//! A device's queue pairs, dealt out to another number of elastic threads.
//!
//! ```
//! use nic::loopback::{self, LoopbackConfig};
//! use nic::QueueSet;
//! # fn main() -> std::io::Result<()> {
//! let (one, two) = loopback::pair(LoopbackConfig::default());
//! // Two queues, three threads: the first thread sends the frames of the last one, which has no queue.
//! let sets = QueueSet::deal(vec![one, two], 3)?;
//! assert_eq!(sets.iter().map(QueueSet::relay).collect::<Vec<_>>(), [None, None, Some(0)]);
//! # Ok(()) }
//! ```
//!
//! A thread with several queues polls them in turn, and sends through its first one. All packets of a flow come to one
//! queue, so they stay in order.
//!
//! A thread without a queue receives what other threads forward to it. It sends through another thread, its *relay*: it
//! puts a copy of each frame into a ring between the two (a copy, since the chunk of a segment that may have to be
//! retransmitted stays with the thread that keeps it). The relay sends its own frames and those of the ring by turns.
//! When the device's ring is full, the ring between the threads fills, and then frames stay with the stack.

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame, Want};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::epoll;

use crate::unsafe_relayed_frames::RelayedFrames;
use crate::{Armed, Capabilities, Closed, Nic, NicStats, chunks};

/// Frames in the ring from a thread without a queue to its relay.
const RING_FRAMES: usize = 1024;
/// Frames that a relay takes out of the rings at a time, and the rest of the last one's chunks.
const BURST_FRAMES: usize = 64;

/// The queue pairs of one elastic thread, any number of them.
#[derive(Debug)]
pub struct QueueSet<N> {
    queues: Vec<N>,
    /// Of several, the one that is polled first next time.
    first: usize,
    /// Becomes readable when one of several does.
    any: Option<OwnedFd>,
    /// Those of the device's first queue.
    capabilities: Capabilities,
    /// Where frames go that no queue of this set sends.
    relay: Option<ToRelay>,
    /// What this thread sends for others.
    relayed: FromOthers,
}

/// The end of a thread without a queue.
#[derive(Debug)]
struct ToRelay {
    thread: u8,
    ring: Producer<Mbuf>,
    passage: Arc<Passage>,
    /// The copies of one frame.
    copies: Vec<Mbuf>,
    stats: NicStats,
}

/// The ends of a relay.
#[derive(Debug, Default)]
struct FromOthers {
    rings: Vec<(u8, Consumer<Mbuf>, Arc<Passage>)>,
    /// The ring that is looked at first next time.
    first: usize,
    /// Taken out of the rings, and not yet by the device.
    frames: RelayedFrames,
    /// Whether the thread's own frames go second next time.
    go_first: bool,
    /// Frames and bytes that were taken out of the rings.
    taken: NicStats,
}

/// What two threads share beside the ring: how each of them leaves.
#[derive(Debug, Default)]
struct Passage {
    /// The relay sends nothing any more.
    is_closed: AtomicBool,
    ends: Mutex<Ends>,
}

#[derive(Debug, Default)]
struct Ends {
    sender_left: bool,
    /// The ring of a relay that left first.
    left_behind: Option<Consumer<Mbuf>>,
}

impl Passage {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<N: Nic> QueueSet<N> {
    /// Deals `queues` out to so many threads: thread `t` has queues `t`, `t + threads`, and so on.
    ///
    /// # Errors
    /// There are no queues, or no threads; no descriptors.
    pub fn deal(queues: Vec<N>, threads: usize) -> io::Result<Vec<Self>> {
        let all = queues.len();
        let (Some(capabilities), 1..) = (queues.first().map(Nic::capabilities), threads) else {
            let what = format!("cannot deal {all} queues out to {threads} threads");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        };
        let set = |_| Self {
            queues: Vec::new(),
            first: 0,
            any: None,
            capabilities,
            relay: None,
            relayed: FromOthers::default(),
        };
        let mut sets: Vec<Self> = (0..threads).map(set).collect();
        for (at, queue) in queues.into_iter().enumerate() {
            sets[at % threads].queues.push(queue);
        }
        for sender in all..threads {
            let (ring, to) = RingBuffer::new(RING_FRAMES);
            let (relay, passage) = (sender % all, Arc::new(Passage::default()));
            sets[sender].relay = Some(ToRelay {
                thread: relay as u8,
                ring,
                passage: Arc::clone(&passage),
                copies: Vec::new(),
                stats: NicStats::default(),
            });
            let relayed = &mut sets[relay].relayed;
            relayed.rings.push((sender as u8, to, passage));
            relayed.frames = RelayedFrames::with_capacity(BURST_FRAMES);
        }
        for set in &mut sets {
            set.any = any_of(&set.queues)?;
        }
        Ok(sets)
    }

    /// Runs `body` on each queue, beginning with another one each time.
    #[inline(always)]
    pub fn in_turn(&mut self, mut body: impl FnMut(&mut N)) {
        if let [only] = &mut self.queues[..] {
            return body(only);
        }
        let (late, early) = self.queues.split_at_mut(self.first);
        early.iter_mut().chain(late).for_each(body);
        self.first = (self.first + 1) % self.queues.len().max(1);
    }

    /// The queue that frames leave by, where this thread sends its own and no others.
    #[inline(always)]
    pub fn sender(&mut self) -> Option<&mut N> {
        self.queues.first_mut().filter(|_| self.relayed.rings.is_empty())
    }

    /// [`Nic::transmit`] by the first queue, with what other threads have for it, or by the relay. Answers how many of the
    /// thread's own frames were taken.
    pub fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let Self { queues, relay, relayed, .. } = self;
        let Some(queue) = queues.first_mut() else {
            return relay.as_mut().map_or(0, |relay| relay.transmit(pool, frames));
        };
        relayed.go_first = !relayed.go_first;
        if relayed.go_first {
            relayed.transmit(now, pool, queue);
        }
        let taken = queue.transmit(now, pool, frames);
        if !relayed.go_first {
            relayed.transmit(now, pool, queue);
        }
        taken
    }

    /// [`Nic::reclaim`].
    #[inline]
    pub fn reclaim(&mut self, pool: &mut Pool) -> usize {
        self.queues.first_mut().map_or(0, |queue| queue.reclaim(pool))
    }

    /// [`Nic::close`] of each.
    pub fn close(self, pool: &mut Pool) -> Closed {
        self.relay.into_iter().for_each(|relay| relay.close(pool));
        self.relayed.close(pool);
        let mut closed = Closed::default();
        self.queues.into_iter().for_each(|queue| closed += queue.close(pool));
        closed
    }

    /// [`Nic::in_flight`], with what waits for this thread to send it.
    pub fn in_flight(&self) -> usize {
        let on_the_way = |relay: &ToRelay| RING_FRAMES - relay.ring.slots();
        let own = self.queues.first().map_or(0, Nic::in_flight);
        own + self.relay.as_ref().map_or(0, on_the_way) + self.relayed()
    }

    /// What the device's first queue can do.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Counters of all: a frame counts as sent for the thread whose it is.
    pub fn stats(&self) -> NicStats {
        let mut sum = NicStats::default();
        self.queues.iter().for_each(|queue| sum += queue.stats());
        let taken = &self.relayed.taken;
        sum.tx_frames = sum.tx_frames.saturating_sub(taken.tx_frames);
        sum.tx_bytes = sum.tx_bytes.saturating_sub(taken.tx_bytes);
        self.relay.iter().for_each(|relay| sum += relay.stats);
        sum
    }

    /// [`Nic::rx_backlog`] of all.
    pub fn rx_backlog(&self) -> usize {
        self.queues.iter().map(Nic::rx_backlog).sum()
    }

    /// [`Nic::next_event`] of any.
    pub fn next_event(&self) -> Option<Instant> {
        self.queues.iter().filter_map(Nic::next_event).min()
    }

    /// [`Nic::arm`] of each, also behind one that has work: [`disarm`](Self::disarm) takes all of it back.
    pub fn arm(&mut self) -> Armed {
        let has_work = |queue: &mut N| queue.arm() == Armed::HasWork;
        let any = self.queues.iter_mut().map(has_work).fold(false, |any, one| any | one);
        if any || self.relayed() > 0 { Armed::HasWork } else { Armed::Quiet }
    }

    /// [`Nic::disarm`] of each.
    pub fn disarm(&mut self) {
        self.queues.iter_mut().for_each(Nic::disarm);
    }

    /// The thread that sends this one's frames, where this one has no queue. It is to be woken when
    /// [`transmit`](Self::transmit) has taken some.
    pub fn relay(&self) -> Option<u8> {
        self.relay.as_ref().map(|relay| relay.thread)
    }

    /// The threads whose frames this one sends, one bit each.
    pub fn relays_for(&self) -> u128 {
        self.relayed.rings.iter().fold(0, |all, (thread, ..)| all | 1 << thread)
    }

    /// Their frames that wait for it.
    pub fn relayed(&self) -> usize {
        self.relayed.rings.iter().map(|(_, ring, _)| ring.slots()).sum::<usize>()
            + self.relayed.frames.len()
    }

    /// [`Nic::wait_fd`]: the descriptor that becomes readable when an armed queue has work.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.queues[..] {
            [only] => only.wait_fd(),
            _ => self.any.as_ref().map(AsFd::as_fd),
        }
    }
}

/// The queue pair of a thread that has one.
impl<N: Nic> From<N> for QueueSet<N> {
    fn from(queue: N) -> Self {
        let (capabilities, relayed) = (queue.capabilities(), FromOthers::default());
        Self { queues: vec![queue], first: 0, any: None, capabilities, relay: None, relayed }
    }
}

/// What becomes readable when one of several queues does.
fn any_of<N: Nic>(queues: &[N]) -> io::Result<Option<OwnedFd>> {
    let mut fds = queues.iter().filter_map(Nic::wait_fd).peekable();
    if queues.len() < 2 || fds.peek().is_none() {
        return Ok(None);
    }
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in fds {
        epoll::add(&any, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(Some(any))
}

impl ToRelay {
    /// Puts copies of frames into the ring. Answers how many.
    fn transmit(&mut self, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let is_closed = self.passage.is_closed.load(Ordering::Relaxed);
        // `copied` of them are taken and not yet completed.
        let (mut taken, mut copied) = (0, 0);
        while let Some(frame) = chunks::first(&frames[copied..]) {
            let count = frame.len();
            if !is_closed {
                // Where memory is short, acknowledgments have to leave all the same: a burst of copies is on its way then.
                let room = if pool.allows(Want::Send) { 1 } else { RING_FRAMES - BURST_FRAMES };
                if self.ring.slots() < room.max(count) {
                    break;
                }
                // The relay sends the copy, of which its device knows nothing.
                if !chunks::copy(frame, pool, &mut self.copies) {
                    if copied == 0 {
                        break;
                    }
                    // The chunks of those that were copied are free then.
                    frames.drain(..copied).for_each(|frame| pool.complete(frame));
                    copied = 0;
                    continue;
                }
                self.stats.tx_frames += 1;
                self.stats.tx_bytes += frame.iter().map(|chunk| chunk.len() as u64).sum::<u64>();
                self.push_copies(pool);
            } else {
                self.stats.tx_dropped += 1;
            }
            (taken, copied) = (taken + count, copied + count);
        }
        frames.drain(..copied).for_each(|frame| pool.complete(frame));
        taken
    }

    /// Puts the copies of one frame into the ring, which has room: the relay sees all of them, or none.
    fn push_copies(&mut self, pool: &mut Pool) {
        if let Ok(slots) = self.ring.write_chunk_uninit(self.copies.len()) {
            slots.fill_from_iter(self.copies.drain(..));
        }
        self.copies.drain(..).for_each(|copy| pool.free(copy));
    }

    fn close(self, pool: &mut Pool) {
        let Self { ring, passage, .. } = self;
        let mut ends = passage.ends();
        ends.sender_left = true;
        drop(ring);
        if let Some(left_behind) = ends.left_behind.take() {
            free_all(left_behind, pool);
        }
    }
}

fn free_all(mut ring: Consumer<Mbuf>, pool: &mut Pool) {
    while let Ok(mbuf) = ring.pop() {
        pool.free(mbuf);
    }
}

impl FromOthers {
    /// Sends one burst through `queue`.
    fn transmit(&mut self, now: Instant, pool: &mut Pool, queue: &mut impl Nic) {
        if self.frames.is_empty() {
            let count = self.rings.len();
            for at in 0..count {
                let (_, ring, _) = &mut self.rings[(self.first + at) % count];
                let mut goes_on = false;
                while (goes_on || self.frames.len() < BURST_FRAMES)
                    && let Ok(copy) = ring.pop()
                {
                    goes_on = chunks::goes_on(&copy);
                    self.taken.tx_frames += u64::from(!goes_on);
                    self.taken.tx_bytes += copy.len() as u64;
                    self.frames.push(copy);
                }
            }
            self.first = (self.first + 1) % count.max(1);
        }
        if !self.frames.is_empty() {
            self.frames.send(|frames| queue.transmit(now, pool, frames));
        }
    }

    fn close(mut self, pool: &mut Pool) {
        self.frames.drain().for_each(|frame| pool.complete(frame));
        for (_, ring, passage) in self.rings {
            passage.is_closed.store(true, Ordering::Relaxed);
            let mut ends = passage.ends();
            match ends.sender_left {
                true => free_all(ring, pool),
                false => ends.left_behind = Some(ring),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use mem::{CHUNK_HEADER, CHUNK_SIZE, Region};
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

    use super::*;
    use crate::loopback::{self, LoopbackConfig, LoopbackNic};
    use crate::test_frames;

    const NOW: Instant = Instant::ZERO;

    /// Sends so many frames whose first byte is `mark`.
    fn send(far: &mut LoopbackNic, pool: &mut Pool, mark: u8, count: usize) {
        let mut frames = frames_of(pool, mark, count);
        assert_eq!(far.transmit(NOW, pool, &mut frames), count);
    }

    /// Receives up to `limit` frames, and returns how many came of each mark.
    fn received(set: &mut QueueSet<LoopbackNic>, pool: &mut Pool, limit: usize) -> [usize; 2] {
        let mut out = Vec::new();
        set.in_turn(|queue| {
            let room = limit - out.len();
            queue.receive(NOW, pool, &mut out, room);
        });
        let mut marks = [0; 2];
        for mbuf in out {
            marks[mbuf.bytes()[0] as usize] += 1;
            pool.free(mbuf);
        }
        marks
    }

    #[test]
    fn several_queues_take_turns_and_none_is_left_out() {
        let mut pool = Pool::new(&Region::heap(256), 256);
        let [(near, mut far), (second, mut beyond)] =
            [(); 2].map(|()| loopback::pair(LoopbackConfig::default()));
        let mut sets = QueueSet::deal(vec![near, second], 1).expect("queues");
        let set = &mut sets[0];
        send(&mut far, &mut pool, 0, 30);
        send(&mut beyond, &mut pool, 1, 30);
        assert_eq!(set.rx_backlog(), 60);
        assert_eq!(received(set, &mut pool, 10), [10, 0]);
        assert_eq!(received(set, &mut pool, 10), [0, 10], "the second one's turn");
        assert_eq!(received(set, &mut pool, 25), [20, 5]);
        assert_eq!(received(set, &mut pool, 25), [0, 15], "all that there are");
        assert_eq!(set.stats().rx_frames, 60);
        // What it sends leaves by the first one.
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[0; 60]).expect("room");
        assert_eq!(set.transmit(NOW, &mut pool, &mut [mbuf.into_tx()].into()), 1);
        assert_eq!((far.rx_backlog(), beyond.rx_backlog()), (1, 0));
        sets.into_iter().for_each(|set| _ = set.close(&mut pool));
        for end in [far, beyond] {
            end.close(&mut pool);
        }
        assert_eq!(pool.available(), 256);
    }

    #[test]
    fn a_burst_leaves_through_a_relay_with_a_single_free_chunk() {
        let mut pool = Pool::new(&Region::heap(11), 11);
        let (near, _far) = loopback::pair(LoopbackConfig::default());
        let mut sets = QueueSet::deal(vec![near], 2).expect("a queue");
        let mut frames = frames_of(&mut pool, 0, 10);
        assert_eq!(pool.available(), 1);
        assert_eq!(sets[1].transmit(NOW, &mut pool, &mut frames), 10);
        assert_eq!((frames.len(), sets[0].relayed()), (0, 10));
        sets.into_iter().for_each(|set| _ = set.close(&mut pool));
        assert_eq!(pool.available(), 11);
    }

    #[test]
    fn a_set_without_a_queue_takes_nothing() {
        let mut pool = Pool::new(&Region::heap(16), 16);
        let (near, _far) = loopback::pair(LoopbackConfig::default());
        let mut sets = QueueSet::deal(vec![near], 3).expect("a queue");
        let relays: Vec<_> = sets.iter().map(QueueSet::relay).collect();
        assert_eq!(relays, [None, Some(0), Some(0)]);
        let empty = &mut sets[2];
        assert_eq!(received(empty, &mut pool, 8), [0, 0]);
        assert_eq!((empty.arm(), empty.wait_fd().is_none()), (Armed::Quiet, true));
        assert!(QueueSet::<LoopbackNic>::deal(Vec::new(), 2).is_err());
        let (near, _far) = loopback::pair(LoopbackConfig::default());
        assert!(QueueSet::deal(vec![near], 0).is_err());
    }

    /// So many frames whose first byte is `mark`.
    fn frames_of(pool: &mut Pool, mark: u8, count: usize) -> Vec<TxFrame> {
        let frame = |_| {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[mark; 60]).expect("room");
            mbuf.into_tx()
        };
        (0..count).map(frame).collect()
    }

    #[test]
    fn a_relay_sends_its_own_frames_and_those_of_others_by_turns() {
        let region = Region::heap(2048);
        let [mut pool, mut other] = [Pool::new(&region, 512), Pool::new(&region, 512)];
        let config = LoopbackConfig {
            ring_frames: 20,
            when_full: loopback::WhenFull::Wait,
            ..LoopbackConfig::default()
        };
        let (near, mut far) = loopback::pair(config);
        let mut sets = QueueSet::deal(vec![near], 2).expect("a queue");
        let [relay, sender] = &mut sets[..] else { panic!("two sets") };
        // Its segments may have to be sent again: the chunks stay with it.
        let mut others = frames_of(&mut other, 1, 100);
        assert_eq!(sender.transmit(NOW, &mut other, &mut others), 100);
        assert_eq!((sender.in_flight(), relay.relays_for(), relay.relayed()), (100, 2, 100));
        assert_eq!(relay.arm(), Armed::HasWork);
        let mut own = frames_of(&mut pool, 0, 60);
        let mut marks = [0; 2];
        while relay.in_flight() > 0 || !own.is_empty() {
            relay.transmit(NOW, &mut pool, &mut own);
            let mut out = Vec::new();
            far.receive(NOW, &mut pool, &mut out, 64);
            relay.reclaim(&mut pool);
            for mbuf in out {
                marks[mbuf.bytes()[0] as usize] += 1;
                pool.free(mbuf);
            }
            // By turns: neither is done long before the other has begun.
            assert!(marks[0] < 60 || marks[1] >= 40, "{marks:?}");
        }
        assert_eq!((marks, sender.in_flight()), ([60, 100], 0));
        assert_eq!((relay.stats().tx_frames, sender.stats().tx_frames), (60, 100));
        assert_eq!((sender.stats().tx_bytes, relay.stats().tx_bytes), (6_000, 3_600));
    }

    /// All of its chunks, with nothing between them, however the rings of a device and of the threads cut the bursts.
    #[test]
    fn a_relay_sends_a_frame_of_several_chunks_whole() {
        let region = Region::heap(2048);
        let [mut pool, mut other] = [Pool::new(&region, 512), Pool::new(&region, 512)];
        let config = LoopbackConfig {
            ring_frames: 7,
            when_full: loopback::WhenFull::Wait,
            frame_chunks: 5,
            max_frame_bytes: 9014,
            ..LoopbackConfig::default()
        };
        let (near, mut far) = loopback::pair(config);
        let mut sets = QueueSet::deal(vec![near], 2).expect("a queue");
        let [relay, sender] = &mut sets[..] else { panic!("two sets") };
        // A full chunk, and one that does not fit where a receiver's frames begin.
        const FULL: usize = CHUNK_SIZE - CHUNK_HEADER;
        let (long, short) = (test_frames::segment(7_000), test_frames::segment(1_850));
        let mut others = Vec::new();
        let mut own = Vec::new();
        for _ in 0..60 {
            others.extend(test_frames::chunks(&long, FULL, &mut other));
            own.extend(test_frames::chunks(&short, FULL, &mut pool));
        }
        let chunks = others.len();
        assert_eq!((chunks, sender.transmit(NOW, &mut other, &mut others)), (240, 240));
        assert_eq!((sender.stats().tx_frames, relay.relayed()), (60, 240));
        let (mut bytes, mut cycles) = (0, 0);
        while relay.in_flight() > 0 || !own.is_empty() {
            relay.transmit(NOW, &mut pool, &mut own);
            let mut out = Vec::new();
            far.receive(NOW, &mut pool, &mut out, 64);
            relay.reclaim(&mut pool);
            bytes += out.iter().map(test_frames::payload_len).sum::<usize>();
            out.into_iter().for_each(|mbuf| pool.free(mbuf));
            cycles += 1;
            assert!(cycles < 1_000);
        }
        assert_eq!((bytes, far.stats().rx_unfit), (60 * 8_850, 0));
        assert_eq!((relay.stats().tx_frames, relay.stats().tx_bytes), (60, 60 * 1_904));
    }

    /// In both orders, with frames in the ring.
    #[test]
    fn all_chunks_come_back_when_relay_and_sender_leave() {
        for relay_first in [false, true] {
            let region = Region::heap(512);
            let mut pool = Pool::new(&region, 512);
            let (near, far) = loopback::pair(LoopbackConfig::default());
            let mut sets = QueueSet::deal(vec![near], 2).expect("a queue");
            let (mut sender, relay) = (sets.pop().expect("one"), sets.pop().expect("another"));
            let mut frames = frames_of(&mut pool, 1, 50);
            assert_eq!(sender.transmit(NOW, &mut pool, &mut frames), 50);
            if relay_first {
                relay.close(&mut pool);
                let mut late = frames_of(&mut pool, 1, 10);
                assert_eq!(sender.transmit(NOW, &mut pool, &mut late), 10, "the relay has left");
                assert_eq!(sender.stats().tx_dropped, 10);
                sender.close(&mut pool);
            } else {
                sender.close(&mut pool);
                relay.close(&mut pool);
            }
            far.close(&mut pool);
            assert_eq!(pool.available(), 512);
        }
    }

    /// A queue that signals by an eventfd.
    struct Signals(OwnedFd);

    impl Nic for Signals {
        fn receive(&mut self, _: Instant, _: &mut Pool, _: &mut Vec<Mbuf>, _: usize) -> usize {
            0
        }
        fn transmit(&mut self, _: Instant, _: &mut Pool, _: &mut Vec<TxFrame>) -> usize {
            0
        }
        fn reclaim(&mut self, _: &mut Pool) -> usize {
            0
        }
        fn close(self, _: &mut Pool) -> Closed {
            Closed::default()
        }
        fn capabilities(&self) -> Capabilities {
            loopback::pair(LoopbackConfig::default()).0.capabilities()
        }
        fn stats(&self) -> NicStats {
            NicStats::default()
        }
        fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "waits for descriptors")]
    fn one_descriptor_stands_for_all_queues_of_a_thread() {
        let queues: Vec<_> =
            (0..3).map(|_| Signals(eventfd(0, EventfdFlags::NONBLOCK).expect("one"))).collect();
        let bells: Vec<_> =
            queues.iter().map(|queue| queue.0.try_clone().expect("a copy")).collect();
        let sets = QueueSet::deal(queues, 2).expect("queues");
        let is_readable = |set: &QueueSet<Signals>| {
            let fd = set.wait_fd().expect("one");
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&at_once)) == Ok(1)
        };
        for (rung, thread) in [(0, 0), (1, 1), (2, 0)] {
            assert!(!sets.iter().any(is_readable));
            rustix::io::write(&bells[rung], &1u64.to_ne_bytes()).expect("rung");
            assert_eq!(sets.iter().position(is_readable), Some(thread));
            rustix::io::read(&bells[rung], &mut [0u8; 8]).expect("heard");
        }
    }
}
