//! Fake devices with an indirection table, of today's kernels or of those before 6.8: a test program with this module
//! has an `ioctl` of its own, which answers for them.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::Mutex;

/// A device as the kernel shows it to ethtool.
#[derive(Debug)]
struct Fake {
    /// `input_xfrm` is a reserved byte still, and to be zero (net/ethtool/ioctl.c, `ethtool_set_rxfh`, before 6.8).
    before_6_8: bool,
    queues: u32,
    table: Vec<u32>,
    /// Somebody has set the table: `ethtool -L` does not lower the number of queues any more.
    is_set: bool,
    key: Vec<u8>,
}

static FAKES: Mutex<BTreeMap<String, Fake>> = Mutex::new(BTreeMap::new());

/// With 128 entries, all queues in turn.
pub fn fake(name: &str, queues: u32, key: &[u8], before_6_8: bool) {
    let table = (0..128).map(|entry| entry % queues).collect();
    let fake = Fake { before_6_8, queues, table, is_set: false, key: key.to_vec() };
    FAKES.lock().unwrap().insert(name.to_owned(), fake);
}

/// The table now, and whether somebody has set it.
pub fn shown(name: &str) -> (Vec<u32>, bool) {
    let fakes = FAKES.lock().unwrap();
    (fakes[name].table.clone(), fakes[name].is_set)
}

/// ETHTOOL_GCHANNELS, ETHTOOL_GRSSH and ETHTOOL_SRSSH (linux/ethtool.h).
const CHANNELS: u32 = 0x3c;
const GET_RSS: u32 = 0x46;
const SET_RSS: u32 = 0x47;
/// Words before a table and a key; the second is the context, then come the sizes.
const RSS_HEAD: usize = 6;
/// A table's size that leaves the table alone (`ETH_RXFH_INDIR_NO_CHANGE`).
const NO_TABLE: u32 = u32::MAX;

/// How long a command is, in words, by its head.
fn length(head: &[u32; RSS_HEAD]) -> usize {
    let table = if head[2] == NO_TABLE { 0 } else { head[2] as usize };
    match head[0] {
        GET_RSS | SET_RSS => RSS_HEAD + table + (head[3] as usize).div_ceil(4),
        CHANNELS => 9,
        _ => RSS_HEAD,
    }
}

impl Fake {
    fn command(&mut self, words: &mut [u32]) -> Result<(), i32> {
        match words[0] {
            // Maxima, then counts; combined is the last of each.
            CHANNELS => {
                words[1..].fill(0);
                (words[4], words[8]) = (self.queues, self.queues);
            }
            GET_RSS => {
                let (table, key) = (words[2] as usize, words[3]);
                words[2..5].copy_from_slice(&[
                    self.table.len() as u32,
                    self.key.len() as u32,
                    u32::from_ne_bytes([1, 0, 0, 0]),
                ]);
                if table > 0 {
                    words[RSS_HEAD..RSS_HEAD + table].copy_from_slice(&self.table);
                }
                if key > 0 {
                    for (word, bytes) in
                        words[RSS_HEAD + table..].iter_mut().zip(self.key.chunks(4))
                    {
                        *word = u32::from_ne_bytes(bytes.try_into().expect("whole words"));
                    }
                }
            }
            SET_RSS => self.set(words)?,
            _ => return Err(libc::EOPNOTSUPP),
        }
        Ok(())
    }

    fn set(&mut self, words: &[u32]) -> Result<(), i32> {
        let [_, transform, reserved @ ..] = words[4].to_ne_bytes();
        if reserved != [0; 2] || words[5] != 0 || self.before_6_8 && transform != 0 {
            return Err(libc::EINVAL);
        }
        let (table, key) = (words[2], words[3] as usize);
        let tail = if table == NO_TABLE { RSS_HEAD } else { RSS_HEAD + table as usize };
        match table {
            NO_TABLE => {}
            0 => {
                self.table = (0..128).map(|entry| entry % self.queues).collect();
                self.is_set = false;
            }
            _ if table as usize == self.table.len() => {
                self.table.copy_from_slice(&words[RSS_HEAD..tail]);
                self.is_set = true;
            }
            _ => return Err(libc::EINVAL),
        }
        if key != 0 && key != self.key.len() {
            return Err(libc::EINVAL);
        }
        if key != 0 {
            self.key = words[tail..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        }
        Ok(())
    }
}

/// The command that begins here.
///
/// # Safety
/// It is as long as its head says, and only the caller reads or writes it meanwhile.
unsafe fn words<'a>(first: *mut libc::c_char) -> &'a mut [u32] {
    let first = first.cast::<u32>();
    // SAFETY: the caller's promise; each command is as long as a head.
    let length = length(unsafe { &*first.cast() });
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(first, length) }
}

/// In the place of libc's, for this program: a fake device's commands are answered here, all others by the kernel.
#[unsafe(no_mangle)]
extern "C" fn ioctl(
    fd: libc::c_int,
    request: libc::Ioctl,
    argument: *mut libc::c_void,
) -> libc::c_int {
    const SIOCETHTOOL: libc::Ioctl = 0x8946;
    if request == SIOCETHTOOL {
        // SAFETY: the request's argument is an `ifreq` with a name and, here, an ethtool command.
        let asked = unsafe { &*argument.cast::<libc::ifreq>() };
        let name: String = asked
            .ifr_name
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| *byte as u8 as char)
            .collect();
        if let Some(fake) = FAKES.lock().unwrap().get_mut(&name) {
            // SAFETY: what an ethtool request has there.
            let first = unsafe { asked.ifr_ifru.ifru_data };
            // SAFETY: the request's argument points to a command, which is at least as long as a head: the kernel reads
            // and writes as much.
            let words = unsafe { words(first) };
            return match fake.command(words) {
                Ok(()) => 0,
                Err(errno) => {
                    // SAFETY: this thread's.
                    unsafe { *libc::__errno_location() = errno };
                    -1
                }
            };
        }
    }
    // SAFETY: what the caller asked for.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) as libc::c_int }
}
