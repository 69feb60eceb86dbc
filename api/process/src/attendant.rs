//! Who looks after an elastic thread that sleeps while its application, on the same core, has a batch.
//!
//! The thread's own limit is long: a timer that is to fire soon would be the dearest part of each crossing. Somebody
//! else looks more often, and wakes a thread that has slept for the same batch since the last look, so that
//! it runs its network layer, hears of its end, and sees that the application has gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use memfile::Memory;
use rustix::thread::futex;

use crate::layout;
use crate::near_stats::NearStats;
use crate::place::{Placement, Placer};

/// Looks after one elastic thread. Made by [`Near::attended`](crate::Near::attended).
#[derive(Debug)]
pub struct Attendant {
    pub(crate) calls: Arc<Memory>,
    pub(crate) placer: Placer,
    pub(crate) stats: Arc<NearStats>,
    pub(crate) slept_for: u32,
    pub(crate) crossings: u64,
}

impl Attendant {
    /// To be called about every millisecond. Whether the thread, on its application's core, has had a batch since the
    /// last look: if not for a while, looks may be rarer.
    pub fn look(&mut self) -> bool {
        let slept_for = self.stats.slept_for.load(Ordering::Relaxed);
        let crossings = self.stats.crossings();
        if slept_for != 0
            && slept_for == self.slept_for
            && let Some(done) = self.calls.word(layout::BATCH)
        {
            // Nobody sleeps where it was quicker.
            let _ = futex::wake(done, futex::Flags::empty(), 1);
        }
        let shares = self.placer.placed().placement == Placement::SameCore;
        let busy = shares && (slept_for != 0 || crossings != self.crossings);
        (self.slept_for, self.crossings) = (slept_for, crossings);
        busy
    }
}
