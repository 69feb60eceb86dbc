//! The socket's file: whose it is, and that no two services have the same.
//!
//! Beside each socket lies a lock file that its service holds locked as long as it lives, so that a socket file
//! can be told to be a dead one's without a race between two who would replace it.

use std::fmt::Display;
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};

use crate::directory::{self, socket_path};

/// Clients that may knock at a time.
const BACKLOG: i32 = 128;

/// Why a control socket could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BindError(String);

impl BindError {
    /// A service of that name runs, in a process where that is known.
    fn taken(name: &str, pid: Option<i32>, path: &Path) -> Self {
        let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        Self(format!(
            "a service named '{name}' runs already: process {pid} has '{}'; end that one, or give this one another \
             name (`control.name`)",
            path.display()
        ))
    }

    /// The operating system did not make it.
    pub(super) fn system<E: Display>(path: &Path) -> impl Fn(E) -> Self {
        move |error| {
            Self(format!(
                "cannot make the control socket '{}': {error} (another run directory: `TAILPLANE_RUN_DIR`)",
                path.display()
            ))
        }
    }
}

/// A control socket that is not served yet: clients that connect wait. Its file goes with this value.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    listener: OwnedFd,
    /// Which file was made: what lies there at the end may be another's.
    inode: u64,
    /// Locked as long as it is open.
    _lock: File,
}

impl Door {
    /// Makes the control socket of service `name` in a run directory. A socket file whose process has gone is
    /// replaced.
    ///
    /// # Errors
    /// [`BindError`]: a service of that name runs; the directory cannot be used.
    pub fn open(run_dir: &Path, name: &str) -> Result<Self, BindError> {
        let path = socket_path(run_dir, name).map_err(|error| BindError(error.to_string()))?;
        let failed = BindError::system::<io::Error>;
        let directory = directory::directory(run_dir);
        // Whatever the caller's umask: who can write there could serve in the name of a service.
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o755).create(&directory).map_err(failed(&directory))?;
        let lock_path = path.with_extension("lock");
        let mut options = File::options();
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let lock = lock.map_err(failed(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(BindError::taken(name, listener_of(&path), &path));
            }
            Err(TryLockError::Error(error)) => return Err(failed(&lock_path)(error)),
        }
        remove_stale(name, &path)?;
        let listener = listener(&path).map_err(BindError::system(&path))?;
        let inode = std::fs::symlink_metadata(&path).map_err(failed(&path))?.ino();
        Ok(Self { path, listener, inode, _lock: lock })
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next client that knocks.
    pub(super) fn accept(&self) -> io::Result<Option<OwnedFd>> {
        loop {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => return Ok(Some(socket)),
                Err(Errno::AGAIN) => return Ok(None),
                // It has gone again.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let is_ours =
            std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if is_ours {
            // Gone meanwhile: then there is nothing to do.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes what a service that has ended has left.
fn remove_stale(name: &str, path: &Path) -> Result<(), BindError> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(BindError::system(path))?,
    };
    if !found.file_type().is_socket() {
        return Err(BindError(format!(
            "'{}' is in the way: it is no socket, and this program does not remove it",
            path.display()
        )));
    }
    // Somebody may listen there who does not know of the lock.
    if let Some(pid) = listener_of(path) {
        return Err(BindError::taken(name, Some(pid), path));
    }
    std::fs::remove_file(path).map_err(BindError::system(path))
}

/// The process that listens at a path.
fn listener_of(path: &Path) -> Option<i32> {
    let address = SocketAddrUnix::new(path).ok()?;
    let socket = client_socket().ok()?;
    connect(&socket, &address).ok()?;
    Some(socket_peercred(&socket).ok()?.pid.as_raw_nonzero().get())
}

fn client_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn listener(path: &Path) -> rustix::io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = client_socket()?;
    bind(&socket, &address)?;
    // Before anybody can be let in.
    let only_owner = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600));
    only_owner.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}
