//! What the daemon must know after it was killed: which processes it started, and what clocks were before.
//!
//! Small files in the run directory, written whole beside and then renamed: each is the old one or the new one. That
//! directory is emptied at boot; what is in it speaks of this boot only.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::process::Identity;

/// Longest record, in bytes.
const RECORD_BYTES_MAX: u64 = 1 << 20;

/// What was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Started {
    /// It was about to be started at that moment, by CLOCK_MONOTONIC, in nanoseconds; perhaps it was.
    Intended(u64),
    /// It is that process.
    Process(Identity),
}

/// What a file of sysfs said before it was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// Which.
    pub path: PathBuf,
    /// What stood in it.
    pub text: String,
}

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

impl Records {
    /// In a directory, which is made when it is needed.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Writes a record; `name` has no slashes.
    ///
    /// # Errors
    /// The directory or the file cannot be written.
    pub fn write(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let beside = self.directory.join(format!(".{name}.new"));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(&serde_json::to_vec(value)?)?;
        fs::rename(beside, self.path(name))
    }

    /// Reads a record; none where there is none.
    ///
    /// # Errors
    /// It is there and cannot be read, or says something else.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        let path = self.path(name);
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let wrong = |what: String| io::Error::other(format!("{}: {what}", path.display()));
        if about.len() > RECORD_BYTES_MAX {
            return Err(wrong(format!("has {} bytes, which no record has", about.len())));
        }
        let text = fs::read(&path)?;
        serde_json::from_slice(&text).map(Some).map_err(|error| wrong(error.to_string()))
    }

    /// Removes a record; nothing where there is none.
    pub fn forget(&self, name: &str) {
        // A record that stays is looked at again, and found to be of a process that is gone.
        let _ = fs::remove_file(self.path(name));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::Directory;

    #[test]
    fn what_is_written_is_read_again_and_nonsense_is_said() {
        let directory = Directory::new("records");
        let records = Records::new(&directory.path().join("below"));
        assert_eq!(records.read::<Started>("service-kv").expect("nothing is fine"), None);
        let identity = Identity { pid: 7, start_ticks: 8, boot: "b".to_owned() };
        let started = Started::Process(identity);
        records.write("service-kv", &Started::Intended(5)).expect("written");
        records.write("service-kv", &started).expect("written over");
        assert_eq!(records.read("service-kv").expect("read"), Some(started));
        fs::write(directory.path().join("below/x.json"), "{").expect("written");
        let error = records.read::<Started>("x").unwrap_err().to_string();
        assert!(error.contains("x.json"), "{error}");
        records.forget("service-kv");
        records.forget("service-kv");
        assert_eq!(records.read::<Started>("service-kv").expect("nothing"), None);
    }
}
