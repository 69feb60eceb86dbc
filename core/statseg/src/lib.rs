//! The statistics segment: what a dataplane shows of itself while it runs (IX §4.6), in memory that it alone
//! writes and that whoever was handed the descriptor reads, without a word between the two.
//!
//! ```
//! use statseg::{Cycle, Layout, Segment, State};
//! let segment = Segment::create("example", &Layout { threads: 2, groups: 128, batch_max: 64 })?;
//! let board = segment.board(1).expect("there are two threads"); // the elastic thread's own
//! board.set_state(State::Running);
//! board.busy(&Cycle { queue_packets: 3, taken_packets: 3, busy_ns: 4_000, ..Cycle::default() });
//! // In another process:
//! let reading = Segment::join(segment.descriptor()?)?;
//! let thread = reading.thread(1).expect("there are two threads");
//! assert_eq!((thread.state, thread.packets), (State::Running, 3));
//! assert_eq!(thread.batches[2], 1); // one batch of two or three packets
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Board`]: one elastic thread's words. It alone writes them, by plain stores to lines of its own; they only
//!   grow, so that a reader that misses a turn misses nothing.
//! - [`Segment`]: the writer's side of the memory; [`Reading`]: the reader's, which believes nothing that it reads.
//! - [`Counters`]: what the control plane differences; [`ThreadCounters`]: all that there is of a thread.
//!
//! Nothing is promised of two words together: each is right by itself, and a cycle that ends while they are read
//! may be in some and not in others, which the next reading puts right.
//!
//! The layout ([`mod@layout`]) has a version. Readers refuse others.

mod board;
mod counters;
pub mod layout;
mod segment;

pub use board::{Board, Words, words};
pub use counters::{
    Counters, Cycle, MigrationTotals, PhaseTotals, State, ThreadCounters, Totals, bucket_floor,
};
pub use layout::Layout;
pub use segment::{JoinError, Reading, Segment};
