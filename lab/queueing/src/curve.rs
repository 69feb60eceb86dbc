//! The theory beside a measured curve: tail latency over load, with overhead and network.
//!
//! ```
//! use queueing::{Law, Model, Replications, TailCurve, tail_curve};
//! let [partitioned, centralized, ..] = Model::zygos(16);
//! let curve = TailCurve {
//!     model: centralized,
//!     law: Law::Exponential,
//!     mean: 10.0, // microseconds, and so are all other times
//!     overhead: 1.0,
//!     network: 5.0,
//!     share: 0.99,
//! };
//! let runs = Replications { count: 2, ..Replications::new().of_jobs(50_000) };
//! let points = tail_curve(&curve, &[0.1, 0.8, 0.95], &runs)?;
//! let least = 5.0 + 1.0 + 10.0 * 100f64.ln();
//! assert!((points[0].latency.unwrap().mean / least - 1.0).abs() < 0.03);
//! // 0.95 of what the work alone allows is more than work and overhead allow together.
//! assert_eq!(points[2].latency, None);
//! # let _ = partitioned;
//! # Ok::<(), queueing::RunError>(())
//! ```

use measure::MeanInterval;

use crate::error::{Invalid, RunError, check};
use crate::law::{Law, Service};
use crate::model::Model;
use crate::replicate::{Replications, estimate};
use crate::simulate::LOAD_MAX;

/// What the curve is of. All times are in one unit, the caller's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TailCurve {
    /// The queues and servers.
    pub model: Model,
    /// How the work of a request is distributed.
    pub law: Law,
    /// S, the mean of the work.
    pub mean: f64,
    /// What each request takes from a server beside its work.
    pub overhead: f64,
    /// What each request takes beside the servers, there and back: wire, switch, client.
    pub network: f64,
    /// Which latency: 0.99 for the 99th percentile.
    pub share: f64,
}

impl TailCurve {
    /// The service times.
    pub fn service(&self) -> Service {
        Service { law: self.law, mean: self.mean, overhead: self.overhead }
    }

    /// Requests in a unit of time at `load`.
    pub fn rate(&self, load: f64) -> f64 {
        load * f64::from(self.model.servers) / self.mean
    }

    /// Checks what the runs do not.
    fn validate(&self) -> Result<(), Invalid> {
        self.service().validate()?;
        check("network delay", self.network, 0.0..=1e9)?;
        check("share of the requests", self.share, 0.0..=1.0)
    }
}

/// One load of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The share of n / S requests in a unit of time: one is what the *work alone* would allow, as on
    /// the axes of ZygOS Figures 2 and 6.
    pub load: f64,
    /// The latency that the share of the requests does not exceed, network and all; `None` where
    /// work and overhead together leave the servers no time.
    pub latency: Option<MeanInterval>,
}

/// The curve at `loads`, for M/G/n/FCFS, n × M/G/1/FCFS and all other models.
///
/// # Errors
/// A setting out of its range; a load is one that is not above zero.
pub fn tail_curve(
    curve: &TailCurve,
    loads: &[f64],
    replications: &Replications,
) -> Result<Vec<CurvePoint>, RunError> {
    curve.validate()?;
    let service = curve.service();
    let point = |&load: &f64| {
        let taken = load * service.total_mean() / service.mean;
        if taken > LOAD_MAX {
            return Ok(CurvePoint { load, latency: None });
        }
        let tail = |tally: &crate::Tally| tally.sojourn.quantile(curve.share) + curve.network;
        match estimate(&curve.model, &service, taken, replications, tail) {
            Ok(latency) => Ok(CurvePoint { load, latency: Some(latency) }),
            Err(RunError::Overloaded { .. }) => Ok(CurvePoint { load, latency: None }),
            Err(error) => Err(error),
        }
    };
    loads.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theory;

    fn curve(model: Model) -> TailCurve {
        let law = Law::Exponential;
        TailCurve { model, law, mean: 10.0, overhead: 0.0, network: 3.0, share: 0.99 }
    }

    #[test]
    fn without_overhead_it_is_the_closed_form_and_the_network() {
        let runs = Replications { level: 0.999, ..Replications::new().of_jobs(100_000) };
        let points = tail_curve(&curve(Model::zygos(16)[0]), &[0.2, 0.5], &runs).expect("runs");
        for point in points {
            let expected = 3.0 + 10.0 * theory::mm1_sojourn_quantile(point.load, 0.99);
            let latency = point.latency.expect("in range");
            assert!(latency.holds(expected), "{latency:?} {expected}");
            assert!(latency.half_width() < 0.1 * expected, "{latency:?}");
        }
        assert_eq!(curve(Model::zygos(16)[0]).rate(0.5), 0.8);
    }

    #[test]
    fn overhead_takes_load_away() {
        let runs = Replications { count: 2, ..Replications::new().of_jobs(20_000) };
        let costly = TailCurve { overhead: 10.0, ..curve(Model::zygos(16)[1]) };
        let points = tail_curve(&costly, &[0.3, 0.49, 0.51], &runs).expect("runs");
        let mean = |index: usize| points[index].latency.map(|latency| latency.mean);
        assert!(mean(0).is_some() && mean(0) < mean(1), "{points:?}");
        assert_eq!(points[2].latency, None);
    }

    #[test]
    fn settings_are_checked() {
        let runs = Replications::new().of_jobs(1_000);
        let good = curve(Model::zygos(2)[0]);
        for bad in [
            TailCurve { network: -1.0, ..good },
            TailCurve { share: 2.0, ..good },
            TailCurve { mean: f64::NAN, ..good },
        ] {
            assert!(tail_curve(&bad, &[0.5], &runs).is_err(), "{bad:?}");
        }
        assert!(tail_curve(&good, &[0.0], &runs).is_err());
        assert!(tail_curve(&good, &[f64::NAN], &runs).is_err());
    }
}
