//! The cost model of the machine at hand: each constant measured, in windows that nobody disturbed.
//!
//! ```no_run
//! use world::calibrate::{Effort, calibrate};
//! // Where the two threads run and at which priority is the caller's to say.
//! let found = calibrate(Effort::QUICK, &|side| measure::pin(side as usize))?;
//! println!("{}", found.costs.to_toml());
//! # Ok::<(), world::calibrate::CalibrateError>(())
//! ```
//!
//! - `steps`: an elastic thread on `shm`, whose peer on another core moves the frames by itself, as a NIC
//!   does. Each of its steps is timed in batches of 1 to 64; a line through the medians tells what a step
//!   takes once and what it takes for each.
//! - `machine`: a cache line between two cores, an atomic exchange, an eventfd, a signal.
//! - `kernel`: a server on the kernel's own stack, over the loopback interface.
//!
//! What cannot be measured by a clock is reckoned, and says so: how many lines a steal moves.

mod found;
mod kernel;
mod machine;
mod steps;
mod unsafe_signal;

use measure::Place;

pub use found::{CalibrateError, Effort, Found};

use crate::cores::Costs;
use found::Measuring;

/// See the module's comment.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    /// The constants.
    pub costs: Costs,
    /// What they were made of.
    pub found: Vec<Found>,
}

/// Measures everything. `place` pins the threads, and may give them real-time priority: no window is longer
/// than 50 ms.
///
/// # Errors
/// The threads cannot run where they should; no memory, no sockets.
pub fn calibrate(effort: Effort, place: Place<'_>) -> Result<Calibration, CalibrateError> {
    let costs = Costs {
        name: "measured".to_owned(),
        source: "tailplane calibrate, driver shm, inline domain".to_owned(),
        steal_lines: STEAL_LINES,
        borrow_lines: BORROW_LINES,
        packet_lines: PACKET_LINES,
        ..Costs::default()
    };
    let mut all = Measuring { effort, place, costs, found: Vec::new() };
    machine::measure(&mut all)?;
    steps::measure(&mut all)?;
    kernel::measure(&mut all)?;
    let Measuring { mut costs, found, .. } = all;
    for (_, ns) in costs.entries_mut() {
        // To a tenth of a nanosecond: no clock here shows more.
        *ns = (ns.max(0.0) * 10.0).round() / 10.0;
    }
    Ok(Calibration { costs, found })
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
