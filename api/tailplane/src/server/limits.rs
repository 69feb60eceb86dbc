//! What the connections of a service may cost it beside their place in the table: time and memory.
//!
//! ```
//! use std::sync::Arc;
//! use tailplane::{ConnectionMemory, Duration, Limits};
//!
//! let limits = Limits {
//!     request_timeout: Some(Duration::from_secs(60)),
//!     memory: Some(Arc::new(ConnectionMemory::new(64 << 20))),
//!     ..Limits::default()
//! };
//! assert!(limits.idle_timeout.is_none());
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use clock::{Duration, Instant};

/// Bytes that the connections of a service may make it keep where the protocol sets no other limit.
pub const CONNECTION_MEMORY_BYTES: usize = 64 << 20;
/// Of the limit, the part (one in so many) that only the newest requests use: above the rest, the server
/// ends the connections that have waited longest.
const RESERVE: usize = 8;

/// Limits of all connections of a service, the same for the servers of all its threads.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Longest time for which a request may be incomplete, or a peer may take less than
    /// [`OUTPUT_LIMIT_BYTES`](super::OUTPUT_LIMIT_BYTES) of a longer reply. The server then resets the connection.
    /// `None`: no limit. The server notices within a second.
    pub request_timeout: Option<Duration>,
    /// Longest time between two events of a connection without an incomplete request or a kept reply. The
    /// server then closes the connection. `None`: no limit. At most [`Limits::IDLE_TIMEOUT_MAX`]; noticed
    /// within twice the time where cores share the connections.
    pub idle_timeout: Option<Duration>,
    /// Connections at home on one elastic thread. From 15/16 of them on, each new one has the server reset one that
    /// keeps nothing and has had no event for [`Limits::CROWD_IDLE`]: the one of 64 that has been idle for longest
    /// or, where cores share the connections, one without an event since the server last asked it. `None`: no limit.
    pub max_connections: Option<usize>,
    /// The memory for incomplete requests and kept replies: the same for all servers that share connections.
    /// `None`: a server's own of [`CONNECTION_MEMORY_BYTES`], or that of the [`SharedSlots`](super::SharedSlots).
    pub memory: Option<Arc<ConnectionMemory>>,
}

impl Limits {
    /// The longest idle timeout: a connection's entry has room for half a day of ticks.
    pub const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(12 * 3_600);
    /// Connections with an event within this time are never reset to make room for others.
    pub const CROWD_IDLE: Duration = Duration::from_secs(2);
}

/// The memory that all connections of a service make it keep: incomplete requests, kept replies, and the
/// protocol's state for either.
///
/// A connection that has neither charges nothing, so the atomic counters cost requests that come and leave
/// whole nothing.
#[derive(Debug)]
pub struct ConnectionMemory {
    limit_bytes: usize,
    /// Servers that charge it.
    servers: AtomicUsize,
    kept_bytes: AtomicUsize,
    highest_bytes: AtomicUsize,
    /// Connections that each limit ended.
    ended: [AtomicU64; 4],
    yields: AtomicU64,
    /// The second after that in which a server last had nearly as many connections as it may have; 0: never.
    crowd_until: AtomicU64,
}

/// A snapshot of a [`ConnectionMemory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionMemoryStats {
    /// The limit, in bytes.
    pub limit_bytes: usize,
    /// Bytes kept now.
    pub kept_bytes: usize,
    /// The most that was ever kept, in bytes.
    pub highest_bytes: usize,
    /// Connections reset because a request stayed incomplete, or a reply unread, for too long.
    pub timed_out: u64,
    /// Connections closed because they were idle for too long.
    pub idle_closed: u64,
    /// Connections reset to stay within the limit.
    pub evicted: u64,
    /// Idle connections reset because there were nearly as many as there may be.
    pub crowded: u64,
    /// Turns that ended before the request did: the peer was slow to read, or others had to be served.
    pub yields: u64,
}

impl Default for ConnectionMemory {
    fn default() -> Self {
        Self::new(CONNECTION_MEMORY_BYTES)
    }
}

impl ConnectionMemory {
    /// Memory of at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            servers: AtomicUsize::new(0),
            kept_bytes: AtomicUsize::new(0),
            highest_bytes: AtomicUsize::new(0),
            ended: Default::default(),
            yields: AtomicU64::new(0),
            crowd_until: AtomicU64::new(0),
        }
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> ConnectionMemoryStats {
        // Relaxed here and below: the counters order nothing.
        let ended = |why: Ended| self.ended[why as usize].load(Ordering::Relaxed);
        ConnectionMemoryStats {
            limit_bytes: self.limit_bytes,
            kept_bytes: self.kept_bytes.load(Ordering::Relaxed),
            highest_bytes: self.highest_bytes.load(Ordering::Relaxed),
            timed_out: ended(Ended::TimedOut),
            idle_closed: ended(Ended::Idle),
            evicted: ended(Ended::Evicted),
            crowded: ended(Ended::Crowded),
            yields: self.yields.load(Ordering::Relaxed),
        }
    }

    /// One server more charges it.
    pub(super) fn join(&self) {
        self.servers.fetch_add(1, Ordering::Relaxed);
    }

    /// A server's part of the reserve.
    pub(super) fn reserve_bytes(&self) -> usize {
        self.limit_bytes / RESERVE / self.servers.load(Ordering::Relaxed).max(1)
    }

    /// A connection that was charged `before` bytes now keeps `after`.
    pub(super) fn charge(&self, before: usize, after: usize) {
        if after > before {
            let more = after - before;
            let kept = self.kept_bytes.fetch_add(more, Ordering::Relaxed) + more;
            self.highest_bytes.fetch_max(kept, Ordering::Relaxed);
        } else if before > after {
            self.kept_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Whether only the reserve is left: the longest waiting are to be ended.
    pub(super) fn is_short(&self) -> bool {
        let kept = self.kept_bytes.load(Ordering::Relaxed);
        kept > self.limit_bytes - self.limit_bytes / RESERVE
    }

    /// Whether the limit is exceeded: the connection that charged last is to be ended.
    pub(super) fn is_spent(&self) -> bool {
        self.kept_bytes.load(Ordering::Relaxed) > self.limit_bytes
    }

    /// A server has nearly as many connections as it may have.
    pub(super) fn note_crowd(&self, now: Instant) {
        self.crowd_until.store(now.as_millis() / 1_000 + 1, Ordering::Relaxed);
    }

    /// Whether one had within the last second.
    pub(super) fn is_crowded(&self, now: Instant) -> bool {
        now.as_millis() / 1_000 <= self.crowd_until.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, why: Ended) {
        self.ended[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_yield(&self) {
        self.yields.fetch_add(1, Ordering::Relaxed);
    }
}

/// Which limit ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// [`Limits::request_timeout`].
    TimedOut,
    /// [`Limits::idle_timeout`].
    Idle,
    /// [`Limits::memory`].
    Evicted,
    /// [`Limits::max_connections`].
    Crowded,
}
