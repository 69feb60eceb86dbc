//! Why requests were late: each late request of a second is charged to one cause, and the second says so.

use std::fmt;

/// Why a request was late, in the order in which it is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its flow group was being migrated, and the packets deferred (IX §5.4, "violations caused by delays in
    /// packet processing due to flow group migrations").
    Migration,
    /// More came than the granted resources serve, or it stood in the queue that was left of that (IX §5.4,
    /// "violations caused by an abrupt increase of throughput").
    Overload,
    /// The resources sufficed, but its thread got more than its part.
    Imbalance,
    /// The queue of a thread that was fast enough grew by chance.
    Chance,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Migration, Self::Overload, Self::Imbalance, Self::Chance];
}

/// Late requests, by their cause.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Causes([f64; 4]);

impl Causes {
    /// Adds late requests.
    #[inline]
    pub fn add(&mut self, cause: Cause, requests: f64) {
        self.0[cause as usize] += requests;
    }

    /// Late requests of a cause.
    pub fn of(&self, cause: Cause) -> f64 {
        self.0[cause as usize]
    }

    /// Late requests of all causes.
    pub fn total(&self) -> f64 {
        self.0.iter().sum()
    }

    /// The cause of most of them; none where no request was late.
    pub fn main(&self) -> Option<Cause> {
        let most = Cause::ALL.into_iter().max_by(|a, b| self.of(*a).total_cmp(&self.of(*b)))?;
        (self.of(most) > 0.0).then_some(most)
    }
}

impl fmt::Display for Causes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total().max(f64::MIN_POSITIVE);
        let names = ["deferred by migrations", "overload", "imbalance", "chance"];
        let shares = Cause::ALL.map(|cause| self.of(cause) / total * 100.0);
        let charged = shares.into_iter().zip(names).filter(|(share, _)| *share >= 0.5);
        let charged: Vec<_> = charged.map(|(share, name)| format!("{share:.0} % {name}")).collect();
        let text = charged.join(", ");
        f.write_str(if text.is_empty() { "none was late" } else { &text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_cause_is_that_of_most_requests() {
        let mut causes = Causes::default();
        assert_eq!((causes.main(), causes.to_string()), (None, "none was late".to_owned()));
        causes.add(Cause::Chance, 1.0);
        causes.add(Cause::Overload, 3.0);
        assert_eq!(causes.main(), Some(Cause::Overload));
        assert_eq!(causes.to_string(), "75 % overload, 25 % chance");
    }
}
