//! The page of metrics: what it says ([`families`]), in which format ([`openmetrics`]), and how it is asked for
//! ([`http`]).
//!
//! Format and responder are a few hundred lines here rather than libraries: both are small published formats, and what
//! is not in a daemon that runs as root cannot fail in it.

pub mod families;
pub mod http;
pub mod openmetrics;
mod render;

pub use render::{FrontCounts, render};
