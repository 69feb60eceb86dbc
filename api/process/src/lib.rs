//! The `process` domain: the dataplane and its application are two processes (IX §3, §4.1).
//!
//! They share four kinds of memory, and a Unix socket that tells each when the other one is gone:
//!
//! | Memory | Dataplane | Application |
//! | --- | --- | --- |
//! | event array, of each elastic thread | writes | reads |
//! | call array, of each elastic thread | reads each word once | writes |
//! | packets | writes, as the NIC does | reads |
//! | transmit arena, of each elastic thread | reads, by copying into frames | owns and writes |
//!
//! Memory that the application may only read is sealed: nobody can map it for writing. A store there faults in
//! the application.
//!
//! A crossing is one batch of events and one batch of calls (IX §4.3, `run_io`). The dataplane's side is
//! [`Near`], a [`Service`](domain::Service) like any other, so every scheduler runs it: it writes the events down, hands over,
//! waits, and issues the calls that it finds, each checked. While it waits it has the network layer run on, so
//! that an application that is busy, stopped or gone holds up nobody's acknowledgments. The application's side
//! is [`Far`], which runs the very same `Service` that could be linked in.
//!
//! ```text
//! dataplane                                    application
//! Near::on_batch: events -> event array
//!   batch += 1, wake if asleep ─────────────▶  Far::run: sees batch
//!   network layer goes on                        Service::on_batch(events, calls)
//!   done == batch  ◀───────────────────────────  calls -> call array, done = batch
//! calls checked, issued
//! ```
//!
//! What an application may do wrong costs it its own connections at most; each kind is counted
//! ([`NearStats`]).

mod apart;
mod attendant;
mod far;
#[cfg(test)]
mod hostile_tests;
mod issue;
mod join;
pub mod layout;
mod mirror;
mod near;
mod near_stats;
mod place;
mod rates;
#[cfg(test)]
mod rates_tests;
mod record;
mod unsafe_shown;
mod waiting;

pub use apart::NearBell;
pub use attendant::Attendant;
pub use far::Far;
pub use join::{Application, Hello, Host, JoinError};
pub use layout::Geometry;
pub use mirror::Mirror;
pub use near::Near;
pub use near_stats::NearStats;
pub use place::{Place, Placement, Placer};
pub use rates::{Rates, Toll, Used};
pub use waiting::Waiting;
