//! IX's controlled server, simulated (IX §5.3, §5.4): Figures 8 to 12 and Tables IV and V are its.
//!
//! - [`server`]: the server under the real [`control::ControlLoop`], with its energy, its queues and its migrations.
//! - [`pareto`]: all static configurations and their frontier; [`score`]: what a policy did, beside it.
//! - [`reproduce`]: what the paper's figures show; [`migration`]: the statistics of Table V, of recorded migrations.

pub mod migration;
pub mod pareto;
pub mod reproduce;
pub mod score;
pub mod server;
