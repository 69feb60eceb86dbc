//! The main job, measured: our key-value service over AF_XDP beside memcached on the kernel's
//! stack, on the same veth pair, one server core each, under the same load from the same client.
//!
//! The client is our own dataplane at the far end, on the other core: a kernel client would be the
//! bottleneck of both. What a kernel client sees is measured too, and said.

pub(crate) mod bound;
pub(crate) mod child;
pub mod config;
mod echo;
pub(crate) mod ends;
pub mod figure;
pub(crate) mod kernel_echo;
pub(crate) mod kv_test;
pub mod measure;
pub(crate) mod processors;
pub mod report;
mod sockperf;
pub(crate) mod softirq;
pub(crate) mod systems;
pub(crate) mod window;

pub use config::DemoConfig;
pub use measure::run;
