//! Which queue has work: the strategies, behind one set of calls, so that all else is the same.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use qwait::{
    QueueId, ServicePolicy, SharedTenantConsumer, SharedTenantSet, TenantError, TenantSet,
};
use serde::{Deserialize, Serialize};

use crate::link::Link;
use crate::spin::{Spinner, Spun};

/// How a core learns which queue has work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Notify {
    /// HyperPlane's ready set, in software (`qwait`): tenants set a bit on the edge from empty to
    /// non-empty; a core that finds none sleeps.
    #[default]
    Qwait,
    /// Looks at every queue's doorbell in turn, and never sleeps.
    Spin,
    /// As `Spin`, at the cost of a poll-mode driver's poll: an indirect call for each queue with a
    /// burst of 32, which reads a descriptor line and an index line.
    SpinDpdk,
}

impl Notify {
    /// The name that commands and reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qwait => "qwait",
            Self::Spin => "spin",
            Self::SpinDpdk => "spin-dpdk",
        }
    }
}

impl std::str::FromStr for Notify {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Self::Qwait, Self::Spin, Self::SpinDpdk];
        let found = all.into_iter().find(|notify| notify.name() == name);
        found.ok_or_else(|| format!("'{name}' is none of qwait, spin, spin-dpdk"))
    }
}

/// A queue that is to be visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) slot: u32,
    pub(crate) bit: u32,
    /// Items that the doorbell claims. Zero: a spurious wake-up.
    pub(crate) count: u32,
    spun: Option<Spun>,
}

/// One core's way to learn of work.
#[derive(Debug)]
pub(crate) enum Notifier {
    /// The core's queues are its own.
    Exclusive(Box<TenantSet>),
    /// The core shares its queues.
    Shared(Box<SharedTenantConsumer>),
    /// Shared or not.
    Spin(Box<Spinner>),
}

fn id(slot: u32, bit: u32) -> QueueId {
    QueueId::new(slot * qwait::TENANT_QUEUES_MAX + bit)
}

impl Notifier {
    /// For a core of a set with so many slots. `shared` where other cores have the same queues.
    pub(crate) fn new(
        notify: Notify,
        slots: u32,
        shared: Option<&SharedTenantSet>,
    ) -> Result<Self, TenantError> {
        Ok(match (notify, shared) {
            (Notify::Qwait, None) => {
                Self::Exclusive(Box::new(TenantSet::new(slots, ServicePolicy::RoundRobin)?))
            }
            (Notify::Qwait, Some(set)) => Self::Shared(Box::new(set.consumer()?)),
            (spin, set) => {
                Self::Spin(Box::new(Spinner::new(set.is_some(), spin == Notify::SpinDpdk)))
            }
        })
    }

    /// The next queue to be visited; `finish` ends the visit.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Visit> {
        let (queue, count) = match self {
            Self::Exclusive(set) => {
                let queue = set.try_qwait()?;
                (queue, set.verify(queue))
            }
            Self::Shared(set) => {
                let queue = set.try_qwait()?;
                (queue, set.verify(queue))
            }
            Self::Spin(spinner) => {
                // One round: then the core looks at its mail and timers.
                let spun = spinner.next()?;
                let Spun { slot, bit, count, .. } = spun;
                return Some(Visit { slot, bit, count, spun: Some(spun) });
            }
        };
        let (slot, bit) = (queue.get() / 64, queue.get() % 64);
        Some(Visit { slot, bit, count, spun: None })
    }

    /// Ends a visit in which `items` were taken. `all`: the queue turned out to be empty under its
    /// count, which goes to zero whatever it says.
    #[inline]
    pub(crate) fn finish(&mut self, visit: Visit, items: u32, all: bool) {
        let queue = id(visit.slot, visit.bit);
        match self {
            Self::Exclusive(set) if all => set.reconsider_all(queue),
            Self::Exclusive(_) if items == 0 => {}
            Self::Exclusive(set) => {
                set.reconsider(queue, items);
            }
            Self::Shared(set) if all => set.reconsider_all(queue),
            Self::Shared(set) => {
                set.reconsider(queue, items);
            }
            Self::Spin(spinner) => {
                if let Some(spun) = visit.spun {
                    spinner.finish(spun, items, all);
                }
            }
        }
    }

    /// `QWAIT-DISABLE` and `QWAIT-ENABLE`.
    pub(crate) fn set_enabled(&mut self, link: &Link, word: u32, visit: (u32, u32), on: bool) {
        let queue = id(visit.0, visit.1);
        match self {
            Self::Exclusive(set) if on => set.enable(queue),
            Self::Exclusive(set) => set.disable(queue),
            Self::Shared(set) if on => set.enable(queue),
            Self::Shared(set) => set.disable(queue),
            Self::Spin(_) => {
                let queue = link.geometry.queue_at(word, visit.1);
                if let Some(pair) = link.queues.get(queue as usize) {
                    pair.set_aside(!on);
                }
            }
        }
    }

    /// `QWAIT-ADD` for the queues of one of a tenant's ready words.
    pub(crate) fn attach(
        &mut self,
        link: &Arc<Link>,
        word: u32,
        slot: u32,
    ) -> Result<(), TenantError> {
        let set = (word % link.geometry.sets()) as usize;
        let depth = link.geometry.shape().depth;
        let place = link.geometry.word(word).map(|word| word.place(&link.region));
        let (Some(place), Some(wake)) = (place, link.wakes.get(set)) else { return Ok(()) };
        let wake = || {
            wake.try_clone()
                .map_err(|source| TenantError::Os { tried: "duplicating a descriptor", source })
        };
        match self {
            Self::Exclusive(set) => set.connect_over(slot, place, depth, wake()?),
            Self::Shared(set) => set.attach(slot, place, depth, wake()?),
            Self::Spin(spinner) => {
                spinner.attach(link, word, slot);
                Ok(())
            }
        }
    }

    /// The class of the tenant in a slot that is attached. A class is checked before it comes here.
    pub(crate) fn set_class(&mut self, slot: u32, class: u8) {
        match self {
            Self::Exclusive(set) => _ = set.set_class(slot, class),
            Self::Shared(set) => _ = set.set_class(slot, class),
            Self::Spin(spinner) => spinner.set_class(slot, class),
        }
    }

    /// `QWAIT-REMOVE` for the queues of a slot.
    pub(crate) fn detach(&mut self, slot: u32) {
        match self {
            Self::Exclusive(set) => set.disconnect(slot),
            Self::Shared(set) => set.detach(slot),
            Self::Spin(spinner) => spinner.detach(slot),
        }
    }

    /// The first half of going to sleep. False: there is work, or this strategy never sleeps.
    pub(crate) fn arm(&mut self) -> bool {
        match self {
            Self::Exclusive(set) => set.arm(),
            Self::Shared(set) => set.arm(),
            Self::Spin(_) => false,
        }
    }

    /// The second half.
    pub(crate) fn disarm(&mut self) {
        match self {
            Self::Exclusive(set) => {
                set.disarm();
                set.clear();
            }
            Self::Shared(set) => {
                set.disarm();
                set.clear();
            }
            Self::Spin(_) => {}
        }
    }

    /// Readable when there is work for one that is armed.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Exclusive(set) => Some(set.as_fd()),
            Self::Shared(set) => Some(set.as_fd()),
            Self::Spin(_) => None,
        }
    }
}
