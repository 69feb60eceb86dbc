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
//!   that sleeps. The crate `measure` runs the threads, and knows what disturbed them.
//!
//! Nothing here judges or prints: that is the figures' business.

mod activations;
mod finder;
pub mod idle;
mod linear;
mod lots;
mod measure;
pub mod pair;
mod polling;
mod queue;
mod shape;
mod strategy;
mod watching;
mod work;

pub use finder::Finder;
pub use measure::{Bench, Latency, Throughput};
pub use queue::{Bell, DEPTH, Layout, Pusher, Rings, doorbells};
pub use shape::{COLD_PROBABILITY, Fill, Shape, Traffic};
pub use strategy::{Ends, SetUpError, Strategy, set_up};
pub use work::{Chain, Item, Nothing, Work};
