//! HyperPlane's notification as a software library.
#![cfg_attr(not(any(feature = "std", loom, test)), no_std)]

extern crate alloc;
#[cfg(all(not(feature = "std"), any(loom, test)))]
extern crate std;

mod bitmap;
mod exclusive;
mod idle;
pub mod model;
mod partition;
mod policy;
mod set;
mod shared;
#[cfg(all(feature = "std", not(loom)))]
mod sleepers;
mod sync;
#[cfg(all(feature = "std", not(loom)))]
mod tenant;
#[cfg(any(feature = "std", loom))]
mod tenant_words;
mod unsafe_doorbell;
#[cfg(all(feature = "std", not(loom)))]
mod unsafe_monitor;
#[cfg(all(feature = "std", not(loom)))]
mod unsafe_region;
#[cfg(any(test, all(not(feature = "std"), not(loom))))]
mod unsafe_spin_lock;
mod wait;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(test)]
mod tests;

pub use bitmap::FLAT_MAX;
pub use exclusive::ExclusiveSet;
pub use idle::{Sleeper, SpinSleeper};
pub use partition::{ReadySets, SetQueue, StealingConsumer};
pub use policy::ServicePolicy;
pub use set::{Config, Control, MAX_CONSUMERS, MAX_QUEUES, Producer, QueueId, SetError};
pub use shared::{SharedConsumer, SharedSet};
#[cfg(all(feature = "std", not(loom)))]
pub use sleepers::{EventSleeper, FutexSleeper};
#[cfg(all(feature = "std", not(loom)))]
pub use tenant::{TENANT_QUEUES_MAX, TENANTS_MAX, Tenant, TenantError, TenantOffer, TenantSet};
pub use unsafe_doorbell::{Doorbell, DoorbellRef, MAX_COUNT};
#[cfg(all(feature = "std", not(loom)))]
pub use unsafe_monitor::{MonitorAbsent, MonitorSleeper, MonitorSupport, monitor_support};
#[cfg(all(feature = "std", not(loom)))]
pub use unsafe_region::{Region, RegionError};

#[cfg(all(feature = "std", not(loom)))]
impl ExclusiveSet {
    /// An empty set whose consumer sleeps on a futex. All memory is allocated here.
    ///
    /// # Errors
    /// [`SetError::BadCapacity`].
    pub fn new(config: Config) -> Result<Self, SetError> {
        Self::with_sleeper(config, alloc::sync::Arc::new(FutexSleeper::default()))
    }
}

#[cfg(all(feature = "std", not(loom)))]
impl SharedSet {
    /// One more consumer, which sleeps on a futex.
    ///
    /// # Errors
    /// [`SetError::TooManyConsumers`].
    pub fn consumer(&self) -> Result<SharedConsumer, SetError> {
        self.consumer_with(alloc::sync::Arc::new(FutexSleeper::default()))
    }
}
