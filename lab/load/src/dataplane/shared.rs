//! What the services of one run share.

use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use crate::error::LoadError;
use crate::measurement::Ran;
use crate::rendezvous::Rendezvous;

/// What the services of one run and its [`LoadRun`](super::LoadRun) have in common. Nothing here is touched while
/// requests are sent, but for the phase, which changes six times.
#[derive(Debug)]
pub(super) struct Shared {
    pub rendezvous: Rendezvous,
    /// The first service's phase, for those who watch: a [`Phase`](crate::Phase) as a number.
    pub phase: AtomicU32,
    /// Services that have closed all their connections.
    pub over: AtomicU32,
    /// What the services brought back.
    pub outcomes: Mutex<Vec<Result<Ran, LoadError>>>,
}

impl Shared {
    /// Takes what a service brought back, or why it brought nothing.
    pub fn deliver(&self, outcome: Result<Ran, LoadError>) {
        if outcome.is_err() {
            self.rendezvous.fail();
        }
        // A service that panicked has delivered nothing: the others' results are whole.
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
    }
}
