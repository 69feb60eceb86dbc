//! Blocking `qwait`, written once for every form of the set: by its `try_qwait`, `arm` and `disarm`.

use core::time::Duration;

use crate::exclusive::ExclusiveSet;
use crate::set::QueueId;
use crate::shared::SharedConsumer;

macro_rules! waiting {
    ($consumer:ty) => {
        impl $consumer {
            /// `QWAIT`: as `try_qwait`, but waits until a queue is ready: looks as often as the set
            /// was configured for, then sleeps.
            pub fn qwait(&mut self) -> QueueId {
                loop {
                    if let Some(found) = self.wait(|| None, || false) {
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
                self.wait(left, || left().is_some_and(|left| left.is_zero()))
            }

            /// Looks, then sleeps. `timeout` is asked before each sleep, and `give_up` after it.
            fn wait(
                &mut self,
                timeout: impl Fn() -> Option<Duration>,
                give_up: impl Fn() -> bool,
            ) -> Option<QueueId> {
                for _ in 0..self.spin_looks {
                    if let Some(found) = self.try_qwait() {
                        return Some(found);
                    }
                    core::hint::spin_loop();
                }
                loop {
                    // Before the announcement, so that a wake-up after it changes what is compared.
                    let token = self.sleeper.token();
                    if self.arm() {
                        self.sleeper.sleep(token, timeout());
                        self.disarm();
                    }
                    if let Some(found) = self.try_qwait() {
                        return Some(found);
                    }
                    if give_up() {
                        return None;
                    }
                }
            }
        }
    };
}

waiting!(ExclusiveSet);
waiting!(SharedConsumer);
