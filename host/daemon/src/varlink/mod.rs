//! The control socket: Varlink (<https://varlink.org>), interface `io.tailplane.Control`.
//!
//! ```text
//! varlinkctl introspect unix:/run/tailplane/control.sock io.tailplane.Control
//! varlinkctl call unix:/run/tailplane/control.sock io.tailplane.Control.Status '{"name": "kv"}'
//! varlinkctl call --more unix:/run/tailplane/control.sock io.tailplane.Control.Events '{}'
//! ```
//!
//! The protocol is JSON objects with a zero byte behind each. That is written here, in four small files, rather than
//! taken from a library: those that there are bring an executor for asynchronous tasks into a daemon that runs as root,
//! and leave limits (length of a message, slow readers, number of connections) to be built around them all the same.

mod access;
mod interface;
mod message;
mod session;

pub use access::{Access, Role};
pub use interface::{Asked, DESCRIPTION, INTERFACE, asked, failure};
pub use message::{Call, MESSAGE_MAX, error, reply};
pub use session::{Session, Wants};
