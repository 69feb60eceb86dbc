//! What a dataplane shows of itself, and what the control plane makes of it (IX §4.6).
//!
//! ```
//! use control::metrics::{Board, Cycle, Reader, ThreadId};
//! let words = statseg::words(); // in memory that both sides see: `statseg::Segment`
//! let board = Board::over(&words);
//! let mut reader = Reader::new(ThreadId(0), 64);
//! let counters = |now_ns| board.snapshot().counters(now_ns);
//! assert!(reader.read(0, &counters(0)).is_none()); // nothing to compare with yet
//! board.busy(&Cycle { queue_packets: 100, taken_packets: 64, busy_ns: 130_000, ..Cycle::default() });
//! board.idle(370_000);
//! let sample = reader.read(500_000, &counters(500_000)).expect("a period has passed");
//! assert_eq!((sample.packets, sample.idle), (64, 0.74));
//! assert_eq!(sample.delay_ns(), 2.0 * 130_000.0); // ceil(Q / B) x iteration time
//! ```
//!
//! - [`Board`]: one elastic thread's monotonic counters in its statistics segment, one writer, any number of readers.
//! - [`Reader`]: the difference of two readings is a [`Sample`]. [`Sampler`]: those of all threads of a service.
//! - [`Ewma`], [`Averages`]: exponentially weighted moving averages with several smoothing factors.

mod ewma;
mod reader;
mod sampler;

pub use ewma::{Averages, Ewma};
pub use reader::{GroupReader, GroupSample, Reader, Sample, estimated_delay_ns};
pub use sampler::Sampler;
pub use statseg::{Board, Counters, Cycle};

/// An elastic thread's number: its place in the order of allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u16);

/// A flow group's number: its entry of the RSS indirection table (IX §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);
