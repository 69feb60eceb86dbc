//! What disturbed a window, and the rule by which windows are left out.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What happened to a window from outside. Zero where the harness did not look, or the kernel does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disturbance {
    /// Times that a measuring thread lost its processor without asking for it.
    pub switches: u64,
    /// Time that the host took from all processors together, in milliseconds: ticks of 10 ms.
    pub stolen_ms: u64,
    /// The longest time between two looks of a measuring thread at its clock, in nanoseconds.
    pub stall_ns: u64,
    /// Processors that other processes used, on average: 0.05 is 5 % of one.
    pub foreign: f64,
    /// How long one of our busy threads was ready and did not run, in nanoseconds.
    pub waited_ns: u64,
    /// From the change of a word until the other processor's answer, in nanoseconds: the host may move its virtual
    /// processors apart.
    pub way_ns: u64,
}

/// The bound of a quiet window, whatever is measured and however fast it is. A stall of 150 us is many times what a
/// measuring thread does between two looks at its clock; a wait of 1 ms makes less than 1 % of the requests of a window
/// late; a word goes between neighbouring cores and back in less than half of 400 ns, and between cores of different
/// caches in more.
pub const QUIET: Disturbance = Disturbance {
    switches: 0,
    stolen_ms: 0,
    stall_ns: 150_000,
    foreign: 0.05,
    waited_ns: 1_000_000,
    way_ns: 400,
};

/// A word that goes to the other processor and back in less came to a second thread of the same core. The two slow
/// each other, and what is measured on either is not what a core does.
pub const ONE_CORE_BELOW_NS: u64 = 75;

impl Disturbance {
    /// Whether a window with this disturbance counts: no part exceeds that of `most`, and two processors were two cores.
    pub fn within(&self, most: &Self) -> bool {
        let were_one_core = (1..ONE_CORE_BELOW_NS).contains(&self.way_ns);
        !were_one_core
            && self.switches <= most.switches
            && self.stolen_ms <= most.stolen_ms
            && self.stall_ns <= most.stall_ns
            && self.foreign <= most.foreign
            && self.waited_ns <= most.waited_ns
            && self.way_ns <= most.way_ns
    }

    /// Whether it is within [`QUIET`].
    pub fn is_quiet(&self) -> bool {
        self.within(&QUIET)
    }

    /// What disturbed either of two threads of one window.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            stolen_ms: self.stolen_ms.max(other.stolen_ms),
            stall_ns: self.stall_ns.max(other.stall_ns),
            foreign: self.foreign.max(other.foreign),
            waited_ns: self.waited_ns.max(other.waited_ns),
            way_ns: self.way_ns.max(other.way_ns),
        }
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switches, stolen_ms, stall_ns, foreign, waited_ns, way_ns } = *self;
        let parts = [
            (switches > 0, format!("{switches} context switches")),
            (stolen_ms > 0, format!("{stolen_ms} ms stolen")),
            (stall_ns > 0, format!("longest stall {} us", stall_ns / 1_000)),
            (foreign > 0.0, format!("{:.1} % of one core used by others", foreign * 100.0)),
            (waited_ns > 0, format!("busy threads kept waiting {} us", waited_ns / 1_000)),
            (way_ns > 0, format!("{way_ns} ns between the processors and back")),
        ];
        let seen: Vec<String> =
            parts.into_iter().filter(|(is_seen, _)| *is_seen).map(|(_, words)| words).collect();
        f.write_str(if seen.is_empty() { "nothing disturbed it" } else { "" })?;
        f.write_str(&seen.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_alone_disturbs_a_window() {
        let quiet = Disturbance { way_ns: ONE_CORE_BELOW_NS, ..Disturbance::default() };
        assert!(Disturbance::default().is_quiet() && quiet.is_quiet() && QUIET.is_quiet());
        let none = Disturbance::default();
        for loud in [
            Disturbance { switches: 1, ..none },
            Disturbance { stolen_ms: 10, ..none },
            Disturbance { stall_ns: 150_001, ..none },
            Disturbance { foreign: 0.06, ..none },
            Disturbance { waited_ns: 1_000_001, ..none },
            Disturbance { way_ns: 401, ..none },
            Disturbance { way_ns: ONE_CORE_BELOW_NS - 1, ..none },
        ] {
            assert!(!loud.is_quiet() && !none.and(loud).is_quiet(), "{loud}");
        }
    }

    #[test]
    fn what_was_seen_is_named() {
        let seen =
            Disturbance { switches: 2, stolen_ms: 10, stall_ns: 5_000, ..Default::default() };
        assert_eq!(seen.to_string(), "2 context switches, 10 ms stolen, longest stall 5 us");
        let seen = Disturbance { foreign: 0.125, waited_ns: 70_000, ..Default::default() };
        let words = "12.5 % of one core used by others, busy threads kept waiting 70 us";
        assert_eq!(
            (seen.to_string().as_str(), Disturbance::default().to_string().as_str()),
            (words, "nothing disturbed it")
        );
    }
}
