//! Middleware: a bad network. Loses, duplicates, reorders, corrupts and delays frames, each by a
//! probability of its own per direction, all drawn from one seed.
//!
//! ```
//! use nic::{fault::{FaultNic, Faults}, loopback};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, _far) = loopback::pair(Default::default());
//! let lossy = Faults { loss: 0.01, ..Faults::perfect() };
//! let nic = FaultNic::new(near, 42, Faults::perfect(), lossy)?;
//! # Ok(()) }
//! ```
//!
//! Frames that are held back are copies in mbufs; the original goes back to its owner at once. They
//! are delivered by the caller's clock: [`Nic::next_event`] tells when the next is due, and
//! `receive` and `transmit` (also with no frames) carry out what is.

use std::time::Duration;

use clock::{DueQueue, Instant};
use mem::{Mbuf, NoRoom, Pool, TxFrame};

use crate::dice::Dice;
use crate::{Armed, Capabilities, Closed, Nic, chunks};

/// What happens to the frames of one direction, or of a link. Probabilities are per frame, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Faults {
    /// Probability that a frame vanishes.
    pub loss: f64,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is held back for a time that is drawn up to `reorder_by`: frames that come within that
    /// overtake it.
    pub reorder: f64,
    /// Longest time that such a frame is held back.
    pub reorder_by: Duration,
    /// Probability that one bit of a frame is flipped.
    pub corrupt: f64,
    /// Shortest delay of a frame.
    pub delay_min: Duration,
    /// Longest delay of a frame that is not held back: reorders frames that follow each other more closely.
    pub delay_max: Duration,
    /// Frames that one direction may hold back, or that wait at a receiving queue, at most; further ones are lost
    /// and counted.
    pub queue_frames: usize,
}

impl Faults {
    /// The usual bad network: one per cent of everything, 5 to 50 us.
    pub fn usual() -> Self {
        Self {
            loss: 0.01,
            duplicate: 0.01,
            reorder: 0.01,
            reorder_by: Duration::from_micros(500),
            corrupt: 0.01,
            delay_min: Duration::from_micros(5),
            delay_max: Duration::from_micros(50),
            queue_frames: 1024,
        }
    }
}

impl Faults {
    /// A network that does nothing worse than take its time.
    pub fn none() -> Self {
        Self { loss: 0.0, duplicate: 0.0, reorder: 0.0, corrupt: 0.0, ..Self::usual() }
    }

    /// A wire that takes no time either.
    pub fn perfect() -> Self {
        Self { delay_min: Duration::ZERO, delay_max: Duration::ZERO, ..Self::none() }
    }
}

/// What happens to one frame.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// It vanishes, whatever else.
    pub lost: bool,
    /// It arrives twice.
    pub duplicate: bool,
    /// It is held back.
    pub reorder: bool,
    /// The bit to flip.
    pub flip: Option<usize>,
    /// How late it is, and its second copy.
    pub delays: [Duration; 2],
}

impl Fate {
    /// Draws what happens to a frame of so many bytes. All draws are made whatever they give, so that changing one
    /// probability leaves the others' sequence as it was.
    pub fn draw(faults: &Faults, dice: &mut Dice, bytes: usize) -> Self {
        let (lost, duplicate) = (dice.chance(faults.loss), dice.chance(faults.duplicate));
        let (reorder, corrupt) = (dice.chance(faults.reorder), dice.chance(faults.corrupt));
        let mut delays = [(); 2].map(|()| dice.duration(faults.delay_min, faults.delay_max));
        let held = dice.duration(Duration::ZERO, faults.reorder_by);
        let bit = dice.below(bytes as u64 * 8) as usize;
        if reorder {
            delays[0] += held;
        }
        Self { lost, duplicate, reorder, flip: corrupt.then_some(bit), delays }
    }
}

/// Flips a bit of a frame, if one is to be.
pub fn corrupt(frame: &mut [u8], flip: Option<usize>) {
    if let Some(bit) = flip
        && let Some(byte) = frame.get_mut(bit / 8)
    {
        *byte ^= 1 << (bit % 8);
    }
}

/// A probability was not between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the probability of `{fault}` is {value}: allowed are 0 to 1")]
pub struct BadProbability {
    /// Which.
    pub fault: &'static str,
    /// What it was.
    pub value: f64,
}

/// What was done to the frames of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultStats {
    /// Frames that came to the injector.
    pub seen: u64,
    /// Frames that vanished by [`Faults::loss`].
    pub lost: u64,
    /// Frames that were doubled.
    pub duplicated: u64,
    /// Frames that were held back to be overtaken.
    pub reordered: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that vanished because no buffer was free to hold them, or too many were held.
    pub overflowed: u64,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    faults: Faults,
    /// What is held back; a frame to send may have several chunks, which are due together.
    held: DueQueue<Mbuf>,
    copies: Vec<Mbuf>,
    stats: FaultStats,
}

impl Lane {
    fn new(faults: Faults) -> Result<Self, BadProbability> {
        let probabilities = [
            ("loss", faults.loss),
            ("duplicate", faults.duplicate),
            ("reorder", faults.reorder),
            ("corrupt", faults.corrupt),
        ];
        for (fault, value) in probabilities {
            if !(0.0..=1.0).contains(&value) {
                return Err(BadProbability { fault, value });
            }
        }
        let held = DueQueue::with_capacity(1024);
        Ok(Self { faults, held, copies: Vec::new(), stats: FaultStats::default() })
    }

    /// Draws what happens to a frame, and counts it.
    fn draw(&mut self, dice: &mut Dice, bytes: usize) -> Fate {
        let fate = Fate::draw(&self.faults, dice, bytes);
        self.stats.seen += 1;
        self.stats.lost += u64::from(fate.lost);
        if !fate.lost {
            self.stats.duplicated += u64::from(fate.duplicate);
            self.stats.reordered += u64::from(fate.reorder);
            self.stats.corrupted += u64::from(fate.flip.is_some());
        }
        fate
    }

    /// Has what `copy` appends to its argument delivered at `due`, one bit flipped. Of several chunks of a frame all are, or
    /// none.
    fn hold_copy(
        &mut self,
        due: Instant,
        mut flip: Option<usize>,
        pool: &mut Pool,
        copy: impl FnOnce(&mut Pool, &mut Vec<Mbuf>) -> bool,
    ) {
        let has_room = self.held.len() < self.faults.queue_frames;
        if !has_room || !copy(pool, &mut self.copies) {
            self.stats.overflowed += 1;
        }
        for mut mbuf in self.copies.drain(..) {
            corrupt(mbuf.bytes_mut(), flip);
            flip = flip.and_then(|bit| bit.checked_sub(8 * mbuf.len()));
            self.held.push(due, mbuf);
        }
    }
}

/// Appends a copy of a received frame to `out`. Answers whether there was memory.
fn copy_received(bytes: &[u8], pool: &mut Pool, out: &mut Vec<Mbuf>) -> bool {
    let Ok(mut mbuf) = pool.alloc() else { return false };
    match mbuf.append(bytes) {
        Ok(()) => out.push(mbuf),
        Err(NoRoom) => {
            pool.free(mbuf);
            return false;
        }
    }
    true
}

/// A driver behind a bad network.
#[derive(Debug)]
pub struct FaultNic<N> {
    inner: N,
    dice: Dice,
    receive: Lane,
    transmit: Lane,
    scratch: Vec<Mbuf>,
    /// Frames that are due and wait for the inner driver to take them.
    outgoing: Vec<TxFrame>,
}

impl<N: Nic> FaultNic<N> {
    /// Puts `inner` behind `receive` faults for what arrives and `transmit` faults for what is sent.
    /// One seed replays one run.
    ///
    /// # Errors
    /// [`BadProbability`] where one is not between 0 and 1.
    pub fn new(
        inner: N,
        seed: u64,
        receive: Faults,
        transmit: Faults,
    ) -> Result<Self, BadProbability> {
        Ok(Self {
            inner,
            dice: Dice::new(seed, "faults", 0),
            receive: Lane::new(receive)?,
            transmit: Lane::new(transmit)?,
            scratch: Vec::with_capacity(256),
            outgoing: Vec::with_capacity(256),
        })
    }

    /// What was done to received frames.
    pub fn receive_stats(&self) -> FaultStats {
        self.receive.stats
    }

    /// What was done to sent frames.
    pub fn transmit_stats(&self) -> FaultStats {
        self.transmit.stats
    }

    /// Frames that are held back, both directions together.
    pub fn held(&self) -> usize {
        self.receive.held.len() + self.transmit.held.len() + self.outgoing.len()
    }

    /// Loses all that is held and answers the driver.
    pub fn into_inner(mut self, pool: &mut Pool) -> N {
        for lane in [&mut self.receive, &mut self.transmit] {
            lane.held.drain().for_each(|mbuf| pool.free(mbuf));
        }
        self.outgoing.drain(..).for_each(|frame| pool.complete(frame));
        self.inner
    }
}

impl<N: Nic> Nic for FaultNic<N> {
    fn receive(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        out: &mut Vec<Mbuf>,
        limit: usize,
    ) -> usize {
        let lane = &mut self.receive;
        let mut delivered = 0;
        self.inner.receive(now, pool, &mut self.scratch, limit);
        for mut mbuf in self.scratch.drain(..) {
            let fate = lane.draw(&mut self.dice, mbuf.bytes().len());
            if fate.lost {
                pool.free(mbuf);
                continue;
            }
            corrupt(mbuf.bytes_mut(), fate.flip);
            let [due, again] = fate.delays.map(|delay| now + delay);
            if fate.duplicate {
                lane.hold_copy(again, None, pool, |pool, out| {
                    copy_received(mbuf.bytes(), pool, out)
                });
            }
            if due <= now && delivered < limit && lane.held.next_due().is_none_or(|due| due > now) {
                // Nothing that is due is before it.
                out.push(mbuf);
                delivered += 1;
            } else if lane.held.len() < lane.faults.queue_frames {
                lane.held.push(due, mbuf);
            } else {
                lane.stats.overflowed += 1;
                pool.free(mbuf);
            }
        }
        while delivered < limit
            && let Some(mbuf) = lane.held.pop_due(now)
        {
            out.push(mbuf);
            delivered += 1;
        }
        delivered
    }

    fn transmit(&mut self, now: Instant, pool: &mut Pool, frames: &mut Vec<TxFrame>) -> usize {
        let lane = &mut self.transmit;
        let taken = frames.len();
        while let Some(frame) = chunks::first(frames) {
            let (count, bytes) = (frame.len(), frame.iter().map(TxFrame::len).sum());
            let fate = lane.draw(&mut self.dice, bytes);
            let [due, again] = fate.delays.map(|delay| now + delay);
            let untouched = fate.flip.is_none() && !fate.duplicate && due <= now;
            if fate.lost {
                frames.drain(..count).for_each(|frame| pool.complete(frame));
            } else if untouched && lane.held.next_due().is_none_or(|due| due > now) {
                // Nothing happens to it, and nothing due is before it: no copy.
                self.outgoing.extend(frames.drain(..count));
            } else {
                // The checksum is complete before a bit is flipped.
                let copy = |pool: &mut Pool, out: &mut Vec<Mbuf>| chunks::copy(frame, pool, out);
                lane.hold_copy(due, fate.flip, pool, copy);
                if fate.duplicate {
                    lane.hold_copy(again, fate.flip, pool, copy);
                }
                frames.drain(..count).for_each(|frame| pool.complete(frame));
                // Keeps the order of frames that are due at once.
                while let Some(copy) = lane.held.pop_due(now) {
                    self.outgoing.push(chunks::into_tx(copy));
                }
            }
        }
        while let Some(copy) = lane.held.pop_due(now) {
            self.outgoing.push(chunks::into_tx(copy));
        }
        self.inner.transmit(now, pool, &mut self.outgoing);
        taken
    }

    /// What is held is lost on its way.
    fn close(self, pool: &mut Pool) -> Closed {
        let held = Closed { returned: self.held() as u32, lost: 0 };
        let mut closed = self.into_inner(pool).close(pool);
        closed += held;
        closed
    }

    fn in_flight(&self) -> usize {
        self.transmit.held.len() + self.outgoing.len() + self.inner.in_flight()
    }

    fn capabilities(&self) -> Capabilities {
        let inner = self.inner.capabilities();
        // A bit that is flipped here was not seen by whoever verified.
        let verified = inner.rx_checksums_verified && self.receive.faults.corrupt == 0.0;
        Capabilities { rx_checksums_verified: verified, ..inner }
    }

    fn next_event(&self) -> Option<Instant> {
        let own =
            [self.receive.held.next_due(), self.transmit.held.next_due(), self.inner.next_event()];
        own.into_iter().flatten().min()
    }

    fn arm(&mut self) -> Armed {
        if self.outgoing.is_empty() { self.inner.arm() } else { Armed::HasWork }
    }

    hand_on!(self, self.inner);
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
