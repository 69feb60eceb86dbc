//! End-to-end tests: the `tailplane` command serving real clients over AF_XDP in a lab.
//!
//! ```text
//! cargo test -p cli --test e2e                          about a minute
//! TAILPLANE_E2E_FULL=1 cargo test -p cli --test e2e     the long transfers and loads
//! ```
//!
//! Root is needed, and AF_XDP. Where a test cannot run for want of them or of a client program, it
//! prints so and passes; anything else that goes wrong is a failure. Each test has a lab and a
//! service of its own ([`harness::Testbed`]). Nothing is asserted about absolute times.

mod clients;
mod conformance;
mod connections;
mod contained;
mod deaths;
mod first_service;
mod gateway;
mod harness;
mod ipv6;
mod leave;
mod probe;
mod protected;
mod run_cli;
mod sdp_gateway;
mod steered;
mod transfer;
mod udp;
mod unsafe_scheduling;

/// The command that these tests run.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_tailplane");
