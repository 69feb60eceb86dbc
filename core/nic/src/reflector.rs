//! The least that a server can do: swap addresses and ports and send the frame back, with no stack
//! above the driver. What it reaches is the bound for any service on that driver.

use alloc::vec::Vec;

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};

use crate::Nic;

/// Where the swapped fields of an untagged Ethernet, IPv4 (without options) and UDP frame lie.
const MACS: usize = 0;
const ETHERTYPE: usize = 12;
const IP: usize = 14;
const IP_ADDRESSES: usize = IP + 12;
const UDP: usize = IP + 20;
/// Bytes that a frame must have to be reflected.
const MIN_FRAME_BYTES: usize = UDP + 8;

/// Turns a UDP frame around in place. False, and nothing changed, where it is none.
///
/// Checksums stay right: a ones'-complement sum does not depend on the order of what it sums.
#[inline]
pub fn turn_around(frame: &mut [u8]) -> bool {
    const UDP_PROTOCOL: u8 = 17;
    let is_udp = frame.len() >= MIN_FRAME_BYTES
        && frame[ETHERTYPE..IP] == [0x08, 0x00]
        && frame[IP] == 0x45
        && frame[IP + 9] == UDP_PROTOCOL;
    if is_udp {
        swap(&mut frame[MACS..ETHERTYPE]);
        swap(&mut frame[IP_ADDRESSES..UDP]);
        swap(&mut frame[UDP..UDP + 4]);
    }
    is_udp
}

/// Swaps the halves of a field pair.
#[inline]
fn swap(pair: &mut [u8]) {
    let (first, second) = pair.split_at_mut(pair.len() / 2);
    first.swap_with_slice(second);
}

/// Reflects UDP frames on one driver; other frames are dropped.
#[derive(Debug)]
pub struct Reflector {
    received: Vec<Mbuf>,
    outgoing: Vec<TxFrame>,
    batch: usize,
    /// Frames sent back so far.
    pub reflected: u64,
    /// Frames that were no UDP, dropped so far.
    pub ignored: u64,
}

impl Reflector {
    /// A reflector that takes up to `batch` frames at a time.
    pub fn new(batch: usize) -> Self {
        let batch = batch.max(1);
        Self {
            received: Vec::with_capacity(batch),
            outgoing: Vec::with_capacity(2 * batch),
            batch,
            reflected: 0,
            ignored: 0,
        }
    }

    /// One round: receive, turn around, transmit, reclaim. Answers how many frames came in.
    #[inline]
    pub fn reflect_once<N: Nic + ?Sized>(
        &mut self,
        now: Instant,
        nic: &mut N,
        pool: &mut Pool,
    ) -> usize {
        // What the transmit ring did not take is not added to.
        let limit = if self.outgoing.is_empty() { self.batch } else { 0 };
        let count = nic.receive(now, pool, &mut self.received, limit);
        for mut mbuf in self.received.drain(..) {
            if turn_around(mbuf.bytes_mut()) {
                self.outgoing.push(mbuf.into_tx());
            } else {
                self.ignored += 1;
                pool.free(mbuf);
            }
        }
        self.reflected += nic.transmit(now, pool, &mut self.outgoing) as u64;
        nic.reclaim(pool);
        count
    }

    /// Returns the frames that wait for the transmit ring to `pool`. Answers how many.
    pub fn drain(&mut self, pool: &mut Pool) -> usize {
        let count = self.outgoing.len();
        self.outgoing.drain(..).for_each(|frame| pool.complete(frame));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{LoopbackConfig, pair};
    use mem::Region;

    #[test]
    fn what_is_no_udp_is_left_alone() {
        let mut short = [0u8; MIN_FRAME_BYTES - 1];
        assert!(!turn_around(&mut short));
        let mut tcp = [0u8; 64];
        tcp[ETHERTYPE] = 8;
        tcp[IP] = 0x45;
        tcp[IP + 9] = 6;
        let before = tcp;
        assert!(!turn_around(&mut tcp));
        assert_eq!(tcp, before);
    }

    #[test]
    fn a_frame_that_is_no_udp_is_dropped() {
        let (mut near, mut far) = pair(LoopbackConfig::default());
        let mut pool = Pool::new(&Region::heap(128), 128);
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[0; 64]).expect("fits");
        near.transmit(Instant::ZERO, &mut pool, &mut [mbuf.into_tx()].into());
        let mut reflector = Reflector::new(32);
        assert_eq!(reflector.reflect_once(Instant::ZERO, &mut far, &mut pool), 1);
        assert_eq!((reflector.reflected, reflector.ignored), (0, 1));
        near.reclaim(&mut pool);
        assert_eq!(pool.available(), 128);
    }
}
