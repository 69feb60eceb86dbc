//! How good a controller was: the rows of Table IV, and every second over the objective with its explanation.

use crate::controlled::pareto::Objective;
use crate::controlled::server::{Cause, Record, Second, ServerModel};

/// A row of Table IV for one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Score {
    /// Mean power in watts, or mean background throughput.
    pub measured: f64,
    /// What a controller would have drawn, or left, that always had the best static configuration.
    pub pareto: f64,
    /// What the maximum configuration draws, or leaves: nothing.
    pub maximum: f64,
    /// Seconds over the objective.
    pub violations: Vec<Violation>,
}

/// A second whose 99th percentile is over the objective.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Which, from 0.
    pub second: usize,
    /// Its 99th percentile, in microseconds.
    pub p99_us: f64,
    /// The cause of most of the late requests.
    pub cause: Option<Cause>,
    /// In words.
    pub explanation: String,
}

impl Score {
    /// Scores a run: `pareto` is the mean Pareto bound under its load
    /// ([`mean_bound`](crate::controlled::pareto::Frontier::mean_bound)), `maximum` the mean power of the maximum configuration under the same load, 0 for consolidation.
    pub fn of(
        record: &Record,
        objective: Objective,
        pareto: f64,
        maximum: f64,
        model: &ServerModel,
    ) -> Self {
        let value = |second: &Second| match objective {
            Objective::Energy => second.watts,
            Objective::Consolidation => second.background,
        };
        let count = record.seconds.len().max(1) as f64;
        Self {
            measured: record.seconds.iter().map(value).sum::<f64>() / count,
            pareto,
            maximum,
            violations: violations(record, model),
        }
    }

    /// Energy saved over the maximum configuration, as a share; or the background throughput.
    pub fn gained(&self) -> f64 {
        if self.maximum > 0.0 { 1.0 - self.measured / self.maximum } else { self.measured }
    }

    /// The same of the Pareto bound.
    pub fn possible(&self) -> f64 {
        if self.maximum > 0.0 { 1.0 - self.pareto / self.maximum } else { self.pareto }
    }

    /// What was gained of what was possible, as a share.
    pub fn share_of_possible(&self) -> f64 {
        let possible = self.possible();
        if possible > 0.0 { self.gained() / possible } else { 1.0 }
    }
}

/// All seconds of a run over the objective, explained.
pub fn violations(record: &Record, model: &ServerModel) -> Vec<Violation> {
    let over = record.seconds.iter().enumerate().filter(|(_, s)| s.p99_us > model.slo_us);
    over.map(|(index, second)| Violation {
        second: index,
        p99_us: second.p99_us,
        cause: second.late.main(),
        explanation: explain(second, model),
    })
    .collect()
}

/// Runs of seconds over the objective that follow each other: IX counts violations so (§5.4: 25 in 27 s).
pub fn episodes(violations: &[Violation]) -> usize {
    let follows = violations.windows(2).filter(|pair| pair[0].second + 1 == pair[1].second);
    violations.len() - follows.count()
}

fn explain(second: &Second, model: &ServerModel) -> String {
    let (low, high) = second.load_rps;
    let millions = |rps: f64| format!("{:.2} M/s", rps / 1e6);
    let most = model.capacity_rps(&model.machine().maximum());
    let cause = match second.late.main() {
        Some(Cause::Overload) if high > most => {
            format!(
                "the load was up to {}, the whole machine serves {}",
                millions(high),
                millions(most)
            )
        }
        Some(Cause::Overload) => format!(
            "the load was {} to {} within two seconds, and for a while what was granted served at most {}",
            millions(low),
            millions(high),
            millions(second.capacity_rps)
        ),
        Some(Cause::Migration) => {
            format!("packets were deferred while {} flow groups moved", second.groups_moved)
        }
        Some(Cause::Imbalance) => {
            "one thread had more than its part, while all together sufficed".to_owned()
        }
        Some(Cause::Chance) => format!(
            "queues grew by chance, at a load of up to {} with at least {} granted",
            millions(high),
            millions(second.capacity_rps)
        ),
        None => "late packets are not known".to_owned(),
    };
    format!("p99 {:.0} us: {cause} ({})", second.p99_us, second.late)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controlled::server::Causes;

    fn second(p99_us: f64, cause: Cause, high: f64) -> Second {
        let mut late = Causes::default();
        late.add(cause, 100.0);
        Second {
            rps: 1e6,
            p99_us,
            watts: 40.0,
            background: 0.5,
            step: 0,
            load_rps: (1e6, high),
            capacity_rps: 1.5e6,
            late,
            groups_moved: 12,
        }
    }

    #[test]
    fn rows_and_explanations() {
        let model = ServerModel::ix();
        let record = Record {
            seconds: vec![
                second(100.0, Cause::Chance, 1e6),
                second(900.0, Cause::Overload, 2e6),
                second(501.0, Cause::Migration, 1e6),
                second(499.0, Cause::Chance, 1e6),
                second(9_000.0, Cause::Overload, 9e6),
            ],
            ..Record::default()
        };
        let score = Score::of(&record, Objective::Energy, 30.0, 90.0, &model);
        assert_eq!((score.measured, score.violations.len()), (40.0, 3));
        assert_eq!(episodes(&score.violations), 2);
        assert!((score.gained() - 50.0 / 90.0).abs() < 1e-9);
        assert!((score.share_of_possible() - 50.0 / 60.0).abs() < 1e-9);
        let said: Vec<&str> = score.violations.iter().map(|v| v.explanation.as_str()).collect();
        assert!(said[0].contains("1.00 M/s to 2.00 M/s within two seconds"), "{}", said[0]);
        assert!(said[1].contains("while 12 flow groups moved"), "{}", said[1]);
        assert!(said[2].contains("the whole machine serves 6.4"), "{}", said[2]);
        let score = Score::of(&record, Objective::Consolidation, 0.875, 0.0, &model);
        assert_eq!((score.measured, score.pareto), (0.5, 0.875));
        assert!((score.share_of_possible() - 0.5 / 0.875).abs() < 1e-9);
    }
}
