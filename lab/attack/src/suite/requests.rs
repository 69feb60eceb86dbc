//! The requests of an application that is not attacked, one at a time: each is checked, and timed in short windows.

use std::time::{Duration, Instant};

use measure::stats::nearest;

/// Bytes of a request.
pub const BYTES: usize = 64;

/// A window's latencies.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Of 99 in 100 requests at most this, in nanoseconds.
    pub p99_ns: u64,
    /// A request took longer than is usual by far.
    pub slow: bool,
}

/// See the module's comment.
pub struct Requests {
    /// Requests so far.
    pub asked: u64,
    /// Those without an answer, or with a wrong one.
    pub lost: u64,
    /// One that takes longer is slow.
    slow: Duration,
    latencies: Vec<u64>,
}

impl Requests {
    /// Before the first request; one that takes longer than `slow` counts as slow.
    pub fn new(slow: Duration) -> Self {
        Self { asked: 0, lost: 0, slow, latencies: Vec::with_capacity(1 << 16) }
    }

    /// Has `ask` send the next request, and wait for its answer: `false` where none came, or a wrong one.
    fn next(&mut self, ask: &mut impl FnMut(&[u8; BYTES]) -> bool) {
        self.asked += 1;
        let mut bytes = [0; BYTES];
        let mut word = self.asked;
        for byte in &mut bytes {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            *byte = (word >> 56) as u8;
        }
        self.lost += u64::from(!ask(&bytes));
    }

    /// Asks for so long, one request after the other; the first `warm` count for nothing but their answers.
    pub fn window(
        &mut self,
        length: Duration,
        warm: u32,
        mut ask: impl FnMut(&[u8; BYTES]) -> bool,
    ) -> Window {
        self.latencies.clear();
        let began = Instant::now();
        for _ in (0..warm).take_while(|_| began.elapsed() < length) {
            self.next(&mut ask);
        }
        let (mut before, mut slow) = (Instant::now(), false);
        // One at least: a window whose warm-up was stalled is timed too.
        while self.latencies.is_empty() || before.duration_since(began) < length {
            self.next(&mut ask);
            let now = Instant::now();
            let took = now.duration_since(before);
            slow |= took > self.slow;
            // Beyond its first capacity nothing is kept: a window is short.
            if self.latencies.len() < self.latencies.capacity() {
                self.latencies.push(took.as_nanos() as u64);
            }
            before = now;
        }
        self.latencies.sort_unstable();
        Window { p99_ns: nearest(&self.latencies, 0.99), slow }
    }
}
