//! Resource limits of a confined process. Each is soft and hard at once: the process cannot raise it.

use rustix::process::{Resource, Rlimit};

/// Limits; `None` leaves the starter's. No core file is written in any case, since it would hold all
/// that the process knew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Address space, in bytes. Huge mappings count whole: a dataplane needs its UMEM and more.
    pub address_space_bytes: Option<u64>,
    /// One above the highest descriptor that can be opened.
    pub open_files: Option<u64>,
    /// Processes and threads of the user, all of the user's together. Root is not bound by it.
    pub processes: Option<u64>,
    /// Memory that may be locked, in bytes.
    pub locked_memory_bytes: Option<u64>,
    /// Time that a thread under a real-time policy may run without a blocking call, in microseconds; then the
    /// process is killed. So a real-time thread that spins for ever cannot hold a core for ever.
    pub realtime_us: Option<u64>,
    /// The highest real-time priority that it may give itself; 0 is none.
    pub realtime_priority: Option<u64>,
}

/// How many limits [`Limits::list`] has at most.
pub(crate) const MOST_LIMITS: usize = 8;

impl Limits {
    /// The limits to set, in an array: it is read between `fork` and `exec`, where nothing is allocated.
    pub(crate) fn list(&self) -> [Option<(Resource, Rlimit)>; MOST_LIMITS] {
        let limit = |resource, value: Option<u64>| {
            value.map(|v| (resource, Rlimit { current: Some(v), maximum: Some(v) }))
        };
        [
            limit(Resource::Core, Some(0)),
            limit(Resource::As, self.address_space_bytes),
            limit(Resource::Nofile, self.open_files),
            limit(Resource::Nproc, self.processes),
            limit(Resource::Memlock, self.locked_memory_bytes),
            limit(Resource::Rttime, self.realtime_us),
            limit(Resource::Rtprio, self.realtime_priority),
            // Niceness may never be lowered again.
            limit(Resource::Nice, Some(0)),
        ]
    }
}
