//! The peer of a Unix socket: its process, its user (`SO_PEERCRED`) and its groups (`SO_PEERGROUPS`).
//!
//! This module holds `unsafe` because only the bare system call reads the last option.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_void, socklen_t};

/// Most groups of a peer: the kernel's own limit.
const GROUPS_MAX: usize = 65_536;

/// A peer, as it was when it connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process; 0 where that is in another PID namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its groups, the primary one first.
    pub gids: Vec<u32>,
}

impl Peer {
    /// Of a connected socket.
    ///
    /// # Errors
    /// It is no Unix socket, or is not connected.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let mut gids = vec![credentials.gid.as_raw()];
        gids.extend(groups(socket)?);
        let pid = u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0);
        Ok(Self { pid, uid: credentials.uid.as_raw(), gids })
    }
}

fn groups(socket: &impl AsFd) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; 64];
    // Once more where there are more; a peer's groups are those of when it connected, and do not change.
    for _ in 0..2 {
        let (done, count) = read_option(socket, libc::SO_PEERGROUPS, &mut groups);
        match done {
            Ok(()) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count <= GROUPS_MAX => {
                groups.resize(count, 0);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("the peer's groups do not fit"))
}

/// Reads a socket option that is a list of 32-bit words; and how many it has, also where there is no room for them.
fn read_option(socket: &impl AsFd, option: c_int, words: &mut [u32]) -> (io::Result<()>, usize) {
    let mut bytes = size_of_val(words) as socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `words`, which has them, and the length to `bytes`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            words.as_mut_ptr().cast::<c_void>(),
            &raw mut bytes,
        )
    };
    let done = if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    (done, bytes as usize / size_of::<u32>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn our_own_end_is_us() {
        let (near, _far) = UnixStream::pair().expect("sockets");
        let peer = Peer::of(&near).expect("connected");
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        let ours = rustix::process::getgroups().expect("ours");
        assert_eq!(peer.gids[0], rustix::process::getegid().as_raw());
        assert_eq!(peer.gids.len(), 1 + ours.len());
        let (socket, _) = (std::net::TcpListener::bind("127.0.0.1:0").expect("a port"), ());
        assert!(Peer::of(&socket).is_err(), "no Unix socket");
    }
}
