//! Blocking `qwait`, and its two halves for those who wait on more than one thing.
//!
//! The same text for both forms of the set, so both go through one private trait.

use alloc::sync::Arc;

use crate::exclusive::ExclusiveSet;
use crate::idle::Sleeper;
use crate::set::{Core, QueueId};
use crate::shared::SharedConsumer;

/// What waiting needs of a consumer.
trait Waits {
    fn look(&mut self) -> Option<QueueId>;
    fn idle(&self) -> (&Core, &Arc<dyn Sleeper>, u64, u32);
    fn picked(&mut self);
}

impl Waits for ExclusiveSet {
    fn look(&mut self) -> Option<QueueId> {
        self.try_qwait()
    }
    fn idle(&self) -> (&Core, &Arc<dyn Sleeper>, u64, u32) {
        (&self.core, &self.sleeper, self.bit, self.spin_looks)
    }
    /// There is nobody to pass a wake-up to.
    fn picked(&mut self) {}
}

impl Waits for SharedConsumer {
    fn look(&mut self) -> Option<QueueId> {
        self.try_qwait()
    }
    fn idle(&self) -> (&Core, &Arc<dyn Sleeper>, u64, u32) {
        (&self.core, &self.sleeper, self.bit, self.spin_looks)
    }
    fn picked(&mut self) {
        self.baton = true;
    }
}

fn arm(consumer: &mut impl Waits) -> bool {
    let mut picked = false;
    let (core, _, bit, _) = consumer.idle();
    let may_sleep = core.arm(bit, &mut picked);
    if picked {
        consumer.picked();
    }
    may_sleep
}

fn disarm(consumer: &mut impl Waits) {
    let (core, _, bit, _) = consumer.idle();
    if core.disarm(bit) {
        consumer.picked();
    }
}

/// Looks, then sleeps, until `give_up` says so after a sleep; `timeout` is asked before each sleep.
fn wait(
    consumer: &mut impl Waits,
    mut timeout: impl FnMut() -> Option<core::time::Duration>,
    mut give_up: impl FnMut() -> bool,
) -> Option<QueueId> {
    let spin_looks = consumer.idle().3;
    for _ in 0..spin_looks {
        if let Some(queue) = consumer.look() {
            return Some(queue);
        }
        core::hint::spin_loop();
    }
    loop {
        // Before the announcement, so that a wake-up after it changes what is compared.
        let token = consumer.idle().1.token();
        if arm(consumer) {
            let timeout = timeout();
            consumer.idle().1.sleep(token, timeout);
            disarm(consumer);
        }
        if let Some(queue) = consumer.look() {
            return Some(queue);
        }
        if give_up() {
            return None;
        }
    }
}

macro_rules! waiting {
    ($consumer:ty) => {
        impl $consumer {
            /// `QWAIT`: as `try_qwait`, but waits until a queue is ready: looks as often as the set
            /// was configured for, then sleeps.
            pub fn qwait(&mut self) -> QueueId {
                loop {
                    if let Some(queue) = wait(self, || None, || false) {
                        return queue;
                    }
                }
            }

            /// As [`qwait`](Self::qwait), but gives up once `timeout` has passed. Looking does not
            /// count against it.
            #[cfg(feature = "std")]
            pub fn qwait_timeout(&mut self, timeout: core::time::Duration) -> Option<QueueId> {
                // A timeout beyond what a clock can show is none.
                let deadline = std::time::Instant::now().checked_add(timeout);
                let left =
                    || deadline.map(|end| end.saturating_duration_since(std::time::Instant::now()));
                wait(self, left, || left().is_some_and(|left| left.is_zero()))
            }

            /// The first half of going to sleep: announces it, then looks once more. True: nothing is
            /// ready, and from now on whoever makes a queue ready calls this consumer's
            /// [`Sleeper::wake`]. False: there is work; the announcement is taken back.
            ///
            /// For two-phase sleep on several sources: arm each in turn; where one has work, disarm
            /// the earlier ones in reverse order and go on; else block on all of them, then disarm
            /// all.
            #[must_use = "where it is false there is work, and nobody will wake this consumer"]
            pub fn arm(&mut self) -> bool {
                arm(self)
            }

            /// Takes the announcement back, after [`arm`](Self::arm) answered true.
            pub fn disarm(&mut self) {
                disarm(self);
            }
        }
    };
}

waiting!(ExclusiveSet);
waiting!(SharedConsumer);
