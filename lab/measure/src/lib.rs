//! How this project measures: one rule for disturbed windows, one order of contestants, one set of statistics.
//!
//! ```
//! use std::time::Duration;
//! use measure::{Plan, QUIET, contest, stats, watched};
//! let plan = Plan { windows: 3, tries: 9, pause: Duration::ZERO, quiet: QUIET, seed: 1 };
//! let kept = contest(&mut [1_000, 2_000], plan, |turns| {
//!     watched(&[], || Ok::<_, std::io::Error>((0..*turns).sum::<u64>() as f64))
//! })?;
//! assert_eq!(stats::median(&kept[1].values(|sum| *sum)), Some(1_999_000.0));
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! - [`contest`]: windows of several contestants. Each round gives every contestant one window, in an order that the
//!   seed draws anew, so that no contestant gains by its place. A window counts where its [`Disturbance`] is within
//!   [`QUIET`] (or the plan's own bound): an absolute bound, the same for all contestants. [`Kept`] counts the windows
//!   that were discarded, and pairs the windows of two contestants by round. [`until_quiet`]: one window, again while
//!   something disturbs it.
//! - [`together`], [`Places`]: a window of two threads, pinned, at real-time priority. [`watched`], [`Usage`]: a window
//!   of whole processes. [`alone`]: a window of the calling thread.
//! - [`stats`]: medians, quantiles, bootstrap intervals; [`MeanInterval`]: Student's t; [`median_interval`]: order
//!   statistics.
//! - [`conditions`]: the machine, as every result is stamped with it; [`process`]: what `/proc` says of processes and
//!   threads.

pub mod conditions;
mod confidence;
mod contest;
mod disturbance;
mod mean;
#[cfg(feature = "realtime")]
mod places;
pub mod process;
pub mod stats;
mod usage;
mod window;

pub use confidence::{MedianInterval, REPEATS_FOR_95, median_interval};
pub use contest::{Kept, Plan, Tried, contest, rounds, shuffled, until_quiet};
pub use disturbance::{Disturbance, ONE_CORE_BELOW_NS, QUIET};
pub use mean::MeanInterval;
#[cfg(feature = "realtime")]
pub use places::Places;
pub use usage::{Usage, watched};
pub use window::{
    Place, SetsAtEnd, Side, Stopwatch, WINDOW_MAX, Watch, WindowError, alone, pin, together,
};
