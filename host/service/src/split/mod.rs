//! The `process` domain of `tailplane run`: three processes, three users.
//!
//! ```text
//! starter      (root)         opens the port, starts both others, passes descriptors, watches, clears up
//!    |  control socket: configuration, sockets, memory; hang-up means: end
//! dataplane    (own user, no capabilities, no files, no network, system calls filtered)
//!    |  the domain's socket and shared memory
//! application  (own user)
//! ```
//!
//! [`starter::run`] is the first, [`dataplane::serve`] the second; between them go [`Order`]s and what is [`Told`].
//! However one of the three ends, the others end:
//!
//! | Ends | Hears | By |
//! | --- | --- | --- |
//! | starter | dataplane | the control socket's hang-up: resets connections, then ends |
//! | starter | application | the kernel's signal where it is confined; else the dataplane's end |
//! | dataplane | starter, application | its process; the domain's socket's hang-up |
//! | application | starter, dataplane | its process; the domain's socket's hang-up |
//!
//! What the application has started and left behind ends with it ([`orphans`]), unless the starter was killed.

pub mod bounds;
pub mod control;
pub mod dataplane;
pub mod farewell;
pub mod half_open;
mod orders;
pub mod orphans;
mod passed_table;
pub mod placing;
pub mod plan;
pub mod processors;
pub mod relay;
pub mod spawn;
pub mod starter;
pub mod table;
pub mod wire;
pub mod words;

pub use self::orders::{Order, PassedInterface, PassedWire, Role, Start, Told};
