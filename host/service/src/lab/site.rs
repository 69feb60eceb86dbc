//! The place of a lab, while it is made, up or removed: its namespaces, and how far it has come.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::congestion::AllowedList;
use super::constants::{
    CLIENT_SUFFIX, DATAPLANE_INTERFACE, DATAPLANE_SUFFIX, LOCK_WAIT, TERMINATION_WAIT,
};
use super::error::LabError;
use super::netns::Namespace;
use super::state::{StateDirectory, StateLock};

/// How far a lab has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is made yet; what exists under its name is another's.
    Unclaimed,
    /// It is recorded, and being made or up.
    Claimed,
    /// Its removal has begun.
    Abandoned,
}

/// The names of a lab, and how far it has come. Shared with the signal thread.
///
/// Lock order: first the lock of the state directory, then the phase.
#[derive(Debug)]
pub(super) struct Site {
    pub prefix: String,
    pub queues: u32,
    pub dataplane: Namespace,
    pub client: Namespace,
    /// Held during each step of the creation: one under way in another thread stops at its next
    /// step, so that it cannot make anything after removal has looked.
    phase: Mutex<Phase>,
}

impl Site {
    pub fn new(prefix: &str, queues: u32) -> Self {
        Self {
            prefix: prefix.to_owned(),
            queues,
            dataplane: Namespace::named(format!("{prefix}{DATAPLANE_SUFFIX}")),
            client: Namespace::named(format!("{prefix}{CLIENT_SUFFIX}")),
            phase: Mutex::new(Phase::Unclaimed),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does one step of the creation unless removal has begun; removal waits for the step. From the first one on, the
    /// record, the name is this lab's.
    pub fn step(&self, work: impl FnOnce() -> Result<(), LabError>) -> Result<(), LabError> {
        let mut phase = self.phase();
        if *phase == Phase::Abandoned {
            return Err(LabError::Failed(format!(
                "interrupted while lab '{}' was being made",
                self.prefix
            )));
        }
        work()?;
        *phase = Phase::Claimed;
        Ok(())
    }

    /// Removes everything. A second call finds nothing to do, and so does one before the claim.
    pub fn remove(&self) -> Result<(), LabError> {
        let states = StateDirectory::default();
        let lock = states.lock(LOCK_WAIT)?;
        let before = std::mem::replace(&mut *self.phase(), Phase::Abandoned);
        if before != Phase::Claimed {
            return Ok(());
        }
        self.erase(&states, &lock)
    }

    /// Removes the namespaces and then the record: until then whoever makes the next lab finds what
    /// is left of this one.
    pub fn erase(&self, states: &StateDirectory, lock: &StateLock) -> Result<(), LabError> {
        self.remove_namespaces()?;
        states.forget(lock, &self.prefix)?;
        AllowedList::of_the_kernel(states.clone()).release(lock)
    }

    fn remove_namespaces(&self) -> Result<(), LabError> {
        for namespace in [&self.client, &self.dataplane] {
            if namespace.exists() {
                namespace.terminate_programs(TERMINATION_WAIT)?;
            }
        }
        if self.dataplane.exists() {
            // A namespace outlives its name while a process or a socket is inside: the pair is
            // removed by itself, so that nothing can go on talking over it. Where creation stopped
            // before the pair, there is none: no error.
            let _ = self.dataplane.ip(&["link", "del", DATAPLANE_INTERFACE]);
        }
        self.client.remove()?;
        self.dataplane.remove()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_site_is_not_built_upon() {
        let site = Site::new("abandoned", 1);
        *site.phase() = Phase::Abandoned;
        let step = site.step(|| panic!("worked on an abandoned site")).expect_err("abandoned");
        assert!(step.to_string().starts_with("interrupted while lab 'abandoned'"), "{step}");
    }
}
