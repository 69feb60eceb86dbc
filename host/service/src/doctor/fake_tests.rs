//! A made-up tree of files, for the tests of checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::root::Root;

/// A made-up tree, removed with this value.
pub struct FakeRoot {
    path: PathBuf,
}

impl FakeRoot {
    /// A tree of these files: relative path and content.
    pub fn with(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplane-root-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let fake = Self { path };
        for (file, content) in files {
            let file = fake.path.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, content).unwrap();
        }
        fake
    }

    /// Adds an empty directory.
    pub fn directory(self, at: &str) -> Self {
        fs::create_dir_all(self.path.join(at)).unwrap();
        self
    }

    /// The tree as the checks see it.
    pub fn root(&self) -> Root {
        Root::at(&self.path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for FakeRoot {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
