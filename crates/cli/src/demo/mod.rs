//! The main job, measured: our key-value service over AF_XDP beside memcached on the kernel's
//! stack, on the same veth pair, one server core each, under the same load from the same client.
//!
//! The client is our own dataplane at the far end, on the other core: a kernel client would be the
//! bottleneck of both. What a kernel client sees is measured too, and said.

mod bound;
mod echo;
pub mod html;
mod kernel_echo;
mod machine;
pub mod measure;
pub mod report;
mod softirq;
mod systems;

pub use measure::{DemoConfig, run};
