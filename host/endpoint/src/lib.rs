//! A service's control socket (IX §4.6): whoever may control a running service finds it by its name, asks what
//! it is, reads its statistics segment, and has its elastic threads granted, parked and placed, and its flow
//! groups moved.
//!
//! ```no_run
//! use endpoint::{Client, Request};
//! use std::time::Duration;
//! for (name, path) in endpoint::services(&endpoint::run_dir())? {
//!     let mut client = Client::connect(&path)?;
//!     let (description, segment) = client.describe()?; // the segment: for `statseg::Segment::join`
//!     println!("{name}: {} elastic threads, process {}", description.threads, description.pid);
//!     let id = client.ask(Request::Grant { thread: 1 })?; // Does not wait.
//!     client.wait(id, Duration::from_secs(1))?;
//! #   let _ = segment;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Request`], [`Answer`]: the protocol, one JSON message in each packet of a `SOCK_SEQPACKET` socket, at most
//!   [`MESSAGE_MAX`] bytes.
//! - [`Server`]: the service's side, one ordinary thread; what it carries out is a [`Steering`]. Nothing that a
//!   client does or fails to do reaches the elastic threads, but for commands that make sense.
//! - [`Client`]: the other side. Any number of them may be connected at a time.
//!
//! What is true lives in the service: a client that vanishes changes nothing, and one that comes anew asks again.

mod author;
mod client;
mod directory;
mod packet;
mod printable;
mod protocol;
mod server;

pub use author::check_author;
pub use client::{Client, ClientError};
pub use directory::{NameError, RUN_DIR_VARIABLE, check_name, run_dir, services, socket_path};
pub use packet::MESSAGE_MAX;
pub use printable::{PRINTED_MAX, printable, push_printable};
pub use protocol::{
    Answer, Ask, Description, Done, MoveSummary, Outcome, PROTOCOL_VERSION, Refused, RefusedKind,
    Request,
};
pub use server::{BindError, Door, Server, Steering};
