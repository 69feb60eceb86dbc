//! Going to sleep without losing a wake-up, and the strategies to do it with.
//!
//! ```text
//! consumer                                  producer (on an edge only)
//!   token = sleeper.token()                   ready |= bit
//!   sleepers |= me                            if sleepers != 0:
//!   if any ready: sleepers &= !me; go on          clear one bit of it, wake that consumer
//!   sleeper.sleep(token)
//!   sleepers &= !me
//! ```
//!
//! Each side changes one word and then reads the other's, the consumer by an exchange ([`handshake::ByExchange`]), so
//! that they cannot both miss. The token closes the last window, between the look and the sleep: a sleeper does
//! not fall asleep if it was woken after the token was read. Exactly one consumer is woken for one
//! edge; a woken one that leaves work behind wakes the next.
//!
//! To sleep on something else as well (a socket, another set), use the two halves by hand:
//! `arm`, wait on everything, `disarm`.

use core::fmt::Debug;
use core::time::Duration;

/// How one consumer sleeps. Implement it for an operating system that this crate does not know.
pub trait Sleeper: Debug + Send + Sync {
    /// A number that every [`wake`](Self::wake) changes. Read before a sleep is announced.
    fn token(&self) -> u32;

    /// Sleeps until the token is no longer this one, or about `timeout` has passed. May return
    /// early, and must return at once if the token has changed already.
    fn sleep(&self, token: u32, timeout: Option<Duration>);

    /// Changes the token and ends the sleep. Called by producers, on any thread; never blocks.
    fn wake(&self);
}

/// Does not sleep: a consumer that waits keeps looking.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpinSleeper;

impl Sleeper for SpinSleeper {
    fn token(&self) -> u32 {
        0
    }

    fn sleep(&self, _: u32, _: Option<Duration>) {
        core::hint::spin_loop();
    }

    fn wake(&self) {}
}
