//! Fetches QEMU, kernels and systemd as packages, and unpacks them below `target/devices`. Nothing is installed.
//!
//! A manifest records what was fetched: where everything that it names is there, nothing is downloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::archive::{Archive, Installed};
use super::paths::Paths;
use crate::boots::{Boot, Kernel};

/// The package with the emulator.
const QEMU_PACKAGE: &str = "qemu-system-x86";
/// The package with the first process of boots that have it.
const SYSTEMD_PACKAGE: &str = "systemd";
/// The package that depends on a suite's newest kernel.
const KERNEL_PACKAGE: &str = "linux-image-amd64";
/// Packages that hold parts of a kernel: until 7.1 one holds all, then the image and its modules are apart.
const KERNEL_PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
/// From one package to the next that it depends on, at most.
const KERNEL_DEPTH_MAX: usize = 3;

/// What was fetched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetched {
    /// Where QEMU was unpacked; absent where it is not fetched, or the machine has its own.
    pub qemu: Option<PathBuf>,
    /// QEMU's packages' files; empty where the machine has its own.
    qemu_files: Vec<String>,
    /// Where systemd was unpacked; absent where it is not fetched.
    systemd: Option<PathBuf>,
    /// Kernels by their names here.
    kernels: BTreeMap<String, Unpacked>,
}

/// A kernel that was unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpacked {
    /// Its release, as `uname -r` gives it.
    pub release: String,
    /// The package's version.
    pub version: String,
    /// The bootable image.
    pub image: PathBuf,
    /// The directory of its modules.
    pub modules: PathBuf,
}

impl Fetched {
    /// Reads the manifest; an empty one where there is none, or where files that it names are gone.
    fn read(paths: &Paths) -> Self {
        let text = fs::read_to_string(&paths.manifest).unwrap_or_default();
        let mut found: Self = serde_json::from_str(&text).unwrap_or_default();
        found.kernels.retain(|_, kernel| kernel.image.exists() && kernel.modules.exists());
        found.qemu = found.qemu.filter(|prefix| prefix.exists());
        found.systemd = found.systemd.filter(|prefix| prefix.exists());
        found
    }

    fn write(&self, paths: &Paths) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        fs::write(&paths.manifest, text).context("writing the manifest of what was fetched")
    }

    /// The kernel, which was fetched.
    ///
    /// # Errors
    /// It was not.
    pub fn kernel(&self, kernel: Kernel) -> anyhow::Result<&Unpacked> {
        let found = self.kernels.get(kernel.name);
        found.with_context(|| format!("kernel {} was not fetched", kernel.name))
    }

    /// Where systemd was unpacked, for a boot whose first process it is.
    ///
    /// # Errors
    /// It was not fetched.
    pub fn systemd(&self, boot: &Boot) -> anyhow::Result<Option<&Path>> {
        match boot.systemd {
            true => Ok(Some(self.systemd.as_deref().context("systemd was not fetched")?)),
            false => Ok(None),
        }
    }
}

/// Fetches what is missing of QEMU and of what these boots need; with `refresh`, looks whether there are newer ones.
///
/// # Errors
/// The archive could not be read, or packages have another shape than is known here.
pub fn fetch(paths: &Paths, boots: &[Boot], refresh: bool) -> anyhow::Result<Fetched> {
    let _lock = paths.lock("fetch")?;
    let mut fetched = Fetched::read(paths);
    let release = codename();
    if refresh || fetched.qemu.is_none() {
        let suites = [release.as_str(), &format!("{release}-backports")];
        let (place, files) =
            fetch_program(paths, "qemu", QEMU_PACKAGE, &suites).context("cannot fetch QEMU")?;
        (fetched.qemu, fetched.qemu_files) = (Some(place), files);
        fetched.write(paths)?;
    }
    if boots.iter().any(|boot| boot.systemd) && (refresh || fetched.systemd.is_none()) {
        let (place, _) = fetch_program(paths, "systemd", SYSTEMD_PACKAGE, &[&release])
            .context("cannot fetch systemd")?;
        fetched.systemd = Some(place);
        fetched.write(paths)?;
    }
    for kernel in boots.iter().map(|boot| boot.kernel).collect::<BTreeSet<Kernel>>() {
        if refresh || !fetched.kernels.contains_key(kernel.name) {
            let unpacked = fetch_kernel(paths, kernel)
                .with_context(|| format!("cannot fetch kernel {}", kernel.name))?;
            eprintln!("devices: kernel {} is {}", kernel.name, unpacked.release);
            fetched.kernels.insert(kernel.name.to_owned(), unpacked);
            fetched.write(paths)?;
        }
    }
    Ok(fetched)
}

/// The machine's own release: libraries of QEMU and systemd must fit the machine's C library.
fn codename() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.unwrap_or("bookworm").trim_matches('"').to_owned()
}

/// Fetches a program of the last of `suites` with what it needs, and returns where it lies and its packages' files.
fn fetch_program(
    paths: &Paths,
    name: &str,
    package: &str,
    suites: &[&str],
) -> anyhow::Result<(PathBuf, Vec<String>)> {
    let archive = Archive::open(paths, name, suites, Installed::TheMachines)?;
    let suite = suites.last().context("no suite is named")?;
    let files = archive.download_with_needs(package, suite, &paths.packages)?;
    let place = match files.is_empty() {
        // It is installed already.
        true => PathBuf::from("/"),
        false => unpack(paths, name, &files)?,
    };
    Ok((place, files))
}

fn fetch_kernel(paths: &Paths, kernel: Kernel) -> anyhow::Result<Unpacked> {
    let archive = Archive::open(paths, kernel.suite, &[kernel.suite], Installed::Nothing)?;
    let mut parts: Vec<String> = Vec::new();
    let mut next = vec![KERNEL_PACKAGE.to_owned()];
    let mut version = String::new();
    for _ in 0..KERNEL_DEPTH_MAX {
        let mut deeper = Vec::new();
        for package in &next {
            let found = archive.look(package)?;
            let is_part = |name: &String| {
                KERNEL_PARTS.iter().any(|part| name.starts_with(part))
                    && name.contains(|c: char| c.is_ascii_digit())
                    && !name.ends_with("linux-image-amd64")
                    && name.trim_end_matches("-amd64").contains('.')
            };
            deeper.extend(found.depends.into_iter().filter(is_part));
            version = found.version;
        }
        parts.extend(deeper.iter().cloned());
        next = deeper;
    }
    parts.sort();
    parts.dedup();
    let names: Vec<&str> = parts.iter().map(String::as_str).collect();
    let files = archive.download(&names, &paths.packages)?;
    let directory = unpack(paths, &format!("linux-{}", kernel.name), &files)?;
    locate(&directory, version)
}

/// Finds image and modules among what was unpacked: their place changes from release to release.
fn locate(directory: &Path, version: String) -> anyhow::Result<Unpacked> {
    let trees = ["usr/lib/modules", "lib/modules"];
    let found = trees.iter().map(|tree| directory.join(tree)).find(|tree| tree.is_dir());
    let tree = found.with_context(|| format!("no modules below '{}'", directory.display()))?;
    let entry = fs::read_dir(&tree)?.next().context("no kernel release among the modules")??;
    let release = entry.file_name().to_string_lossy().into_owned();
    let modules = entry.path();
    let images =
        [modules.join("vmlinuz"), directory.join("boot").join(format!("vmlinuz-{release}"))];
    match images.into_iter().find(|image| image.is_file()) {
        Some(image) => Ok(Unpacked { release, version, image, modules }),
        None => bail!("no bootable image of {release} below '{}'", directory.display()),
    }
}

/// Unpacks package files into a directory of their own, whole or not at all.
fn unpack(paths: &Paths, name: &str, files: &[String]) -> anyhow::Result<PathBuf> {
    let target = paths.unpacked.join(name);
    let partial = paths.unpacked.join(format!("{name}.partial"));
    for old in [&partial, &target] {
        if old.exists() {
            fs::remove_dir_all(old).with_context(|| format!("removing '{}'", old.display()))?;
        }
    }
    fs::create_dir_all(&partial).context("making a directory to unpack into")?;
    for (number, file) in files.iter().enumerate() {
        eprintln!("devices: unpacks {file} ({} of {})", number + 1, files.len());
        let status = Command::new("dpkg-deb")
            .arg("-x")
            .args([&paths.packages.join(file), &partial])
            .status()
            .context("cannot start dpkg-deb: is dpkg installed?")?;
        ensure!(
            status.success(),
            "cannot unpack '{file}': dpkg-deb ended with {status}; remove the file and try again"
        );
    }
    fs::rename(&partial, &target).context("renaming what was unpacked")?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_and_modules_are_found_in_both_shapes() {
        let root = std::env::temp_dir().join(format!("devices-fetch-{}", std::process::id()));
        let older = root.join("older");
        fs::create_dir_all(older.join("lib/modules/6.1.0-1")).expect("made");
        fs::create_dir_all(older.join("boot")).expect("made");
        fs::write(older.join("boot/vmlinuz-6.1.0-1"), "").expect("written");
        let newer = root.join("newer");
        fs::create_dir_all(newer.join("usr/lib/modules/7.3.4")).expect("made");
        assert!(locate(&newer, "7".into()).is_err(), "it has no image yet");
        fs::write(newer.join("usr/lib/modules/7.3.4/vmlinuz"), "").expect("written");
        let found = [locate(&older, "6".into()), locate(&newer, "7".into())];
        fs::remove_dir_all(&root).expect("removed");
        let releases: Vec<String> =
            found.into_iter().map(|one| one.expect("found").release).collect();
        assert_eq!(releases, ["6.1.0-1", "7.3.4"]);
    }
}
