//! The cost model of the machine at hand: each constant measured, in windows that nobody disturbed.
//!
//! ```no_run
//! use multicore::calibrate::{Effort, calibrate};
//! // Where the two threads run and at which priority is the caller's to say.
//! let found = calibrate(Effort::QUICK, &|side| notify::window::pin(side as usize))?;
//! println!("{}", found.costs.to_toml());
//! # Ok::<(), multicore::calibrate::CalibrateError>(())
//! ```
//!
//! - `steps`: an elastic thread on `shm`, whose peer on another core moves the frames by itself, as a NIC
//!   does. Each of its steps is timed in batches of 1 to 64; a line through the medians tells what a step
//!   takes once and what it takes for each.
//! - `machine`: a cache line between two cores, an atomic exchange, an eventfd, a signal.
//! - `kernel`: a server on the kernel's own stack, over the loopback interface.
//!
//! What cannot be measured by a clock is reckoned, and says so: how many lines a steal moves.

mod fit;
mod kernel;
mod machine;
mod steps;
mod unsafe_signal;

use std::time::Duration;

use notify::WindowError;
use notify::contest::{Kept, Plan};
use notify::window::{Place, STALL_MAX_NS};

use crate::costs::{Costs, LinuxCosts};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Quiet windows of each measurement.
    pub windows: usize,
    /// The length of each.
    pub window: Duration,
    /// What passes between two, for the rest of the machine.
    pub pause: Duration,
}

impl Effort {
    /// A few seconds.
    pub const QUICK: Self =
        Self { windows: 3, window: Duration::from_millis(8), pause: Duration::from_millis(10) };
    /// Half a minute.
    pub const FULL: Self =
        Self { windows: 15, window: Duration::from_millis(25), pause: Duration::from_millis(30) };

    fn plan(&self) -> Plan {
        Plan {
            windows: self.windows,
            tries: 4 * self.windows,
            pause: self.pause,
            stall_max_ns: STALL_MAX_NS,
        }
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// The threads could not run.
    #[error(transparent)]
    Window(#[from] WindowError),
    /// The operating system refused something.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: std::io::Error,
    },
    /// The wire between the two dataplanes could not be made.
    #[error(transparent)]
    Shm(#[from] nic::shm::ShmError),
    /// A measurement gave no number at all.
    #[error(
        "{what} gave no sample in {windows} windows; run it again on a machine that is less busy"
    )]
    Nothing {
        /// Which measurement.
        what: &'static str,
        /// Windows that were tried.
        windows: usize,
    },
}

/// One constant as it was measured, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What it is.
    pub name: String,
    /// The median of the windows' medians.
    pub median_ns: f64,
    /// The least and the greatest window.
    pub low_ns: f64,
    /// See [`low_ns`](Self::low_ns).
    pub high_ns: f64,
    /// Windows that count, and those that were thrown away since something disturbed them.
    pub windows: usize,
    /// See [`windows`](Self::windows).
    pub discarded: usize,
    /// No window was quiet: these are what was found all the same.
    pub disturbed: bool,
}

/// See the module's comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The constants.
    pub costs: Costs,
    /// What they were made of.
    pub found: Vec<Found>,
}

impl Found {
    /// Of the numbers that each window gave.
    fn of(
        name: impl Into<String>,
        what: &'static str,
        kept: &Kept<f64>,
    ) -> Result<Self, CalibrateError> {
        let mut values: Vec<f64> = kept.found.iter().copied().filter(|ns| ns.is_finite()).collect();
        let median_ns = fit::median(&mut values)
            .ok_or(CalibrateError::Nothing { what, windows: kept.found.len() + kept.discarded })?;
        Ok(Self {
            name: name.into(),
            median_ns,
            low_ns: values.first().copied().unwrap_or(median_ns),
            high_ns: values.last().copied().unwrap_or(median_ns),
            windows: values.len(),
            discarded: kept.discarded,
            disturbed: kept.disturbed.is_some(),
        })
    }
}

/// Measures everything. `place` pins the threads, and may give them real-time priority: no window is longer
/// than 50 ms.
///
/// # Errors
/// The threads cannot run where they should; no memory, no sockets.
pub fn calibrate(effort: Effort, place: Place<'_>) -> Result<Calibration, CalibrateError> {
    let mut found = Vec::new();
    let machine = machine::measure(effort, place, &mut found)?;
    let steps = steps::measure(effort, place, &mut found)?;
    let kernel = kernel::measure(effort, place, &mut found)?;
    // What moves with a socket: its own lines, its lock's, its epoll item's.
    let floating = kernel.rearm_ns + SOCKET_LINES * machine.cache_line_ns;
    let costs = Costs {
        name: "measured".to_owned(),
        source: "tailplane calibrate, driver shm, inline domain".to_owned(),
        cycle: steps.cycle_ns,
        receive: steps.receive_ns,
        segment: steps.segment_ns,
        crossing: steps.crossing_ns,
        event: steps.event_ns,
        call: steps.call_ns,
        transmit: steps.transmit_ns,
        doorbell: steps.doorbell_ns,
        cache_line: machine.cache_line_ns,
        atomic: machine.atomic_ns,
        turn: TURN_ATOMICS * machine.atomic_ns,
        steal_lines: STEAL_LINES,
        borrow_lines: BORROW_LINES,
        packet_lines: PACKET_LINES,
        kick: machine.kick_ns,
        interrupt: machine.interrupt_ns,
        wake: machine.wake_ns,
        linux: LinuxCosts { request: kernel.request_ns, floating, wake: machine.wake_ns },
    };
    Ok(Calibration { costs: rounded(costs), found })
}

/// Atomic operations of a turn: in and out of a queue, the words that say who has work and who has none.
const TURN_ATOMICS: f64 = 6.0;
/// Lines that a steal moves: the ready set's word and the connection's state in it; the record of its event
/// and 64 bytes of payload; its calls and the reply's payload, back home; the home's doorbell.
const STEAL_LINES: f64 = 8.0;
/// Lines that running another core's network layer moves: its lock, the ring's two indices, the pool's top.
const BORROW_LINES: f64 = 4.0;
/// Lines of each packet there: two of the connection, one of the event.
const PACKET_LINES: f64 = 3.0;
/// Lines of a socket of the kernel that another thread had last: reckoned, too.
const SOCKET_LINES: f64 = 8.0;

/// To a tenth of a nanosecond: no clock here tells more.
fn rounded(mut costs: Costs) -> Costs {
    let tenth = |ns: &mut f64| *ns = (ns.max(0.0) * 10.0).round() / 10.0;
    let linux = &mut costs.linux;
    for ns in [&mut linux.request, &mut linux.floating, &mut linux.wake] {
        tenth(ns);
    }
    for ns in [
        &mut costs.cycle,
        &mut costs.receive,
        &mut costs.segment,
        &mut costs.crossing,
        &mut costs.event,
        &mut costs.call,
        &mut costs.transmit,
        &mut costs.doorbell,
        &mut costs.cache_line,
        &mut costs.atomic,
        &mut costs.turn,
        &mut costs.kick,
        &mut costs.interrupt,
        &mut costs.wake,
    ] {
        tenth(ns);
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "measures: wants windows that nobody disturbs, which a machine that builds does not have"]
    fn every_constant_is_found_and_positive() {
        if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        let effort = Effort { windows: 1, pause: Duration::from_millis(1), ..Effort::QUICK };
        let found = calibrate(effort, &|_| Ok(())).expect("measures");
        found.costs.validate().expect("in range");
        for (name, ns) in found.costs.entries() {
            // What is left after something else was taken off may be nothing.
            let rest = ["segment", "call", "doorbell", "crossing", "event"].contains(&name);
            assert!(ns > 0.0 || rest, "{name} is {ns} ns: {found:#?}");
        }
        assert!(found.costs.per_request(1.0) > 10.0, "{found:#?}");
        assert_eq!(Costs::from_toml(&found.costs.to_toml()), Ok(found.costs));
    }
}
