//! What each step of a core takes: the cost model.
//!
//! ```
//! use world::cores::Costs;
//! let text = Costs::sandy_bridge_dune().to_toml();
//! assert_eq!(Costs::from_toml(&text)?, Costs::sandy_bridge_dune());
//! assert!(Costs::from_toml("name = 'half'").is_err());
//! # Ok::<(), world::cores::CostsError>(())
//! ```
//!
//! The virtual clock moves by these and by the application's own time, and by nothing else. A cycle that
//! takes n packets, runs the application on e events which issue c calls, and sends f frames lasts
//!
//! ```text
//! cycle + n (receive + segment)                            steps 1 and 2
//! + crossing + e event + the requests' service times       step 3
//! + c call + doorbell + f transmit                         steps 4 to 6
//! ```
//!
//! What crosses cores (a connection's events taken from their home, another core's network layer run) is
//! charged on top, by the cache lines that move.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The constants of the papers' machine, each with its source.
const SANDY_BRIDGE_DUNE: &str = include_str!("sandy-bridge-dune.toml");

/// Where a set of constants comes from and what each step takes, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// What it is called in conditions.
    pub name: String,
    /// How the constants were found: machine, driver, method.
    pub source: String,
    /// One turn of the loop: what an idle poll takes, and what each busy cycle takes beside its packets.
    pub cycle: f64,
    /// One packet from the receive ring into the batch, the refill included.
    pub receive: f64,
    /// One packet through the stack, the making of its event included.
    pub segment: f64,
    /// Going over to the application and back.
    pub crossing: f64,
    /// The application's own loop, for one event: reading it, issuing its calls.
    pub event: f64,
    /// Executing one batched system call.
    pub call: f64,
    /// One frame onto the transmit ring and, later, reclaimed.
    pub transmit: f64,
    /// Telling the device of a burst of frames, and the fixed part of steps 4 to 6.
    pub doorbell: f64,
    /// A cache line that another core has written, until it can be read here.
    pub cache_line: f64,
    /// An atomic exchange on a line that is here already.
    pub atomic: f64,
    /// Lines that move when one connection's events run on another core than their home, there and back:
    /// its place in the ready set, its state, its events and their payload, its calls.
    pub steal_lines: f64,
    /// Making a turn of a connection's events, handing it out and taking it, on one core.
    pub turn: f64,
    /// Lines that move when a core runs another core's network layer, beside those of the packets.
    pub borrow_lines: f64,
    /// Lines of a packet and its connection that move when another core than the home one handles it.
    pub packet_lines: f64,
    /// A signal to a thread on another core, from sending it to its handler running.
    pub kick: f64,
    /// What that takes of the thread that is interrupted, until it goes on.
    pub interrupt: f64,
    /// A sleeping thread, from being woken to its first instruction.
    pub wake: f64,
    /// What a request costs a thread of a service on the kernel's own stack.
    pub linux: LinuxCosts,
}

/// A service on the kernel's stack: what its steps take, in nanoseconds (ZygOS §3.3).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinuxCosts {
    /// `epoll_wait` for one event, `read`, `write`, and the kernel's work for both packets.
    pub request: f64,
    /// What a request costs more where all threads poll one pool of connections: the lock around its
    /// socket and the lines that moved since another thread had it.
    pub floating: f64,
    /// An idle thread blocks in `epoll_wait`: how long until it runs.
    pub wake: f64,
}

/// Why a file of costs was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CostsError {
    /// It is no TOML, or not all of the constants, or others.
    #[error("the costs cannot be read: {0}; `tailplane calibrate -o FILE` writes such a file")]
    Syntax(String),
    /// A constant that no machine has.
    #[error("the cost `{name}` is {found}; allowed: 0 to {COST_NS_MAX} ns")]
    Range {
        /// Which.
        name: &'static str,
        /// What was found.
        found: f64,
    },
}

/// The greatest cost of one step, in nanoseconds: beyond it, a run would not end.
pub const COST_NS_MAX: f64 = 1e7;

impl Costs {
    /// Nothing costs anything: what is left is the queueing of the requests.
    pub fn zero() -> Self {
        Self {
            name: "zero".to_owned(),
            source: "no costs at all, to be compared with theory".to_owned(),
            ..Self::default()
        }
    }

    /// The papers' machine: one hardware thread of a Xeon E5-2665 at 2.4 GHz, IX on Dune (ZygOS §3.2). The papers give
    /// few of these constants: `sandy-bridge-dune.toml` says which, and how the others were assumed.
    pub fn sandy_bridge_dune() -> Self {
        Self::from_toml(SANDY_BRIDGE_DUNE).expect("a constant, and tested")
    }

    /// `base` with AF_XDP in copy mode on a veth pair in place of a NIC that moves frames by itself. There,
    /// whoever sends runs the kernel's reception at the far end, and copies; one system call tells it of a
    /// burst.
    ///
    /// The two constants were measured on the reference machine and not on this one: a reflector moves
    /// 0.75 M frames/s in and out on one core, nearly all of it in sending (1,300 ns a frame), and a system
    /// call is 124 ns.
    pub fn af_xdp_copy(base: &Self) -> Self {
        Self {
            name: "af-xdp-copy".to_owned(),
            source: format!(
                "{}; sending as AF_XDP in copy mode on the reference machine",
                base.source
            ),
            transmit: base.transmit.max(1_300.0),
            doorbell: base.doorbell + 124.0,
            ..base.clone()
        }
    }

    /// The constants of that name: `zero`, `reference`, `sandy-bridge-dune`.
    pub fn preset(name: &str) -> Option<Self> {
        [Self::zero(), Self::sandy_bridge_dune()].into_iter().find(|costs| costs.name == name)
    }

    /// The name, for every cost that is a number; for checks and tables.
    pub fn entries(&self) -> [(&'static str, f64); 20] {
        self.clone().entries_mut().map(|(name, cost)| (name, *cost))
    }

    /// The same, to be changed.
    pub(crate) fn entries_mut(&mut self) -> [(&'static str, &mut f64); 20] {
        [
            ("cycle", &mut self.cycle),
            ("receive", &mut self.receive),
            ("segment", &mut self.segment),
            ("crossing", &mut self.crossing),
            ("event", &mut self.event),
            ("call", &mut self.call),
            ("transmit", &mut self.transmit),
            ("doorbell", &mut self.doorbell),
            ("cache_line", &mut self.cache_line),
            ("atomic", &mut self.atomic),
            ("turn", &mut self.turn),
            ("steal_lines", &mut self.steal_lines),
            ("borrow_lines", &mut self.borrow_lines),
            ("packet_lines", &mut self.packet_lines),
            ("kick", &mut self.kick),
            ("interrupt", &mut self.interrupt),
            ("wake", &mut self.wake),
            ("linux.request", &mut self.linux.request),
            ("linux.floating", &mut self.linux.floating),
            ("linux.wake", &mut self.linux.wake),
        ]
    }

    /// Checks every constant.
    ///
    /// # Errors
    /// One that is negative, no number, or longer than [`COST_NS_MAX`].
    pub fn validate(&self) -> Result<(), CostsError> {
        let wrong = |&(_, found): &(&str, f64)| !(0.0..=COST_NS_MAX).contains(&found);
        match self.entries().into_iter().find(wrong) {
            Some((name, found)) => Err(CostsError::Range { name, found }),
            None => Ok(()),
        }
    }

    /// Reads what [`to_toml`](Self::to_toml) wrote.
    ///
    /// # Errors
    /// A constant that is missing, unknown or out of its range.
    pub fn from_toml(text: &str) -> Result<Self, CostsError> {
        let costs: Self =
            toml::from_str(text).map_err(|error| CostsError::Syntax(error.to_string()))?;
        costs.validate()?;
        Ok(costs)
    }

    /// As a file, all in nanoseconds.
    pub fn to_toml(&self) -> String {
        // A table of strings and numbers can always be written.
        toml::to_string(self).unwrap_or_default()
    }

    /// What a request of one packet that one packet answers costs its core beside its service time, in
    /// nanoseconds, where `batch` of them share a cycle: two calls, one event.
    pub fn per_request(&self, batch: f64) -> f64 {
        let shared = self.cycle + self.crossing + self.doorbell;
        shared / batch.max(1.0) + self.marginal()
    }

    /// The same without what a cycle costs once.
    pub fn marginal(&self) -> f64 {
        self.receive + self.segment + self.event + 2.0 * self.call + self.transmit
    }

    /// What it costs to run `connections` connections' events away from home.
    pub(crate) fn steal(&self, connections: u64) -> f64 {
        connections as f64 * (self.atomic + self.steal_lines * self.cache_line)
    }

    /// What it costs to run other cores' network layers `times` times, `packets` packets in all.
    pub(crate) fn borrow(&self, times: u64, packets: u64) -> f64 {
        let lines = times as f64 * self.borrow_lines + packets as f64 * self.packet_lines;
        times as f64 * self.atomic + lines * self.cache_line
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (alone, full) = (self.per_request(1.0), self.per_request(64.0));
        write!(f, "{} ({alone:.0} ns a request alone, {full:.0} ns in a batch of 64)", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_machine_is_the_papers() {
        let costs = Costs::sandy_bridge_dune();
        // IX TOCS §5.2.3 in nanoseconds at 2.4 GHz.
        assert!((costs.per_request(1.0) - 9_000.0 / 2.4).abs() < 1.0, "{costs}");
        assert!((costs.marginal() - 4_000.0 / 2.4).abs() < 1.0, "{costs}");
        costs.validate().expect("in range");
    }

    #[test]
    fn what_is_written_is_what_is_read_and_nonsense_is_named() {
        let costs = Costs::sandy_bridge_dune();
        let text = costs.to_toml();
        assert_eq!(Costs::from_toml(&text), Ok(costs.clone()));
        let error = Costs::from_toml(&text.replace("kick = 1000.0", "kick = -1.0"));
        assert_eq!(error, Err(CostsError::Range { name: "kick", found: -1.0 }));
        for bad in [text.replace("kick = 1000.0", ""), format!("other = 1\n{text}")] {
            let error = Costs::from_toml(&bad).expect_err("refused").to_string();
            assert!(error.contains("cannot be read"), "{error}");
        }
        assert!(Costs { wake: f64::NAN, ..costs }.validate().is_err());
        assert_eq!(Costs::zero().per_request(1.0), 0.0);
    }
}
