//! Closed forms: what the simulations are tested against, and what is drawn beside measurements.
//!
//! The mean service time is one in all of them, and `load` is the share of the servers' time that
//! arrivals ask for, between zero and one, both exclusive; outside of it the results are no numbers
//! or infinite, never a panic.
//!
//! ```
//! use queueing::theory;
//! // ZygOS §3.1: p99 of at most ten service times, 16 cores, exponential.
//! assert!((theory::mm1_max_load(0.99, 10.0) - 0.5395).abs() < 1e-4);
//! assert!((theory::mmn_max_load(16, 0.99, 10.0) - 0.9677).abs() < 1e-4);
//! ```

mod markov;
mod md1;
mod root;

pub use markov::{
    erlang_c, mm1_max_load, mm1_sojourn_quantile, mmn_max_load, mmn_sojourn_quantile,
    mmn_sojourn_tail,
};
pub use md1::Md1;
