//! When a spinning thread was not running: which latencies tell of the machine and not of the queues.
//!
//! Both threads spin, so each knows by its clock when it stood still (the host took its processor, an interrupt came).
//! An item that was under way meanwhile says nothing about how it was found. What is left out is counted.

/// A gap between two looks at the clock is a stall from here on, in nanoseconds, whatever is usual.
const GAP_MIN_NS: u64 = 4_000;
/// Above so many times what is usual it is one. The usual is the thread's own: a sweep over a thousand queues takes its
/// time, and is no stall.
const TIMES_USUAL: u64 = 3;

/// The gaps between a thread's looks at the clock.
#[derive(Debug)]
pub(crate) struct Gaps {
    last_ns: u64,
    /// Beginning and end of those that may be stalls.
    long: Vec<(u64, u64)>,
    /// Lengths of some of them, to tell what is usual.
    sample: Vec<u64>,
    seen: u64,
}

/// Room, so that nothing is allocated while a window lasts. Gaps beyond are not told: a window with so many stalls
/// is no window.
const LONG_MAX: usize = 16_384;
const SAMPLE_MAX: usize = 4_096;
/// Of so many looks, one is in the sample.
const SAMPLED: u64 = 8;

impl Gaps {
    pub(crate) fn new(now_ns: u64) -> Self {
        let (long, sample) = (Vec::with_capacity(LONG_MAX), Vec::with_capacity(SAMPLE_MAX));
        Self { last_ns: now_ns, long, sample, seen: 0 }
    }

    /// What was before now does not count.
    #[inline]
    pub(crate) fn restart(&mut self, now_ns: u64) {
        self.long.clear();
        self.sample.clear();
        (self.seen, self.last_ns) = (0, now_ns);
    }

    /// The thread looks at the clock.
    #[inline]
    pub(crate) fn look(&mut self, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.last_ns);
        if gap_ns >= GAP_MIN_NS && self.long.len() < LONG_MAX {
            self.long.push((self.last_ns, now_ns));
        }
        if self.seen.is_multiple_of(SAMPLED) && self.sample.len() < SAMPLE_MAX {
            self.sample.push(gap_ns);
        }
        self.seen += 1;
        self.last_ns = now_ns;
    }

    /// The stalls, in the order of time.
    pub(crate) fn stalls(mut self) -> Vec<(u64, u64)> {
        self.sample.sort_unstable();
        let usual = self.sample.get(self.sample.len() / 2).copied().unwrap_or(0);
        self.long.retain(|(begin, end)| end - begin > usual.saturating_mul(TIMES_USUAL));
        self.long
    }
}

/// Lengths of the spans (beginning and end, in the order of their ends) that no stall of either thread touches, and
/// how many were left out.
pub(crate) fn untouched(spans: &[(u64, u64)], stalls: &[Vec<(u64, u64)>]) -> (Vec<u64>, u64) {
    let touches = |span: &(u64, u64)| {
        stalls.iter().any(|stalls| {
            let first = stalls.partition_point(|stall| stall.1 <= span.0);
            stalls.get(first).is_some_and(|stall| stall.0 < span.1)
        })
    };
    let kept: Vec<u64> = spans
        .iter()
        .filter(|span| !touches(span))
        .map(|(begin, end)| end.saturating_sub(*begin))
        .collect();
    let left_out = (spans.len() - kept.len()) as u64;
    (kept, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unusual_is_a_stall() {
        let mut gaps = Gaps::new(0);
        let mut now = 0;
        for turn in 0..1_000 {
            now += if turn == 500 { 50_000 } else { 100 };
            gaps.look(now);
        }
        assert_eq!(gaps.stalls(), [(50_000, 100_000)]);
        // One whose every turn takes long has no stall.
        let mut gaps = Gaps::new(0);
        (1..1_000).for_each(|turn| gaps.look(turn * 20_000));
        assert_eq!(gaps.stalls(), []);
    }

    #[test]
    fn spans_that_a_stall_touches_are_left_out() {
        let mine = vec![(100, 200), (1_000, 1_100)];
        let theirs = vec![(500, 600)];
        let spans =
            [(0, 100), (50, 101), (120, 130), (150, 700), (200, 500), (599, 650), (900, 2_000)];
        let (kept, left_out) = untouched(&spans, &[mine, theirs]);
        assert_eq!((kept, left_out), (vec![100, 300], 5));
        assert_eq!(untouched(&spans, &[]).1, 0);
    }
}
