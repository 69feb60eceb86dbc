//! By what the packets of a flow group come to the thread that is its home: a device's own indirection table, or the
//! lab's; and that a device sends none to queues that the dataplane does not have.
//!
//! A device's table is given back in the end. For a process that is killed, what the table was stands in a file of
//! the run directory, which the next one finds.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use nic::device::Device;
use nic::indirection::IndirectionTable;
use nic::rss::{Before, EthtoolRss, GivesBack, RssError};
use runtime::FLOW_GROUPS;

use crate::lab::Lab;

/// See the module's comment.
#[derive(Debug, Default)]
pub struct Steering {
    /// What follows the flow groups, where something can.
    pub table: Option<Box<dyn IndirectionTable>>,
    /// Packets come to all queues that the device has.
    pub is_open: bool,
    /// For conditions, behind the driver: by what packets come to their threads.
    pub description: &'static str,
    /// Gives the device its table back, once nobody writes it any more.
    pub restores: Option<Restores>,
}

/// How conditions name the lab's table.
const AT_PEER: &str = ", indirection table at the peer's egress";
/// How they name a device's.
const OF_DEVICE: &str = ", the device's indirection table";
/// How they name that there is none.
const FORWARDED: &str = ", packets are forwarded between threads";

impl Steering {
    /// Of the lab's end of a pair, or of a device with `threads` elastic threads, whose queues are its first ones where it
    /// has more, and its table can be written.
    /// `speaks_v6`: the flow groups of IPv6 connections are to be known too.
    pub fn of(lab: Option<&Lab>, device: &Device, threads: u32, speaks_v6: bool) -> Self {
        match lab {
            Some(lab) => Self::of_lab(lab, threads),
            None => Self::of_device(device, threads, speaks_v6),
        }
    }

    fn of_lab(lab: &Lab, threads: u32) -> Self {
        if lab.queues() != threads {
            return Self::to_all_queues(threads);
        }
        if threads < 2 {
            return Self::default();
        }
        match lab.steer() {
            Ok(table) => {
                Self { table: Some(Box::new(table)), description: AT_PEER, ..Self::default() }
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the lab has no indirection table: packets are forwarded between threads"
                );
                Self { description: FORWARDED, ..Self::default() }
            }
        }
    }

    /// Packets come to whatever queue the device chooses.
    fn to_all_queues(threads: u32) -> Self {
        let description = if threads > 1 { FORWARDED } else { "" };
        Self { is_open: true, description, ..Self::default() }
    }

    fn of_device(device: &Device, threads: u32, speaks_v6: bool) -> Self {
        let name = &device.interface.name;
        let queues = device.queues.unwrap_or(threads);
        let few = u16::try_from(threads).ok().filter(|_| queues > 1 && queues >= threads);
        let Some(few) = few else {
            // Packets come to as many threads as there are queues.
            give_back_left(device);
            return Self::to_all_queues(threads);
        };
        let (table, restores) = match open_table(device, few) {
            Ok(opened) => opened,
            Err(error) => {
                tracing::warn!(interface = %name, %error, "packets come to all queues");
                give_back_left(device);
                return Self::to_all_queues(threads);
            }
        };
        let (entries, restores) = (table.entries().len(), Some(restores));
        let hash_v6 = if speaks_v6 { table.hash_v6() } else { Ok(()) };
        let why = match table.hash().and(hash_v6) {
            _ if threads < 2 => return Self { restores, ..Self::default() },
            Ok(()) if entries.is_multiple_of(FLOW_GROUPS) => {
                let table: Option<Box<dyn IndirectionTable>> = Some(Box::new(table));
                return Self { table, description: OF_DEVICE, restores, ..Self::default() };
            }
            Ok(()) => {
                format!("its table has {entries} entries, and there are {FLOW_GROUPS} flow groups")
            }
            Err(why) => why.to_string(),
        };
        tracing::warn!(
            interface = %name,
            driver = %device.driver,
            %why,
            "the device's indirection table cannot follow flow groups: packets are forwarded between threads"
        );
        Self { description: FORWARDED, restores, ..Self::default() }
    }
}

/// Gives a device its table back, then removes the record of it.
#[derive(Debug)]
pub struct Restores {
    // In this order.
    _table: GivesBack,
    _record: Record,
}

/// Gives a device back the table that a service had which was killed, where this one writes none.
fn give_back_left(device: &Device) {
    let (name, record) = (&device.interface.name, Record::of(device));
    let Some(before) = record.read() else { return };
    tracing::info!(interface = %name, "the indirection table before a service that was killed is restored");
    match GivesBack::to(name, before) {
        Ok(restores) => drop(restores),
        Err(error) => tracing::warn!(interface = %name, %error, "the indirection table stays"),
    }
}

/// The table of a device, dealt over its first `queues` receive queues, which the dataplane has, and what restores it.
fn open_table(device: &Device, queues: u16) -> Result<(EthtoolRss, Restores), RssError> {
    let name = &device.interface.name;
    let mut table = EthtoolRss::open(name, queues)?;
    let record = Record::of(device);
    let before = match record.read() {
        Some(before) => {
            tracing::info!(
                interface = %name,
                "the indirection table is that of a service which was killed: the one before it is restored in the end"
            );
            before
        }
        None => {
            if let Err(error) = record.write(table.before()) {
                tracing::warn!(
                    interface = %name,
                    path = %record.0.display(),
                    %error,
                    "the indirection table will not be restored where this service is killed"
                );
            }
            table.before().clone()
        }
    };
    table.deal()?;
    let given_back = GivesBack::to(name, before).map_err(|source| RssError::Os {
        tried: "opening the device",
        interface: name.clone(),
        source,
    })?;
    Ok((table, Restores { _table: given_back, _record: record }))
}

/// The file that says what a device's table was before a service wrote it: queues in decimal, or nothing for the
/// default.
#[derive(Debug)]
struct Record(PathBuf);

impl Record {
    /// Bytes of a record at most: the largest table, six digits and a separator for each entry.
    const BYTES_MAX: u64 = 7 * 16_384;

    /// Of a device, by its name and address: those of other network namespaces may have the same name.
    fn of(device: &Device) -> Self {
        let mac: String = device.interface.mac.0.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{}-{mac}.table", device.interface.name);
        Self(endpoint::run_dir().join("devices").join(name))
    }

    fn read(&self) -> Option<Before> {
        let found = fs::metadata(&self.0).ok()?;
        if found.len() > Self::BYTES_MAX {
            return None;
        }
        let text = fs::read_to_string(&self.0).ok()?;
        let table: Result<Vec<u16>, _> = text.split_ascii_whitespace().map(str::parse).collect();
        match table.ok()? {
            table if table.is_empty() => Some(Before::Default),
            table => Some(Before::Table(table)),
        }
    }

    fn write(&self, before: &Before) -> std::io::Result<()> {
        let text = match before {
            Before::Default | Before::Rows => String::new(),
            Before::Table(table) => {
                table.iter().map(|queue| format!("{queue}\n")).collect::<String>()
            }
        };
        if let Some(directory) = self.0.parent() {
            fs::create_dir_all(directory)?;
        }
        fs::write(&self.0, text)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(path = %self.0.display(), %error, "a record of an indirection table stays");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_outlives_whom_it_was_written_by() {
        let directory = crate::private::directory("record").expect("made");
        let record = || Record(directory.path().join("devices/eth0-020000000001.table"));
        assert_eq!(record().read(), None);
        for before in [Before::Default, Before::Table(vec![3, 1, 2, 0])] {
            let killed = record();
            killed.write(&before).expect("written");
            std::mem::forget(killed);
            let next = record();
            assert_eq!(next.read(), Some(before));
            drop(next);
            assert_eq!(record().read(), None);
        }
        let nonsense = record();
        fs::write(&nonsense.0, "3 x").expect("written");
        assert_eq!(nonsense.read(), None);
        fs::write(&nonsense.0, "1 ".repeat(100_000)).expect("written");
        assert_eq!(nonsense.read(), None, "too long");
    }
}
