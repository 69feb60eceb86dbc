//! Which queueing system: how many servers, how many queues before them, and who is served next.
//!
//! ```
//! use queueing::Model;
//! let [partitioned, centralized, _, _] = Model::zygos(16);
//! assert_eq!(partitioned.notation(), "16xM/G/1/FCFS");
//! assert_eq!(centralized.notation(), "M/G/16/FCFS");
//! ```

use std::fmt;

use crate::error::{Invalid, check};

/// Most servers of a model: each arrival looks at all of them.
pub const SERVERS_MAX: u32 = 1_024;

/// The queues before the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Queues {
    /// One for all servers: whoever is free takes the next request.
    Centralized,
    /// One before each server; an arrival takes any of them with the same chance, whatever waits
    /// there.
    Partitioned,
}

/// Who is served next, and for how long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Discipline {
    /// In the order of arrival, each to its end.
    Fcfs,
    /// All that are present at once, at equal rates, none faster than one server is: the limit of
    /// round robin as the quantum goes to zero.
    ProcessorSharing,
    /// In the order of arrival, each for a quantum at most; then it goes to the tail of the queue
    /// if any other waits there, else it goes on.
    RoundRobin {
        /// The longest time at one go, in the unit of the service times.
        quantum: f64,
        /// What each preemption takes from the server, in the same unit.
        cost: f64,
    },
}

/// A queueing system with Poisson arrivals: M/G/n or n × M/G/1 in Kendall's notation (ZygOS §2.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Model {
    /// n, the servers.
    pub servers: u32,
    /// The queues before them.
    pub queues: Queues,
    /// Who is served next.
    pub discipline: Discipline,
}

impl Model {
    /// The four models of ZygOS §2.3 with `servers` servers: partitioned and centralized FCFS,
    /// partitioned and centralized processor sharing.
    pub const fn zygos(servers: u32) -> [Self; 4] {
        let fcfs = Discipline::Fcfs;
        let sharing = Discipline::ProcessorSharing;
        [
            Self { servers, queues: Queues::Partitioned, discipline: fcfs },
            Self { servers, queues: Queues::Centralized, discipline: fcfs },
            Self { servers, queues: Queues::Partitioned, discipline: sharing },
            Self { servers, queues: Queues::Centralized, discipline: sharing },
        ]
    }

    /// The paper's words: `partitioned-FCFS`.
    pub fn name(&self) -> String {
        let queues = match self.queues {
            Queues::Centralized => "centralized",
            Queues::Partitioned => "partitioned",
        };
        format!("{queues}-{}", self.discipline)
    }

    /// Kendall's notation with the policy behind it.
    pub fn notation(&self) -> String {
        let (servers, discipline) = (self.servers, self.discipline);
        match self.queues {
            Queues::Centralized => format!("M/G/{servers}/{discipline}"),
            Queues::Partitioned => format!("{servers}xM/G/1/{discipline}"),
        }
    }

    /// Checks every setting; `mean` is the mean service time with the overhead.
    ///
    /// # Errors
    /// A number of servers, a quantum or a cost that is out of its range.
    pub fn validate(&self, mean: f64) -> Result<(), Invalid> {
        check("number of servers", self.servers.into(), 1.0..=SERVERS_MAX.into())?;
        if let Discipline::RoundRobin { quantum, cost } = self.discipline {
            // A shorter quantum is an event for each thousandth of a request: processor sharing
            // is what is meant.
            check("quantum", quantum, mean / 1e3..=f64::MAX)?;
            check("cost of a preemption", cost, 0.0..=mean * 1e3)?;
        }
        Ok(())
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fcfs => write!(f, "FCFS"),
            Self::ProcessorSharing => write!(f, "PS"),
            Self::RoundRobin { quantum, .. } => write!(f, "RR({quantum})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_papers() {
        let names = Model::zygos(16).map(|model| model.name());
        let expected = ["partitioned-FCFS", "centralized-FCFS", "partitioned-PS", "centralized-PS"];
        assert_eq!(names, expected);
        let discipline = Discipline::RoundRobin { quantum: 0.5, cost: 0.1 };
        let model = Model { servers: 4, queues: Queues::Centralized, discipline };
        assert_eq!(model.notation(), "M/G/4/RR(0.5)");
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let model = Model::zygos(0)[0];
        let error = model.validate(1.0).expect_err("refused").to_string();
        assert_eq!(error, "number of servers is 0; allowed: 1 to 1024");
        for (quantum, cost, part) in
            [(0.0, 0.0, "quantum"), (f64::NAN, 0.0, "quantum"), (1.0, -1.0, "cost")]
        {
            let discipline = Discipline::RoundRobin { quantum, cost };
            let error = Model { servers: 1, discipline, ..model }.validate(1.0);
            assert!(error.expect_err("refused").to_string().contains(part), "{part}");
        }
    }
}
