//! Writes a cpio archive in the `newc` format, which the kernel unpacks as its first root.
//!
//! ```text
//! let mut archive = Cpio::new(writer);
//! archive.directory("bin")?;
//! archive.file("bin/sh", 0o755, &bytes)?;
//! archive.finish()?;
//! ```
//!
//! The kernel unpacks archives that follow each other in a file, so that a boot's own files are an archive behind the
//! common one. Format: Linux, `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::collections::BTreeSet;
use std::io::{self, Write};

const MAGIC: &str = "070701";
/// The name of the last entry.
const TRAILER: &str = "TRAILER!!!";
const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
/// Headers and contents begin at multiples of this.
const ALIGNMENT: usize = 4;

/// An archive that is being written.
#[derive(Debug)]
pub struct Cpio<W> {
    writer: W,
    inode: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Cpio<W> {
    /// Begins one.
    pub fn new(writer: W) -> Self {
        Self { writer, inode: 0, directories: BTreeSet::new() }
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        let missing = written.next_multiple_of(ALIGNMENT) - written;
        self.writer.write_all(&[0; ALIGNMENT][..missing])
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        assert!(!name.starts_with('/'), "names are relative: {name}");
        let size = u32::try_from(contents.len()).map_err(io::Error::other)?;
        let name_size = name.len() as u32 + 1;
        self.inode += 1;
        // Inode, mode, user, group, links, time, size, device (2), special device (2), name's size, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = MAGIC.to_owned();
        header.extend(fields.iter().map(|field| format!("{field:08X}")));
        self.writer.write_all(header.as_bytes())?;
        self.writer.write_all(name.as_bytes())?;
        self.writer.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.writer.write_all(contents)?;
        self.pad(contents.len())
    }

    /// Adds a directory, with those above it; one that is there already is left as it is.
    ///
    /// # Errors
    /// The writer's.
    pub fn directory(&mut self, name: &str) -> io::Result<()> {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        for end in ends {
            if end > 0 && self.directories.insert(name[..end].to_owned()) {
                self.entry(&name[..end], S_IFDIR | 0o755, &[])?;
            }
        }
        Ok(())
    }

    fn parent(&mut self, name: &str) -> io::Result<()> {
        name.rsplit_once('/').map_or(Ok(()), |(parent, _)| self.directory(parent))
    }

    /// Adds a file, with the directories above it.
    ///
    /// # Errors
    /// The writer's; a file of 4 GiB or more.
    pub fn file(&mut self, name: &str, permissions: u32, contents: &[u8]) -> io::Result<()> {
        self.parent(name)?;
        self.entry(name, S_IFREG | permissions, contents)
    }

    /// Adds a symbolic link, with the directories above it.
    ///
    /// # Errors
    /// The writer's.
    pub fn link(&mut self, name: &str, target: &str) -> io::Result<()> {
        self.parent(name)?;
        self.entry(name, S_IFLNK | 0o777, target.as_bytes())
    }

    /// Ends the archive.
    ///
    /// # Errors
    /// The writer's.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.writer.flush()?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents of an archive.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut found = Vec::new();
        loop {
            assert_eq!(&bytes[..6], MAGIC.as_bytes());
            let field = |number: usize| {
                let at = 6 + number * 8;
                let text = std::str::from_utf8(&bytes[at..at + 8]).expect("hexadecimal");
                u32::from_str_radix(text, 16).expect("hexadecimal")
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).expect("text");
            let start = (110 + name_size).next_multiple_of(4);
            if name == TRAILER {
                return found;
            }
            found.push((name, mode, bytes[start..start + size].to_vec()));
            bytes = &bytes[(start + size).next_multiple_of(4)..];
        }
    }

    #[test]
    fn what_is_written_is_read_back_with_its_directories_once() {
        let mut archive = Cpio::new(Vec::new());
        archive.file("usr/lib/a", 0o755, b"12345").expect("written");
        archive.file("usr/lib/b", 0o644, b"").expect("written");
        archive.link("bin/sh", "dash").expect("written");
        let bytes = archive.finish().expect("written");
        let expected = [
            ("usr", 0o040_755, &b""[..]),
            ("usr/lib", 0o040_755, b""),
            ("usr/lib/a", 0o100_755, b"12345"),
            ("usr/lib/b", 0o100_644, b""),
            ("bin", 0o040_755, b""),
            ("bin/sh", 0o120_777, b"dash"),
        ];
        let found = read(&bytes);
        assert_eq!(found.len(), expected.len());
        for (found, (name, mode, contents)) in found.iter().zip(expected) {
            assert_eq!((found.0.as_str(), found.1, found.2.as_slice()), (name, mode, contents));
        }
        assert_eq!(bytes.len() % ALIGNMENT, 0, "another archive may follow");
    }
}
