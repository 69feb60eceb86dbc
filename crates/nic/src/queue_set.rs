//! A device's queue pairs, dealt out to another number of elastic threads.
//!
//! ```
//! # use tailplane_nic as nic;
//! use nic::loopback::{self, LoopbackConfig};
//! use nic::{Nic, QueueSet};
//! # fn main() -> std::io::Result<()> {
//! let (one, two) = loopback::pair(LoopbackConfig::default());
//! // Two queues, three threads: the last one has none, and sends through the first one's.
//! let sets = QueueSet::deal(vec![one, two], 3)?;
//! assert_eq!(sets.iter().map(QueueSet::len).collect::<Vec<_>>(), [1, 1, 0]);
//! assert_eq!(sets.iter().map(Nic::sends_through).collect::<Vec<_>>(), [None, None, Some(0)]);
//! # Ok(()) }
//! ```
//!
//! A thread with several queues polls them in turn, and sends through its first one. All packets of a flow come to one
//! queue, so they stay in order. A thread without a queue receives what other threads forward to it, and has one of
//! them [send for it](Nic::sends_through).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use rustix::event::epoll;

use crate::{Armed, Capabilities, Closed, Nic, NicStats};

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
    sends_through: Option<u8>,
}

impl<N: Nic> QueueSet<N> {
    /// Deals `queues` out to so many threads: thread `t` has queues `t`, `t + threads`, and so on. One that comes away
    /// empty sends through a thread that does not.
    ///
    /// # Errors
    /// There are no queues; no descriptors.
    pub fn deal(queues: Vec<N>, threads: usize) -> io::Result<Vec<Self>> {
        let Some(capabilities) = queues.first().map(Nic::capabilities) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device without queues"));
        };
        let all = queues.len();
        let mut sets: Vec<Self> = (0..threads)
            .map(|thread| Self {
                queues: Vec::new(),
                first: 0,
                any: None,
                capabilities,
                sends_through: (thread >= all).then_some((thread % all) as u8),
            })
            .collect();
        for (at, queue) in queues.into_iter().enumerate() {
            if let Some(set) = sets.get_mut(at % threads) {
                set.queues.push(queue);
            }
        }
        for set in &mut sets {
            set.any = any_of(&set.queues)?;
        }
        Ok(sets)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

/// What becomes readable when one of several queues does.
fn any_of<N: Nic>(queues: &[N]) -> io::Result<Option<OwnedFd>> {
    if queues.len() < 2 {
        return Ok(None);
    }
    let any = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in queues.iter().filter_map(Nic::wait_fd) {
        epoll::add(&any, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    Ok(Some(any))
}

impl<N: Nic> Nic for QueueSet<N> {
    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        if let [only] = &mut self.queues[..] {
            return only.receive(now, pool, out, limit);
        }
        let (late, early) = self.queues.split_at_mut(self.first);
        let mut received = 0;
        for queue in early.iter_mut().chain(late) {
            received += queue.receive(now, pool, out, limit - received);
        }
        self.first = (self.first + 1) % self.queues.len().max(1);
        received
    }

    #[inline]
    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut VecDeque<TxFrame>) -> usize {
        self.queues.first_mut().map_or(0, |queue| queue.transmit(now, pool, frames))
    }

    #[inline]
    fn reclaim(&mut self, pool: &mut Pool) -> usize {
        self.queues.first_mut().map_or(0, |queue| queue.reclaim(pool))
    }

    fn close(self, pool: &mut Pool) -> Closed {
        let mut closed = Closed::default();
        self.queues.into_iter().for_each(|queue| closed += queue.close(pool));
        closed
    }

    fn in_flight(&self) -> usize {
        self.queues.first().map_or(0, Nic::in_flight)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn stats(&self) -> NicStats {
        let mut sum = NicStats::default();
        self.queues.iter().for_each(|queue| sum += queue.stats());
        sum
    }

    fn rx_backlog(&self) -> usize {
        self.queues.iter().map(Nic::rx_backlog).sum()
    }

    fn next_event(&self) -> Option<Instant> {
        self.queues.iter().filter_map(Nic::next_event).min()
    }

    /// Arms each queue, also behind one that has work: [`disarm`](Nic::disarm) takes all of it back.
    fn arm(&mut self) -> Armed {
        let has_work = |queue: &mut N| queue.arm() == Armed::HasWork;
        match self.queues.iter_mut().map(has_work).fold(false, |any, one| any | one) {
            true => Armed::HasWork,
            false => Armed::Quiet,
        }
    }

    fn disarm(&mut self) {
        self.queues.iter_mut().for_each(Nic::disarm);
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.queues[..] {
            [only] => only.wait_fd(),
            _ => self.any.as_ref().map(AsFd::as_fd),
        }
    }

    fn sends_through(&self) -> Option<u8> {
        self.sends_through
    }
}

#[cfg(test)]
mod tests {
    use clock::Instant;
    use mem::Region;
    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

    use super::*;
    use crate::loopback::{self, LoopbackConfig, LoopbackNic};

    const NOW: Instant = Instant::ZERO;

    /// Sends so many frames whose first byte is `mark`.
    fn send(far: &mut LoopbackNic, pool: &mut Pool, mark: u8, count: usize) {
        let frame = |_| {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[mark; 60]).expect("room");
            mbuf.into_tx()
        };
        let mut frames: VecDeque<TxFrame> = (0..count).map(frame).collect();
        assert_eq!(far.transmit(NOW, pool, &mut frames), count);
    }

    /// Receives up to `limit` frames, and returns how many came of each mark.
    fn received(set: &mut QueueSet<LoopbackNic>, pool: &mut Pool, limit: usize) -> [usize; 2] {
        let mut out = Vec::new();
        let count = set.receive(NOW, pool, &mut out, limit);
        assert_eq!(count, out.len());
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
    }

    #[test]
    fn a_set_without_a_queue_takes_nothing() {
        let mut pool = Pool::new(&Region::heap(16), 16);
        let (near, _far) = loopback::pair(LoopbackConfig::default());
        let mut sets = QueueSet::deal(vec![near], 3).expect("a queue");
        let through: Vec<_> = sets.iter().map(Nic::sends_through).collect();
        assert_eq!(through, [None, Some(0), Some(0)]);
        let empty = &mut sets[2];
        assert!(empty.is_empty());
        let mut frames: VecDeque<TxFrame> = [pool.alloc().expect("a chunk").into_tx()].into();
        assert_eq!(empty.transmit(NOW, &mut pool, &mut frames), 0);
        assert_eq!(received(empty, &mut pool, 8), [0, 0]);
        assert_eq!((empty.arm(), empty.wait_fd().is_none()), (Armed::Quiet, true));
        frames.into_iter().for_each(|frame| pool.complete(frame));
        assert!(QueueSet::<LoopbackNic>::deal(Vec::new(), 2).is_err());
    }

    /// A queue that signals by an eventfd.
    struct Signals(OwnedFd);

    impl Nic for Signals {
        fn receive(&mut self, _: Instant, _: &mut Pool, _: &mut Vec<Mbuf>, _: usize) -> usize {
            0
        }
        fn transmit(&mut self, _: Instant, _: &mut Pool, _: &mut VecDeque<TxFrame>) -> usize {
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
