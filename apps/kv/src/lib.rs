//! A key-value service that speaks the memcached protocol.
