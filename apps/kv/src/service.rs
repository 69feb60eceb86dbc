//! The engine as a service of the dataplane.
//!
//! ```
//! use std::sync::Arc;
//! use tailplane::Server;
//! use kv::{KvProtocol, Store, StoreConfig, WallTime};
//! let store = Arc::new(Store::new(StoreConfig::default(), [1, 2])?);
//! let started = WallTime::from_unix_s(1_800_000_000);
//! let service = Server::new(KvProtocol::new(store, started));
//! assert_eq!(service.connections(), 0);
//! # Ok::<(), kv::ConfigError>(())
//! ```

use std::sync::Arc;

use tailplane::{Flow, Instant, Limits, Opened, Output as Sink, Protocol};

use crate::session::REQUEST_BYTES;
use crate::{Output, Session, Store, WallTime};

/// The memcached protocol on a store that all elastic threads share.
#[derive(Debug)]
pub struct KvProtocol {
    store: Arc<Store>,
    /// The wall clock at the dataplane clock's origin, in nanoseconds since the epoch.
    origin_ns: u128,
}

impl KvProtocol {
    /// Serves `store`; `origin` is the wall time at which the dataplane's clock reads zero.
    pub fn new(store: Arc<Store>, origin: WallTime) -> Self {
        Self { store, origin_ns: origin.unix_s as u128 * 1_000_000_000 }
    }

    fn wall(&self, now: Instant) -> WallTime {
        WallTime::from_unix_s(((self.origin_ns + now.as_nanos() as u128) / 1_000_000_000) as u64)
    }
}

impl Output for Sink<'_, '_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        Sink::put(self, bytes);
    }

    #[inline]
    fn room(&self) -> usize {
        Sink::room(self)
    }
}

impl Protocol for KvProtocol {
    type Connection = Session;
    const REQUEST_BYTES: usize = REQUEST_BYTES;

    fn limits(&self) -> Limits {
        let config = self.store.config();
        Limits {
            request_timeout: config.request_timeout,
            idle_timeout: config.idle_timeout,
            max_connections: config.max_connections,
            memory: Some(Arc::clone(self.store.connection_memory())),
        }
    }

    fn open(&mut self, _: Instant, _: Opened) -> Option<Session> {
        self.store.connection_opened();
        Some(Session::new())
    }

    #[inline]
    fn receive(
        &mut self,
        now: Instant,
        session: &mut Session,
        data: &[u8],
        output: &mut Sink<'_, '_>,
    ) -> Flow {
        session.feed(&self.store, self.wall(now), data, output)
    }

    fn resume(&mut self, _: Instant, session: &mut Session, output: &mut Sink<'_, '_>) -> Flow {
        session.resume(&self.store, output)
    }

    fn closed(&mut self, mut session: Session) {
        session.close(&self.store);
        self.store.connection_closed();
    }
}
