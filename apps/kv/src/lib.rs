//! A key-value service that speaks the memcached protocol.
//!
//! This is the engine, without sockets, threads or clock: the caller hands received bytes to a
//! [`Session`] and sends what it puts out.
//!
//! ```
//! use kv::{Flow, Session, Store, StoreConfig, WallTime};
//!
//! // In a service the hash key comes from the operating system's random numbers.
//! let store = Store::new(StoreConfig::default(), [1, 2])?;
//! let mut session = Session::new();
//! let now = WallTime::from_unix_s(1_800_000_000);
//! let mut reply = Vec::new();
//! let flow = session.feed(&store, now, b"set a 0 0 2\r\nhi\r\nget a\r\n", &mut reply);
//! assert_eq!(flow, Flow::Continue);
//! assert_eq!(reply, b"STORED\r\nVALUE a 0 2\r\nhi\r\nEND\r\n");
//! # Ok::<(), kv::ConfigError>(())
//! ```
//!
//! Commands: get gets gat gats set add replace append prepend cas delete incr decr touch flush_all
//! stats version verbosity quit, and the meta commands mg ms md ma mn me. Replies are those of
//! memcached 1.6.18 and are compared with it in `tests/differential.rs`. Where it differs on purpose:
//!
//! - `E` (give this CAS value) is accepted by mg, ms, md and ma, as later releases do;
//! - an item that `mg` or `ma` creates under a base64 key (`b` with `N`) is remembered as such;
//! - a line over [`LINE_MAX_BYTES`] closes the connection wherever the stream is cut; a multi-get may be longer. Where
//!   one over [`MULTIGET_WHOLE_BYTES`] has a key that is too long, the keys before that one are answered, then the
//!   error comes, and the connection is closed;
//! - a multi-get with a key that is too long touches nothing, and an expired TTL is told as 0;
//! - a number that is incremented while a peer slowly reads it (it would have to be some 16 KiB long) loses
//!   its padding;
//! - a delayed flush_all does not bring back what an earlier one has flushed;
//! - slabs, lru, lru_crawler, watch, extstore and the binary protocol are not there; the memory limit
//!   can't be changed while running.

mod config;
mod protocol;
mod service;
mod session;
mod stats;
mod store;
mod time;

pub use config::{ConfigError, StoreConfig};
pub use protocol::admin::VERSION;
pub use protocol::reply::Output;
pub use service::KvProtocol;
pub use session::{LINE_MAX_BYTES, MULTIGET_WHOLE_BYTES, Session};
pub use stats::{ClassCounters, ClassStats, Counters, StoreStats};
pub use store::Store;
pub use tailplane::Flow;
pub use time::WallTime;
