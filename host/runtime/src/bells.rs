//! How elastic threads that sleep are woken, and for what.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use handshake::{ByFence, Sleepers, sources};
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{RuntimeError, system};

sources! {
    /// What a sleeping elastic thread is woken for. It looks at all of these before it blocks.
    pub(super) enum Wake {
        /// The run ends.
        Stop,
        /// The control plane has an order for the thread.
        Order,
        /// The application is done with the batch that it had; rings a [`NearBell`](process::NearBell).
        Answer,
        /// Another thread left a turn or a packet.
        Turn,
        /// The control plane asks for a migration of flow groups.
        Migration,
        /// The device has a packet; its own descriptor becomes readable.
        Packet,
    }
}

/// The bit of a bell's one sleeper.
pub(super) const THREAD: u64 = 1;

/// How others wake a sleeping elastic thread.
#[derive(Debug)]
pub(super) struct Bell {
    pub(super) sleeper: Sleepers<AtomicU64, Wake, ByFence>,
    pub(super) event: OwnedFd,
}

impl Bell {
    pub fn new() -> Result<Self, RuntimeError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| system("making an eventfd", errno))?;
        Ok(Self { sleeper: Sleepers::default(), event })
    }

    /// Called after work was left for the thread in `source`: a fence and one load where it is awake.
    #[inline]
    pub fn ring(&self, source: Wake) {
        if self.sleeper.notify(source) != 0 {
            self.end_sleep();
        }
    }

    /// Each waker writes, and none relies on another that claimed the sleeper: that one may be of lower priority, and
    /// descheduled before its system call.
    #[cold]
    fn end_sleep(&self) {
        // A full counter (nobody reads it for long) still wakes.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// The thread is awake again: withdraws the announcement, and takes the wake-ups that came.
    pub fn disarm(&self) {
        self.sleeper.disarm(THREAD);
        let mut count = [0u8; 8];
        // Nothing to read: nobody rang.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

/// Has a run's threads end, those that sleep among them.
pub(super) fn end_run(stop: &AtomicBool, bells: &[Bell]) {
    stop.store(true, Ordering::Relaxed);
    bells.iter().for_each(|bell| bell.ring(Wake::Stop));
}
