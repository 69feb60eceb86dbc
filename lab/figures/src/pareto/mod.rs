//! The Pareto analysis of a machine (IX §5.3): all static configurations, the frontier that the best of them
//! make, and the sequence that follows (§5.4). Behind `tailplane pareto`; Figures 8 and 9 are drawn by the same.
//!
//! - [`machine`]: which machine is simulated; [`measure`]: a real one, looked at configuration by configuration.
//! - [`draw`]: Figures 8 and 9; [`report`]: the tables and the JSON.

mod analysis;
pub mod draw;
pub mod machine;
pub mod measure;
pub mod report;

pub use self::analysis::{Analysis, Entry, Run};
