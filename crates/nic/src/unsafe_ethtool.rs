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
    let mut sizes = sizes_request();
    ioctl(interface, &mut sizes)?;
    let mut request = get_request(&sizes)?;
    ioctl(interface, &mut request)?;
    Ok(answer(&request))
}

/// Replaces the table; the key stays.
pub(crate) fn set_table(interface: &str, table: &[u32]) -> io::Result<()> {
    ioctl(interface, &mut table_request(table)?)
}

/// Replaces the key; the table stays.
pub(crate) fn set_key(interface: &str, key: &[u8]) -> io::Result<()> {
    ioctl(interface, &mut key_request(key)?)
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
    DeviceRss { table: tail[..table].to_vec(), key }
}

fn table_request(table: &[u32]) -> io::Result<Vec<u32>> {
    if table.is_empty() || table.len() > MAX_TABLE as usize {
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
        assert_eq!(read, DeviceRss { table: table.to_vec(), key: key.to_vec() });
    }

    #[test]
    fn what_a_driver_cannot_mean_is_refused() {
        let sizes = |table, key| get_request(&[0x46, 0, table, key, 0, 0]).map_err(|e| e.kind());
        assert_eq!(sizes(0, 40), Err(io::ErrorKind::Unsupported));
        assert_eq!(sizes(MAX_TABLE + 1, 40), Err(io::ErrorKind::InvalidData));
        assert_eq!(sizes(128, MAX_KEY + 1), Err(io::ErrorKind::InvalidData));
        // One that says afterwards that it has more than there was room for.
        assert_eq!(answer(&[0x46, 0, 500, 500, 0, 0, 1, 2]).table, [1, 2]);
        assert!(table_request(&[]).is_err() && key_request(&[]).is_err());
        assert!(key_request(&vec![0; MAX_KEY as usize + 1]).is_err());
    }

    #[test]
    fn a_table_is_set_without_the_key_and_a_key_without_the_table() {
        // The function stays (0), and its transform (255 in its second byte).
        let keep = u32::from_ne_bytes([0, 255, 0, 0]);
        assert_eq!(table_request(&[3, 1]).expect("a table"), [0x47, 0, 2, 0, keep, 0, 3, 1]);
        let request = key_request(&[1, 2, 3, 4, 5]).expect("a key");
        assert_eq!(request[..6], [0x47, 0, u32::MAX, 5, keep, 0]);
        let bytes: Vec<u8> = request[6..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 0, 0, 0]);
    }
}
