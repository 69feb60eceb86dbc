//! Receive-side scaling: which queue a flow group's frames come to (IX §4.1, §4.5).
//!
//! A hash of a connection's addresses and ports selects an entry of the *indirection table*, a flow
//! group; the entry names the queue. The control plane moves a flow group by changing its entry.
//!
//! ```
//! use nic::indirection::IndirectionTable;
//! use nic::rss::SoftwareRss;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut rss = SoftwareRss::new(128, 4, [7; 40])?;
//! let group = rss.flow_group("10.0.0.1".parse()?, "10.0.0.2".parse()?, 4000, 80);
//! rss.write(&[(group, 3)])?;
//! assert_eq!(rss.queue_of(group), Some(3));
//! # Ok(()) }
//! ```

use std::io;
use std::net::Ipv6Addr;

use wire::{Ipv4Addr, Toeplitz};

use crate::indirection::{IndirectionTable, apply};
use crate::unsafe_ethtool::{DeviceRss, Flow};
use crate::{Channels, Ethtool};

pub use crate::rss_error::RssError;

/// Entries of an indirection table where the device does not say: as most devices have.
pub const DEFAULT_ENTRIES: usize = 128;

/// Bytes of the hash's key that IPv4 and IPv6 with ports reach.
const KEY_BYTES: usize = 40;
/// Bytes of it that IPv4 with ports reaches: the least that makes a key.
const KEY_BYTES_MIN: usize = 16;

/// The table of a device, by ethtool.
#[derive(Debug)]
pub struct EthtoolRss {
    device: Ethtool,
    interface: String,
    table: Vec<u16>,
    key: Vec<u8>,
    queues: u16,
    hash: Result<(), UnknownHash>,
    hash_v6: Result<(), UnknownHash>,
    before: Before,
}

/// Why the entry of a connection cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownHash {
    /// It is another function.
    #[error("its hash is not the Toeplitz hash (`ethtool -X` with `hfunc toeplitz` may set it)")]
    Function,
    /// It leaves out ports.
    #[error("its hash leaves out ports (`ethtool -N` with `rx-flow-hash tcp4 sdfn` may set them)")]
    Fields,
    /// It leaves out ports over IPv6.
    #[error(
        "its hash leaves out ports over IPv6 (`ethtool -N` with `rx-flow-hash tcp6 sdfn` may set them)"
    )]
    FieldsV6,
    /// The key cannot be read, or is shorter than the hash's input.
    #[error("its driver does not report a key that is long enough for the hash")]
    Key,
}

/// The table that a device had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Before {
    /// The kernel's default: all queues in turn. A table that is set, even this one, keeps the number of queues from
    /// being lowered.
    Default,
    /// The default of some drivers (igb): a row of entries for each queue, as many as for the others. The kernel's is
    /// given back in its place, which loads queues the same.
    Rows,
    /// Another one.
    Table(Vec<u16>),
}

impl Before {
    /// Of a table of a device with so many queues.
    fn of(table: &[u16], queues: u32) -> Self {
        let in_turn = |(entry, &queue): (usize, &u16)| {
            Some(usize::from(queue)) == entry.checked_rem(queues as usize)
        };
        let in_rows = |(entry, &queue): (usize, &u16)| {
            usize::from(queue) == entry * queues as usize / table.len()
        };
        if table.iter().enumerate().all(in_turn) {
            Self::Default
        } else if queues > 0 && table.iter().enumerate().all(in_rows) {
            Self::Rows
        } else {
            Self::Table(table.to_vec())
        }
    }
}

impl EthtoolRss {
    /// Reads the table of an interface, for a dataplane that has its first `queues` receive queues.
    ///
    /// # Errors
    /// [`RssError::Unsupported`] on devices without one (veth, most virtual ones):
    /// [`SoftwareRss`] takes its place there.
    pub fn open(interface: &str, queues: u16) -> Result<Self, RssError> {
        let failed = |source| error("reading the indirection table", interface, source);
        let device = Ethtool::open(interface).map_err(failed)?;
        let rss = device.rss().map_err(failed)?;
        let hashes = [Flow::TcpV4, Flow::TcpV6]
            .map(|flow| known(&rss, flow, device.hashes_four_tuple(flow)));
        let [hash, hash_v6] = hashes;
        let table: Vec<u16> =
            rss.table.iter().map(|queue| u16::try_from(*queue).unwrap_or(u16::MAX)).collect();
        let there = device.channels().map_or(queues.into(), Channels::receive);
        let before = Before::of(&table, there);
        let mut key = rss.key;
        // What is behind it takes part in no hash of ours.
        key.truncate(KEY_BYTES);
        if key.len() >= KEY_BYTES_MIN {
            key.resize(KEY_BYTES, 0);
        }
        let interface = interface.into();
        Ok(Self { device, interface, table, key, queues, hash, hash_v6, before })
    }

    /// Whether the entry of a connection over IPv4 can be computed.
    ///
    /// # Errors
    /// Why not: then the table still says which queues get packets, but not which one gets those of a connection.
    pub fn hash(&self) -> Result<(), UnknownHash> {
        self.hash
    }

    /// Whether the entry of a connection over IPv6 can be computed.
    ///
    /// # Errors
    /// As [`hash`](Self::hash).
    pub fn hash_v6(&self) -> Result<(), UnknownHash> {
        self.hash_v6
    }

    /// What the table was when it was opened.
    pub fn before(&self) -> &Before {
        &self.before
    }

    /// Replaces the key.
    ///
    /// # Errors
    /// [`RssError::Os`] where the device refuses, for its length for example.
    pub fn set_key(&mut self, key: &[u8]) -> Result<(), RssError> {
        self.device
            .set_rss_key(key)
            .map_err(|source| error("setting the hash key", &self.interface, source))?;
        self.key = key.to_vec();
        Ok(())
    }

    /// Replaces the whole table, in one operation of the device.
    ///
    /// # Errors
    /// As [`IndirectionTable::write`]; nothing changes then.
    pub fn set_table(&mut self, table: &[u16]) -> Result<(), RssError> {
        if let Some(queue) = table.iter().find(|queue| **queue >= self.queues) {
            return Err(RssError::NoSuchQueue { queue: *queue, queues: self.queues });
        }
        if table.len() != self.table.len() {
            let entries = self.table.len();
            return Err(RssError::NoSuchGroup { group: table.len(), entries });
        }
        let words: Vec<u32> = table.iter().map(|queue| u32::from(*queue)).collect();
        self.device
            .set_rss_table(Some(&words))
            .map_err(|source| error("setting the indirection table", &self.interface, source))?;
        self.table.copy_from_slice(table);
        Ok(())
    }

    /// Tries a write that changes nothing: resets a table that is the default, else sets the key that the device has.
    /// False: it has no key, and nothing was written. No table is set, for once one is, `ethtool -L` lowers the number of
    /// queues no more, and which driver has its own default is not known.
    ///
    /// # Errors
    /// [`RssError::Os`] where the device refuses.
    pub fn try_write(&self) -> Result<bool, RssError> {
        let failed = |source| error("writing the table or the key", &self.interface, source);
        match self.before {
            Before::Default => self.device.set_rss_table(None).map_err(failed)?,
            Before::Rows | Before::Table(_) => {
                // All of it, also what is behind the bytes that we use.
                let key = self.device.rss().map_err(failed)?.key;
                if key.iter().all(|&byte| byte == 0) {
                    return Ok(false);
                }
                self.device.set_rss_key(&key).map_err(failed)?;
            }
        }
        Ok(true)
    }

    /// Has the device send nothing but to the queues `0..queues`, each as many entries as the others.
    ///
    /// # Errors
    /// As [`set_table`](Self::set_table).
    pub fn deal(&mut self) -> Result<(), RssError> {
        let queues = usize::from(self.queues.max(1));
        let table: Vec<u16> = (0..self.table.len()).map(|entry| (entry % queues) as u16).collect();
        self.set_table(&table)
    }
}

/// Whether the entry of a TCP connection can be computed. `hashes_ports`: whether the driver reports that the hash
/// covers addresses and ports; none where it does not report the fields.
fn known(rss: &DeviceRss, flow: Flow, hashes_ports: Option<bool>) -> Result<(), UnknownHash> {
    let (key_bytes_min, left_out) = match flow {
        Flow::TcpV4 => (KEY_BYTES_MIN, UnknownHash::Fields),
        Flow::TcpV6 => (KEY_BYTES, UnknownHash::FieldsV6),
    };
    let used = &rss.key[..rss.key.len().min(KEY_BYTES)];
    if !rss.is_toeplitz {
        Err(UnknownHash::Function)
    } else if hashes_ports == Some(false) {
        Err(left_out)
    } else if used.len() < key_bytes_min || used.iter().all(|&byte| byte == 0) {
        Err(UnknownHash::Key)
    } else {
        Ok(())
    }
}

/// Gives a device a table back when it is dropped, after whoever writes the table.
#[derive(Debug)]
pub struct GivesBack {
    /// The interface, of the network namespace in which it was opened.
    device: Ethtool,
    /// What it had.
    before: Before,
}

impl GivesBack {
    /// To an interface of the calling thread's network namespace.
    ///
    /// # Errors
    /// The interface's name is none.
    pub fn to(interface: &str, before: Before) -> io::Result<Self> {
        Ok(Self { device: Ethtool::open(interface)?, before })
    }
}

impl Drop for GivesBack {
    fn drop(&mut self) {
        let words: Option<Vec<u32>> = match &self.before {
            Before::Default | Before::Rows => None,
            Before::Table(table) => Some(table.iter().map(|queue| u32::from(*queue)).collect()),
        };
        if let Err(error) = self.device.set_rss_table(words.as_deref()) {
            // The interface may be gone, or have fewer queues by now.
            tracing::warn!(
                interface = self.device.interface(),
                %error,
                "the indirection table stays as the dataplane has set it: `ethtool -X INTERFACE default` resets it"
            );
        }
    }
}

fn error(tried: &'static str, interface: &str, source: io::Error) -> RssError {
    let interface = interface.into();
    let none = source.kind() == io::ErrorKind::Unsupported
        || source.raw_os_error() == Some(libc::EOPNOTSUPP);
    if none {
        RssError::Unsupported { interface, source }
    } else {
        RssError::Os { tried, interface, source }
    }
}

impl IndirectionTable for EthtoolRss {
    fn entries(&self) -> &[u16] {
        &self.table
    }

    fn queues(&self) -> u16 {
        self.queues
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    /// In one operation of the device, which may take as long as it likes: some microseconds where it has the
    /// table in registers, milliseconds where a firmware is asked.
    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError> {
        let mut table = self.table.clone();
        apply(&mut table, self.queues, changes)?;
        self.set_table(&table)
    }
}

/// None of the device's, but its shape in software: the receiving core hashes, and forwards what
/// belongs to another core.
pub struct SoftwareRss {
    table: Vec<u16>,
    queues: u16,
    key: [u8; 40],
    /// Boxed: 36 KiB of tables.
    toeplitz: Box<Toeplitz>,
}

impl SoftwareRss {
    /// A table of `entries` flow groups, dealt out to `queues` in turn. The key should be secret and
    /// random ([`random_key`]), so that nobody can aim all of their connections at one core.
    ///
    /// # Errors
    /// [`RssError::BadShape`].
    pub fn new(entries: usize, queues: u16, key: [u8; 40]) -> Result<Self, RssError> {
        if !entries.is_power_of_two() || entries > 1 << 16 || queues == 0 {
            return Err(RssError::BadShape { entries, queues });
        }
        let table = (0..entries).map(|entry| (entry % usize::from(queues)) as u16).collect();
        Ok(Self { table, queues, key, toeplitz: Box::new(Toeplitz::new(&key)) })
    }

    /// The hash of a received packet's addresses and ports: `src` is the remote end.
    #[inline]
    pub fn hash(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> u32 {
        self.toeplitz.hash_v4(src, dst, src_port, dst_port)
    }

    /// As [`hash`](Self::hash), over IPv6.
    #[inline]
    pub fn hash_v6(&self, src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> u32 {
        self.toeplitz.hash_v6(src, dst, src_port, dst_port)
    }

    /// The flow group of a hash: its low bits.
    #[inline]
    pub fn group_of(&self, hash: u32) -> usize {
        hash as usize & (self.table.len() - 1)
    }

    /// The flow group of a received packet.
    #[inline]
    pub fn flow_group(&self, src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> usize {
        self.group_of(self.hash(src, dst, src_port, dst_port))
    }

    /// As [`flow_group`](Self::flow_group), over IPv6.
    #[inline]
    pub fn flow_group_v6(
        &self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        src_port: u16,
        dst_port: u16,
    ) -> usize {
        self.group_of(self.hash_v6(src, dst, src_port, dst_port))
    }
}

impl core::fmt::Debug for SoftwareRss {
    /// Without the key, which is secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SoftwareRss")
            .field("table", &self.table)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

impl IndirectionTable for SoftwareRss {
    fn entries(&self) -> &[u16] {
        &self.table
    }

    fn queues(&self) -> u16 {
        self.queues
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError> {
        apply(&mut self.table, self.queues, changes)
    }
}

/// A secret key from the operating system.
///
/// # Errors
/// What the operating system said.
pub fn random_key() -> io::Result<[u8; 40]> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut key = [0u8; 40];
    let mut filled = 0;
    while filled < key.len() {
        filled += getrandom(&mut key[filled..], GetRandomFlags::empty())?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MICROSOFT_KEY;

    #[test]
    fn groups_are_dealt_out_in_turn_and_can_be_moved() {
        let mut rss = SoftwareRss::new(DEFAULT_ENTRIES, 3, MICROSOFT_KEY).expect("a shape");
        assert_eq!(&rss.entries()[..7], [0, 1, 2, 0, 1, 2, 0]);
        rss.write(&[(5, 0), (6, 2)]).expect("all exist");
        assert_eq!((rss.queue_of(5), rss.queue_of(6), rss.queue_of(128)), (Some(0), Some(2), None));
        let error = rss.write(&[(4, 0), (128, 0)]).expect_err("one too many");
        assert!(matches!(error, RssError::NoSuchGroup { group: 128, entries: 128 }));
        assert_eq!(rss.queue_of(4), Some(1), "all or none");
        let error = rss.write(&[(0, 3)]).expect_err("one too many");
        assert!(matches!(error, RssError::NoSuchQueue { queue: 3, queues: 3 }));
    }

    #[test]
    fn the_group_is_the_low_bits_of_the_published_hash() {
        // From the verification suite of the hash's definition.
        let rss = SoftwareRss::new(128, 1, MICROSOFT_KEY).expect("a shape");
        let (src, dst) = (Ipv4Addr::new(66, 9, 149, 187), Ipv4Addr::new(161, 142, 100, 80));
        assert_eq!(rss.hash(src, dst, 2794, 1766), 0x51cc_c178);
        assert_eq!(rss.flow_group(src, dst, 2794, 1766), 0x78);
        let address = |text: &str| -> Ipv6Addr { text.parse().expect("an address") };
        let (src, dst) = (address("3ffe:2501:200:1fff::7"), address("3ffe:2501:200:3::1"));
        assert_eq!(rss.hash_v6(src, dst, 2794, 1766), 0x4020_7d3d);
        assert_eq!(rss.flow_group_v6(src, dst, 2794, 1766), 0x3d);
    }

    #[test]
    fn entries_can_be_computed_by_function_fields_and_key() {
        let of =
            |key: &[u8], is_toeplitz| DeviceRss { table: vec![0], key: key.into(), is_toeplitz };
        let both = |rss: &DeviceRss, fields: [Option<bool>; 2]| {
            [known(rss, Flow::TcpV4, fields[0]), known(rss, Flow::TcpV6, fields[1])]
        };
        let good = of(&[7; 52], true);
        for unknown_or_all in [None, Some(true)] {
            assert_eq!(both(&good, [unknown_or_all; 2]), [Ok(()); 2]);
        }
        // i40e and others hash each family by fields of its own.
        let (left_out, left_out_v6) = (Err(UnknownHash::Fields), Err(UnknownHash::FieldsV6));
        assert_eq!(both(&good, [Some(true), Some(false)]), [Ok(()), left_out_v6]);
        assert_eq!(both(&good, [Some(false), Some(true)]), [left_out, Ok(())]);
        assert_eq!(both(&of(&[7; 40], false), [None; 2]), [Err(UnknownHash::Function); 2]);
        for no_key in [&[][..], &[0; 40], &[7; KEY_BYTES_MIN - 1]] {
            assert_eq!(both(&of(no_key, true), [None; 2]), [Err(UnknownHash::Key); 2]);
        }
        // One that reaches the input over IPv4 alone.
        let short = of(&[7; KEY_BYTES - 1], true);
        assert_eq!(both(&short, [None; 2]), [Ok(()), Err(UnknownHash::Key)]);
    }

    #[test]
    fn shapes_are_checked_and_keys_are_not_printed() {
        for (entries, queues) in [(0, 1), (100, 1), (1 << 17, 1), (128, 0)] {
            assert!(SoftwareRss::new(entries, queues, MICROSOFT_KEY).is_err());
        }
        let rss = SoftwareRss::new(4, 1, MICROSOFT_KEY).expect("a shape");
        assert!(!format!("{rss:?}").contains("key"));
    }

    #[cfg(not(miri))]
    #[test]
    fn keys_differ() {
        let keys = [random_key().expect("random bytes"), random_key().expect("random bytes")];
        assert_ne!(keys[0], keys[1]);
    }

    #[cfg(not(miri))]
    #[test]
    fn the_loopback_interface_has_none_and_nonsense_is_an_error() {
        let error = EthtoolRss::open("lo", 1).expect_err("no hardware");
        assert!(matches!(error, RssError::Unsupported { .. }), "{error}");
        let error = EthtoolRss::open("no-such-device", 1).expect_err("no device");
        assert!(matches!(error, RssError::Os { .. }), "{error}");
        let mut rss = EthtoolRss {
            device: Ethtool::open("lo").expect("a socket"),
            interface: "lo".into(),
            table: vec![0; 4],
            key: vec![0; 40],
            queues: 2,
            hash: Err(UnknownHash::Key),
            hash_v6: Err(UnknownHash::FieldsV6),
            before: Before::Default,
        };
        assert_eq!(rss.hash(), Err(UnknownHash::Key));
        assert_eq!(rss.hash_v6(), Err(UnknownHash::FieldsV6));
        assert!(matches!(rss.write(&[(0, 1)]), Err(RssError::Unsupported { .. })));
        assert!(matches!(rss.write(&[(0, 2)]), Err(RssError::NoSuchQueue { .. })));
        assert!(matches!(rss.set_table(&[0, 0, 2, 0]), Err(RssError::NoSuchQueue { .. })));
        assert!(matches!(rss.set_table(&[0]), Err(RssError::NoSuchGroup { .. })));
        assert!(rss.set_key(&[1; 40]).is_err());
        assert_eq!((rss.entries(), rss.key()), (&[0u16; 4][..], &[0u8; 40][..]));
    }

    #[test]
    fn the_default_table_is_told_from_others() {
        assert_eq!(Before::of(&[0, 1, 2, 0, 1, 2, 0, 1], 3), Before::Default);
        assert_eq!(Before::of(&[0, 1, 0, 1], 4), Before::Table(vec![0, 1, 0, 1]));
        assert_eq!(Before::of(&[0, 0], 0), Before::Table(vec![0, 0]));
        assert_eq!(Before::of(&[0; 4], 1), Before::Default);
        assert_eq!(Before::of(&[0, 0, 1, 1, 2, 2, 3, 3], 4), Before::Rows);
        assert_eq!(Before::of(&[0, 0, 1, 1], 4), Before::Table(vec![0, 0, 1, 1]));
    }
}
