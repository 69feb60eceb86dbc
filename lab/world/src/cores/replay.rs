//! What happened to a real server, to be done to a simulated one: its requests, and when its cores were taken
//! from it.

use queueing::check;

use crate::cores::error::WorldError;

/// The greatest number below 1.
const LAST_PART: f64 = 1.0 - f64::EPSILON / 2.0;
/// Longest run, in nanoseconds: ten days, which a number with a fraction counts to the nanosecond.
const LATEST_NS: f64 = 1e15;

/// See the module's comment. Both are in the order of their moments, which count from the beginning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replay {
    /// What was asked; at least one.
    pub requests: Vec<Planned>,
    /// When something else ran where an elastic thread should.
    pub interruptions: Vec<Interruption>,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Planned {
    /// When it is made, in nanoseconds.
    pub after_ns: u64,
    /// Which core its connection is at home on, and which of that core's connections it is: as parts of their
    /// number, 0 to below 1.
    pub home: f64,
    /// As above.
    pub among: f64,
    /// Its service time, in nanoseconds.
    pub service_ns: u64,
}

/// A time in which a core did nothing for its elastic thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interruption {
    /// When it begins, in nanoseconds.
    pub after_ns: u64,
    /// The core.
    pub core: usize,
    /// For so many nanoseconds.
    pub took_ns: u64,
}

impl Replay {
    /// Checks it against a server of `cores` cores.
    pub(crate) fn validate(&self, cores: usize) -> Result<(), WorldError> {
        check("requests of a replay", self.requests.len() as f64, 1.0..=f64::from(u32::MAX))?;
        let mut least = 0.0;
        for request in &self.requests {
            let at = request.after_ns as f64;
            check("moment of a replayed request", at, least..=LATEST_NS)?;
            check("service time of a replayed request", request.service_ns as f64, 0.0..=1e12)?;
            check("home of a replayed request", request.home, 0.0..=LAST_PART)?;
            check("connection of a replayed request", request.among, 0.0..=LAST_PART)?;
            least = at;
        }
        least = 0.0;
        for interruption in &self.interruptions {
            let at = interruption.after_ns as f64;
            check("moment of an interruption", at, least..=LATEST_NS)?;
            check("length of an interruption", interruption.took_ns as f64, 0.0..=1e12)?;
            check("core of an interruption", interruption.core as f64, 0.0..=cores as f64 - 1.0)?;
            least = at;
        }
        Ok(())
    }

    /// The last request's moment, in nanoseconds.
    pub(crate) fn last_ns(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.after_ns)
    }
}
