//! The device's indirection table, as the old home of a migration reaches it (IX §4.5).
//!
//! ```
//! use dataplane::{DeviceTable, GroupSet, Redirected, move_mailbox};
//! /// One that programs nothing, as where there is none.
//! #[derive(Debug)]
//! struct Fixed;
//! impl DeviceTable for Fixed {
//!     fn redirect(&mut self, _: GroupSet, _: u8, _: u8) -> Redirected {
//!         Redirected::No
//!     }
//! }
//! let (_control, mailbox) = move_mailbox(1);
//! let _mailbox = mailbox.with_device(Box::new(Fixed));
//! ```

use core::fmt::Debug;

use stack::GroupSet;

/// What became of a change to the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redirected {
    /// The table is as it was: there is none, or the device refused.
    No,
    /// It is changed, and nothing will tell when all that the old queue was given before has come out of it.
    Yes,
    /// It is changed, and a probe ([`nic::probe`]) with this token was put into the old queue, behind all that it
    /// was given before.
    Probed(u64),
}

/// A device's indirection table. One value for each thread, which that thread alone uses: they may write one table,
/// of which no two of them ever change the same entry at a time.
pub trait DeviceTable: Debug + Send {
    /// Frames of these flow groups are to come to the queue of thread `to` from now on, where they came to that of
    /// thread `from`. Called by `from`, within its cycle: it should take microseconds.
    fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Redirected;
}
