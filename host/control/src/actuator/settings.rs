//! Files that are set for a while: each is put back as it was found.

use std::path::{Path, PathBuf};

use crate::sysfs::{FileError, read, set, write};

/// See the module's comment. The first value of each file is kept; [`restore`](Self::restore), or dropping,
/// writes them back, the latest first.
#[derive(Debug, Default)]
pub struct Settings {
    found: Vec<(PathBuf, String)>,
}

impl Settings {
    /// Sets a file, reads it back, and compares by `same`.
    ///
    /// # Errors
    /// It is missing or refuses; or another value was taken.
    pub fn set(
        &mut self,
        path: &Path,
        text: &str,
        looked_for: &'static str,
        same: impl Fn(&str) -> bool,
    ) -> Result<(), FileError> {
        self.remember(path, looked_for)?;
        set(path, text, looked_for, same)
    }

    /// Sets a file that holds exactly what is written.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_exactly(
        &mut self,
        path: &Path,
        text: &str,
        looked_for: &'static str,
    ) -> Result<(), FileError> {
        self.set(path, text, looked_for, |found| found == text)
    }

    /// Keeps what a file says now, unless it is known already.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn remember(&mut self, path: &Path, looked_for: &'static str) -> Result<(), FileError> {
        if !self.found.iter().any(|(known, _)| known == path) {
            self.found.push((path.to_owned(), read(path, looked_for)?));
        }
        Ok(())
    }

    /// Puts all back, the latest first. Files that are gone need nothing; each that refuses is an error, and the
    /// others are put back all the same.
    pub fn restore(&mut self) -> Vec<FileError> {
        let mut errors = Vec::new();
        while let Some((path, text)) = self.found.pop() {
            // An empty file is told by an empty line: writing nothing at all would change nothing.
            let text = if text.is_empty() { "\n" } else { &text };
            match write(&path, text, "a setting to put back") {
                Ok(()) | Err(FileError::Missing { .. }) => {}
                Err(error) => errors.push(error),
            }
        }
        errors
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        // Nobody is left to be told; who wants to know calls `restore`.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::fake::Root;

    #[test]
    fn what_was_found_comes_back_also_when_dropped() {
        let root = Root::new(&[("a", "1"), ("b", "2"), ("gone", "3")]);
        let at = |name: &str| root.path().join(name);
        let mut settings = Settings::default();
        settings.set_exactly(&at("a"), "7", "a").unwrap();
        settings.set_exactly(&at("a"), "8", "a").unwrap();
        settings.set_exactly(&at("gone"), "8", "gone").unwrap();
        assert_eq!(root.get("a"), "8");
        root.remove("gone");
        assert_eq!(settings.restore(), []);
        assert_eq!(root.get("a"), "1");
        {
            let mut settings = Settings::default();
            settings.set_exactly(&at("b"), "9", "b").unwrap();
            assert!(settings.set_exactly(&at("none"), "9", "nothing").is_err());
            assert_eq!(root.get("b"), "9");
        }
        assert_eq!(root.get("b"), "2");
    }
}
