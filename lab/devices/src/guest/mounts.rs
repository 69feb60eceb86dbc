//! File systems of the guest.
//!
//! The kernel's first root cannot be left by `pivot_root`, which the product's sandbox uses. So the image is copied to a
//! file system in memory, which becomes the root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::Context;
use rustix::mount::{MountFlags, mount, mount_move};

/// Where the new root is mounted first.
const NEW_ROOT: &str = "/newroot";
/// Directories of the image are not nested deeper than this.
const DEPTH_MAX: usize = 16;

/// File system, where, options; and whether the guest needs it.
const MOUNTS: [(&str, &str, &str, bool); 11] = [
    ("proc", "/proc", "", true),
    ("sysfs", "/sys", "", true),
    ("devtmpfs", "/dev", "", true),
    ("devpts", "/dev/pts", "mode=620,ptmxmode=666", true),
    ("tmpfs", "/dev/shm", "mode=1777", true),
    ("tmpfs", "/run", "mode=755", true),
    ("tmpfs", "/tmp", "mode=1777", true),
    ("bpf", "/sys/fs/bpf", "", true),
    ("cgroup2", "/sys/fs/cgroup", "", true),
    ("debugfs", "/sys/kernel/debug", "", false),
    ("tracefs", "/sys/kernel/tracing", "", false),
];

/// Moves the image to a root of its own and mounts all file systems there.
///
/// # Errors
/// One cannot be mounted.
pub fn mount_all() -> anyhow::Result<()> {
    mount("tmpfs", NEW_ROOT, "tmpfs", MountFlags::empty(), Some(c"mode=755"))
        .context("mounting the root")?;
    copy(Path::new("/"), Path::new(NEW_ROOT), 0).context("copying the image to its root")?;
    std::env::set_current_dir(NEW_ROOT).context("entering the root")?;
    mount_move(".", "/").context("moving the root")?;
    rustix::process::chroot(".").context("changing the root")?;
    std::env::set_current_dir("/").context("entering the root")?;
    for (kind, place, options, is_needed) in MOUNTS {
        let made = fs::create_dir_all(place).map_err(anyhow::Error::from);
        let mounted = made.and_then(|()| {
            let options = std::ffi::CString::new(options)?;
            Ok(mount(kind, place, kind, MountFlags::empty(), Some(options.as_c_str()))?)
        });
        if is_needed {
            mounted.with_context(|| format!("mounting {kind} at {place}"))?;
        }
    }
    // Several programs look for them there.
    let links = [("/proc/self/fd", "/dev/fd"), ("/proc/self/fd/1", "/dev/stdout")];
    for (target, link) in links {
        // One that is there is as good.
        let _ = symlink(target, link);
    }
    // Controllers are given to groups below by whoever makes these.
    Ok(())
}

/// Copies the image's files, and frees the memory of each.
fn copy(from: &Path, to: &Path, depth: usize) -> anyhow::Result<()> {
    assert!(depth < DEPTH_MAX, "{} is nested too deep", from.display());
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, source) = (entry.file_type()?, entry.path());
        let target = to.join(entry.file_name());
        if source == Path::new(NEW_ROOT) {
            continue;
        } else if kind.is_dir() {
            fs::create_dir_all(&target)?;
            fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
            copy(&source, &target, depth + 1)?;
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target)?;
            fs::remove_file(&source)?;
        }
    }
    Ok(())
}
