//! How a controller moves flow groups of a running service (IX §4.5, §4.6), from any thread.
//!
//! ```
//! use dataplane::{GroupSet, MoveCommand};
//! use runtime::{Mover, MoverError};
//! let mover = Mover::new(2);
//! let command = MoveCommand { token: 1, groups: GroupSet::one(3), to: 1 };
//! // Nothing runs with it: see `run_moved`.
//! assert!(matches!(mover.post(0, command), Err(MoverError::NotRunning)));
//! ```

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dataplane::{GroupSet, MoveCommand, MoveControl, MoveMailbox, MoveReport, move_mailbox};
use nic::indirection::IndirectionTable;
use nic::rss::RssError;
use stack::{FLOW_GROUPS, RssKey, Shared};

use crate::bells::{Bell, Wake, end_run};
use crate::device::SharedTable;
use crate::mover_error::{MAILBOX, MoverError};

/// A handle on one run's elastic threads; see the module's comment.
#[derive(Debug)]
pub struct Mover {
    controls: Vec<Mutex<MoveControl>>,
    mailboxes: Vec<Mutex<Option<MoveMailbox>>>,
    table: Option<SharedTable>,
    running: OnceLock<Running>,
}

/// What there is once threads run.
#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    bells: Arc<[Bell]>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The ends of rings are whole whatever panicked beside them.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mover {
    /// A handle for one run of `cores` elastic threads.
    pub fn new(cores: usize) -> Self {
        let both = (0..cores).map(|_| move_mailbox(MAILBOX));
        let (controls, mailboxes) =
            both.map(|(control, mailbox)| (Mutex::new(control), Mutex::new(Some(mailbox)))).unzip();
        Self { controls, mailboxes, table: None, running: OnceLock::new() }
    }

    /// The same, on a device with an indirection table: the threads hash with its key and change it as they move
    /// flow groups. It belongs to the handle from now on. Thread `n` has the device's queue `n`.
    ///
    /// # Errors
    /// A table that does not fit: [`MoverError::Entries`], [`MoverError::TooFewQueues`], [`MoverError::Key`].
    pub fn with_table(
        cores: usize,
        table: impl IndirectionTable + 'static,
    ) -> Result<Self, MoverError> {
        let table = Some(SharedTable::new(Box::new(table), cores)?);
        Ok(Self { table, ..Self::new(cores) })
    }

    /// Asks thread `core`, their home, to give flow groups away. Every command is answered by one
    /// [`report`](Self::report), unless the thread ends.
    ///
    /// # Errors
    /// [`MoverError`]; nothing was asked then.
    pub fn post(&self, core: usize, command: MoveCommand) -> Result<(), MoverError> {
        if !self.is_running() {
            return Err(MoverError::NotRunning);
        }
        let cores = self.controls.len();
        let control = self.controls.get(core).ok_or(MoverError::NoSuchThread { core, cores })?;
        lock(control).post(command).map_err(|_| MoverError::Full { core })?;
        // It may sleep.
        self.ring(core, Wake::Migration);
        Ok(())
    }

    /// The next report of thread `core`, if there is one.
    pub fn report(&self, core: usize) -> Option<MoveReport> {
        lock(self.controls.get(core)?).report()
    }

    /// The flow groups whose home is thread `core`, or will be when a migration is complete. None before there
    /// are threads.
    pub fn groups_of(&self, core: usize) -> GroupSet {
        let Some(Running { shared, .. }) = self.running.get() else { return GroupSet::NONE };
        (0..FLOW_GROUPS as u16)
            .filter(|&group| usize::from(shared.home_of(group)) == core)
            .collect()
    }

    /// Whether a device's table follows the flow groups.
    pub fn steers(&self) -> bool {
        self.table.is_some()
    }

    /// The key of the device's hash.
    pub(super) fn key(&self) -> Option<RssKey> {
        self.table.as_ref().map(|table| table.key)
    }

    /// The device's table, as the threads begin.
    pub(super) fn deal(&self, shared: &Shared) -> Result<(), RssError> {
        self.table.as_ref().map_or(Ok(()), |table| table.deal(|group| shared.home_of(group)))
    }

    /// Whether threads are reached by this.
    pub(super) fn is_running(&self) -> bool {
        self.running.get().is_some()
    }

    /// Sets `stop`, with which the run was started, and wakes the threads that sleep. A run whose `stop` is set by other
    /// means ends when its threads wake by themselves ([`IdlePolicy::longest_sleep`](crate::IdlePolicy::longest_sleep)).
    pub fn end(&self, stop: &AtomicBool) {
        end_run(stop, self.running.get().map_or(&[], |running| &running.bells));
    }

    /// Wakes a thread for which something was left in `source`.
    pub(super) fn ring(&self, core: usize, source: Wake) {
        let running = self.running.get();
        let bell = running.and_then(|running| running.bells.get(core));
        bell.into_iter().for_each(|bell| bell.ring(source));
    }

    /// Threads start that are reached by these. Answers whether they are the first, and as many as expected.
    pub(super) fn start(&self, shared: &Arc<Shared>, bells: &Arc<[Bell]>) -> bool {
        let running = Running { shared: Arc::clone(shared), bells: Arc::clone(bells) };
        bells.len() == self.controls.len() && self.running.set(running).is_ok()
    }

    /// The mailbox of thread `core`, once.
    pub(super) fn mailbox(&self, core: usize) -> Option<MoveMailbox> {
        let mailbox = lock(self.mailboxes.get(core)?).take()?;
        Some(match &self.table {
            Some(table) => mailbox.with_device(Box::new(table.clone())),
            None => mailbox,
        })
    }
}
