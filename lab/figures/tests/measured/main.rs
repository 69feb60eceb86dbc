//! Loads, moves and the control loop over AF_XDP in a lab, measured as the figures do it. What is run, and when it is
//! skipped, is said in the tests of the `tailplane` command, whose lab and services these use.

mod churn;
mod elastic;
#[allow(dead_code)]
#[path = "../../../../cli/tests/e2e/harness/mod.rs"]
mod harness;
mod local_wire;
mod moving;

/// The command that these tests run.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tailplane-lab");
