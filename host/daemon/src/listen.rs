//! Sockets that people connect to: made with the right owner and mode, in place of what a dead daemon left.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};

/// A socket that is listened at; one in the file system is removed when dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: Option<PathBuf>,
}

/// The party that a connection is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A user of this machine, at a Unix socket.
    User(u32),
    /// A machine, over TCP.
    Address(IpAddr),
}

/// Whose a socket is, and who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user; the daemon's where nothing is said.
    pub uid: Option<u32>,
    /// The group; likewise.
    pub gid: Option<u32>,
    /// The mode.
    pub mode: u32,
}

impl Listener {
    /// Over TCP.
    ///
    /// # Errors
    /// The address is in use, or not this machine's.
    pub fn tcp(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpListener::bind(address)
            .with_context(|| format!("cannot listen at {address} (`metrics.listen`)"))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: socket.into(), path: None })
    }

    /// At a path. A socket that nobody listens at any more is replaced.
    ///
    /// # Errors
    /// Somebody listens there; something else is there; it cannot be made or given to its owner.
    pub fn unix(path: &Path, owner: &Owner) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(parent) = path.parent() {
            // Whatever the daemon's umask: who can write there could listen in its place.
            let mut directory = std::fs::DirBuilder::new();
            let made = directory.recursive(true).mode(0o755).create(parent);
            made.with_context(|| format!("cannot make the directory {}", parent.display()))?;
        }
        match std::fs::symlink_metadata(path) {
            Ok(about) if !about.file_type().is_socket() => bail!(
                "cannot listen at {shown}: something else is there; remove it, or name another path"
            ),
            Ok(_) if UnixStream::connect(path).is_ok() => {
                bail!("cannot listen at {shown}: somebody does already")
            }
            Ok(_) => std::fs::remove_file(path)
                .with_context(|| format!("cannot replace the stale socket {shown}"))?,
            Err(_) => {}
        }
        let socket =
            UnixListener::bind(path).with_context(|| format!("cannot listen at {shown}"))?;
        socket.set_nonblocking(true)?;
        let this = Self { socket: socket.into(), path: Some(path.to_owned()) };
        let Owner { uid, gid, mode } = *owner;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
            .with_context(|| format!("cannot set the mode of {shown}"))?;
        if uid.is_some() || gid.is_some() {
            std::os::unix::fs::chown(path, uid, gid)
                .with_context(|| format!("cannot give {shown} to user {uid:?}, group {gid:?}"))?;
        }
        Ok(this)
    }

    /// The next connection, and its origin; none where no client waits.
    ///
    /// # Errors
    /// No descriptors are left, and the like.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, Origin)>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (stream, peer) = match acceptfrom_with(&self.socket, flags) {
            Ok(accepted) => accepted,
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let origin = match peer.map(SocketAddr::try_from) {
            Some(Ok(address)) => Origin::Address(address.ip()),
            Some(Err(_)) | None => Origin::User(socket_peercred(&stream)?.uid.as_raw()),
        };
        Ok(Some((stream, origin)))
    }

    /// The address, over TCP: with the port that the system chose where none was named.
    pub fn address(&self) -> Option<SocketAddr> {
        SocketAddr::try_from(getsockname(&self.socket).ok()?).ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // A socket that stays is replaced by the next daemon.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::tests::fake::Directory;

    #[test]
    fn stale_sockets_are_replaced_and_others_are_not() {
        let directory = Directory::new("listen");
        let path = directory.path().join("below/control.sock");
        let owner = Owner { uid: None, gid: None, mode: 0o640 };
        let first = Listener::unix(&path, &owner).expect("made");
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let error = Listener::unix(&path, &owner).expect_err("in use").to_string();
        assert!(error.contains("somebody does already"), "{error}");
        // Its owner was killed: nobody listens, the file is there.
        drop(first.socket.try_clone().expect("a descriptor"));
        let stale = directory.path().join("stale.sock");
        // Not one that was bound and closed: a child of another test may hold a copy of that until it runs its program.
        let (socket, mode) = (FileType::Socket, Mode::RUSR | Mode::WUSR);
        mknodat(CWD, &stale, socket, mode, 0).expect("a socket without a listener");
        let second = Listener::unix(&stale, &owner).expect("replaced");
        UnixStream::connect(&stale).expect("somebody listens");
        assert!(matches!(second.accept(), Ok(Some(_))) && matches!(second.accept(), Ok(None)));
        drop(second);
        assert!(!stale.exists());
        let file = directory.put("file", "precious");
        let error = Listener::unix(&file, &owner).expect_err("a file").to_string();
        assert!(error.contains("something else is there"), "{error}");
        assert_eq!(directory.get("file"), "precious");
    }
}
