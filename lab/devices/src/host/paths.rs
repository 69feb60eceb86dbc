//! Where things lie: all below `target/devices` of the repository.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The directories of the laboratory.
#[derive(Clone, Debug)]
pub struct Paths {
    /// apt's private state, a directory for each suite.
    pub apt: PathBuf,
    /// Package files.
    pub packages: PathBuf,
    /// What was unpacked, a directory for each set of packages.
    pub unpacked: PathBuf,
    /// What was fetched, and where it lies.
    pub manifest: PathBuf,
    /// Images and logs of boots.
    pub logs: PathBuf,
}

impl Paths {
    /// Makes the directories, below `target/devices` of the repository that this program was built in.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn open() -> anyhow::Result<Self> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = repository.join("target/devices");
        for name in ["packages", "unpacked", "logs"] {
            let directory = root.join(name);
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make '{}'", directory.display()))?;
        }
        // apt and QEMU run elsewhere.
        let root = root.canonicalize().context("finding target/devices")?;
        let [apt, packages, unpacked, manifest, logs] =
            ["apt", "packages", "unpacked", "manifest.json", "logs"].map(|name| root.join(name));
        Ok(Self { apt, packages, unpacked, manifest, logs })
    }

    /// Waits until no other process works on `name`, and keeps others out until the file is dropped.
    ///
    /// # Errors
    /// The lock's file cannot be made.
    pub fn lock(&self, name: &str) -> anyhow::Result<File> {
        let path = self.of_boot(name, "lock");
        let file = File::create(&path).with_context(|| format!("making '{}'", path.display()))?;
        if file.try_lock().is_err() {
            eprintln!("devices: waits for another process that uses {name}");
            file.lock().with_context(|| format!("locking '{}'", path.display()))?;
        }
        Ok(file)
    }

    /// A file of one boot.
    pub fn of_boot(&self, boot: &str, ending: &str) -> PathBuf {
        self.logs.join(format!("{boot}.{ending}"))
    }
}
