//! The latencies of one second, weighted: fine where objectives lie, coarse beyond.

/// Width of a fine bucket, in microseconds, and how many there are: up to 5 ms.
const FINE_US: f64 = 5.0;
const FINE: usize = 1_000;
/// Each coarse bucket is wider than the one before by this factor; the last ends beyond a minute.
const COARSE: f64 = 1.05;
const BUCKETS: usize = FINE + 200;

/// See the module's comment.
#[derive(Debug, Clone)]
pub struct Latencies {
    weights: Vec<f64>,
    total: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { weights: vec![0.0; BUCKETS], total: 0.0 }
    }
}

impl Latencies {
    /// Adds so many requests of one latency.
    #[inline]
    pub fn add(&mut self, latency_us: f64, requests: f64) {
        let fine = (latency_us / FINE_US) as usize;
        let bucket = if fine < FINE { fine } else { coarse(latency_us) };
        self.weights[bucket] += requests;
        self.total += requests;
    }

    /// The latency that this share of the requests does not exceed, in microseconds, rounded up to a bucket's
    /// end; 0 without requests.
    pub fn quantile_us(&self, share: f64) -> f64 {
        if self.total <= 0.0 {
            return 0.0;
        }
        let wanted = share * self.total;
        let mut seen = 0.0;
        for (bucket, weight) in self.weights.iter().enumerate() {
            seen += weight;
            // Sums of many weights round.
            if seen >= wanted * (1.0 - 1e-12) {
                return end_us(bucket);
            }
        }
        end_us(BUCKETS - 1)
    }

    /// Requests added.
    pub fn requests(&self) -> f64 {
        self.total
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.weights.fill(0.0);
        self.total = 0.0;
    }
}

fn coarse(latency_us: f64) -> usize {
    let over = (latency_us / (FINE_US * FINE as f64)).max(1.0);
    (FINE + (over.ln() / COARSE.ln()) as usize).min(BUCKETS - 1)
}

fn end_us(bucket: usize) -> f64 {
    match bucket.checked_sub(FINE) {
        None => (bucket + 1) as f64 * FINE_US,
        Some(beyond) => FINE_US * FINE as f64 * COARSE.powi(beyond as i32 + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against sorting them all.
        #[test]
        fn quantiles_are_those_of_the_sorted_list(
            latencies in prop::collection::vec(0.0f64..50_000.0, 1..300), share in 0.01f64..1.0,
        ) {
            let mut ours = Latencies::default();
            latencies.iter().for_each(|&latency| ours.add(latency, 2.0));
            let mut sorted = latencies.clone();
            sorted.sort_by(f64::total_cmp);
            let index = ((share * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1;
            let (found, exact) = (ours.quantile_us(share), sorted[index]);
            let width = FINE_US.max(exact * 0.06);
            prop_assert!((found - exact).abs() <= width, "{} against {}", found, exact);
        }
    }

    #[test]
    fn nothing_has_no_tail_and_the_longest_has_a_bucket() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_us(0.99), 0.0);
        latencies.add(1e12, 1.0);
        assert!(latencies.quantile_us(0.5) > 60e6);
        latencies.clear();
        assert_eq!(latencies.requests(), 0.0);
    }
}
