//! RACK (RFC 8985 §6): of two segments the one that was sent later has arrived, so the other one is lost, or overtaken. It
//! counts as lost when it is later than paths that reorder have been seen to make it.
//!
//! All times are nanoseconds of one clock: round trips of a few microseconds are measured like those of seconds.

use wire::SeqNumber;

use super::scoreboard::{Scoreboard, Sent};

/// Segments that arrived behind a gap and mean a loss where the path does not reorder (RFC 5681, DupThresh).
pub(crate) const REORDERING_SEGMENTS: u32 = 3;
/// For how many recoveries a wider reordering window lasts (RFC 8985 §6.2, step 4).
const PERSISTENCE: u8 = 16;
/// For how long the shortest round trip is remembered.
const MIN_RTT_AGE_NS: u64 = 10_000_000_000;

/// When a segment was sent, last.
#[derive(Clone, Copy, Debug)]
struct Moment {
    at_ns: u64,
    end: SeqNumber,
    /// It was sent before.
    again: bool,
}

impl Moment {
    fn of(sent: &Sent, at_ns: u64) -> Self {
        Self { at_ns, end: sent.end(), again: !sent.is_first() }
    }

    /// Whether it was sent after the other: of several in one moment, the one further on in the stream is the later. Outside of
    /// a recovery new segments may go before those that are sent again, or after them, and tell nothing about them.
    fn is_after(self, other: Self, recovers: bool) -> bool {
        let same = self.at_ns == other.at_ns && (recovers || self.again == other.again);
        self.at_ns > other.at_ns || (same && self.end.after(other.end))
    }
}

/// What is known of the path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Path {
    /// The smoothed round-trip time, zero before the first one.
    pub srtt_ns: u64,
    /// Whether it has been seen to reorder.
    pub reorders: bool,
    /// Whether something is being recovered.
    pub recovers: bool,
}

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rack {
    /// The latest transmission that has arrived (RACK.xmit_ts, RACK.end_seq); `None` before the first one.
    latest: Option<Moment>,
    /// How long it took (RACK.rtt).
    rtt_ns: u64,
    /// The shortest round trip, and when it was found.
    min_rtt: Option<(u64, u64)>,
    /// The highest sequence number that has arrived (RACK.fack).
    highest: Option<SeqNumber>,
    /// Quarters of a round trip that the reordering window is wide (RACK.reo_wnd_mult).
    quarters: u8,
    /// Recoveries until it is one quarter again (RACK.reo_wnd_persist).
    persist: u8,
    /// It was widened, and is not again before this is acknowledged (RACK.dsack_round).
    widened_at: Option<SeqNumber>,
}

impl Default for Rack {
    fn default() -> Self {
        Self {
            latest: None,
            rtt_ns: 0,
            min_rtt: None,
            highest: None,
            quarters: 1,
            persist: PERSISTENCE,
            widened_at: None,
        }
    }
}

impl Rack {
    /// A segment has arrived at the peer; `is_first` says that it was its first transmission, for sure. Steps 1 to 3.
    /// Answers whether segments were reordered.
    pub fn delivered(&mut self, sent: &Sent, path: Path, now_ns: u64, is_first: bool) -> bool {
        let Some(at_ns) = sent.at_ns() else { return false };
        let rtt_ns = now_ns.saturating_sub(at_ns);
        let reordered =
            sent.is_first() && self.highest.is_some_and(|highest| sent.end().before(highest));
        if self.highest.is_none_or(|highest| sent.end().after(highest)) {
            self.highest = Some(sent.end());
        }
        // The acknowledgment may be of an earlier transmission. Of the shortest round trip little may be known, with a delayed
        // acknowledgment in it.
        let shortest = self.min_rtt.map_or(u64::MAX, |(rtt_ns, _)| rtt_ns).min(path.srtt_ns / 2);
        if !sent.is_first() && (is_first || rtt_ns < shortest) {
            return reordered;
        }
        if self.min_rtt.is_none_or(|(min_ns, at_ns)| {
            rtt_ns <= min_ns || now_ns.saturating_sub(at_ns) > MIN_RTT_AGE_NS
        }) {
            self.min_rtt = Some((rtt_ns, now_ns));
        }
        let moment = Moment::of(sent, at_ns);
        if self.latest.is_none_or(|latest| moment.is_after(latest, path.recovers)) {
            (self.latest, self.rtt_ns) = (Some(moment), rtt_ns);
        }
        reordered
    }

    /// A recovery was spurious: what was taken for the arrival of a segment that was sent again was none.
    pub fn forget_latest(&mut self) {
        self.latest = None;
    }

    /// The peer got a segment twice: what was taken for lost was late. Step 4.
    pub fn widen(&mut self, una: SeqNumber, nxt: SeqNumber) {
        if self.widened_at.is_none_or(|round| una.after_eq(round)) {
            self.widened_at = Some(nxt);
            self.quarters = self.quarters.saturating_add(1);
            self.persist = PERSISTENCE;
        }
    }

    /// A recovery is over.
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            (self.quarters, self.persist) = (1, PERSISTENCE);
        }
    }

    /// How much later than others a segment may be (RACK.reo_wnd).
    fn window_ns(&self, path: Path, sacked_segments: u32) -> u64 {
        if !path.reorders && (path.recovers || sacked_segments >= REORDERING_SEGMENTS) {
            return 0;
        }
        let shortest = self.min_rtt.map_or(path.srtt_ns, |(rtt_ns, _)| rtt_ns);
        (shortest / 4 * u64::from(self.quarters)).min(path.srtt_ns)
    }

    /// Takes as lost what others that were sent later have overtaken by more than the reordering window. Step 5. Answers
    /// the bytes of it, and after what time to ask again for what is late and may come yet.
    pub fn detect(&self, board: &mut Scoreboard, path: Path, now_ns: u64) -> (u32, Option<u64>) {
        let Some(latest) = self.latest else { return (0, None) };
        let allowed_ns = self.rtt_ns + self.window_ns(path, board.sacked_segments());
        let mut wait_ns = None;
        let lost = board.judge(|sent| {
            let at_ns = sent.at_ns().unwrap_or(now_ns);
            if !latest.is_after(Moment::of(sent, at_ns), path.recovers) {
                // All behind one that was sent once were sent later still.
                return if sent.is_first() { None } else { Some(false) };
            }
            let due_ns = at_ns + allowed_ns;
            if due_ns <= now_ns {
                return Some(true);
            }
            wait_ns = wait_ns.max(Some(due_ns - now_ns));
            Some(false)
        });
        (lost, wait_ns)
    }

    /// The retransmission timer fired: the oldest segment is lost, and what should have been acknowledged by now (§6.3).
    pub fn time_out(&self, board: &mut Scoreboard, path: Path, now_ns: u64) {
        let rtt_ns = if self.rtt_ns == 0 { path.srtt_ns } else { self.rtt_ns };
        let allowed_ns = rtt_ns + self.window_ns(path, board.sacked_segments());
        let mut is_oldest = true;
        board.judge(|sent| {
            let is_late = sent.at_ns().is_some_and(|at_ns| at_ns + allowed_ns <= now_ns);
            Some(core::mem::take(&mut is_oldest) || is_late)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mem::{Pool, Region, TxMeta};

    const MS: u64 = 1_000_000;

    struct Model {
        pool: Pool,
        board: Scoreboard,
        rack: Rack,
        path: Path,
    }

    impl Model {
        /// Segments of ten bytes, one in a millisecond.
        fn new(segments: u64) -> Self {
            let (pool, board) = (Pool::new(&Region::heap(64), 64), Scoreboard::default());
            let path = Path { srtt_ns: 100 * MS, ..Path::default() };
            let mut model = Self { pool, board, rack: Rack::default(), path };
            (0..segments).for_each(|number| model.push(number, number));
            model
        }

        /// The segment `number` is sent at `ms`.
        fn push(&mut self, number: u64, ms: u64) {
            let mut mbuf = self.pool.alloc().expect("a chunk");
            mbuf.append(b"0123456789").expect("fits");
            let (sent_at_ns, seq) = (ms * MS, 10 * number as u32);
            let meta = TxMeta { sent_at_ns, seq, len: 10, transmissions: 1, ..TxMeta::default() };
            self.board.push(mbuf.retain(meta));
        }

        /// The peer has the segment `number`, says what comes at `ms`.
        fn sacked(&mut self, number: u32, ms: u64) -> (u32, Option<u64>) {
            let (left, now_ns) = (SeqNumber(10 * number), ms * MS);
            let Self { board, rack, path, .. } = self;
            let (mut reorders, before) = (false, *path);
            board.sack(left, left + 10, |sent| {
                reorders |= rack.delivered(sent, before, now_ns, false)
            });
            path.reorders |= reorders;
            rack.detect(board, *path, now_ns)
        }

        fn end(mut self) {
            while let Some(retained) = self.board.pop() {
                self.pool.release(retained);
            }
        }
    }

    #[test]
    fn one_that_overtakes_may_be_early_and_three_are_a_loss() {
        let mut model = Model::new(6);
        // The round trip took 100 ms; the reordering window is a quarter of that.
        assert_eq!(model.sacked(1, 101), (0, Some(24 * MS)));
        assert_eq!(model.sacked(2, 102).0, 0);
        assert_eq!(model.sacked(3, 103), (10, None), "three segments behind the gap");
        model.end();
    }

    #[test]
    fn where_the_path_reorders_only_time_tells() {
        let mut model = Model::new(6);
        model.sacked(3, 103);
        assert!(!model.path.reorders);
        model.sacked(1, 104);
        assert!(model.path.reorders, "the second segment came behind the fourth");
        model.sacked(4, 105);
        assert_eq!(model.sacked(5, 106).0, 0, "four behind the gap");
        // Sent at 0 and allowed 101 + 25 ms; the third one 2 ms later.
        let (lost, wait_ns) = model.rack.detect(&mut model.board, model.path, 127 * MS);
        assert_eq!((lost, wait_ns.is_some()), (10, true));
        assert_eq!(model.rack.detect(&mut model.board, model.path, 129 * MS), (10, None));
        model.end();
    }

    /// A retransmission that is lost is found by what was sent after it.
    #[test]
    fn a_lost_retransmission_is_found() {
        let mut model = Model::new(8);
        for number in 1..4 {
            model.sacked(number, 100 + u64::from(number));
        }
        assert_eq!(model.board.lost(), 10);
        model.board.send_lost(|_, _, _| Some(104 * MS));
        assert_eq!(model.board.lost(), 0);
        // Sent before the retransmission.
        model.path.recovers = true;
        assert_eq!(model.sacked(4, 105), (0, None));
        model.push(8, 106);
        assert_eq!(model.sacked(8, 206), (40, None), "that one, and those that it overtook");
        model.end();
    }

    /// What was sent in the same moment may have been sent before it.
    #[test]
    fn a_retransmission_is_not_lost_for_what_was_sent_with_it() {
        let mut model = Model::new(4);
        (1..4).for_each(|number| _ = model.sacked(number, 100 + u64::from(number)));
        model.board.send_lost(|_, _, _| Some(104 * MS));
        model.push(4, 104);
        assert_eq!(model.sacked(4, 204), (0, None));
        // In a recovery what is lost goes first.
        model.path.recovers = true;
        model.push(5, 104);
        assert_eq!(model.sacked(5, 204), (10, None));
        model.end();
    }

    #[test]
    fn segments_that_came_twice_widen_the_window_once_a_round() {
        let mut rack = Rack { min_rtt: Some((100 * MS, 0)), ..Rack::default() };
        let path = Path { srtt_ns: 200 * MS, reorders: true, recovers: true };
        assert_eq!(rack.window_ns(path, 9), 25 * MS);
        rack.widen(SeqNumber(0), SeqNumber(100));
        rack.widen(SeqNumber(99), SeqNumber(200));
        assert_eq!(rack.window_ns(path, 9), 50 * MS);
        (0..20).for_each(|round| {
            rack.widen(SeqNumber(100 + 100 * round), SeqNumber(200 + 100 * round))
        });
        assert_eq!(rack.window_ns(path, 9), 200 * MS, "no wider than a round trip");
        (0..PERSISTENCE).for_each(|_| rack.recovered());
        assert_eq!(rack.window_ns(path, 9), 25 * MS);
    }

    #[test]
    fn an_acknowledgment_that_may_be_of_the_first_transmission_tells_nothing() {
        let mut model = Model::new(4);
        model.sacked(3, 103);
        model.board.judge(|_| Some(true));
        model.board.send_lost(|_, _, _| Some(110 * MS));
        // Two milliseconds after it was sent again: nothing takes less than a hundred.
        assert_eq!(model.sacked(0, 112), (0, None));
        let latest = model.rack.latest.map(|latest| (latest.at_ns, latest.end, latest.again));
        assert_eq!(latest, Some((3 * MS, SeqNumber(40), false)));
        model.end();
    }
}
