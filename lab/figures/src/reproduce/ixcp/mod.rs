//! IX's control plane: its static configurations and load patterns, on the simulated server of crate `world`; and
//! what moving flow groups takes, for real.

mod frontier;
mod governed;
mod patterns;
mod server;
mod table4;
mod table5;

pub use frontier::{FIG8, FIG9};
pub use governed::GOVERNED;
pub use patterns::{FIG10, FIG11, FIG12};
pub use table4::TABLE4;
pub use table5::TABLE5;
