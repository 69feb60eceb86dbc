//! A device's receive-side scaling: indirection table and hash key, by the `ETHTOOL_GRSSH` and
//! `ETHTOOL_SRSSH` ioctls.
//!
//! [`EthtoolRss`](crate::rss::EthtoolRss) is the safe face. This module holds `unsafe` because the
//! kernel reads and writes a structure with a tail of variable length at an address that we pass.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;

use crate::unsafe_interface::{control_socket, request_for};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
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
/// In the transform byte of a set: leave it as it is (`RXH_XFRM_NO_CHANGE`).
const TRANSFORM_NO_CHANGE: u8 = 0xff;

/// Table and key of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceRss {
    pub(crate) table: Vec<u32>,
    pub(crate) key: Vec<u8>,
}

/// Reads table and key.
pub(crate) fn get(interface: &str) -> io::Result<DeviceRss> {
    let mut sizes = vec![0u32; HEADER_WORDS];
    sizes[COMMAND] = ETHTOOL_GRSSH;
    // With sizes of zero the kernel answers the sizes alone.
    ioctl(interface, &mut sizes)?;
    let (table, key) = (sizes[TABLE_SIZE], sizes[KEY_SIZE]);
    if table == 0 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    if table > MAX_TABLE || key > MAX_KEY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let (table, key) = (table as usize, key as usize);
    let mut request = vec![0u32; HEADER_WORDS + table + key.div_ceil(4)];
    request[COMMAND] = ETHTOOL_GRSSH;
    request[TABLE_SIZE] = table as u32;
    request[KEY_SIZE] = key as u32;
    ioctl(interface, &mut request)?;
    let tail = &request[HEADER_WORDS..];
    let key_bytes = tail[table..].iter().flat_map(|word| word.to_ne_bytes()).take(key);
    Ok(DeviceRss { table: tail[..table].to_vec(), key: key_bytes.collect() })
}

/// Replaces the table; the key stays.
pub(crate) fn set_table(interface: &str, table: &[u32]) -> io::Result<()> {
    if table.is_empty() || table.len() > MAX_TABLE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut request = set_request();
    request[TABLE_SIZE] = table.len() as u32;
    request.extend_from_slice(table);
    ioctl(interface, &mut request)
}

/// Replaces the key; the table stays.
pub(crate) fn set_key(interface: &str, key: &[u8]) -> io::Result<()> {
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
    ioctl(interface, &mut request)
}

fn set_request() -> Vec<u32> {
    let mut request = vec![0; HEADER_WORDS];
    request[COMMAND] = ETHTOOL_SRSSH;
    request[FUNCTION] = u32::from_ne_bytes([0, TRANSFORM_NO_CHANGE, 0, 0]);
    request
}

/// `words` is a `struct ethtool_rxfh` with a tail as long as its sizes say (or with sizes of zero).
fn ioctl(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let socket = control_socket()?;
    let mut request = request_for(interface)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request names `words`, which is as long as the sizes inside it tell the kernel,
    // so all that it reads and writes lies in there.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, std::ptr::from_mut(&mut request)) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
