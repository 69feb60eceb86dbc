//! Device features, queue counts and RSS tables by `SIOCETHTOOL`, without the `ethtool` binary.
//!
//! ```no_run
//! use tailplane_cli::ethtool_unsafe::Ethtool;
//! let device = Ethtool::open("eth0")?;
//! println!("{} receive queues", device.channels()?.receive());
//! device.set_features(&["tx-generic-segmentation"], false)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Layouts are those of `linux/ethtool.h`. Features go by their kernel names (the ones `ethtool -k`
//! prints), not by the old per-feature commands: one mechanism covers every kind of segmentation.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

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
    name: [u8; libc::IFNAMSIZ],
}

impl Ethtool {
    /// Names an interface of the calling thread's network namespace. Whether it exists shows with
    /// the first question.
    ///
    /// # Errors
    /// The name is empty, holds a NUL, or is longer than 15 bytes; or no socket could be made.
    pub fn open(interface: &str) -> io::Result<Self> {
        let bytes = interface.as_bytes();
        if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.contains(&0) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{interface}' is no interface name: 1 to 15 bytes, no NUL"),
            ));
        }
        let mut name = [0; libc::IFNAMSIZ];
        name[..bytes.len()].copy_from_slice(bytes);
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, name })
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
        Ok(Channels { rx: words[5], tx: words[6], combined: words[8] })
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
        Ok(bytes
            .chunks_exact(ETH_GSTRING_LEN)
            .map(|string| {
                let end = string.iter().position(|&byte| byte == 0).unwrap_or(string.len());
                String::from_utf8_lossy(&string[..end]).into_owned()
            })
            .collect())
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

    /// Hands one command to the driver; the reply overwrites the words.
    ///
    /// Private, because soundness rests on each caller above giving room for its command's reply.
    /// Each variable-length command carries that room in its header, except `GSTRINGS`, where the
    /// kernel goes by the size of the set: a constant of the running kernel, asked for just before.
    fn command(&self, words: &mut [u32]) -> io::Result<()> {
        let mut name = [0 as libc::c_char; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(self.name) {
            *to = from as libc::c_char;
        }
        let mut request = libc::ifreq {
            ifr_name: name,
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: words.as_mut_ptr().cast() },
        };
        // SAFETY: the descriptor is open; `request` is a live, fully initialised `ifreq`; its data
        // pointer covers `words`, exclusively borrowed for the call, of which the kernel writes no
        // more than the command's fixed size, the count in its header, or the set (see above).
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        // SFEATURES answers with positive flags ("some were not changeable"): no error here.
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "a-name-of-16-byte", "with\0nul"] {
            assert_eq!(Ethtool::open(name).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn an_absent_interface_is_an_error() {
        let device = Ethtool::open("tp-absent").unwrap();
        assert_eq!(device.channels().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(device.features().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_names_its_features() {
        let features = Ethtool::open("lo").unwrap().features().unwrap();
        assert_eq!(features.get("vlan-challenged"), Some(&true), "{features:?}");
        assert_eq!(features.get("rx-vlan-filter"), Some(&false), "{features:?}");
    }
}
