//! The guest's first root: this program as `/init`, the product, the programs that checks use, and modules.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::cpio::Cpio;
use super::modules::Modules;
use super::systemd;
use crate::protocol::{Driver, SCRIPT_FILE, TASK_FILE, Task};

/// Programs of this machine that the guest has. The shell is dash, since others have an `ip` of their own.
const PROGRAMS: [&str; 11] =
    ["dash", "ip", "tc", "ss", "ethtool", "ping", "nc", "bridge", "dmesg", "mount", "kill"];
/// Programs for scripts, which the guest has where this machine has them.
const OPTIONAL_PROGRAMS: [&str; 36] = [
    "awk", "basename", "bpftool", "cat", "chmod", "chrt", "cmp", "cp", "cut", "date", "dd", "env",
    "find", "free", "grep", "head", "id", "ls", "mkdir", "mv", "od", "ps", "rm", "sed", "seq",
    "setpriv", "sleep", "sort", "strace", "tail", "taskset", "tcpdump", "timeout", "tr", "uname",
    "wc",
];
/// Where programs are looked for.
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Modules that every boot has, beside its driver.
const COMMON_MODULES: [&str; 6] =
    ["virtio_pci", "af_packet", "tcp_diag", "xsk_diag", "veth", "sch_netem"];
/// Where modules lie in the image; the list of them in the order of insertion.
pub const MODULES_DIRECTORY: &str = "/modules";
/// Directories that mounts cover, or that programs expect.
const DIRECTORIES: [&str; 9] =
    ["proc", "sys", "dev", "run", "tmp", "root", "etc", "var", "newroot"];

/// Users of every guest.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
/// Users whom the product runs services as; where systemd runs, it makes them.
const PRODUCT_PASSWD: &str = "tailplane-dataplane:x:990:990::/:/bin/false\n\
                              tailplane-app:x:991:991::/:/bin/false\n";
const PRODUCT_GROUP: &str = "tailplane-dataplane:x:990:\ntailplane-app:x:991:\n";

/// The programs that are tried.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `tailplane`.
    pub product: PathBuf,
    /// `tailplane-lab`, with the load generator: programs of before it have their own.
    pub laboratory: Option<PathBuf>,
    /// `tailplaned`, for boots with systemd.
    pub daemon: PathBuf,
}

/// What goes into an image.
#[derive(Clone, Debug)]
pub struct Contents<'a> {
    /// The programs that are tried.
    pub programs: &'a Programs,
    /// Where systemd was unpacked, if it is the first process.
    pub systemd: Option<&'a Path>,
    /// The directory of the kernel's modules.
    pub modules: &'a Path,
    /// The driver of the boot.
    pub driver: Driver,
    /// What the guest is to do.
    pub task: &'a Task,
    /// The script of [`Work::Script`](crate::protocol::Work::Script).
    pub script: &'a [u8],
}

impl Contents<'_> {
    /// Writes the image to a file.
    ///
    /// # Errors
    /// A program or module is missing; the file cannot be written.
    pub fn write(&self, target: &Path) -> anyhow::Result<()> {
        let file =
            File::create(target).with_context(|| format!("making '{}'", target.display()))?;
        let scratch = target.with_extension("stripped");
        let archive = Cpio::new(BufWriter::new(file));
        let mut image = Image { archive, has: BTreeSet::new(), scratch };
        for directory in DIRECTORIES {
            image.archive.directory(directory)?;
        }
        let own = std::env::current_exe().context("finding this program's file")?;
        image.stripped(&own, "init")?;
        image.stripped(&self.programs.product, "bin/tailplane")?;
        if let Some(laboratory) = &self.programs.laboratory {
            image.stripped(laboratory, "bin/tailplane-lab")?;
        }
        if let Some(root) = self.systemd {
            image.stripped(&self.programs.daemon, "bin/tailplaned").context(
                "no daemon for the guest: run `cargo build --package daemon`, or name one with --daemon",
            )?;
            systemd::add(&mut image, root).context("adding systemd")?;
        }
        for program in PROGRAMS {
            let file = find(program)?;
            image.program(&file, &format!("bin/{program}"))?;
        }
        for program in OPTIONAL_PROGRAMS {
            if let Ok(file) = find(program) {
                image.program(&file, &format!("bin/{program}"))?;
            }
        }
        image.archive.link("bin/sh", "dash")?;
        for name in ["sbin", "usr/bin", "usr/sbin"] {
            image.archive.link(name, "/bin")?;
        }
        let (mut passwd, mut group) = (PASSWD.to_owned(), GROUP.to_owned());
        if self.systemd.is_none() {
            passwd.push_str(PRODUCT_PASSWD);
            group.push_str(PRODUCT_GROUP);
        }
        image.archive.file("etc/passwd", 0o644, passwd.as_bytes())?;
        image.archive.file("etc/group", 0o644, group.as_bytes())?;
        image.archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n")?;
        self.modules(&mut image)?;
        let task = serde_json::to_vec(self.task)?;
        image.archive.file(TASK_FILE.trim_start_matches('/'), 0o644, &task)?;
        image.archive.file(SCRIPT_FILE.trim_start_matches('/'), 0o755, self.script)?;
        image.archive.finish()?;
        Ok(())
    }

    fn modules<W: std::io::Write>(&self, image: &mut Image<W>) -> anyhow::Result<()> {
        let mut names = COMMON_MODULES.to_vec();
        names.push(self.driver.module());
        let directory = MODULES_DIRECTORY.trim_start_matches('/');
        let modules = Modules::below(self.modules)?.closure(&names)?;
        let list: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
        for module in &modules {
            let name = format!("{directory}/{}.ko", module.name);
            image.archive.file(&name, 0o644, &module.object)?;
        }
        image.archive.file(&format!("{directory}/list"), 0o644, list.as_bytes())?;
        Ok(())
    }
}

/// An image that is being written.
#[derive(Debug)]
pub struct Image<W> {
    /// What it is written to.
    pub archive: Cpio<W>,
    /// Libraries that it has, by their places there.
    has: BTreeSet<PathBuf>,
    /// A file for programs that are being stripped.
    scratch: PathBuf,
}

impl<W: std::io::Write> Image<W> {
    /// Adds a program of this machine with its libraries.
    fn program(&mut self, file: &Path, name: &str) -> anyhow::Result<()> {
        self.program_of(file, name, Path::new("/"), &[])
    }

    /// Adds a program of a package that was unpacked below `root`, with its libraries: those of `directories` first.
    ///
    /// # Errors
    /// A file cannot be read, or the image not be written.
    pub fn program_of(
        &mut self,
        file: &Path,
        name: &str,
        root: &Path,
        directories: &[PathBuf],
    ) -> anyhow::Result<()> {
        self.libraries(file, root, directories)?;
        let contents = fs::read(file).with_context(|| format!("reading '{}'", file.display()))?;
        Ok(self.archive.file(name, 0o755, &contents)?)
    }

    /// Adds a program without what debuggers need: that is most of it.
    fn stripped(&mut self, file: &Path, name: &str) -> anyhow::Result<()> {
        self.libraries(file, Path::new("/"), &[])?;
        let mut strip = Command::new("strip");
        strip
            .args(["--strip-debug", "-o"])
            .args([self.scratch.as_path(), file])
            .stderr(Stdio::null());
        // Without binutils, as it is: the image is larger then.
        let is_stripped = strip.status().is_ok_and(|status| status.success());
        let source = if is_stripped { self.scratch.as_path() } else { file };
        let contents =
            fs::read(source).with_context(|| format!("reading '{}'", source.display()))?;
        self.archive.file(name, 0o755, &contents)?;
        let _ = fs::remove_file(&self.scratch);
        Ok(())
    }

    fn libraries(
        &mut self,
        program: &Path,
        root: &Path,
        directories: &[PathBuf],
    ) -> anyhow::Result<()> {
        let mut ldd = Command::new("ldd");
        ldd.arg(program).env("LC_ALL", "C");
        if !directories.is_empty() {
            ldd.env("LD_LIBRARY_PATH", std::env::join_paths(directories)?);
        }
        let output = ldd.output().context("cannot start ldd: is libc-bin installed?")?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            let place = place(&library, root);
            if self.has.insert(place.clone()) {
                let contents = fs::read(&library)
                    .with_context(|| format!("reading '{}'", library.display()))?;
                self.archive.file(&place.to_string_lossy(), 0o755, &contents)?;
            }
        }
        Ok(())
    }
}

/// The files that `ldd` lists: `libc.so.6 => /lib/libc.so.6 (0x7f)`, or the loader alone.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let words = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.filter(|word| !word.ends_with(':')).map(PathBuf::from).collect()
}

/// Where the image has a library that lies below `root`: `/usr/lib` is a link to `/lib`.
fn place(library: &Path, root: &Path) -> PathBuf {
    let below = library.strip_prefix(root).or_else(|_| library.strip_prefix("/"));
    let below = below.unwrap_or(library);
    below.strip_prefix("usr").unwrap_or(below).to_owned()
}

/// A file of a package that was unpacked below `root`, which has it in `/usr` or not.
pub fn find_below(root: &Path, file: &str) -> Option<PathBuf> {
    [root.join(file), root.join("usr").join(file)].into_iter().find(|path| path.is_file())
}

fn find(program: &str) -> anyhow::Result<PathBuf> {
    let files = PROGRAM_DIRECTORIES.iter().map(|directory| Path::new(directory).join(program));
    match files.into_iter().find(|file| file.exists()) {
        Some(file) => Ok(file.canonicalize()?),
        None => bail!("no program '{program}' for the guest: run scripts/setup.sh devices"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_keeps_its_place_below_the_root_and_leaves_usr() {
        let placed = |library: &str, root: &str| place(Path::new(library), Path::new(root));
        assert_eq!(placed("/u/usr/lib/x/libs.so", "/u"), Path::new("lib/x/libs.so"));
        assert_eq!(placed("/lib/x/libc.so.6", "/u"), Path::new("lib/x/libc.so.6"));
        assert_eq!(placed("/usr/lib/x/liba.so", "/"), Path::new("lib/x/liba.so"));
    }

    #[test]
    fn libraries_are_the_files_that_ldd_lists() {
        let listed = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x86/libc.so.6 (0x7f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n\tlibx.so => not found\n";
        let expected = ["/lib/x86/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(listed), expected);
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
