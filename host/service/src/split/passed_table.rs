//! An indirection table as it is passed to a dataplane, and what that may ask of it.

use nic::indirection::IndirectionTable;
use runtime::RssKey;
use serde::{Deserialize, Serialize};

/// What a dataplane asks of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// To send the frames of each entry to its queue, as [`IndirectionTable::write`].
    Write(Vec<(usize, u16)>),
    /// To put a probe with this token into this queue, as [`IndirectionTable::probe`].
    Probe(u16, u64),
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was carried out.
    Done,
    /// The table has no probes.
    NoProbe,
    /// It makes no sense, the device refuses, or there were too many.
    Refused,
}

/// A table as it was passed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PassedTable {
    /// The queue of each entry.
    pub(super) entries: Vec<u16>,
    /// Queues that there are.
    pub(super) queues: u16,
    /// The key of the hash, 40 bytes.
    pub(super) key: Vec<u8>,
}

impl PassedTable {
    /// The key of its hash, for the stack.
    pub fn key(&self) -> Option<RssKey> {
        self.key.as_slice().try_into().ok().map(RssKey)
    }

    /// Of this table.
    pub fn of(table: &dyn IndirectionTable) -> Self {
        let (entries, key) = (table.entries().to_vec(), table.key().to_vec());
        Self { entries, queues: table.queues(), key }
    }
}
