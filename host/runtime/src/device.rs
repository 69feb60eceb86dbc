//! A device's indirection table that the elastic threads of a run write (IX §4.5).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::{DeviceTable, GroupSet, Redirected};
use nic::indirection::IndirectionTable;
use nic::rss::RssError;
use stack::{FLOW_GROUPS, RssKey};

/// Why a device's table cannot follow the flow groups of a run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TableError(String);

/// The table, as all threads of a run have it.
///
/// The lock is taken once for a migration, for as long as the device takes to change some entries and to take a
/// probe: a thread that begins another one at that moment waits so long. No packet takes it.
#[derive(Clone, Debug)]
pub(super) struct SharedTable {
    table: Arc<Mutex<Box<dyn IndirectionTable>>>,
    pub key: RssKey,
}

impl SharedTable {
    /// A table for `cores` threads, each of which has the queue of its number.
    pub fn new(table: Box<dyn IndirectionTable>, cores: usize) -> Result<Self, TableError> {
        let (entries, queues) = (table.entries().len(), table.queues());
        if entries == 0 || !entries.is_multiple_of(FLOW_GROUPS) {
            return Err(TableError(format!(
                "the device's indirection table has {entries} entries; allowed: multiples of {FLOW_GROUPS}"
            )));
        }
        if usize::from(queues) < cores {
            return Err(TableError(format!(
                "the device's indirection table knows {queues} queues, and there are {cores} elastic threads"
            )));
        }
        let key = table.key().try_into().map_err(|_| {
            let len = table.key().len();
            TableError(format!(
                "the key of the device's hash has {len} bytes; allowed: 40, as the Toeplitz hash of IPv4 takes"
            ))
        })?;
        Ok(Self { table: Arc::new(Mutex::new(table)), key: RssKey(key) })
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn IndirectionTable>> {
        // A table is whole after each change, whatever panicked beside it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives each flow group to its home.
    pub fn deal(&self, home_of: impl Fn(u16) -> u8) -> Result<(), RssError> {
        let mut table = self.lock();
        let queue = |entry: usize| (entry, u16::from(home_of((entry % FLOW_GROUPS) as u16)));
        let all: Vec<_> = (0..table.entries().len()).map(queue).collect();
        table.write(&all)
    }
}

impl DeviceTable for SharedTable {
    /// Only entries that name `from`'s queue are changed: a packet that is on its way to a third one is not waited
    /// for. There are such after a device has refused a change; their packets are forwarded until the groups come
    /// back.
    fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Redirected {
        let mut table = self.lock();
        let concerns = |entry: &usize| groups.has((entry % FLOW_GROUPS) as u16);
        let all = (0..table.entries().len()).filter(concerns);
        let changes: Vec<_> = all
            .filter(|&entry| table.queue_of(entry) == Some(from.into()))
            .map(|entry| (entry, u16::from(to)))
            .collect();
        if changes.is_empty() {
            return Redirected::No;
        }
        if let Err(error) = table.write(&changes) {
            tracing::warn!(%error, "the device's table stays, and packets of moved flow groups are forwarded");
            return Redirected::No;
        }
        // Without a token that nobody can guess there is no probe: the wait is longer then, and as safe.
        let Some(token) = token() else { return Redirected::Yes };
        match table.probe(from.into(), token) {
            Ok(true) => Redirected::Probed(token),
            Ok(false) => Redirected::Yes,
            Err(error) => {
                tracing::debug!(%error, "no probe: the migration waits for the first packet");
                Redirected::Yes
            }
        }
    }
}

/// What a stranger cannot forge a probe with.
fn token() -> Option<u64> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    (got == Ok(bytes.len())).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic::rss::SoftwareRss;

    fn groups(groups: impl IntoIterator<Item = u16>) -> GroupSet {
        groups.into_iter().collect()
    }

    #[test]
    fn each_group_has_all_of_its_entries_and_no_other_is_touched() {
        let rss = SoftwareRss::new(256, 3, [7; 40]).expect("a shape");
        let mut table = SharedTable::new(Box::new(rss), 2).expect("it fits");
        assert_eq!(table.key, RssKey([7; 40]));
        table.deal(|group| (group % 2) as u8).expect("the queues exist");
        assert_eq!(table.redirect(groups([4, 6]), 0, 1), Redirected::Yes);
        let of = |table: &SharedTable, group: usize| {
            [group, group + 128].map(|entry| table.lock().queue_of(entry))
        };
        for group in 0..128 {
            let queue = u16::from(group % 2 == 1 || [4, 6].contains(&group));
            assert_eq!(of(&table, group), [Some(queue); 2], "group {group}");
        }
        // One that is with a third queue stays there; a queue that is not there changes nothing.
        assert_eq!(table.redirect(groups([8, 5]), 0, 2), Redirected::Yes);
        assert_eq!((of(&table, 8), of(&table, 5)), ([Some(2); 2], [Some(1); 2]));
        assert_eq!(table.redirect(groups([5]), 0, 2), Redirected::No);
        assert_eq!(table.redirect(groups([10]), 0, 3), Redirected::No);
        assert_eq!(of(&table, 10), [Some(0); 2]);
    }

    #[test]
    fn tables_that_do_not_fit_are_refused() {
        let of = |entries, queues, cores| {
            let rss = SoftwareRss::new(entries, queues, [7; 40]).expect("a shape");
            SharedTable::new(Box::new(rss), cores).map_err(|error| error.to_string())
        };
        assert!(of(64, 4, 2).expect_err("half a group").contains("has 64 entries"));
        assert!(of(128, 2, 3).expect_err("few queues").contains("2 queues, and there are 3"));
        assert!(of(512, 8, 8).is_ok());
    }
}
