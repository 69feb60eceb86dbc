//! A service that gets a second processor while its load needs one, for real: `tailplaned`, a service that it has
//! started, and a background job, on two processors (IX §4.6, §5.4).
//!
//! ```text
//! generator (kernel sockets) --- veth, two queues --- two elastic threads: spin     a background job
//!                                                          ^                            ^
//!                                                          '-- grants, parks, moves ----'-- what is left: tailplaned
//! ```

mod figure;
mod found;
mod plan;
mod rig;
mod run;
mod timeline;

pub use figure::{ELASTIC, job_shares};
pub use found::{Found, Progress};
pub use plan::{AHEAD, PAPER, Plan, Policy, REQUEST_US, SHARES};
pub use run::run;
pub use timeline::Swing;
