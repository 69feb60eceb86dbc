//! The control plane's logic (IX §4.6, §5.3, §5.4): pure, with time, measurements and actuators as parameters.
//!
//! A dataplane shows counters; the loop reads them, estimates the queueing delay, and grants or takes cores,
//! hyperthreads and clock steps in the order that a policy says:
//!
//! ```text
//! metrics (Board -> Sample)  ->  ControlLoop (policy, pace, spread of flow groups)  ->  Decision
//!        ^                                                                                |
//!        '------------------- a dataplane and actuators, or a simulated server <--------'
//! ```
//!
//! - [`metrics`]: counters, averages, and the estimate `ceil(Q / B) x iteration time`.
//! - [`Configuration`], [`Machine`], [`Topology`]: what can be granted, and what a machine has.
//! - [`policy`]: `energy`, `consolidation`, a sequence from a file, and `latency-target`.
//! - [`ControlLoop`]: the loop as a state machine; [`spread`] is how it deals out flow groups.
//! - [`actuator`]: cpusets, affinity, clocks and the background job on stock Linux.
//! - [`rapl`]: what the processor says that it draws, for measured configurations.

pub mod actuator;
mod configuration;
mod control_loop;
pub mod metrics;
pub mod policy;
pub mod rapl;
mod spread;
pub mod sysfs;
mod topology;

pub use configuration::{CORES_MAX, Clock, Configuration, Machine, MachineError, Scaling};
pub use control_loop::{
    ControlLoop, Decision, Event, Found, LoopConfig, Outcome, Place, RequestId,
};
pub use spread::{Move, Spread, imbalance, spread};
pub use topology::{BoostSwitch, ClockDomain, Cpu, Topology};
