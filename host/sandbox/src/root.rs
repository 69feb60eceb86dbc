//! The files that a confined process can reach, if not the host's: a mount namespace of its own whose
//! root is a read-only file system in memory.
//!
//! It is planned before `fork` ([`RootPlan`]), with every path ready for the kernel, and made after it.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};

use crate::SandboxError;

/// What a process sees as `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Root {
    /// The starter's.
    #[default]
    Host,
    /// These files and folders at their own paths, read-only, without devices and set-user-id; nothing
    /// mounted below a listed folder. Absolute paths.
    Only(Vec<PathBuf>),
}

/// Where a library of the system may lie: what the loader looks through without configuration.
const LIBRARY_FOLDERS: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];

impl Root {
    /// What `program` needs to start: itself, its loader, and the system's library folders.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn for_program(program: &Path) -> Result<Self, SandboxError> {
        let mut paths = vec![program.to_path_buf()];
        let folders = LIBRARY_FOLDERS.map(PathBuf::from);
        paths.extend(folders.into_iter().filter(|folder| folder.is_dir()));
        if let Some(loader) = loader_of(program)?
            && !paths.iter().any(|path| loader.starts_with(path))
        {
            paths.push(loader);
        }
        Ok(Self::Only(paths))
    }
}

/// The loader that a program asks for (`PT_INTERP` of a 64-bit ELF file), if it asks.
fn loader_of(program: &Path) -> Result<Option<PathBuf>, SandboxError> {
    const LONGEST_PATH: u64 = 4096;
    /// The kernel starts none with more than 64 KiB of them; and 0xffff stands for a number elsewhere.
    const MOST_HEADERS: u16 = 1170;
    let unreadable = |reason| unfit(program, reason);
    let file = File::open(program)
        .map_err(|_| unreadable("cannot be opened: give a program that exists"))?;
    let file = ReadCache::new(file);
    // Both processors that we know have the lower bytes first.
    let header = FileHeader64::<LittleEndian>::parse(&file);
    let (header, endian) = header
        .and_then(|header| Ok((header, header.endian()?)))
        .map_err(|_| unreadable("is no 64-bit ELF program: give the interpreter for a script"))?;
    if header.e_phnum.get(endian) > MOST_HEADERS {
        return Err(unreadable("has more program headers than any program: give an ELF file"));
    }
    let segments = header
        .program_headers(endian, &file)
        .map_err(|_| unreadable("is not a whole program: give an ELF file"))?;
    let asks = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP);
    let Some(asks) = asks else { return Ok(None) };
    let path = match asks.p_filesz(endian) {
        ..=LONGEST_PATH => asks.interpreter(endian, &file).ok().flatten(),
        _ => None,
    };
    let path = path.ok_or_else(|| unreadable("names no loader: give a whole program"))?;
    Ok(Some(PathBuf::from(OsStr::from_bytes(path))))
}

enum Op {
    Folder(CString),
    File(CString),
    /// From the host's path to the new root's.
    Bind(CString, CString),
}

/// A root, ready to be made without another allocation.
pub(crate) struct RootPlan {
    /// The folder of the host that the new root is mounted on until it is the root.
    stage: CString,
    options: CString,
    ops: Vec<Op>,
}

/// Any folder that is everywhere and holds no listed file will do: in the new namespace only, it is hidden.
const STAGES: [&str; 3] = ["/sys", "/proc", "/dev"];

impl RootPlan {
    /// `None` for the host's root.
    pub(crate) fn of(root: &Root) -> Result<Option<Self>, SandboxError> {
        let paths: &[PathBuf] = match root {
            Root::Host => return Ok(None),
            Root::Only(paths) => paths,
        };
        let free = |stage: &&str| {
            Path::new(*stage).is_dir() && !paths.iter().any(|path| path.starts_with(stage))
        };
        let stage = STAGES.into_iter().find(free).ok_or_else(|| {
            let reason = "and /proc and /dev are all listed or missing: leave one of them out";
            unfit(Path::new(STAGES[0]), reason)
        })?;
        let mut ops = Vec::new();
        let mut made = vec![PathBuf::from("/")];
        for path in paths {
            plan_path(Path::new(stage), path, &mut made, &mut ops)?;
        }
        // One inode each and the root's; a page each is more than the folders take.
        let (inodes, pages) = (ops.len() + 2, ops.len() + 2);
        let options = format!("mode=0755,nr_inodes={inodes},nr_blocks={pages}");
        let options = c_string(Path::new(&options))?;
        Ok(Some(Self { stage: c_string(Path::new(stage))?, options, ops }))
    }

    /// Makes the root and enters it. The calling thread must be alone in its mount namespace already.
    /// System calls only.
    pub(crate) fn enter(&self) -> Result<(), Errno> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        rustix::mount::mount_change(c"/", private)?;
        let safe = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"tailplane", &*self.stage, c"tmpfs", safe, Some(&*self.options))?;
        for op in &self.ops {
            match op {
                Op::Folder(path) => rustix::fs::mkdir(&**path, Mode::from_raw_mode(0o755))?,
                Op::File(path) => {
                    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
                    drop(rustix::fs::open(&**path, flags, Mode::from_raw_mode(0o444))?);
                }
                Op::Bind(from, to) => {
                    rustix::mount::mount_bind(&**from, &**to)?;
                    let read_only = MountFlags::BIND | MountFlags::RDONLY | safe;
                    rustix::mount::mount_remount(&**to, read_only, c"")?;
                }
            }
        }
        rustix::mount::mount_remount(
            &*self.stage,
            MountFlags::BIND | MountFlags::RDONLY | safe,
            c"",
        )?;
        rustix::process::chdir(&*self.stage)?;
        // pivot_root(2), NOTES: with the same folder twice the old root lands on top, and is let go.
        rustix::process::pivot_root(c".", c".")?;
        rustix::mount::unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(c"/")
    }
}

fn plan_path(
    stage: &Path,
    path: &Path,
    made: &mut Vec<PathBuf>,
    ops: &mut Vec<Op>,
) -> Result<(), SandboxError> {
    let wrong = |reason| unfit(path, reason);
    let plain = |c: Component| matches!(c, Component::RootDir | Component::Normal(_));
    if !path.is_absolute() || !path.components().all(plain) || path == Path::new("/") {
        return Err(wrong("is not an absolute path below the root without `..`: write it out"));
    }
    let is_folder =
        std::fs::metadata(path).map_err(|_| wrong("cannot be found: list what exists"))?.is_dir();
    let inside = |path: &Path| match path.strip_prefix("/") {
        Ok(rest) => c_string(&stage.join(rest)),
        Err(_) => Err(wrong("is not absolute: write it out")),
    };
    if made.iter().any(|known| known == path) {
        return Err(wrong(
            "is listed twice, or below what is listed: list it once, the outer one only",
        ));
    }
    let parents: Vec<_> = path.ancestors().skip(1).collect();
    for parent in parents.into_iter().rev() {
        let listed = |op: &Op| matches!(op, Op::Bind(from, _) if from.as_bytes() == parent.as_os_str().as_bytes());
        if ops.iter().any(listed) {
            return Err(wrong("is below another listed folder: list the outer one only"));
        }
        if !made.iter().any(|known| known == parent) {
            ops.push(Op::Folder(inside(parent)?));
            made.push(parent.into());
        }
    }
    let to = inside(path)?;
    ops.push(if is_folder { Op::Folder(to.clone()) } else { Op::File(to.clone()) });
    ops.push(Op::Bind(c_string(path)?, to));
    made.push(path.into());
    Ok(())
}

fn c_string(path: &Path) -> Result<CString, SandboxError> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| unfit(path, "contains a NUL byte: no such file can exist"))
}

fn unfit(path: &Path, reason: &str) -> SandboxError {
    SandboxError::Refused(format!("could not prepare a root of its own: {path:?} {reason}"))
}
