//! Reads below `/`, or below a made-up tree in tests.

use std::fs;
use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` hang. What cannot be read is absent: a check then says so.
#[derive(Clone, Debug)]
pub struct Root {
    path: PathBuf,
}

impl Root {
    /// This machine.
    pub fn machine() -> Self {
        Self::at("/")
    }

    /// The tree at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The file's text without surrounding blanks. `path` is relative: `proc/version`.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = fs::read_to_string(self.path.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The file's text as a number.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.read(path)?.parse().ok()
    }

    /// Where `path` is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }

    /// Whether it exists.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.path.join(path).exists()
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The value after `key:` in a file of such lines (`/proc/self/status`, `/proc/meminfo`,
    /// `/proc/cpuinfo`: there the first processor's).
    pub fn field(&self, path: impl AsRef<Path>, key: &str) -> Option<String> {
        let text = self.read(path)?;
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    }

    /// Whether the first processor has a flag of `/proc/cpuinfo` (the kernel's reading of CPUID).
    pub fn has_cpu_flag(&self, flag: &str) -> bool {
        let flags = self.field("proc/cpuinfo", "flags").unwrap_or_default();
        flags.split_whitespace().any(|other| other == flag)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake_tests::FakeRoot;

    #[test]
    fn fields_flags_and_numbers_are_read() {
        let fake = FakeRoot::with(&[
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu waitpkg\n\nprocessor\t: 1\n"),
            ("proc/sys/n", " -1\n"),
        ]);
        let root = fake.root();
        assert_eq!(root.field("proc/cpuinfo", "processor").as_deref(), Some("0"));
        assert!(root.has_cpu_flag("waitpkg"));
        assert!(!root.has_cpu_flag("wait"));
        assert_eq!(root.number("proc/sys/n"), Some(-1));
        assert_eq!(root.list("proc"), ["cpuinfo", "sys"]);
        assert_eq!(root.read("absent"), None);
    }
}
