//! CUBIC (RFC 9438): the window grows with the cube of the time since the last loss, flat near the window at which that
//! loss came and steeper beyond, and never slower than NewReno with the same loss rate would.

use super::control::{Arrival, Cause, CongestionControl, UNIT_SHIFT, Window, threshold};

/// The constant C of RFC 9438 §4.1, 0.4 segments a second cubed, in 2^-50 segments a unit cubed: 0.4 * 1.048576e-3^3 * 2^50.
const C: u64 = 519_229;
const C_SHIFT: u32 = 50;
/// The longest time that counts, in units: two hours, of which the cube does not overflow.
const MAX_TIME: i64 = 1 << 23;
/// 1/256 byte: what the window that NewReno would have is reckoned in.
const FRACTION_SHIFT: u32 = 8;

/// See the module's comment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// Where the curve is flat (W_max), in bytes; zero before the first loss.
    w_max: u32,
    /// The window at the last loss (cwnd_prior).
    prior: u32,
    epoch: Option<Epoch>,
}

/// Congestion avoidance since the last loss.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// When it began.
    began: u32,
    /// When the window was last in full use.
    used: u32,
    /// Units until the window is W_max (K).
    k: u32,
    /// Where the curve is flat.
    flat: u32,
    /// The window that NewReno would have (W_est), in 1/256 bytes.
    newreno: u64,
}

/// The cube root, rounded down.
fn cube_root(number: u64) -> u64 {
    let mut root = 0;
    for bit in (0..22).rev() {
        let more = root | 1_u64 << bit;
        if more.pow(3) <= number {
            root = more;
        }
    }
    root
}

impl Epoch {
    fn new(cubic: &Cubic, Window { cwnd, mss, .. }: Window, at: u32) -> Self {
        let below = u64::from(cubic.w_max.saturating_sub(cwnd));
        // (W_max - cwnd) / C, of segments: at most 2^29 bytes, 2^50 / C is below 2^32.
        let cube = below * ((1 << C_SHIFT) / C) / u64::from(mss);
        Self {
            began: at,
            used: at,
            k: cube_root(cube) as u32,
            flat: cubic.w_max.max(cwnd),
            newreno: u64::from(cwnd) << FRACTION_SHIFT,
        }
    }

    /// W_cubic(t), in bytes (RFC 9438 §4.2, figure 1).
    fn window_at(&self, time: u32, mss: u32) -> u32 {
        let from_flat = (i64::from(time) - i64::from(self.k)).clamp(-MAX_TIME, MAX_TIME);
        let cube = i128::from(from_flat).pow(3) * i128::from(C) * i128::from(mss);
        let bytes = i128::from(self.flat) + (cube >> C_SHIFT);
        bytes.clamp(0, 1 << 30) as u32
    }
}

impl CongestionControl for Cubic {
    fn avoid(&mut self, window: Window, arrival: Arrival) -> u32 {
        let Window { cwnd, mss, .. } = window;
        let (at, acked, prior) = (arrival.at, u64::from(arrival.acked), self.prior);
        let round = (arrival.srtt_ns >> UNIT_SHIFT) as u32 + 1;
        let mut epoch = self.epoch.unwrap_or_else(|| Epoch::new(self, window, at));
        // The time in which the window was not in full use does not count (RFC 9438 §4.2, last paragraph).
        let unused = at.wrapping_sub(epoch.used);
        if unused > 2 * round + 1 {
            epoch.began = epoch.began.wrapping_add(unused - round);
        }
        epoch.used = at;
        // RFC 9438 §4.3: alpha is 3 (1 - beta) / (1 + beta), 0.53, until the window of the last loss is reached.
        let is_behind = epoch.newreno >> FRACTION_SHIFT < u64::from(prior);
        let alpha = if is_behind { 135 } else { 256 };
        epoch.newreno += alpha * acked * u64::from(mss) / u64::from(cwnd.max(1));
        let newreno = (epoch.newreno >> FRACTION_SHIFT).min(1 << 30) as u32;
        let time = at.wrapping_sub(epoch.began);
        self.epoch = Some(epoch);
        if epoch.window_at(time, mss) < newreno {
            return newreno.max(cwnd);
        }
        // §4.4 and §4.5: towards the window of a round trip later, by half at most.
        let target = epoch.window_at(time.saturating_add(round), mss).clamp(cwnd, cwnd + cwnd / 2);
        cwnd + (u64::from(target - cwnd) * acked / u64::from(cwnd.max(1))).min(acked) as u32
    }

    fn reduce(&mut self, window: Window, flight: u32, cause: Cause) -> u32 {
        let reached = window.cwnd.min(flight.max(window.mss));
        // §4.7, fast convergence: a flow that did not come as far as before leaves room to others.
        self.w_max =
            if reached < self.w_max { (u64::from(reached) * 17 / 20) as u32 } else { reached };
        if cause == Cause::TimeOut {
            // §4.8: the path is another one, and the curve begins where slow start ends.
            self.w_max = 0;
        }
        self.prior = reached;
        self.epoch = None;
        threshold((u64::from(flight) * 7 / 10) as u32, window.mss)
    }

    fn undo(&mut self, cwnd: u32) {
        (self.w_max, self.epoch) = (self.w_max.max(cwnd), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use wire::SeqNumber;

    const MSS: u32 = 1000;

    /// Windows of congestion avoidance, sampled once a round of `rtt_ms`, from a loss at `from` segments on.
    fn after_loss(from: u32, rtt_ms: u32, seconds: u32) -> Vec<u32> {
        let mut cubic = Cubic::default();
        let window = Window { cwnd: from * MSS, mss: MSS };
        let mut cwnd = cubic.reduce(window, from * MSS, Cause::Loss);
        assert_eq!(cwnd, from * 700);
        let mut windows = Vec::new();
        for round in 0..seconds * 1000 / rtt_ms {
            let srtt_ns = u64::from(rtt_ms) * 1_000_000;
            let at = ((u64::from(round) * srtt_ns) >> UNIT_SHIFT) as u32;
            windows.push(cwnd);
            let mut left = cwnd;
            while left > 0 {
                let acked = left.min(2 * MSS);
                left -= acked;
                let (una, nxt) = (SeqNumber(0), SeqNumber(1));
                let arrival = Arrival { acked, una, nxt, rtt_ns: None, srtt_ns, at };
                cwnd = cubic.avoid(Window { cwnd, mss: MSS }, arrival);
            }
        }
        windows
    }

    /// A path of 100 ms: K is the cube root of 0.3 * 1000 / 0.4, 9.1 s; there the window is what it was.
    #[test]
    fn follows_the_curve() {
        let windows = after_loss(1000, 100, 14);
        let near = |second: usize, expected: f64| {
            let found = f64::from(windows[second * 10]) / f64::from(MSS);
            assert!(
                (found - expected).abs() < 0.02 * expected,
                "{second} s: {found}, not {expected}"
            );
        };
        let curve = |second: f64| 1000.0 + 0.4 * (second - 9.086).powi(3);
        for second in [2, 4, 7, 9, 11, 13] {
            near(second, curve(second as f64));
        }
        assert!(windows.is_sorted());
    }

    /// On a short path NewReno would be faster: 0.53 segments a round trip, and one from the old window on.
    #[test]
    fn is_no_slower_than_newreno() {
        let windows = after_loss(100, 1, 1);
        let reached = windows.iter().position(|&cwnd| cwnd >= 100 * MSS).expect("it gets there");
        assert!((50..62).contains(&reached), "30 segments in {reached} rounds");
        let later = (windows[reached + 100] - windows[reached]) / MSS;
        assert!((95..=101).contains(&later), "{later} segments in 100 rounds");
    }

    #[test]
    fn leaves_room_where_it_does_not_come_as_far() {
        let mut cubic = Cubic::default();
        let window = |cwnd| Window { cwnd, mss: MSS };
        assert_eq!(cubic.reduce(window(100_000), 100_000, Cause::Loss), 70_000);
        assert_eq!(cubic.w_max, 100_000);
        cubic.reduce(window(80_000), 80_000, Cause::Loss);
        assert_eq!(cubic.w_max, 68_000);
        cubic.undo(80_000);
        assert_eq!(cubic.w_max, 80_000);
    }

    #[test]
    fn cube_roots() {
        for root in [0, 1, 2, 9, 1000, 2_097_151] {
            assert_eq!(cube_root(root * root * root), root);
            assert_eq!(cube_root((root + 1) * (root + 1) * (root + 1) - 1), root);
        }
    }
}
