//! How long a migration takes: drawn so that Table V's figures come out.
//!
//! The body is a log-normal law, which the mean and the 95th percentile determine. What that leaves of the
//! standard deviation is rare outliers of the greatest length: Table V's deviation is twice its mean when
//! adding, by "rare occurrences of longer preparation times" (IX §5.4).

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use super::error::ModelError;

/// The quantile of the normal law at 95 %.
const Z95: f64 = 1.644_853_626_951_472_6;

/// A row of Table V, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigrationCost {
    /// The mean.
    pub mean_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The greatest.
    pub max_us: f64,
    /// The standard deviation.
    pub stddev_us: f64,
}

/// The law that a row becomes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MigrationLaw {
    /// Of the body's logarithm.
    mu: f64,
    sigma: f64,
    outlier_chance: f64,
    max_us: f64,
}

impl MigrationCost {
    /// Checks the row.
    ///
    /// # Errors
    /// A 95th percentile not over the mean, or so far over it that no log-normal law has it, and the like.
    pub fn validate(&self) -> Result<(), ModelError> {
        let check = |what, found: f64, fits, allowed| {
            if fits { Ok(()) } else { Err(ModelError::Range { what, found, allowed }) }
        };
        let in_order = |low: f64, high: f64| low <= high;
        check("mean_us", self.mean_us, (0.1..=1e7).contains(&self.mean_us), "0.1 to 1e7")?;
        let fits = in_order(self.mean_us, self.p95_us) && in_order(self.p95_us, 3.5 * self.mean_us);
        check("p95_us", self.p95_us, fits, "1 to 3.5 times the mean")?;
        let fits = in_order(self.p95_us, self.max_us) && in_order(self.max_us, 1e8);
        check("max_us", self.max_us, fits, "p95_us to 1e8")?;
        let fits = in_order(0.0, self.stddev_us) && in_order(self.stddev_us, self.max_us);
        check("stddev_us", self.stddev_us, fits, "0 to max_us")
    }

    /// Outliers carry some of the mean and some of the deviation, so body and outliers are found together.
    pub(super) fn law(&self) -> MigrationLaw {
        let mut outlier_chance = 0.0;
        let (mut mu, mut sigma) = (0.0, 0.0);
        for _ in 0..50 {
            let rest = self.mean_us - outlier_chance * self.max_us;
            let mean_us = (rest / (1.0 - outlier_chance)).max(self.mean_us / 2.0);
            // p95 / mean = exp(z sigma - sigma^2 / 2): the smaller of the two solutions.
            let excess = Z95 * Z95 - 2.0 * (self.p95_us / mean_us).ln();
            sigma = Z95 - excess.max(0.0).sqrt();
            mu = mean_us.ln() - sigma * sigma / 2.0;
            let body = mean_us * mean_us * ((sigma * sigma).exp() - 1.0);
            let missing = (self.stddev_us * self.stddev_us - body).max(0.0);
            let distance = (self.max_us - self.mean_us).max(1e-9);
            outlier_chance = (missing / (distance * distance)).min(0.04);
        }
        MigrationLaw { mu, sigma, outlier_chance, max_us: self.max_us }
    }
}

impl MigrationLaw {
    pub fn draw_us(&self, random: &mut impl Rng) -> f64 {
        if random.random::<f64>() < self.outlier_chance {
            return self.max_us;
        }
        let normal: f64 = random.sample(StandardNormal);
        (self.mu + self.sigma * normal).exp().min(self.max_us)
    }
}

#[cfg(test)]
mod tests {
    use crate::controlled::server::ServerModel;
    use rand::SeedableRng;

    #[test]
    fn the_rows_of_table_5_come_out() {
        let costs = ServerModel::ix().reconfiguration;
        for row in [costs.migration_add, costs.migration_remove] {
            let law = row.law();
            let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
            let mut drawn: Vec<f64> = (0..200_000).map(|_| law.draw_us(&mut random)).collect();
            drawn.sort_by(f64::total_cmp);
            let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
            let variance =
                drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / drawn.len() as f64;
            let near = |found: f64, row: f64, share: f64| {
                assert!((found / row - 1.0).abs() < share, "{found} against {row}");
            };
            near(mean, row.mean_us, 0.03);
            near(drawn[190_000], row.p95_us, 0.05);
            near(variance.sqrt(), row.stddev_us, 0.12);
            assert!(drawn.last().is_some_and(|&most| most <= row.max_us));
        }
    }
}
