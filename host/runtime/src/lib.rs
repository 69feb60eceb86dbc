//! Elastic threads on real threads, `inline` domain: one pinned thread a core, each with its queue
//! pairs, its pool and its service.
//!
//! A thread spins while there is work and for a while after; then it sleeps in two phases (arm
//! every source, look once more, block) until a packet, a timer, a forwarded packet or the end.
//!
//! However a thread ends, it leaves the network: peers are reset, and packet memory comes back.

mod bells;
mod beside;
mod config;
mod controls;
mod device;
mod drive;
mod error;
mod ground;
mod kicks;
mod processor;
mod protected;
mod register;
mod run;
mod stage;
mod unsafe_priority;

pub use dataplane::{
    ClassError, Classes, ConservingConfig, ElasticConfig, GroupSet, IdlePolicy, MigrationStats,
    ModerationPolicy, MoveCommand, MoveError, MoveReport, Moved, Phase, ReadySetConfig,
    ServicePolicy, WhileAway,
};
pub use shown::{Shown, Watched};
pub use stack::{
    CongestionAlgorithm, Ecn, FLOW_GROUPS, Keepalive, PeerRegister, Route, RssKey, StackConfig,
    policy,
};

pub use beside::beside;
pub use config::{CoreReport, RuntimeConfig, Scheduler};
pub use controls::Controls;
pub use device::TableError;
pub use error::RuntimeError;
pub use ground::draw_secrets;
pub use protected::run_protected;
pub use register::{PeersLeft, Register, places_of_group};
pub use run::{run, run_controlled};
pub use unsafe_priority::{keep_realtime, make_first_ordinary, may_have_realtime, set_realtime};
