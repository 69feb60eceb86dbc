//! Files of sysfs and cgroupfs under a root that is a parameter: reading, writing with reading back, and errors
//! that name the file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Largest file that is read: these hold a line or two.
const FILE_BYTES_MAX: u64 = 64 * 1024;
/// Highest number of a processor: bounds what a list may ask for.
pub const CPU_MAX: u32 = 8_191;

/// A file that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It is not there.
    #[error("{path} is not there: {looked_for}")]
    Missing {
        /// Where it was looked for.
        path: PathBuf,
        /// What it would have said.
        looked_for: &'static str,
    },
    /// It cannot be read or written, says what it should not, or does not say what was written.
    #[error("{0}")]
    Unfit(String),
}

/// Reads a file, without white space at its ends.
///
/// # Errors
/// It is missing, cannot be read, or is far longer than such files are.
pub fn read(path: &Path, looked_for: &'static str) -> Result<String, FileError> {
    let long =
        fs::metadata(path).is_ok_and(|about| about.is_file() && about.len() > FILE_BYTES_MAX);
    if long {
        let expected = "a line or two were expected";
        return Err(malformed(path, "(a long file)", expected));
    }
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim().to_owned()),
        Err(error) => Err(failed(path, error, looked_for, "read".to_owned())),
    }
}

/// A field of `/proc/PID/stat`, counted from 0 behind the name. That stands in brackets and may hold any character, so
/// that what counts begins after the last one.
pub fn stat_field(stat: &str, field: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(field)
}

/// Writes a file that is there.
///
/// # Errors
/// It is missing or cannot be written.
pub fn write(path: &Path, text: &str, looked_for: &'static str) -> Result<(), FileError> {
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written.map_err(|error| failed(path, error, looked_for, format!("set to \"{text}\"")))
}

/// Writes a file, reads it back, and compares by `same`.
///
/// # Errors
/// As [`read`] and [`write`]; or the system took another value.
pub fn set(
    path: &Path,
    text: &str,
    looked_for: &'static str,
    same: impl Fn(&str) -> bool,
) -> Result<(), FileError> {
    write(path, text, looked_for)?;
    let found = read(path, looked_for)?;
    if same(&found) {
        return Ok(());
    }
    let path = path.display();
    Err(FileError::Unfit(format!(
        "{path} was set to \"{text}\" and says \"{found}\" now: the system did not take it"
    )))
}

fn failed(path: &Path, error: io::Error, looked_for: &'static str, tried: String) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            FileError::Missing { path: path.to_owned(), looked_for }
        }
        _ => FileError::Unfit(format!(
            "{} cannot be {tried}: {error}; run as root, or give the right to it",
            path.display()
        )),
    }
}

/// An error for what a file says, of which it shows the beginning.
pub fn malformed(path: &Path, found: &str, expected: &'static str) -> FileError {
    let found: String = found.chars().take(64).collect();
    FileError::Unfit(format!("{} says \"{found}\"; {expected}", path.display()))
}

/// Reads a number.
///
/// # Errors
/// As [`read`]; or it is none.
pub fn read_number(path: &Path, looked_for: &'static str) -> Result<u32, FileError> {
    let text = read(path, looked_for)?;
    text.parse().map_err(|_| malformed(path, &text, "a whole number was expected"))
}

/// Reads a list of processors: `0-3,8`.
///
/// # Errors
/// As [`read`]; or it is none.
pub fn read_cpus(path: &Path, looked_for: &'static str) -> Result<Vec<u32>, FileError> {
    let text = read(path, looked_for)?;
    parse_cpus(&text)
        .ok_or_else(|| malformed(path, &text, "a list of processors was expected, as 0-3,8"))
}

/// A list of processors as the kernel writes it (also with spaces between, as cpufreq does), sorted.
pub fn parse_cpus(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > CPU_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// The same list as the kernel would write it.
pub fn show_cpus(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let parts: Vec<String> = sorted
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    parts.join(",")
}

/// Directories that tests make, with the files that they need; removed when dropped.
#[cfg(test)]
pub(crate) mod fake {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    static COUNT: AtomicU32 = AtomicU32::new(0);

    pub struct Root(PathBuf);

    impl Root {
        pub fn new(files: &[(&str, &str)]) -> Self {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("tailplane-control-{}-{count}", std::process::id());
            let root = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(&root.0).expect("a directory for the test");
            for (path, text) in files {
                root.put(path, text);
            }
            root
        }

        pub fn path(&self) -> &Path {
            &self.0
        }

        pub fn put(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().expect("a file in the root")).expect("directories");
            fs::write(path, format!("{text}\n")).expect("a file for the test");
        }

        pub fn get(&self, path: &str) -> String {
            fs::read_to_string(self.0.join(path)).expect("the file is there").trim().to_owned()
        }

        pub fn remove(&self, path: &str) {
            fs::remove_file(self.0.join(path)).expect("the file is there");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            // What is left in the temporary directory harms nobody.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpus("0-3,8"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(parse_cpus("5 4 4"), Some(vec![4, 5]));
        assert_eq!(parse_cpus(""), Some(vec![]));
        for wrong in ["x", "3-1", "1-", "0-99999", "-1", "1,,x", "4294967296"] {
            assert_eq!(parse_cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_name_the_file_and_what_it_is_for() {
        let root =
            fake::Root::new(&[("number", "seven"), ("list", "1-"), ("long", &"x".repeat(70_000))]);
        let error = |result: Result<u32, FileError>| result.unwrap_err().to_string();
        let missing = error(read_number(&root.path().join("none"), "how many"));
        assert!(missing.ends_with("none is not there: how many"), "{missing}");
        let wrong = error(read_number(&root.path().join("number"), "how many"));
        assert!(wrong.contains("says \"seven\"; a whole number was expected"), "{wrong}");
        assert!(read_cpus(&root.path().join("list"), "which").is_err());
        assert!(read(&root.path().join("long"), "x").is_err());
        let directory = read(root.path(), "x").unwrap_err().to_string();
        assert!(directory.contains(" cannot be read: "), "{directory}");
        let taken = set(&root.path().join("number"), "8", "how many", |found| found == "9");
        assert!(taken.unwrap_err().to_string().ends_with("the system did not take it"));
        assert_eq!(set(&root.path().join("number"), "8", "how many", |found| found == "8"), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(cpus in prop::collection::btree_set(0u32..200, 0..40)) {
            let cpus: Vec<u32> = cpus.into_iter().collect();
            prop_assert_eq!(parse_cpus(&show_cpus(&cpus)), Some(cpus));
        }

        #[test]
        fn any_text_is_answered(text in "[0-9,x -]{0,30}") {
            if let Some(cpus) = parse_cpus(&text) {
                prop_assert!(cpus.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
