//! How a controller talks to an elastic thread: a small bounded ring of commands, and one of reports.
//!
//! ```
//! use dataplane::{GroupSet, MailboxFull, MoveCommand, move_mailbox};
//! let (mut control, _thread) = move_mailbox(1);
//! let command = MoveCommand { token: 1, groups: GroupSet::one(3), to: 1 };
//! assert_eq!(control.post(command), Ok(()));
//! assert_eq!(control.post(command), Err(MailboxFull));
//! assert_eq!(control.report(), None);
//! ```

use alloc::boxed::Box;

use rtrb::{Consumer, Producer, RingBuffer};
use stack::GroupSet;

use super::{DeviceTable, MoveCommand, MoveReport, Redirected};

/// As many commands as fit are without a report: take the reports, and try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("as many migrations as the mailbox holds have no report yet: wait for one")]
pub struct MailboxFull;

/// The controller's end. Every command that was posted is answered by one report, in whatever order.
#[derive(Debug)]
pub struct MoveControl {
    commands: Producer<MoveCommand>,
    reports: Consumer<MoveReport>,
    /// Commands without a report: never more than there is room for reports.
    open: usize,
    capacity: usize,
}

/// The thread's end.
pub struct MoveMailbox {
    commands: Consumer<MoveCommand>,
    reports: Producer<MoveReport>,
    device: Option<Box<dyn DeviceTable>>,
    witness: Option<Witness>,
}

/// Who is told of migrations that are complete.
type Witness = Box<dyn Fn(GroupSet, u8) + Send>;

impl core::fmt::Debug for MoveMailbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("MoveMailbox").field("commands", &self.commands).finish_non_exhaustive()
    }
}

/// Both ends of a mailbox for `capacity` commands, one at least.
pub fn move_mailbox(capacity: usize) -> (MoveControl, MoveMailbox) {
    let capacity = capacity.max(1);
    let (commands, thread_commands) = RingBuffer::new(capacity);
    let (thread_reports, reports) = RingBuffer::new(capacity);
    let control = MoveControl { commands, reports, open: 0, capacity };
    let (commands, reports) = (thread_commands, thread_reports);
    (control, MoveMailbox { commands, reports, device: None, witness: None })
}

impl MoveControl {
    /// Asks for a migration. The thread looks into its mailbox in each cycle; one that sleeps has to be woken.
    ///
    /// # Errors
    /// [`MailboxFull`].
    pub fn post(&mut self, command: MoveCommand) -> Result<(), MailboxFull> {
        if self.open == self.capacity {
            return Err(MailboxFull);
        }
        self.commands.push(command).map_err(|rtrb::PushError::Full(_)| MailboxFull)?;
        self.open += 1;
        Ok(())
    }

    /// The next report, if there is one.
    pub fn report(&mut self) -> Option<MoveReport> {
        let report = self.reports.pop().ok()?;
        self.open -= 1;
        Some(report)
    }

    /// Commands without a report.
    pub fn open(&self) -> usize {
        self.open
    }
}

impl MoveMailbox {
    /// The same, and the thread that obeys changes this table as it moves flow groups.
    #[must_use]
    pub fn with_device(self, device: Box<dyn DeviceTable>) -> Self {
        Self { device: Some(device), ..self }
    }

    /// Changes the device's table, where there is one.
    pub(crate) fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Option<Redirected> {
        self.device.as_mut().map(|device| device.redirect(groups, from, to))
    }

    /// Has `witness` told of each migration that is complete, before its report: flow groups, and the thread that
    /// is their home now. Of one group in the order of its migrations, whichever threads these were between.
    pub fn with_witness(self, witness: impl Fn(GroupSet, u8) + Send + 'static) -> Self {
        Self { witness: Some(Box::new(witness)), ..self }
    }

    pub(crate) fn bear_witness(&self, groups: GroupSet, home: u8) {
        if let Some(witness) = &self.witness {
            witness(groups, home);
        }
    }

    /// Whether there is a command.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    pub(crate) fn take(&mut self) -> Option<MoveCommand> {
        self.commands.pop().ok()
    }

    pub(crate) fn tell(&mut self, report: MoveReport) {
        // There is room: no more commands are without a report than the ring holds.
        let told = self.reports.push(report);
        debug_assert!(told.is_ok(), "more reports than commands");
    }
}
