//! An image that is being written: programs of this machine or of a package, with their libraries.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::cpio::Cpio;

/// An image that is being written.
#[derive(Debug)]
pub struct Image {
    /// What it is written to.
    pub archive: Cpio<BufWriter<File>>,
    /// Libraries that it has, by their places there.
    has: BTreeSet<PathBuf>,
    /// A file for programs that are being stripped.
    scratch: PathBuf,
}

impl Image {
    /// An image in a file, which has nothing yet.
    ///
    /// # Errors
    /// The file cannot be made.
    pub fn create(file: &Path) -> anyhow::Result<Self> {
        let scratch = file.with_extension("stripped");
        let made = File::create(file).with_context(|| format!("making '{}'", file.display()))?;
        Ok(Self { archive: Cpio::new(BufWriter::new(made)), has: BTreeSet::new(), scratch })
    }

    /// Adds a program of this machine with its libraries.
    ///
    /// # Errors
    /// A file cannot be read, or the image not be written.
    pub fn program(&mut self, file: &Path, name: &str) -> anyhow::Result<()> {
        self.program_of(file, name, Path::new("/"), &[])
    }

    /// Adds a program of a package that was unpacked below `root`, with its libraries: those of `directories` first.
    ///
    /// # Errors
    /// A file cannot be read, or the image not be written.
    pub fn program_of(
        &mut self,
        file: &Path,
        name: &str,
        root: &Path,
        directories: &[PathBuf],
    ) -> anyhow::Result<()> {
        self.libraries(file, root, directories)?;
        Ok(self.archive.file(name, 0o755, &read(file)?)?)
    }

    /// Adds a program without what debuggers need: that is most of it.
    ///
    /// # Errors
    /// A file cannot be read, or the image not be written.
    pub fn stripped(&mut self, file: &Path, name: &str) -> anyhow::Result<()> {
        self.libraries(file, Path::new("/"), &[])?;
        let mut strip = Command::new("strip");
        strip
            .args(["--strip-debug", "-o"])
            .args([self.scratch.as_path(), file])
            .stderr(Stdio::null());
        // Without binutils, as it is: the image is larger then.
        let is_stripped = strip.status().is_ok_and(|status| status.success());
        let source = if is_stripped { self.scratch.as_path() } else { file };
        self.archive.file(name, 0o755, &read(source)?)?;
        let _ = fs::remove_file(&self.scratch);
        Ok(())
    }

    fn libraries(
        &mut self,
        program: &Path,
        root: &Path,
        directories: &[PathBuf],
    ) -> anyhow::Result<()> {
        let mut ldd = Command::new("ldd");
        ldd.arg(program).env("LC_ALL", "C");
        if !directories.is_empty() {
            ldd.env("LD_LIBRARY_PATH", std::env::join_paths(directories)?);
        }
        let output = ldd.output().context("cannot start ldd: is libc-bin installed?")?;
        for library in libraries(&String::from_utf8_lossy(&output.stdout)) {
            let place = place(&library, root);
            if self.has.insert(place.clone()) {
                self.archive.file(&place.to_string_lossy(), 0o755, &read(&library)?)?;
            }
        }
        Ok(())
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading '{}'", file.display()))
}

/// The files that `ldd` lists: `libc.so.6 => /lib/libc.so.6 (0x7f)`, or the loader alone.
fn libraries(listed: &str) -> Vec<PathBuf> {
    let words = listed
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    words.filter(|word| !word.ends_with(':')).map(PathBuf::from).collect()
}

/// Where the image has a library that lies below `root`: `/usr/lib` is a link to `/lib`.
fn place(library: &Path, root: &Path) -> PathBuf {
    let below = library.strip_prefix(root).or_else(|_| library.strip_prefix("/"));
    let below = below.unwrap_or(library);
    below.strip_prefix("usr").unwrap_or(below).to_owned()
}

/// A file of a package that was unpacked below `root`, which has it in `/usr` or not.
pub fn find_below(root: &Path, file: &str) -> Option<PathBuf> {
    [root.join(file), root.join("usr").join(file)].into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_keeps_its_place_below_the_root_and_leaves_usr() {
        let placed = |library: &str, root: &str| place(Path::new(library), Path::new(root));
        assert_eq!(placed("/u/usr/lib/x/libs.so", "/u"), Path::new("lib/x/libs.so"));
        assert_eq!(placed("/lib/x/libc.so.6", "/u"), Path::new("lib/x/libc.so.6"));
        assert_eq!(placed("/usr/lib/x/liba.so", "/"), Path::new("lib/x/liba.so"));
    }

    #[test]
    fn libraries_are_the_files_that_ldd_lists() {
        let listed = "\tlinux-vdso.so.1 (0x7ffc)\n\tlibc.so.6 => /lib/x86/libc.so.6 (0x7f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x7f)\n\tlibx.so => not found\n";
        let expected = ["/lib/x86/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries(listed), expected);
        assert!(libraries("\tnot a dynamic executable\n").is_empty());
    }
}
