//! Received frames that lie in several chunks: gathered, and cut to TCP segments of one chunk each.
//!
//! A device leaves such a frame in chunks; a wire in memory has it [copied](Pieces::copy) into some.

use std::collections::VecDeque;

use mem::{Mbuf, Pool, RX_HEADROOM};
use wire::{LongSegment, Sum};

/// Chunks of one frame at most: the kernel's first buffer and its `MAX_SKB_FRAGS`.
pub const MOST: usize = 18;

/// The chunks of a frame whose last one has not come yet, and the segments of one that has come.
#[derive(Debug)]
pub struct Pieces {
    held: Vec<Mbuf>,
    /// It had more than [`MOST`]: the rest is dropped as it comes.
    too_many: bool,
    /// Segments that nobody has taken yet.
    segments: VecDeque<Mbuf>,
}

/// A frame that was dropped: it is no TCP segment, a part of one is wrong, or it has too many chunks.
#[derive(Debug, PartialEq, Eq)]
pub struct Dropped;

impl Pieces {
    /// No frame, with memory for one.
    pub fn new() -> Self {
        let (held, segments) = (Vec::with_capacity(MOST), VecDeque::with_capacity(MOST));
        Self { held, too_many: false, segments }
    }

    /// Takes a whole frame, whose bytes lie in `parts`, in chunks that are copies of it. Answers whether there was memory: it
    /// is to be [finished](Self::finish) then.
    pub fn copy<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, pool: &mut Pool) -> bool {
        for mut part in parts {
            while !part.is_empty() && !self.too_many {
                if self.held.last().is_none_or(|mbuf| mbuf.tailroom() == 0) {
                    let Some(mbuf) = pool.alloc().ok().map(at_headroom) else {
                        self.drop_held(pool);
                        return false;
                    };
                    self.push(mbuf, pool);
                }
                let Some(mbuf) = self.held.last_mut() else { break };
                let (fitting, rest) = part.split_at(part.len().min(mbuf.tailroom()));
                // It is no more than the tailroom.
                let _ = mbuf.append(fitting);
                part = rest;
            }
        }
        true
    }

    /// Whether the next chunk is a frame's first one.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty() && !self.too_many
    }

    /// Takes the next chunk of a frame.
    pub fn push(&mut self, mbuf: Mbuf, pool: &mut Pool) {
        if self.too_many || self.held.len() == MOST {
            self.too_many = true;
            pool.free(mbuf);
            self.drop_held(pool);
        } else {
            self.held.push(mbuf);
        }
    }

    /// Ends the frame: its segments are to be [taken](Self::take). Their checksums are right; the frame's own count
    /// where they are not `verified` already.
    ///
    /// # Errors
    /// It is dropped.
    pub fn finish(&mut self, verified: bool, pool: &mut Pool) -> Result<(), Dropped> {
        let cut =
            if std::mem::take(&mut self.too_many) { Err(Dropped) } else { self.cut(verified) };
        let Ok(headers) = cut else {
            self.drop_held(pool);
            return Err(Dropped);
        };
        for mbuf in self.held.drain(..) {
            // A chunk that had headers alone, or nothing.
            if mbuf.len() == headers { pool.free(mbuf) } else { self.segments.push_back(mbuf) }
        }
        Ok(())
    }

    /// Appends `limit` segments at most to `out`, oldest first, and answers how many.
    pub fn take(&mut self, out: &mut Vec<Mbuf>, limit: usize) -> usize {
        let taken = self.segments.len().min(limit);
        out.extend(self.segments.drain(..taken));
        taken
    }

    /// Segments that wait to be taken.
    #[inline]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Gives each chunk headers of its own, and answers how many bytes they have.
    fn cut(&mut self, verified: bool) -> Result<usize, Dropped> {
        let frame_len = self.held.iter().map(Mbuf::len).sum();
        let (first, others) = self.held.split_first_mut().ok_or(Dropped)?;
        let long = LongSegment::parse(first.bytes(), frame_len).map_err(|_| Dropped)?;
        let headers = long.headers_len();
        let first_sum = Sum::of(&first.bytes()[headers..]);
        let (mut at, mut whole) = (first.len() - headers, first_sum);
        for other in &*others {
            whole = whole.add_at(Sum::of(other.bytes()), at);
            at += other.len();
        }
        if !verified && !long.is_valid(whole) {
            return Err(Dropped);
        }
        let mut at = first.len() - headers;
        long.emit(first.bytes_mut(), 0, at, first_sum);
        for other in others {
            let (len, sum) = (other.len(), Sum::of(other.bytes()));
            let bytes = other.prepend(headers).map_err(|_| Dropped)?;
            long.emit(bytes, at, len, sum);
            at += len;
        }
        Ok(headers)
    }

    fn drop_held(&mut self, pool: &mut Pool) {
        self.held.drain(..).for_each(|mbuf| pool.free(mbuf));
    }

    /// Returns all chunks.
    pub fn close(&mut self, pool: &mut Pool) {
        self.drop_held(pool);
        self.segments.drain(..).for_each(|mbuf| pool.free(mbuf));
    }
}

impl Default for Pieces {
    fn default() -> Self {
        Self::new()
    }
}

/// An mbuf that begins where a device puts a frame.
fn at_headroom(mut mbuf: Mbuf) -> Mbuf {
    // It lies in every chunk.
    let _ = mbuf.reset(RX_HEADROOM);
    mbuf
}

#[cfg(test)]
mod tests {
    use mem::Region;
    use wire::{
        EtherType, EthernetRepr, Ipv4Addr, Ipv4Repr, Ipv4View, MacAddr, Protocol, SeqNumber,
        TcpFlags, TcpOptions, TcpRepr, TcpView,
    };

    use super::*;

    const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    fn frame(payload: &[u8]) -> Vec<u8> {
        let tcp = TcpRepr {
            src_port: 1,
            dst_port: 2,
            seq: SeqNumber(u32::MAX - 100),
            ack: SeqNumber(6),
            flags: TcpFlags::ACK | TcpFlags::FIN,
            window: 9,
            options: TcpOptions::default(),
        };
        let mut frame = vec![0; 54];
        let mac = MacAddr::default();
        EthernetRepr { dst: mac, src: mac, ethertype: EtherType::IPV4 }.emit(&mut frame);
        let ip = Ipv4Repr {
            src: SRC,
            dst: DST,
            protocol: Protocol::TCP,
            ttl: 64,
            ident: 1,
            dscp_ecn: 0,
            dont_fragment: true,
            payload_len: 20 + payload.len(),
        };
        ip.emit(&mut frame[14..]);
        tcp.emit(&mut frame[34..], SRC, DST, payload.len(), Sum::of(payload));
        frame.extend(payload);
        frame
    }

    /// Chunks with these parts of a frame.
    fn push(pieces: &mut Pieces, pool: &mut Pool, parts: &[&[u8]]) {
        for part in parts {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.reset(320).expect("room");
            mbuf.append(part).expect("room");
            pieces.push(mbuf, pool);
        }
    }

    #[test]
    fn a_long_segment_becomes_one_for_each_chunk() {
        let region = Region::heap(64);
        let mut pool = Pool::new(&region, 64);
        let free = pool.available();
        let payload: Vec<u8> = (0..3001u32).map(|at| at as u8).collect();
        let frame = frame(&payload);
        let (mut pieces, mut out) = (Pieces::new(), Vec::new());
        // The first chunk has headers alone, the second an odd number of bytes, one nothing.
        let parts = [&frame[..54], &frame[54..1055], &[], &frame[1055..2500], &frame[2500..]];
        push(&mut pieces, &mut pool, &parts);
        assert_eq!(pieces.finish(false, &mut pool), Ok(()));
        assert!(pieces.is_empty());
        // In two goes: the first has no room for all.
        assert_eq!((pieces.take(&mut out, 2), pieces.segments()), (2, 1));
        assert_eq!((pieces.take(&mut out, 2), pieces.segments()), (1, 0));
        let mut stream = Vec::new();
        for (number, mbuf) in out.drain(..).enumerate() {
            let ip = Ipv4View::parse(&mbuf.bytes()[14..]).expect("a packet");
            let tcp = TcpView::parse(ip.payload()).expect("a segment");
            assert!(ip.verify_checksum() && tcp.verify_checksum(SRC, DST));
            assert_eq!(tcp.seq(), SeqNumber(u32::MAX - 100) + stream.len() as u32);
            assert_eq!(tcp.flags().contains(TcpFlags::FIN), number == 2);
            stream.extend_from_slice(tcp.payload());
            pool.free(mbuf);
        }
        assert_eq!(stream, payload);
        assert_eq!(pool.available(), free, "none is lost");
    }

    #[test]
    fn what_is_no_sound_segment_is_dropped_with_all_of_its_chunks() {
        let region = Region::heap(64);
        let mut pool = Pool::new(&region, 64);
        let free = pool.available();
        let mut pieces = Pieces::new();
        let good = frame(&[7; 3000]);
        let mut wrong = good.clone();
        wrong[2000] ^= 1;
        let mut datagram = good.clone();
        datagram[23] = 17;
        let many: Vec<&[u8]> = (0..MOST + 3).map(|_| &good[..54]).collect();
        let cases: [&[&[u8]]; 5] = [
            &[&wrong[..1500], &wrong[1500..]],
            &[&datagram[..1500], &datagram[1500..]],
            &[&good[..1500]],
            &[],
            &many,
        ];
        for parts in cases {
            push(&mut pieces, &mut pool, parts);
            assert_eq!(pieces.finish(false, &mut pool), Err(Dropped));
            assert!(pieces.segments() == 0 && pieces.is_empty());
            assert_eq!(pool.available(), free, "none is lost");
        }
        // Where the device has verified, the frame's own checksum says nothing.
        push(&mut pieces, &mut pool, &[&wrong[..1500], &wrong[1500..]]);
        assert_eq!((pieces.finish(true, &mut pool), pieces.segments()), (Ok(()), 2));
        pieces.close(&mut pool);
        assert_eq!(pool.available(), free, "none is lost");
    }
}
