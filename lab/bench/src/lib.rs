//! What the dataplane costs where a clock would measure the neighbours: instructions for one
//! request, bytes for one idle connection.
//!
//! Two dataplanes are joined by the loopback driver in one thread, on a virtual clock ([`Rig`]). On
//! top of it:
//!
//! - `cost` serves a fixed number of requests; `instructions` runs it under callgrind, which counts
//!   nothing but the server's cycles ([`measured_server_cycle`]), prints a table and fails where the
//!   echo is dearer than [`instructions::ECHO_LIMIT`]. `scripts/bench-instructions.sh` builds and
//!   runs both.
//! - `connections` opens half a million connections and uses them.
//!
//! ```
//! use bench::{Rig, RigConfig, RawEcho};
//! let mut rig = Rig::open(RigConfig::default(), RawEcho::default())?;
//! rig.exchange_all()?;
//! assert_eq!(rig.caller().answered(), 64);
//! # Ok::<(), bench::RigError>(())
//! ```

mod caller;
pub mod connections;
mod empty_batches;
pub mod instructions;
pub mod profile;
mod raw_echo;
mod rig;
pub mod two_cores;

pub use caller::Caller;
pub use empty_batches::empty_batches;
pub use raw_echo::RawEcho;
pub use rig::{Rig, RigConfig, RigError, measured_server_cycle};
