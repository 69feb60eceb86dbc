//! One thread's part of a run.

use std::sync::Arc;
use std::time::Instant;

use super::config::KernelConfig;
use crate::config::LoadConfig;
use crate::rendezvous::Rendezvous;
use crate::workload::Workload;

/// What one thread needs to do its part.
pub(super) struct Part<'a> {
    pub load: LoadConfig,
    /// Connections, keys and threads of the whole run.
    pub whole: &'a LoadConfig,
    pub transport: &'a KernelConfig,
    pub workload: Arc<Workload>,
    pub index: u32,
    /// Which of the shares of the keys this thread stores, of how many.
    pub keys_share: (u64, u64),
    pub origin: Instant,
    pub rendezvous: &'a Rendezvous,
}

impl Part<'_> {
    /// Whether the run is to end at once, because another thread has failed or it was told to.
    /// Asked in every round: a plain load of a cache line that nobody writes before it is over.
    pub fn is_stopped(&self) -> bool {
        self.rendezvous.has_failed()
    }

    /// Nanoseconds since the origin that all threads share.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
