//! The elastic thread: a state machine of six steps (IX Figure 2), without I/O, clock or threads of
//! its own.
//!
//! ```text
//! 1. poll the receive ring, refill it in bulk          ElasticThread::begin
//! 2. carry at most B packets through the stack
//! 3. hand the events to the application                ElasticThread::crossing
//! 4. execute its batched system calls                  ElasticThread::finish
//! 5. run due timers
//! 6. put frames on the transmit ring, reclaim sent ones
//! ```
//!
//! Real threads and the simulator drive the very same code; [`ElasticThread::run_cycle`] is the
//! whole cycle for an application that is linked in (the `inline` domain).
extern crate alloc;

mod classes;
mod conserving;
mod cycle;
mod elastic;
mod floor;
mod floor_threads;
mod forward;
mod home_layer;
mod home_lock;
mod idle;
mod longest;
mod message;
mod migration;
mod moderation;
mod net_layer;
mod turn;
mod unsafe_send;

pub use classes::{ClassError, Classes};
pub use conserving::ConservingThread;
pub use cycle::{CycleStats, ElasticConfig, Left, Progress};
pub use elastic::{Driver, Elastic, ElasticThread};
pub use floor::{ConservingConfig, Floor, OwnTender, ReadySetConfig, Tender, WhileAway};
pub use floor_threads::Parts;
pub use forward::{ForwardPorts, forwarding_mesh};
pub use idle::{Idle, IdlePolicy};
pub use migration::{
    DeviceTable, HISTOGRAM_BUCKETS, MOVES_MAX, MailboxFull, MigrationConfig, MigrationStats,
    Mistake, MoveCommand, MoveControl, MoveError, MoveMailbox, MoveReport, Moved, Phase,
    PhaseStats, PhaseTimes, Redirected, move_mailbox,
};
pub use moderation::{Moderation, ModerationPolicy};
pub use shuffle::{MAX_CLASSES, MAX_CORES, ServicePolicy};
pub use stack::GroupSet;

#[cfg(test)]
mod leave_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod waking_tests;
