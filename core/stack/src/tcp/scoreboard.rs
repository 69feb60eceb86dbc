//! The scoreboard (RFC 6675 §4): what is known of each segment that was sent and is not acknowledged.
//!
//! One line of memory holds three segments, so that a walk over a large window does not wait for the chunks, which lie
//! 2 KiB apart. A connection has a scoreboard only while it has many segments in flight, or some seem to be missing.

use alloc::collections::VecDeque;

use mem::{Pool, Retained};
use wire::{SeqNumber, TcpFlags};

use super::long;

/// Segments on a scoreboard at most: what is walked over, or freed, for one acknowledgment.
pub(crate) const MAX_SEGMENTS: usize = 8192;

/// Where a segment is, as far as can be known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// On its way, or its acknowledgment is.
    InFlight,
    /// The peer has it, and lacks something before it.
    Sacked,
    /// Lost, and to be sent again.
    Lost,
}

/// A segment that was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    retained: Retained,
    /// When it was last sent, in nanoseconds. Once the peer has told of it that does not matter: then it is the sequence
    /// number up to which all behind it was told of too, as far as that is noted here.
    at_ns: u64,
    /// Its first sequence number.
    pub seq: SeqNumber,
    /// Sequence numbers that it takes.
    len: u16,
    /// Times that it was sent.
    pub transmissions: u8,
    fate: Fate,
}

const _: () = assert!(size_of::<Sent>() == 24);

impl Sent {
    fn of(retained: Retained) -> Self {
        let meta = retained.meta();
        let flags = TcpFlags(meta.flags);
        let controls = flags.contains(TcpFlags::SYN) as u16 + flags.contains(TcpFlags::FIN) as u16;
        Self {
            retained,
            at_ns: meta.sent_at_ns,
            seq: SeqNumber(meta.seq),
            len: meta.len + controls,
            transmissions: meta.transmissions,
            fate: Fate::InFlight,
        }
    }

    /// When it was last sent, in nanoseconds; none where the peer has told of it.
    pub fn at_ns(&self) -> Option<u64> {
        (self.fate != Fate::Sacked).then_some(self.at_ns)
    }

    /// The sequence number behind it.
    pub fn end(&self) -> SeqNumber {
        self.seq + u32::from(self.len)
    }

    /// Its payload bytes. Reads the chunk.
    pub fn payload_len(&self) -> u16 {
        self.retained.meta().len
    }

    /// Whether it is lost, and was not sent again.
    pub fn is_lost(&self) -> bool {
        self.fate == Fate::Lost
    }

    /// Whether it was sent once.
    pub fn is_first(&self) -> bool {
        self.transmissions == 1
    }

    /// Whether the peer has told of it.
    pub fn is_sacked(&self) -> bool {
        self.fate == Fate::Sacked
    }
}

/// What an acknowledgment covers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acked {
    /// SYN and FIN among it.
    pub controls: u32,
    /// The latest transmission of a segment among it.
    pub last_ns: Option<u64>,
    /// Whether a segment among it was sent more than once (Karn's algorithm).
    pub again: bool,
    /// Bytes among it that the peer had not told of before.
    pub delivered: u32,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    segments: VecDeque<Sent>,
    /// Bytes of those that the peer has.
    sacked: u32,
    /// How many they are.
    sacked_segments: u32,
    /// Bytes of those that are lost.
    lost: u32,
    /// No segment before this one is lost.
    first_lost: usize,
}

impl Scoreboard {
    /// Appends a segment that was sent.
    pub fn push(&mut self, retained: Retained) {
        self.segments.push_back(Sent::of(retained));
    }

    /// Takes the oldest segment off, whatever became of it.
    pub fn pop(&mut self) -> Option<Retained> {
        let sent = self.segments.pop_front()?;
        self.uncount(sent.fate, sent.len.into());
        self.first_lost = self.first_lost.saturating_sub(1);
        Some(sent.retained)
    }

    /// Segments on it.
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// Bytes that the peer has, behind others that it lacks.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Segments of them.
    pub fn sacked_segments(&self) -> u32 {
        self.sacked_segments
    }

    /// Bytes that are lost and were not sent again.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// The sequence numbers before and behind the first segment that is lost.
    pub fn first_lost(&self) -> Option<(SeqNumber, SeqNumber)> {
        let mut rest = self.segments.range(self.first_lost.min(self.segments.len())..);
        let is_lost = |sent: &&Sent| sent.fate == Fate::Lost;
        (self.lost > 0).then(|| rest.find(is_lost).map(|sent| (sent.seq, sent.end())))?
    }

    /// The segments, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Sent> {
        self.segments.iter()
    }

    /// The chunk of each segment, oldest first.
    pub fn chunks(&self) -> impl Iterator<Item = &Retained> {
        self.segments.iter().map(|sent| &sent.retained)
    }

    fn uncount(&mut self, fate: Fate, bytes: u32) {
        match fate {
            Fate::InFlight => {}
            Fate::Sacked => {
                self.sacked -= bytes;
                self.sacked_segments -= 1;
            }
            Fate::Lost => self.lost -= bytes,
        }
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        let sent = &mut self.segments[index];
        let bytes = u32::from(sent.len);
        let before = core::mem::replace(&mut sent.fate, fate);
        self.uncount(before, bytes);
        match fate {
            Fate::InFlight => {}
            Fate::Sacked => {
                self.sacked += bytes;
                self.sacked_segments += 1;
            }
            Fate::Lost => {
                self.lost += bytes;
                self.first_lost = self.first_lost.min(index);
            }
        }
    }

    /// Frees what an acknowledgment of all before `una` covers.
    pub fn acknowledge(&mut self, una: SeqNumber, pool: &mut Pool) -> Acked {
        let mut acked = Acked::default();
        while let Some(sent) = self.segments.front() {
            let len = u32::from(sent.len);
            if sent.end().after(una) {
                if sent.seq.before(una) {
                    acked.delivered += self.trim_front(una);
                }
                break;
            }
            let flags = TcpFlags(sent.retained.meta().flags);
            acked.controls += flags.contains(TcpFlags::SYN) as u32;
            acked.controls += flags.contains(TcpFlags::FIN) as u32;
            if sent.fate != Fate::Sacked {
                acked.delivered += len;
                acked.again |= !sent.is_first();
                acked.last_ns = acked.last_ns.max(Some(sent.at_ns));
            }
            if let Some(retained) = self.pop() {
                pool.release(retained);
            }
        }
        acked
    }

    /// The peer has cut the oldest segment and acknowledges its front. Answers how many bytes.
    fn trim_front(&mut self, una: SeqNumber) -> u32 {
        let Some(sent) = self.segments.front_mut() else { return 0 };
        let cut = ((una - sent.seq).max(0) as u16).min(sent.len);
        (sent.seq, sent.len) = (sent.seq + u32::from(cut), sent.len - cut);
        let fate = sent.fate;
        trim(&mut sent.retained, cut);
        match fate {
            Fate::InFlight => {}
            Fate::Sacked => self.sacked -= u32::from(cut),
            Fate::Lost => self.lost -= u32::from(cut),
        }
        u32::from(cut)
    }

    /// The peer has all from `left` to `right`; `delivered` sees each segment that it had not told of before. A segment
    /// of which it has a part counts as one that it lacks. Answers how many bytes are new.
    pub fn sack(
        &mut self,
        left: SeqNumber,
        right: SeqNumber,
        mut delivered: impl FnMut(&Sent),
    ) -> u32 {
        let mut new = 0;
        let first = self.segments.partition_point(|sent| sent.seq.before(left));
        let mut index = first;
        while let Some(sent) = self.segments.get(index)
            && sent.end().before_eq(right)
        {
            let reached = sent.end();
            if let Some(behind) = self.behind_run(index) {
                index = behind;
                continue;
            }
            new += u32::from(sent.len);
            delivered(sent);
            self.set_fate(index, Fate::Sacked);
            self.segments[index].at_ns = reached.0.into();
            index += 1;
        }
        if let Some(last) = index.checked_sub(1).filter(|&last| last >= first) {
            // All of the block is passed over at once the next time.
            self.segments[first].at_ns = self.segments[last].end().0.into();
        }
        new
    }

    /// Where the segment at `index` is one that the peer has told of, the first one behind those that are known to be, too.
    fn behind_run(&self, index: usize) -> Option<usize> {
        let sent = &self.segments[index];
        if sent.fate != Fate::Sacked {
            return None;
        }
        let end = SeqNumber(sent.at_ns as u32);
        if end == sent.end() {
            return Some(index + 1);
        }
        let behind = self.segments.partition_point(|sent| sent.seq.before(end));
        Some(behind.max(index + 1))
    }

    /// Forgets what the peer has told of: it may drop what it has not acknowledged (RFC 2018 §8).
    pub fn forget_sacked(&mut self) {
        for index in 0..self.segments.len() {
            if self.segments[index].fate == Fate::Sacked {
                // When it was sent is forgotten: long ago.
                self.set_fate(index, Fate::InFlight);
                self.segments[index].at_ns = 0;
            }
        }
    }

    /// Whether the peer has told of the oldest segment and does not acknowledge it: it has dropped it.
    pub fn is_taken_back(&self) -> bool {
        self.segments.front().is_some_and(Sent::is_sacked)
    }

    /// Whether the oldest segment is lost, and was not sent again.
    pub fn is_oldest_lost(&self) -> bool {
        self.segments.front().is_some_and(Sent::is_lost)
    }

    /// The segment that begins with this sequence number.
    pub fn find(&self, seq: SeqNumber) -> Option<&Sent> {
        let index = self.segments.partition_point(|sent| sent.seq.before(seq));
        self.segments.get(index).filter(|sent| sent.seq == seq)
    }

    /// Where the first lost segment is, and its payload bytes.
    pub fn oldest_lost(&self) -> Option<(usize, u16)> {
        let mut rest = self.segments.iter().enumerate().skip(self.first_lost);
        let lost = (self.lost > 0).then(|| rest.find(|(_, sent)| sent.is_lost()))?;
        lost.map(|(index, sent)| (index, sent.payload_len()))
    }

    /// Where the segment at one end is, and its payload bytes.
    pub fn at_end(&self, end: End) -> Option<(usize, u16)> {
        let index = match end {
            End::Oldest => 0,
            End::Newest => self.segments.len().saturating_sub(1),
        };
        self.segments.get(index).map(|sent| (index, sent.payload_len()))
    }

    /// Makes two segments of the one at `index`, with the same fate, where `cut` does. Moves at most as many segments as are
    /// before it.
    pub fn split(
        &mut self,
        index: usize,
        cut: impl FnOnce(Retained) -> Result<[Retained; 2], Retained>,
    ) -> bool {
        let Some(sent) = self.segments.remove(index) else { return false };
        match cut(sent.retained) {
            Ok([front, retained]) => {
                let len = front.meta().len;
                let (seq, rest) = (sent.seq + u32::from(len), sent.len - len);
                self.segments.insert(index, Sent { retained, seq, len: rest, ..sent });
                self.segments.insert(index, Sent { retained: front, len, ..sent });
                self.sacked_segments += u32::from(sent.fate == Fate::Sacked);
                true
            }
            Err(retained) => {
                self.segments.insert(index, Sent { retained, ..sent });
                false
            }
        }
    }

    /// Has `part` answer another chunk with the same bytes for each.
    pub fn replace_each(&mut self, mut part: impl FnMut(Retained) -> Retained) {
        let segments = core::mem::take(&mut self.segments).into_iter();
        self.segments =
            segments.map(|sent| Sent { retained: part(sent.retained), ..sent }).collect();
    }

    /// Walks over the segments that are in flight, oldest first, and takes those as lost for which `verdict` answers
    /// so, until it answers `None`. Answers how many bytes are lost by that.
    pub fn judge(&mut self, mut verdict: impl FnMut(&Sent) -> Option<bool>) -> u32 {
        let (before, mut index) = (self.lost, 0);
        while let Some(sent) = self.segments.get(index) {
            if let Some(behind) = self.behind_run(index) {
                index = behind;
                continue;
            }
            if sent.fate == Fate::InFlight {
                match verdict(sent) {
                    Some(true) => self.set_fate(index, Fate::Lost),
                    Some(false) => {}
                    None => break,
                }
            }
            index += 1;
        }
        self.lost - before
    }

    /// What was lost is in flight after all.
    pub fn find_lost(&mut self) {
        for index in self.first_lost..self.segments.len() {
            if self.segments[index].fate == Fate::Lost {
                self.set_fate(index, Fate::InFlight);
            }
        }
    }

    /// Shows `send` the lost segments, oldest first, with the sequence numbers before and behind each, until it answers
    /// `None`, else when it sent the segment again, in nanoseconds.
    pub fn send_lost(
        &mut self,
        mut send: impl FnMut(&mut Retained, SeqNumber, SeqNumber) -> Option<u64>,
    ) {
        while self.lost > 0 {
            let Some(sent) = self.segments.get_mut(self.first_lost) else { return };
            if sent.fate == Fate::Lost {
                let (seq, end) = (sent.seq, sent.end());
                let Some(at_ns) = send(&mut sent.retained, seq, end) else { return };
                sent.at_ns = at_ns;
                sent.transmissions = sent.transmissions.saturating_add(1);
                self.set_fate(self.first_lost, Fate::InFlight);
            }
            self.first_lost += 1;
        }
    }

    /// Shows `send` the segment at one end, to be sent again whatever its fate; it answers when it was, in nanoseconds,
    /// if it was.
    /// Answers whether it was.
    pub fn send_again(
        &mut self,
        end: End,
        send: impl FnOnce(&mut Retained) -> Option<u64>,
    ) -> bool {
        let Some((index, _)) = self.at_end(end) else { return false };
        let Some(sent) = self.segments.get_mut(index) else { return false };
        let Some(at_ns) = send(&mut sent.retained) else { return false };
        sent.transmissions = sent.transmissions.saturating_add(1);
        if sent.fate != Fate::Sacked {
            sent.at_ns = at_ns;
            self.set_fate(index, Fate::InFlight);
        }
        true
    }
}

/// One end of the scoreboard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Oldest,
    Newest,
}

/// Forgets the first `cut` bytes of a segment.
#[cold]
pub(crate) fn trim(retained: &mut Retained, cut: u16) {
    let mut meta = retained.meta();
    let cut = cut.min(meta.len);
    retained.trim_front(cut.into());
    meta.seq = meta.seq.wrapping_add(cut.into());
    meta.len -= cut;
    meta.payload_sum = long::sum(retained).to_bits();
    retained.set_meta(meta);
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::{Region, TxMeta};
    use proptest::prelude::*;

    const LEN: u32 = 10;

    fn board(pool: &mut Pool, segments: u32) -> Scoreboard {
        let mut board = Scoreboard::default();
        for number in 0..segments {
            let mut mbuf = pool.alloc().expect("a chunk");
            mbuf.append(&[number as u8; LEN as usize]).expect("fits");
            let (seq, len) = (number * LEN, LEN as u16);
            board.push(mbuf.retain(TxMeta { seq, len, transmissions: 1, ..TxMeta::default() }));
        }
        board
    }

    fn counts(board: &Scoreboard) -> (u32, u32, u32) {
        let bytes = |fate| {
            let of_fate = board.segments.iter().filter(|sent| sent.fate == fate);
            of_fate.map(|sent| u32::from(sent.len)).sum()
        };
        let sacked = board.segments.iter().filter(|sent| sent.fate == Fate::Sacked).count();
        (bytes(Fate::Sacked), sacked as u32, bytes(Fate::Lost))
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            ..ProptestConfig::default()
        })]

        /// Whatever happens in whatever order, the sums are those of the segments, what is lost is found, and all memory
        /// comes back.
        #[test]
        fn counts_what_it_holds(steps in prop::collection::vec((0..7u8, 0..400u32, 0..80u32), 1..60)) {
            let mut pool = Pool::new(&Region::heap(256), 256);
            let mut board = board(&mut pool, 40);
            let mut una = 0;
            for (kind, from, len) in steps {
                let (left, right) = (SeqNumber(from), SeqNumber(from + len));
                match kind {
                    0 => {
                        una = (una + len / 4).min(40 * LEN);
                        let acked = board.acknowledge(SeqNumber(una), &mut pool);
                        prop_assert!(acked.delivered <= len / 4);
                    }
                    1 => drop(board.sack(left, right, |_| {})),
                    2 => drop(board.judge(|sent| Some(sent.seq.after_eq(left) && sent.end().before_eq(right)))),
                    3 => board.find_lost(),
                    4 => {
                        let before = board.lost();
                        board.send_lost(|_, seq, end| {
                            assert!(end.after(seq));
                            (from % 2 == 0).then_some(7)
                        });
                        prop_assert_eq!(board.lost(), if from % 2 == 0 { 0 } else { before });
                    }
                    5 => board.forget_sacked(),
                    _ if board.len() > 0 => {
                        let index = from as usize % board.len();
                        let len = board.segments[index].payload_len();
                        let mut pieces = (pool.alloc().ok(), board.len());
                        let is_split = len > 1 && board.split(index, |mut second| {
                            let Some(mut mbuf) = pieces.0.take() else { return Err(second) };
                            mbuf.append(&second.payload()[..1]).expect("fits");
                            let first = mbuf.retain(TxMeta { len: 1, ..second.meta() });
                            trim(&mut second, 1);
                            Ok([first, second])
                        });
                        pieces.0.into_iter().for_each(|mbuf| pool.free(mbuf));
                        prop_assert_eq!(board.len(), pieces.1 + usize::from(is_split));
                    }
                    _ => {}
                }
                let ends = board.iter().map(|sent| (sent.seq, sent.end())).collect::<alloc::vec::Vec<_>>();
                prop_assert!(ends.windows(2).all(|two| two[0].1 == two[1].0), "no gap: {:?}", ends);
                prop_assert_eq!((board.sacked(), board.sacked_segments(), board.lost()), counts(&board));
                prop_assert!(board.segments.iter().take(board.first_lost).all(|sent| sent.fate != Fate::Lost));
                for index in 0..board.len() {
                    let run = board.behind_run(index).map_or(index..index, |behind| index..behind);
                    prop_assert!(board.segments.range(run).all(Sent::is_sacked));
                }
            }
            while let Some(retained) = board.pop() {
                pool.release(retained);
            }
            prop_assert_eq!((pool.available(), counts(&board)), (256, (0, 0, 0)));
        }
    }

    #[test]
    fn a_part_of_a_segment_is_no_segment() {
        let mut pool = Pool::new(&Region::heap(64), 64);
        let mut board = board(&mut pool, 3);
        assert_eq!(board.sack(SeqNumber(5), SeqNumber(25), |_| {}), 10);
        let acked = board.acknowledge(SeqNumber(5), &mut pool);
        assert_eq!((acked.delivered, board.len(), acked.last_ns), (5, 3, None));
        let front = board.iter().next().expect("three");
        assert_eq!((front.seq, front.end()), (SeqNumber(5), SeqNumber(10)));
        assert_eq!(front.retained.payload().len(), 5);
        while let Some(retained) = board.pop() {
            pool.release(retained);
        }
    }
}
