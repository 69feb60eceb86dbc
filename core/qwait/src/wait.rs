//! Blocking `qwait`, and its two halves for those who wait on more than one thing: written once, for
//! every form of the set.

use core::time::Duration;

use crate::exclusive::ExclusiveSet;
use crate::idle::Sleeper;
use crate::set::QueueId;
use crate::shared::SharedConsumer;

/// What waiting needs of a consumer.
pub(crate) trait Waits {
    fn look(&mut self) -> Option<QueueId>;
    fn sleeper(&self) -> &dyn Sleeper;
    fn spin_looks(&self) -> u32;
    fn announce(&mut self) -> bool;
    fn withdraw(&mut self);
}

impl Waits for ExclusiveSet {
    fn look(&mut self) -> Option<QueueId> {
        self.try_qwait()
    }
    fn sleeper(&self) -> &dyn Sleeper {
        &*self.sleeper
    }
    fn spin_looks(&self) -> u32 {
        self.spin_looks
    }
    fn announce(&mut self) -> bool {
        self.announce_sleep()
    }
    fn withdraw(&mut self) {
        self.core.disarm(self.bit);
    }
}

impl Waits for SharedConsumer {
    fn look(&mut self) -> Option<QueueId> {
        self.try_qwait()
    }
    fn sleeper(&self) -> &dyn Sleeper {
        &*self.sleeper
    }
    fn spin_looks(&self) -> u32 {
        self.spin_looks
    }
    fn announce(&mut self) -> bool {
        self.core.arm(self.bit, &mut self.baton)
    }
    fn withdraw(&mut self) {
        self.baton |= self.core.disarm(self.bit);
    }
}

/// Looks, then sleeps. `timeout` is asked before each sleep, and `give_up` after it.
fn wait<W: Waits>(
    consumer: &mut W,
    timeout: impl Fn() -> Option<Duration>,
    give_up: impl Fn() -> bool,
) -> Option<QueueId> {
    for _ in 0..consumer.spin_looks() {
        if let Some(found) = consumer.look() {
            return Some(found);
        }
        core::hint::spin_loop();
    }
    loop {
        // Before the announcement, so that a wake-up after it changes what is compared.
        let token = consumer.sleeper().token();
        if consumer.announce() {
            consumer.sleeper().sleep(token, timeout());
            consumer.withdraw();
        }
        if let Some(found) = consumer.look() {
            return Some(found);
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
                    if let Some(found) = wait(self, || None, || false) {
                        return found;
                    }
                }
            }

            /// As [`qwait`](Self::qwait), but gives up once `timeout` has passed.
            #[cfg(feature = "std")]
            pub fn qwait_timeout(&mut self, timeout: Duration) -> Option<QueueId> {
                use std::time::Instant;
                // A timeout beyond what a clock can show is none.
                let deadline = Instant::now().checked_add(timeout);
                let left = || deadline.map(|end| end.saturating_duration_since(Instant::now()));
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
                self.announce()
            }

            /// Takes the announcement back, after [`arm`](Self::arm) answered true. Look for work
            /// after this.
            pub fn disarm(&mut self) {
                self.withdraw();
            }
        }
    };
}

waiting!(ExclusiveSet);
waiting!(SharedConsumer);
