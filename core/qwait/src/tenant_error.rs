//! The bounds of tenants and their sets, and why one was refused.

use std::io;

use crate::unsafe_region::RegionError;

/// Most queues of one tenant: the bits of its ready word.
pub const TENANT_QUEUES_MAX: u32 = 64;
/// Most tenants of one set.
pub const TENANTS_MAX: u32 = 1024;
/// Classes of tenants: 0 is served first.
pub const TENANT_CLASSES: u8 = 8;
/// The class that a tenant begins in: the lowest, so that it is for the trusted side alone to raise it.
pub const TENANT_CLASS_LOWEST: u8 = TENANT_CLASSES - 1;

/// Why a tenant or a set of tenants was refused.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The set's size is senseless.
    #[error("a set of {tenants} tenants: allowed are 1 to {TENANTS_MAX}")]
    BadTenants {
        /// What was asked for.
        tenants: u32,
    },
    /// The tenant's queues are senseless.
    #[error(
        "{queues} queues of {capacity} items for one tenant: allowed are 1 to {TENANT_QUEUES_MAX} \
         queues of at least one item; connect twice for more"
    )]
    BadQueues {
        /// How many queues.
        queues: u32,
        /// Of how many items.
        capacity: u32,
    },
    /// All places are taken.
    #[error("the set is full: disconnect a tenant, or make the set larger")]
    Full,
    /// There is no such class.
    #[error("class {class}: allowed are 0, which is served first, to {TENANT_CLASS_LOWEST}")]
    BadClass {
        /// What was asked for.
        class: u8,
    },
    /// There is no tenant in the slot.
    #[error("slot {slot} has no tenant")]
    NoTenant {
        /// Which.
        slot: u32,
    },
    /// The tenant has no such queue.
    #[error("queue {queue} of a tenant with {queues}: numbers begin at 0")]
    NoSuchQueue {
        /// Which.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// The shared memory could not be made or joined.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The operating system refused.
    #[error("{tried} failed: {source}")]
    Os {
        /// What was tried.
        tried: &'static str,
        /// What it said.
        source: io::Error,
    },
}

pub(crate) fn os(tried: &'static str) -> impl FnOnce(rustix::io::Errno) -> TenantError {
    move |errno| TenantError::Os { tried, source: errno.into() }
}
