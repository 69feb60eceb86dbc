//! Queue counts, features, driver, carrier and receive-side scaling of a device by `SIOCETHTOOL`, without the
//! `ethtool` binary.
//!
//! ```no_run
//! use nic::Ethtool;
//! let device = Ethtool::open("eth0")?;
//! println!("{}: {} receive queues", device.driver()?, device.channels()?.receive());
//! device.set_features(&["tx-generic-segmentation"], false)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Layouts are those of `linux/ethtool.h`. Features go by their kernel names (the ones `ethtool -k`
//! prints), not by the old per-feature commands: one mechanism covers every kind of segmentation. This module
//! holds `unsafe` because the kernel reads and writes a structure of variable length at an address that we pass.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::unsafe_interface::{control_socket, request_for};

const SIOCETHTOOL: libc::Ioctl = 0x8946;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GRSSH: u32 = 0x46;
const ETHTOOL_SRSSH: u32 = 0x47;

/// In `indir_size` of a set: leave the table as it is (`ETH_RXFH_INDIR_NO_CHANGE`).
const TABLE_NO_CHANGE: u32 = u32::MAX;
/// Bounds on what a device may claim: the largest tables and keys known are a fraction of these.
const MAX_TABLE: u32 = 16_384;
const MAX_KEY: u32 = 1_024;

/// Words of `struct ethtool_rxfh` before its tail: command, context, table size, key size, hash
/// function with transform and reserved bytes, reserved.
const HEADER_WORDS: usize = 6;
const COMMAND: usize = 0;
const TABLE_SIZE: usize = 2;
const KEY_SIZE: usize = 3;
/// Hash function (byte 0), input transform (byte 1), two reserved bytes.
const FUNCTION: usize = 4;
/// In the transform byte of a set: leave it as it is (`RXH_XFRM_NO_CHANGE`, since Linux 6.8). Before, the byte was
/// reserved, and to be zero.
const TRANSFORM_NO_CHANGE: u8 = 0xff;
/// `ETH_RSS_HASH_TOP`: Toeplitz.
const TOEPLITZ: u8 = 1;

/// What a device hashes, as `ETHTOOL_GRXFH` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// TCP over IPv4: `TCP_V4_FLOW`.
    TcpV4 = 1,
    /// TCP over IPv6: `TCP_V6_FLOW`.
    TcpV6 = 5,
}

/// `RXH_IP_SRC | RXH_IP_DST | RXH_L4_B_0_1 | RXH_L4_B_2_3`: addresses and ports.
const FOUR_TUPLE: u32 = 0b1111 << 4;

/// The string set that names the feature bits.
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of one string of a set.
const ETH_GSTRING_LEN: usize = 32;
/// More feature bits than any kernel has (64 in 6.18): a bound on what a reply makes us allocate.
const FEATURES_MAX: u32 = 1024;

/// Queue counts now in use (`ETHTOOL_GCHANNELS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that only receive.
    pub rx: u32,
    /// Queues that only transmit.
    pub tx: u32,
    /// Queues that do both.
    pub combined: u32,
    /// Queues that receive, at most.
    pub receive_max: u32,
}

impl Channels {
    /// Queues that an AF_XDP socket can receive on.
    pub fn receive(self) -> u32 {
        self.rx.saturating_add(self.combined)
    }

    /// Queues that an AF_XDP socket can transmit on.
    pub fn transmit(self) -> u32 {
        self.tx.saturating_add(self.combined)
    }
}

/// One network interface of the namespace that opened it.
#[derive(Debug)]
pub struct Ethtool {
    /// Any socket serves: it only says which namespace is meant.
    socket: OwnedFd,
    name: String,
}

impl Ethtool {
    /// Names an interface of the calling thread's network namespace. Whether it exists shows with
    /// the first question.
    ///
    /// # Errors
    /// The name is empty, holds a NUL, or is longer than 15 bytes; or no socket could be made.
    pub fn open(interface: &str) -> io::Result<Self> {
        request_for(interface).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{interface}' is no interface name: 1 to 15 bytes, no NUL"),
            )
        })?;
        Ok(Self { socket: control_socket()?, name: interface.to_owned() })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.name
    }

    /// The driver's name; `veth`, for example.
    ///
    /// # Errors
    /// The interface does not exist, or its driver does not tell (`EOPNOTSUPP`).
    pub fn driver(&self) -> io::Result<String> {
        // command, then 32 bytes each for driver, version, firmware, bus, expansion ROM; 12 reserved; five counts.
        let mut words = [0u32; 49];
        words[0] = ETHTOOL_GDRVINFO;
        self.command(&mut words)?;
        Ok(string(&words[1..9]))
    }

    /// The interface's index; where the interface has gone, or another one has its name, not what it was.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn index(&self) -> io::Result<u32> {
        crate::unsafe_interface::index(&self.socket, &self.name)
    }

    /// Whether the link is up: the interface is, and its cable leads somewhere.
    ///
    /// # Errors
    /// The interface does not exist.
    pub fn has_link(&self) -> io::Result<bool> {
        let mut words = [ETHTOOL_GLINK, 0];
        self.command(&mut words)?;
        Ok(words[1] != 0)
    }

    /// Every feature by its kernel name, and whether it is active now.
    ///
    /// # Errors
    /// The interface does not exist, or the kernel refused.
    pub fn features(&self) -> io::Result<BTreeMap<String, bool>> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        // Header (command, size), then per block: available, requested, active, never_changed.
        let mut words = vec![0u32; 2 + 4 * blocks];
        words[0] = ETHTOOL_GFEATURES;
        words[1] = blocks as u32;
        self.command(&mut words)?;
        let active = |bit: usize| words[2 + 4 * (bit / 32) + 2] >> (bit % 32) & 1 == 1;
        Ok(names
            .into_iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(bit, name)| (name, active(bit)))
            .collect())
    }

    /// Switches the named features; names that this kernel does not know are passed over, and so are
    /// features that the device cannot change: read [`Self::features`] to know what holds.
    ///
    /// # Errors
    /// The interface does not exist, or `CAP_NET_ADMIN` is missing.
    pub fn set_features(&self, names: &[&str], on: bool) -> io::Result<()> {
        let known = self.feature_names()?;
        let blocks = known.len().div_ceil(32);
        // Header (command, size), then per block: valid, requested.
        let mut words = vec![0u32; 2 + 2 * blocks];
        words[0] = ETHTOOL_SFEATURES;
        words[1] = blocks as u32;
        for (bit, _) in known.iter().enumerate().filter(|(_, name)| names.contains(&name.as_str()))
        {
            let block = 2 + 2 * (bit / 32);
            words[block] |= 1 << (bit % 32);
            words[block + 1] |= u32::from(on) << (bit % 32);
        }
        self.command(&mut words)
    }

    /// Queue counts now in use.
    ///
    /// # Errors
    /// The interface does not exist, or its driver does not tell (`EOPNOTSUPP`).
    pub fn channels(&self) -> io::Result<Channels> {
        // command, four maxima (rx, tx, other, combined), four counts in the same order.
        let mut words = [0u32; 9];
        words[0] = ETHTOOL_GCHANNELS;
        self.command(&mut words)?;
        let receive_max = words[1].saturating_add(words[4]);
        Ok(Channels { rx: words[5], tx: words[6], combined: words[8], receive_max })
    }

    /// Entries of the RSS indirection table: the flow groups that the device can steer (IX §4.5).
    ///
    /// # Errors
    /// The interface does not exist, or it has no such table (`EOPNOTSUPP`).
    pub fn rss_entries(&self) -> io::Result<u32> {
        // command, size, no room for entries: the kernel answers with the size it would need.
        let mut words = [ETHTOOL_GRXFHINDIR, 0];
        self.command(&mut words)?;
        Ok(words[1])
    }

    /// The kernel's names of the feature bits, in order; empty where a bit has none.
    fn feature_names(&self) -> io::Result<Vec<String>> {
        let count = self.feature_count()?;
        // command, string set, count, then the strings.
        let mut words = vec![0u32; 3 + count as usize * ETH_GSTRING_LEN / 4];
        words[0] = ETHTOOL_GSTRINGS;
        words[1] = ETH_SS_FEATURES;
        words[2] = count;
        self.command(&mut words)?;
        let bytes: Vec<u8> = words[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(bytes.chunks_exact(ETH_GSTRING_LEN).map(until_nul).collect())
    }

    fn feature_count(&self) -> io::Result<u32> {
        // command, reserved, the 64-bit mask of wanted sets, one count per set in the mask.
        let mask = (1u64 << ETH_SS_FEATURES).to_ne_bytes();
        let half =
            |at: usize| u32::from_ne_bytes([mask[at], mask[at + 1], mask[at + 2], mask[at + 3]]);
        let mut words = [ETHTOOL_GSSET_INFO, 0, half(0), half(4), 0];
        self.command(&mut words)?;
        let granted = words[2] | words[3];
        if granted == 0 || words[4] > FEATURES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the kernel names {} device features", words[4]),
            ));
        }
        Ok(words[4])
    }

    /// Indirection table and hash.
    ///
    /// # Errors
    /// The interface does not exist, or it has no such table (`EOPNOTSUPP`, `Unsupported`).
    pub(crate) fn rss(&self) -> io::Result<DeviceRss> {
        let mut sizes = sizes_request();
        self.command(&mut sizes)?;
        let mut request = get_request(&sizes)?;
        self.command(&mut request)?;
        Ok(answer(&request))
    }

    /// Replaces the table; the key stays. Without one the device gets its default: all queues in turn.
    pub(crate) fn set_rss_table(&self, table: Option<&[u32]>) -> io::Result<()> {
        self.set_rss(table_request(table.unwrap_or_default())?)
    }

    /// Replaces the key; the table stays.
    pub(crate) fn set_rss_key(&self, key: &[u8]) -> io::Result<()> {
        self.set_rss(key_request(key)?)
    }

    fn set_rss(&self, mut request: Vec<u32>) -> io::Result<()> {
        match self.command(&mut request.clone()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                request[FUNCTION] = 0;
                self.command(&mut request)
            }
            set => set,
        }
    }

    /// Whether the hash of such a packet is one of its addresses and ports; none where the driver does not report it.
    pub(crate) fn hashes_four_tuple(&self, flow: Flow) -> Option<bool> {
        let mut words = fields_request(flow);
        self.command(&mut words).ok()?;
        Some(has_four_tuple(&words))
    }

    /// Hands one command to the driver; the reply overwrites the words.
    ///
    /// Private, because soundness rests on each caller above giving room for its command's reply.
    /// Each variable-length command carries that room in its header, except `GSTRINGS`, where the
    /// kernel goes by the size of the set: a constant of the running kernel, asked for just before.
    fn command(&self, words: &mut [u32]) -> io::Result<()> {
        let mut request = request_for(&self.name)?;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: the descriptor is open; `request` is a live, fully initialised `ifreq`; its data
        // pointer covers `words`, exclusively borrowed for the call, of which the kernel writes no
        // more than the command's fixed size, the count in its header, or the set (see above).
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        // SFEATURES answers with positive flags ("some were not changeable"): no error here.
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The text of a field that ends at its first NUL.
fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn string(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    until_nul(&bytes)
}

/// Asks for the fields of a hash, by the head of `struct ethtool_rxnfc`: command, flow type, 64 bits of fields.
fn fields_request(flow: Flow) -> [u32; 4] {
    [ETHTOOL_GRXFH, flow as u32, 0, 0]
}

/// Whether the fields that the kernel has written into such a request are addresses and ports.
fn has_four_tuple(request: &[u32; 4]) -> bool {
    // The fields are in the low half, which word that is.
    (request[2] | request[3]) & FOUR_TUPLE == FOUR_TUPLE
}

/// Table and hash of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRss {
    pub(crate) table: Vec<u32>,
    /// Empty where the driver does not tell.
    pub(crate) key: Vec<u8>,
    /// The hash is a Toeplitz hash of the fields as they are, as far as the driver tells.
    pub(crate) is_toeplitz: bool,
}

/// With sizes of zero the kernel answers the sizes alone.
fn sizes_request() -> Vec<u32> {
    let mut sizes = vec![0u32; HEADER_WORDS];
    sizes[COMMAND] = ETHTOOL_GRSSH;
    sizes
}

/// Asks for a table and a key of the sizes that the device has answered.
fn get_request(sizes: &[u32]) -> io::Result<Vec<u32>> {
    let (table, key) = (sizes[TABLE_SIZE], sizes[KEY_SIZE]);
    if table == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if table > MAX_TABLE || key > MAX_KEY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut request = vec![0u32; HEADER_WORDS + table as usize + key.div_ceil(4) as usize];
    request[COMMAND] = ETHTOOL_GRSSH;
    request[TABLE_SIZE] = table;
    request[KEY_SIZE] = key;
    Ok(request)
}

/// What the kernel has written into such a request. It may have written smaller sizes, never larger ones.
fn answer(request: &[u32]) -> DeviceRss {
    let tail = &request[HEADER_WORDS..];
    let table = (request[TABLE_SIZE] as usize).min(tail.len());
    let key_bytes = tail[table..].iter().flat_map(|word| word.to_ne_bytes());
    let key = key_bytes.take(request[KEY_SIZE] as usize).collect();
    let [function, transform, ..] = request[FUNCTION].to_ne_bytes();
    // A driver that does not tell says 0.
    let is_toeplitz = matches!(function, 0 | TOEPLITZ) && transform == 0;
    DeviceRss { table: tail[..table].to_vec(), key, is_toeplitz }
}

/// An empty table means the default one.
fn table_request(table: &[u32]) -> io::Result<Vec<u32>> {
    if table.len() > MAX_TABLE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = set_request();
    request[TABLE_SIZE] = table.len() as u32;
    request.extend_from_slice(table);
    Ok(request)
}

fn key_request(key: &[u8]) -> io::Result<Vec<u32>> {
    if key.is_empty() || key.len() > MAX_KEY as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = set_request();
    request[TABLE_SIZE] = TABLE_NO_CHANGE;
    request[KEY_SIZE] = key.len() as u32;
    for piece in key.chunks(4) {
        let mut word = [0; 4];
        word[..piece.len()].copy_from_slice(piece);
        request.push(u32::from_ne_bytes(word));
    }
    Ok(request)
}

fn set_request() -> Vec<u32> {
    let mut request = vec![0; HEADER_WORDS];
    request[COMMAND] = ETHTOOL_SRSSH;
    request[FUNCTION] = u32::from_ne_bytes([0, TRANSFORM_NO_CHANGE, 0, 0]);
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct ethtool_rxfh`, field by field, as a driver's answer to `request`.
    fn fill(request: &[u32], table: &[u32], key: &[u8]) -> Vec<u32> {
        let mut filled = request.to_vec();
        filled[TABLE_SIZE] = table.len() as u32;
        filled[KEY_SIZE] = key.len() as u32;
        let room = filled.len() - HEADER_WORDS;
        let mut tail = table.to_vec();
        for piece in key.chunks(4) {
            let mut word = [0; 4];
            word[..piece.len()].copy_from_slice(piece);
            tail.push(u32::from_ne_bytes(word));
        }
        filled[HEADER_WORDS..][..tail.len().min(room)]
            .copy_from_slice(&tail[..tail.len().min(room)]);
        filled
    }

    #[test]
    fn a_table_is_asked_for_by_its_sizes_and_read_back() {
        assert_eq!(sizes_request(), [0x46, 0, 0, 0, 0, 0]);
        let (table, key) = ([0u32, 1, 2, 3, 0, 1, 2, 3], [7u8; 10]);
        let request = get_request(&fill(&[0; 9], &table, &key)).expect("sizes of a device");
        // Command, context, sizes, function, reserved; then room for 8 words and 10 bytes.
        assert_eq!(request[..6], [0x46, 0, 8, 10, 0, 0]);
        assert_eq!(request.len(), 6 + 8 + 3);
        let read = answer(&fill(&request, &table, &key));
        assert_eq!(read, DeviceRss { table: table.to_vec(), key: key.to_vec(), is_toeplitz: true });
    }

    #[test]
    fn what_a_driver_cannot_mean_is_refused() {
        let sizes = |table, key| get_request(&[0x46, 0, table, key, 0, 0]).map_err(|e| e.kind());
        assert_eq!(sizes(0, 40), Err(io::ErrorKind::Unsupported));
        assert_eq!(sizes(MAX_TABLE + 1, 40), Err(io::ErrorKind::InvalidData));
        assert_eq!(sizes(128, MAX_KEY + 1), Err(io::ErrorKind::InvalidData));
        // One that says afterwards that it has more than there was room for.
        assert_eq!(answer(&[0x46, 0, 500, 500, 0, 0, 1, 2]).table, [1, 2]);
        assert!(
            table_request(&vec![0; MAX_TABLE as usize + 1]).is_err() && key_request(&[]).is_err()
        );
        assert!(key_request(&vec![0; MAX_KEY as usize + 1]).is_err());
    }

    #[test]
    fn a_table_is_set_without_the_key_and_a_key_without_the_table() {
        // The function stays (0), and its transform (255 in its second byte).
        let keep = u32::from_ne_bytes([0, 255, 0, 0]);
        assert_eq!(table_request(&[3, 1]).expect("a table"), [0x47, 0, 2, 0, keep, 0, 3, 1]);
        assert_eq!(table_request(&[]).expect("the default"), [0x47, 0, 0, 0, keep, 0]);
        let request = key_request(&[1, 2, 3, 4, 5]).expect("a key");
        assert_eq!(request[..6], [0x47, 0, u32::MAX, 5, keep, 0]);
        let bytes: Vec<u8> = request[6..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 0, 0, 0]);
    }

    #[test]
    fn the_fields_of_a_hash_are_asked_for_by_family() {
        assert_eq!(fields_request(Flow::TcpV4), [0x29, 1, 0, 0]);
        assert_eq!(fields_request(Flow::TcpV6), [0x29, 5, 0, 0]);
        // Addresses and ports; addresses; one port is left out.
        let fields = |low| has_four_tuple(&[0x29, 5, low, 0]);
        assert_eq!((fields(0xf0), fields(0x30), fields(0xb0)), (true, false, false));
    }

    #[cfg(not(miri))]
    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "a-name-of-16-byte", "with\0nul"] {
            assert_eq!(Ethtool::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn an_absent_interface_is_an_error() {
        let device = Ethtool::open("tp-absent").unwrap();
        assert_eq!(device.channels().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(device.features().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[cfg(not(miri))]
    #[test]
    fn the_loopback_names_its_features() {
        let features = Ethtool::open("lo").unwrap().features().unwrap();
        assert_eq!(features.get("vlan-challenged"), Some(&true), "{features:?}");
        assert_eq!(features.get("rx-vlan-filter"), Some(&false), "{features:?}");
    }
}
