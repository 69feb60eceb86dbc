//! Spin polling against a ready set, between two cores of this machine: the experiments of HyperPlane
//! (MICRO 2020) §II and §V, for software.
//!
//! ```no_run
//! use std::time::Duration;
//! use notify::{Bench, Chain, Layout, Shape, Strategy, Traffic, set_up};
//! let (shape, queues) = (Shape::SingleQueue, 1_000);
//! let ends = set_up(Strategy::Exclusive, queues, Layout::Paged)?;
//! let mut bench = Bench::new(ends, Traffic::new(shape, queues, 1), queues);
//! let mut work = Chain::of(400.0, Chain::step_ns());
//! // Where the two threads run and at which priority is the caller's to say.
//! let found = bench.backlog(&|_| Ok(()), Duration::from_millis(20), &mut work)?;
//! println!("{} ns an item; {}", found.ns_per_item, found.disturbance);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Shape`], [`Traffic`]: which queues have work; [`Work`]: what is done with it.
//! - [`Strategy`], [`Finder`]: how the consumer learns where it is: by polling doorbells, as a poll-mode
//!   driver polls descriptors, by `qwait`'s two forms, or by the paper's linear list. [`set_up`] makes
//!   queues ([`Layout`]), a producer's end ([`Pusher`]) and such a consumer.
//! - [`Bench`]: one window of backlog or of light load; [`pair`]: two consumers; [`idle`]: a consumer
//!   that sleeps. [`window`] runs the threads and tells what disturbed them.
//! - [`expected_rate`], [`poll_cost`]: what spinning must cost, by arithmetic.
//!
//! - [`contest`]: windows of several contenders in turn, the disturbed ones again.
//!
//! Nothing here judges or prints: that is the figures' business.

mod activations;
pub mod contest;
pub mod expect;
mod finder;
pub mod idle;
mod linear;
mod measure;
pub mod pair;
mod polling;
mod queue;
mod random;
mod shape;
mod stalls;
mod strategy;
mod watching;
pub mod window;
mod work;

pub use expect::{PollCost, expected_rate, poll_cost};
pub use finder::Finder;
pub use measure::{Bench, Latency, Throughput};
pub use queue::{Bell, DEPTH, Layout, Pusher, Rings, doorbells};
pub use random::Random;
pub use shape::{COLD_PROBABILITY, Fill, Shape, Traffic};
pub use strategy::{Ends, SetUpError, Strategy, set_up};
pub use window::{Disturbance, Place, Side, Stopwatch, WINDOW_MAX, WindowError};
pub use work::{Chain, Item, Nothing, Work};
