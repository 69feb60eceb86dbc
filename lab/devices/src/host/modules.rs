//! Kernel modules with what they depend on, read from the modules themselves: no depmod is needed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

/// Directories are not nested deeper than this.
const DEPTH_MAX: usize = 16;

/// A module, ready to be inserted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Its name, with `_`.
    pub name: String,
    /// Its object file, not compressed.
    pub object: Vec<u8>,
}

/// The modules of one kernel.
#[derive(Debug)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
}

impl Modules {
    /// Looks for the modules below a directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn below(directory: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        walk(directory, 0, &mut files)
            .with_context(|| format!("reading '{}'", directory.display()))?;
        Ok(Self { files })
    }

    /// The named modules that the kernel has as files, each behind those that it depends on. One that is not there is
    /// part of the kernel's image, or unknown to this release.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn closure(&self, names: &[&str]) -> anyhow::Result<Vec<Module>> {
        let mut closed = Vec::new();
        for name in names {
            self.add(name, &mut closed)?;
        }
        Ok(closed)
    }

    fn add(&self, name: &str, closed: &mut Vec<Module>) -> anyhow::Result<()> {
        let Some(file) = self.files.get(name) else { return Ok(()) };
        if closed.iter().any(|module| module.name == name) {
            return Ok(());
        }
        let object = read(file).with_context(|| format!("reading '{}'", file.display()))?;
        // Modules do not depend on each other in circles.
        for need in depends(&object) {
            self.add(&need, closed)?;
        }
        closed.push(Module { name: name.to_owned(), object });
        Ok(())
    }
}

fn walk(
    directory: &Path,
    depth: usize,
    files: &mut BTreeMap<String, PathBuf>,
) -> std::io::Result<()> {
    assert!(depth < DEPTH_MAX, "{} is nested too deep", directory.display());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), depth + 1, files)?;
        } else if let Some(name) = module_name(&file) {
            files.insert(name, entry.path());
        }
    }
    Ok(())
}

/// The module's name by its file's.
fn module_name(file: &str) -> Option<String> {
    let stem = file.strip_suffix(".ko").or_else(|| file.strip_suffix(".ko.xz"));
    stem.map(|stem| stem.replace('-', "_"))
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    if file.extension().is_some_and(|ending| ending == "ko") {
        return Ok(fs::read(file)?);
    }
    let output = Command::new("xz").arg("-dc").arg(file).output();
    let output = output.context("cannot start xz: install the package xz-utils")?;
    if !output.status.success() {
        bail!("xz ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

/// The modules that a module depends on: `depends=A,B` among the strings of its section `.modinfo`.
fn depends(object: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = object.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &object[at + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    let names = String::from_utf8_lossy(&value[..end]).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_modules_strings() {
        let object = b"\x7fELF\0license=GPL\0depends=i2c-algo-bit,dca\0name=igb\0";
        assert_eq!(depends(object), ["i2c_algo_bit", "dca"]);
        assert!(depends(b"\0depends=\0name=veth\0").is_empty());
        assert!(depends(b"\x7fELF").is_empty());
    }

    #[test]
    fn a_module_comes_behind_what_it_depends_on_and_once() {
        let root = std::env::temp_dir().join(format!("devices-modules-{}", std::process::id()));
        let below = root.join("kernel/net");
        fs::create_dir_all(&below).expect("made");
        for (file, needs) in [("igb.ko", "dca,i2c-core"), ("dca.ko", ""), ("i2c-core.ko", "dca")] {
            fs::write(below.join(file), format!("\0depends={needs}\0")).expect("written");
        }
        let modules = Modules::below(&root).expect("read");
        let closed = modules.closure(&["igb", "dca", "built_in"]).expect("read");
        fs::remove_dir_all(&root).expect("removed");
        let names: Vec<&str> = closed.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["dca", "i2c_core", "igb"]);
    }
}
