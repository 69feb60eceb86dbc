//! Which files a process may open, and how: Landlock rules, which hold whatever user it is.
//!
//! ```
//! use sandbox::Files;
//! let files = Files::read_only().writable("/var/lib/service");
//! println!("Landlock version {}", Files::version());
//! ```

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::SandboxError;
use crate::unsafe_processes::{allow, landlock_version, ruleset};

// linux/landlock.h: LANDLOCK_ACCESS_FS_*.
const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const READS: u64 = EXECUTE | READ_FILE | READ_DIR;
/// What a rule for something that is no directory may name.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
/// LANDLOCK_SCOPE_SIGNAL: no signal to a process outside of the rules.
const SCOPE_SIGNAL: u64 = 1 << 1;
/// The first versions with scopes, with rules for devices' ioctl, for truncation, for renaming between directories.
const WITH_SCOPES: u32 = 6;
const WITH_IOCTL: u32 = 5;
const WITH_TRUNCATE: u32 = 3;
const WITH_REFER: u32 = 2;

/// The devices that every program may use.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];
/// Directories of the root that programs read: all but devices.
const NO_READING: [&str; 1] = ["/dev"];

/// What may be opened: everything but devices for reading and execution, listed directories for everything, and
/// `/dev/null`, `zero`, `full`, `random`, `urandom` and `tty` for reading and writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    writable: Vec<PathBuf>,
}

impl Files {
    /// Nothing but the devices can be written to.
    pub fn read_only() -> Self {
        Self::default()
    }

    /// Everything at and below `path`, a directory or file that exists, can be written, made and removed, as far as
    /// the process's user may.
    pub fn writable(mut self, path: impl Into<PathBuf>) -> Self {
        self.writable.push(path.into());
        self
    }

    /// The version of Landlock that this kernel enforces; 0 for none.
    pub fn version() -> u32 {
        landlock_version()
    }
}

/// Every access that a version of Landlock knows.
fn handled(version: u32) -> u64 {
    let last = match version {
        WITH_IOCTL.. => 15,
        WITH_TRUNCATE.. => 14,
        WITH_REFER.. => 13,
        _ => 12,
    };
    (1 << (last + 1)) - 1
}

/// The rules, ready to be made without an allocation. They are made in the child, after its mounts: a rule is about a
/// file of one mount.
pub(crate) struct FilesPlan {
    handled: u64,
    scoped: u64,
    /// Paths, the accesses that each allows, and whether the path may be missing.
    rules: Vec<(CString, u64, bool)>,
}

impl FilesPlan {
    pub fn of(files: &Files) -> Result<Self, SandboxError> {
        let version = landlock_version();
        let (all, scoped) =
            (handled(version), if version >= WITH_SCOPES { SCOPE_SIGNAL } else { 0 });
        let mut rules = vec![(c"/".to_owned(), READ_DIR, false)];
        let entries = std::fs::read_dir("/").map_err(|found| {
            let advice = "start this where the root directory can be read";
            SandboxError::refused("list the root directory for the Landlock rules", found, advice)
        })?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if !NO_READING.iter().any(|one| path == Path::new(one)) {
                rules.push((c_string(&path)?, of_kind(&path, READS), true));
            }
        }
        for device in DEVICES {
            rules.push((c_string(Path::new(device))?, all & OF_FILES & !EXECUTE, true));
        }
        for path in &files.writable {
            if !path.is_absolute() || !path.exists() {
                let reason =
                    "is not an absolute path of something that exists: make it, or name another";
                return Err(unfit(path, reason));
            }
            rules.push((c_string(path)?, of_kind(path, all), false));
        }
        Ok(Self { handled: all, scoped, rules })
    }

    /// System calls only.
    pub fn make(&self) -> Result<OwnedFd, Errno> {
        let made = ruleset(self.handled, self.scoped)?;
        for (path, access, may_be_missing) in &self.rules {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            match rustix::fs::open(&**path, flags, Mode::empty()) {
                Ok(file) => allow(&made, &file, *access)?,
                Err(_) if *may_be_missing => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(made)
    }
}

fn of_kind(path: &Path, access: u64) -> u64 {
    if path.is_dir() { access } else { access & OF_FILES }
}

fn c_string(path: &Path) -> Result<CString, SandboxError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| unfit(path, "contains a NUL byte: no such file can exist"))
}

fn unfit(path: &Path, reason: &str) -> SandboxError {
    SandboxError::Refused(format!("could not prepare the rules for files: {path:?} {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_handles_what_it_knows() {
        assert_eq!(handled(1) & (TRUNCATE | IOCTL_DEV), 0);
        assert_eq!(handled(3) & (TRUNCATE | IOCTL_DEV), TRUNCATE);
        assert_eq!(handled(7) & (TRUNCATE | IOCTL_DEV), TRUNCATE | IOCTL_DEV);
    }

    #[test]
    #[cfg_attr(miri, ignore = "calls landlock_create_ruleset")]
    fn a_writable_path_exists_and_is_absolute() {
        for path in ["relative", "/no/such/directory"] {
            let found = FilesPlan::of(&Files::read_only().writable(path)).map(|_| ());
            let found = found.expect_err("no such path").to_string();
            assert!(found.contains(path) && found.contains("name another"), "{found}");
        }
    }
}
