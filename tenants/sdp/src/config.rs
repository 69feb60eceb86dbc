//! How a plane is made.

use std::path::PathBuf;

use crate::bucket::RateLimit;
use crate::class::ClassPolicy;
use crate::limits::Limits;
use crate::notify::Notify;

/// Which cores serve which queues (HyperPlane §II-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Arrangement {
    /// Every core has queues of its own: those of a tenant are dealt out over the cores.
    #[default]
    ScaleOut,
    /// Cores share the queues of their group; one queue is served by one core at a time.
    ScaleUp {
        /// Cores of a group; the number of cores is a multiple of it. One: what sharing costs a core is
        /// paid, with nobody to share with.
        cores_per_group: u32,
    },
}

/// How a plane is made.
#[derive(Clone, Debug)]
pub struct PlaneConfig {
    /// Where tenants join. A socket on which no process listens any more is replaced.
    pub socket: PathBuf,
    /// The socket's permissions; `0o600` by default: the plane's own user.
    pub socket_mode: u32,
    /// Data-plane cores: 1 to 4.
    pub cores: u32,
    /// The processors of the cores, in order; none: not pinned.
    pub cpus: Vec<usize>,
    /// Which cores serve which queues.
    pub arrangement: Arrangement,
    /// How a core learns of work.
    pub notify: Notify,
    /// Requests of a visit, times the queue's weight: 1 to 64.
    pub batch: u32,
    /// Empty looks before a core sleeps; spinning cores never do.
    pub spin_looks: u32,
    /// What tenants may have.
    pub limits: Limits,
    /// The rate limit of a tenant when it joins.
    pub rate_limit: RateLimit,
    /// The weight of a tenant's queues when it joins: 1 to 64.
    pub weight: u32,
    /// Which tenants go before which, strictly; weights count among those of one class.
    pub classes: ClassPolicy,
}

impl PlaneConfig {
    /// One core, ready set, a batch of 8.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            socket_mode: 0o600,
            cores: 1,
            cpus: Vec::new(),
            arrangement: Arrangement::ScaleOut,
            notify: Notify::Qwait,
            batch: 8,
            spin_looks: 2_000,
            limits: Limits::default(),
            rate_limit: RateLimit::NONE,
            weight: 1,
            classes: ClassPolicy::default(),
        }
    }
}
