//! The many-tenant software data plane (HyperPlane §II-A, Figures 1c and 2): queue pairs of untrusted
//! processes in shared memory, served by one to four cores.
//!
//! ```
//! use std::time::Duration;
//! use sdp::{Plane, PlaneConfig, Shape, Tenant, handler};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let socket = std::env::temp_dir().join(format!("tailplane-sdp-doc-{}", std::process::id()));
//! let config = PlaneConfig { spin_looks: 100, ..PlaneConfig::new(&socket) };
//! let plane = Plane::start(config, |_core| handler("echo").expect("it is in the registry"))?;
//!
//! // In another process: two queue pairs.
//! let mut tenant = Tenant::join(&socket, Shape { queues: 2, ..Shape::default() })?;
//! tenant.submit(1, b"hello")?;
//! tenant.wait(Duration::from_secs(5))?;
//! let reply = tenant.poll(1).expect("waited for");
//! assert_eq!(reply.bytes, b"hello");
//!
//! // Counted at the end of the visit, a moment after the reply.
//! while plane.report().total().served == 0 {
//!     std::thread::yield_now();
//! }
//! plane.stop();
//! # Ok(()) }
//! ```
//!
//! | File | Holds |
//! | --- | --- |
//! | `geometry` | what a tenant may ask for, and where everything lies in its memory |
//! | `queue_pair` | the two rings, from both sides |
//! | `join`, `control` | joining over a Unix socket; the thread that lets tenants in and sees them go |
//! | `limits` | what each user's tenants may have, and how fast they may join |
//! | `tenant_memory` | the memory of a tenant: offered, mapped, sealed, unmapped in steps |
//! | `notify`, `spin` | which queue has work: `qwait`'s ready set, or looking at each |
//! | `core` | a data-plane core: visits, weights, rate limits, sleep |
//! | `class` | strict priority: which tenants go before which |
//! | `bucket`, `counters` | rate limits; what is counted |
//! | `config`, `plane` | all of it together: start, look, change, stop |
//! | `client` | the tenant's library |
//! | `handler` | what serves a request |
//!
//! *Nothing is trusted that a tenant can write.* A word is read once, checked, then used; a payload is
//! copied once before anything looks at it; ring positions live in the plane's own memory. A tenant
//! that lies gets visits and wrong answers of its own, and is counted; `docs/sdp.md` has the table.

mod bucket;
mod class;
mod client;
mod config;
mod control;
mod core;
mod counters;
mod geometry;
mod handler;
mod join;
mod limits;
mod link;
mod notify;
mod plane;
mod queue_pair;
mod spin;
mod tenant_memory;

#[cfg(test)]
mod containment_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod processes_tests;
#[cfg(any(test, fuzzing))]
mod written_tests;

pub use bucket::RateLimit;
pub use class::{CLASS_LOWEST, CLASSES, ClassPolicy};
pub use client::{Reply, Tenant, TenantError};
pub use config::{Arrangement, PlaneConfig};
pub use control::JoinCounts;
pub use counters::Counts;
pub use geometry::{
    DEPTH_MAX, DEPTH_MIN, DoorbellLayout, Geometry, QUEUES_MAX, SETS_MAX, SLOT_BYTES_MAX,
    SLOT_BYTES_MIN, Shape, ShapeError,
};
pub use handler::{Echo, Handler, Outcome, TenantQueue, Work, handler};
pub use limits::{Limits, Usage};
pub use notify::Notify;
pub use plane::{CORES_MAX, Listener, Plane, PlaneError, PlaneReport, TenantReport, WEIGHT_MAX};
pub use queue_pair::SubmitError;
#[cfg(fuzzing)]
pub use written_tests::{read_ask, serve as serve_written};
