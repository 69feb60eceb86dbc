//! What a dataplane shows of itself, and what the control plane makes of it (IX §4.6).
//!
//! ```
//! use control::metrics::{Board, Cycle, Reader, ThreadId};
//! let board = Board::default(); // in memory that both sides see
//! let mut reader = Reader::new(ThreadId(0), 64);
//! assert!(reader.read(0, &board.snapshot()).is_none()); // nothing to compare with yet
//! board.busy(&Cycle { queue_packets: 100, taken_packets: 64, busy_ns: 130_000, oldest_waiting_ns: 90_000 });
//! board.idle(370_000);
//! let sample = reader.read(500_000, &board.snapshot()).expect("a period has passed");
//! assert_eq!((sample.packets, sample.idle), (64, 0.74));
//! assert_eq!(sample.delay_ns(), 2.0 * 130_000.0); // ceil(Q / B) x iteration time
//! ```
//!
//! - [`Board`]: one elastic thread's monotonic counters, one writer, any number of readers.
//! - [`Reader`]: the difference of two readings is a [`Sample`].
//! - [`Ewma`], [`Averages`]: exponentially weighted moving averages with several smoothing factors.

mod board;
mod ewma;
mod reader;

pub use board::{Board, Counters, Cycle};
pub use ewma::{Averages, Ewma};
pub use reader::{GroupReader, GroupSample, Reader, Sample, estimated_delay_ns};

/// An elastic thread's number: its place in the order of allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u16);

/// A flow group's number: its entry of the RSS indirection table (IX §4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u16);
