//! A device's indirection table (IX §4.5): which receive queue the frames of each flow group come to, written
//! while frames come.
//!
//! | Device | Table |
//! | --- | --- |
//! | with receive-side scaling of its own | [`EthtoolRss`](crate::rss::EthtoolRss) |
//! | a veth pair | [`SteerProgram`](crate::steer_program::SteerProgram), at the peer's end |
//! | without any | none: the receiving core forwards; [`SoftwareRss`](crate::rss::SoftwareRss) is the shape of it |

use std::fmt;

use crate::rss_error::RssError;

/// A table of a device, and the key of the hash before it.
pub trait IndirectionTable: fmt::Debug + Send {
    /// The queue of each entry.
    fn entries(&self) -> &[u16];

    /// Queues that there are.
    fn queues(&self) -> u16;

    /// The Toeplitz key.
    fn key(&self) -> &[u8];

    /// Sends the frames of each entry (the first number) to its queue (the second) from now on, all of them or
    /// none. Frames that have gone another way already still come there.
    ///
    /// # Errors
    /// [`RssError`]: there is no such entry or queue, or the device refuses.
    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError>;

    /// Puts a [probe](crate::probe) with this token into `queue`, behind all frames that were sent there before
    /// the last [`write`](Self::write), where the device can. Answers whether; it may be lost all the same, as
    /// any frame.
    ///
    /// # Errors
    /// [`RssError`]: the device can, but did not.
    fn probe(&mut self, _queue: u16, _token: u64) -> Result<bool, RssError> {
        Ok(false)
    }

    /// The queue of an entry.
    fn queue_of(&self, entry: usize) -> Option<u16> {
        self.entries().get(entry).copied()
    }
}

impl IndirectionTable for Box<dyn IndirectionTable> {
    fn entries(&self) -> &[u16] {
        (**self).entries()
    }
    fn queues(&self) -> u16 {
        (**self).queues()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError> {
        (**self).write(changes)
    }
    fn probe(&mut self, queue: u16, token: u64) -> Result<bool, RssError> {
        (**self).probe(queue, token)
    }
}

/// Makes changes to a table in memory, all or none.
pub(crate) fn apply(
    table: &mut [u16],
    queues: u16,
    changes: &[(usize, u16)],
) -> Result<(), RssError> {
    for &(group, queue) in changes {
        if group >= table.len() {
            return Err(RssError::NoSuchGroup { group, entries: table.len() });
        }
        if queue >= queues {
            return Err(RssError::NoSuchQueue { queue, queues });
        }
    }
    for &(group, queue) in changes {
        table[group] = queue;
    }
    Ok(())
}
