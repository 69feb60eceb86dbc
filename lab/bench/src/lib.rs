//! What the dataplane costs where a clock would measure the neighbours: instructions for one
//! request, bytes for one idle connection, both on [`world::rig::Rig`].
//!
//! - `cost` serves a fixed number of requests; `instructions` runs it under callgrind, which counts
//!   nothing but the server's cycles ([`world::rig::measured_server_cycle`]), prints a table and fails where the
//!   echo is dearer than [`instructions::ECHO_LIMIT`]. `scripts/bench-instructions.sh` builds and
//!   runs both.
//! - `connections` opens half a million connections and uses them.

pub mod connections;
pub mod instructions;
pub mod profile;
