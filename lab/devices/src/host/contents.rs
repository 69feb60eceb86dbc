//! The guest's first root: this program as `/init`, the product, the programs that checks use, and modules.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::fetch::Fetched;
use super::image::Image;
use super::modules::Modules;
use super::systemd;
use crate::boots::Boot;
use crate::protocol::{Driver, MODULES_DIRECTORY, SCRIPT_FILE, TASK_FILE, Work};

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

/// Writes the image of a boot to a file. `script` is that of [`Work::Script`].
///
/// # Errors
/// A program or module is missing; the file cannot be written.
pub fn write(
    target: &Path,
    fetched: &Fetched,
    programs: &Programs,
    boot: &Boot,
    work: Work,
    script: &[u8],
) -> anyhow::Result<()> {
    let mut image = Image::create(target)?;
    for directory in DIRECTORIES {
        image.archive.directory(directory)?;
    }
    let own = std::env::current_exe().context("finding this program's file")?;
    image.stripped(&own, "init")?;
    image.stripped(&programs.product, "bin/tailplane")?;
    if let Some(laboratory) = &programs.laboratory {
        image.stripped(laboratory, "bin/tailplane-lab")?;
    }
    if let Some(root) = fetched.systemd(boot)? {
        image.stripped(&programs.daemon, "bin/tailplaned").context(
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
    if !boot.systemd {
        passwd.push_str(PRODUCT_PASSWD);
        group.push_str(PRODUCT_GROUP);
    }
    image.archive.file("etc/passwd", 0o644, passwd.as_bytes())?;
    image.archive.file("etc/group", 0o644, group.as_bytes())?;
    image.archive.file("etc/hosts", 0o644, b"127.0.0.1 localhost\n")?;
    add_modules(&mut image, &fetched.kernel(boot.kernel)?.modules, boot.driver)?;
    let task = serde_json::to_vec(&boot.task(work))?;
    image.archive.file(TASK_FILE.trim_start_matches('/'), 0o644, &task)?;
    image.archive.file(SCRIPT_FILE.trim_start_matches('/'), 0o755, script)?;
    image.archive.finish()?;
    Ok(())
}

fn add_modules(image: &mut Image, below: &Path, driver: Driver) -> anyhow::Result<()> {
    let mut names = COMMON_MODULES.to_vec();
    names.push(driver.module());
    let directory = MODULES_DIRECTORY.trim_start_matches('/');
    let modules = Modules::below(below)?.closure(&names)?;
    let list: String = modules.iter().map(|module| format!("{}\n", module.name)).collect();
    for module in &modules {
        let name = format!("{directory}/{}.ko", module.name);
        image.archive.file(&name, 0o644, &module.object)?;
    }
    image.archive.file(&format!("{directory}/list"), 0o644, list.as_bytes())?;
    Ok(())
}

fn find(program: &str) -> anyhow::Result<PathBuf> {
    let files = PROGRAM_DIRECTORIES.iter().map(|directory| Path::new(directory).join(program));
    match files.into_iter().find(|file| file.exists()) {
        Some(file) => Ok(file.canonicalize()?),
        None => bail!("no program '{program}' for the guest: run scripts/setup.sh devices"),
    }
}
