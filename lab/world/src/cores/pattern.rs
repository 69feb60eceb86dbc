//! A load that changes: requests per second, slice by slice.

use std::sync::Arc;

/// Length of a slice, in nanoseconds: short against what a control loop sees.
const SLICE_NS: u64 = 1_000_000;

/// See the module's comment. Nothing comes due after its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadPattern {
    rps: Arc<[f64]>,
}

impl LoadPattern {
    /// What `rps` answers for nanoseconds since the beginning, for so long.
    pub fn new(rps: &dyn Fn(u64) -> f64, duration_ns: u64) -> Self {
        let slices = duration_ns.div_ceil(SLICE_NS);
        // Less than nothing does not come, and what is no number neither.
        Self { rps: (0..slices).map(|slice| rps(slice * SLICE_NS).max(0.0)).collect() }
    }

    /// Requests per second at a moment.
    pub fn rps(&self, at_ns: f64) -> f64 {
        self.rps.get((at_ns.max(0.0) as u64 / SLICE_NS) as usize).copied().unwrap_or(0.0)
    }

    /// When as many requests have come since `from_ns` as `expected`: with exponential ones in turn a Poisson process
    /// whose rate is this pattern. None: not before the end.
    pub fn after(&self, from_ns: f64, expected: f64) -> Option<f64> {
        let (mut at_ns, mut left) = (from_ns.max(0.0), expected);
        loop {
            let slice = (at_ns / SLICE_NS as f64) as usize;
            let per_ns = self.rps.get(slice)? / 1e9;
            let end_ns = (slice + 1) as f64 * SLICE_NS as f64;
            let comes = (end_ns - at_ns) * per_ns;
            if comes > left {
                return Some(at_ns + left / per_ns);
            }
            left -= comes;
            at_ns = end_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_come_as_the_pattern_says() {
        let step = |at_ns: u64| if at_ns < 10_000_000 { 100_000.0 } else { 400_000.0 };
        let pattern = LoadPattern::new(&step, 20_000_000);
        assert_eq!(pattern.after(0.0, 1.0), Some(10_000.0));
        assert_eq!(pattern.after(9_995_000.0, 1.0).map(f64::round), Some(10_001_250.0));
        let mut moments =
            std::iter::successors(pattern.after(0.0, 1.0), |&at| pattern.after(at, 1.0));
        let early = moments.by_ref().take_while(|&at| at < 10_000_000.5).count();
        assert_eq!((early, moments.count()), (1_000, 3_998), "and one that was looked at");
        assert_eq!((pattern.rps(3.0), pattern.rps(3e7), pattern.rps(-1.0)), (1e5, 0.0, 1e5));
        assert_eq!(LoadPattern::new(&|_| f64::NAN, 5_000_000).after(0.0, 1.0), None);
    }
}
