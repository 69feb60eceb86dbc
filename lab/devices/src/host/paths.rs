//! Where things lie: all below `target/devices` of the repository.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// The directories of the laboratory.
#[derive(Clone, Debug)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Makes the directories, below `target/devices` of the repository that this program was built in.
    ///
    /// # Errors
    /// They cannot be made.
    pub fn open() -> anyhow::Result<Self> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let paths = Self { root: repository.join("target/devices") };
        for directory in [paths.packages(), paths.unpacked(), paths.logs()] {
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make '{}'", directory.display()))?;
        }
        // apt and QEMU run elsewhere.
        Ok(Self { root: paths.root.canonicalize().context("finding target/devices")? })
    }

    /// apt's private state for a suite.
    pub fn apt(&self, suite: &str) -> PathBuf {
        self.root.join("apt").join(suite)
    }

    /// Package files.
    pub fn packages(&self) -> PathBuf {
        self.root.join("packages")
    }

    /// What was unpacked, a directory for each set of packages.
    pub fn unpacked(&self) -> PathBuf {
        self.root.join("unpacked")
    }

    /// What was fetched, and where it lies.
    pub fn manifest(&self) -> PathBuf {
        self.root.join("manifest.json")
    }

    /// Images and logs of boots.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
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
        self.logs().join(format!("{boot}.{ending}"))
    }
}
