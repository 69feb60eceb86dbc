//! The statistics of IX Table V, from recorded flow-group migrations.
//!
//! ```
//! use world::controlled::migration::{Direction, Recorded, rows};
//! let one = Recorded {
//!     direction: Direction::AddCore,
//!     prepare_us: 20.0, wait_us: 40.0, rpc_us: 10.0, deferred_us: 30.0, packets: 12,
//! };
//! let [prepare, .., total, packets] = rows(&[one, one]);
//! assert_eq!((prepare.mean, total.mean, packets.max), (20.0, 100.0, 12.0));
//! ```

/// Whether a migration follows from adding resources or from removing them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// A core is added, under load.
    AddCore,
    /// A core is removed, partly idle.
    RemoveCore,
}

/// One migration (IX §4.5, Figure 3), by its phases, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// Why it was done.
    pub direction: Direction,
    /// The old home tags the groups, moves their packets and stops their timers.
    pub prepare_us: f64,
    /// Until the first packet comes to the new home, or the migration timer ends the wait.
    pub wait_us: f64,
    /// Until the new home is told to begin the final stage.
    pub rpc_us: f64,
    /// Working off the deferred packets.
    pub deferred_us: f64,
    /// Deferred packets.
    pub packets: u64,
}

impl Recorded {
    /// All phases together, in microseconds.
    pub fn total_us(&self) -> f64 {
        self.prepare_us + self.wait_us + self.rpc_us + self.deferred_us
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Row {
    /// The mean.
    pub mean: f64,
    /// The 95th percentile: the smallest value that 95 % do not exceed.
    pub p95: f64,
    /// The greatest.
    pub max: f64,
    /// The standard deviation, of all of them.
    pub stddev: f64,
}

impl Row {
    /// Of values in any order; zeros where there are none, and of those only that are numbers.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let Some(&max) = sorted.last() else {
            return Self::default();
        };
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let square = sorted.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
        let rank = (0.95 * count).ceil() as usize;
        let p95 = sorted[rank.clamp(1, sorted.len()) - 1];
        Self { mean, p95, max, stddev: (square / count).sqrt() }
    }
}

/// The rows of one direction, in microseconds by phase ([`Recorded`]) and in all, and the deferred packets.
pub fn rows(recorded: &[Recorded]) -> [Row; 6] {
    let row = |value: fn(&Recorded) -> f64| Row::of(recorded.iter().map(value));
    [
        row(|one| one.prepare_us),
        row(|one| one.wait_us),
        row(|one| one.rpc_us),
        row(|one| one.deferred_us),
        row(Recorded::total_us),
        row(|one| one.packets as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rows_of_known_values() {
        assert_eq!(Row::of([]), Row::default());
        let row = Row::of((1..=100).rev().map(f64::from));
        assert_eq!((row.mean, row.p95, row.max), (50.5, 95.0, 100.0));
        assert!((row.stddev - 28.866).abs() < 0.001);
        assert_eq!(Row::of([3.0, f64::NAN]).p95, 3.0);
    }

    proptest! {
        #[test]
        fn rows_are_in_order(values in prop::collection::vec(0.0f64..1e6, 1..200)) {
            let row = Row::of(values.iter().copied());
            prop_assert!(row.p95 <= row.max && row.mean <= row.max * (1.0 + 1e-12));
            let within = values.iter().filter(|&&value| value <= row.p95).count() as f64;
            prop_assert!(within >= 0.95 * values.len() as f64);
            // No smaller value would do.
            let under = values.iter().filter(|&&value| value < row.p95).count() as f64;
            prop_assert!(under < 0.95 * values.len() as f64);
            prop_assert!(row.stddev <= row.max + 1e-9);
        }
    }
}
