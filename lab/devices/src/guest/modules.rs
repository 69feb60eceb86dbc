//! Inserts the modules of the image, in its order.

use std::fs::{self, File};
use std::path::Path;

use anyhow::Context;
use rustix::io::Errno;
use rustix::system::finit_module;

use crate::protocol::MODULES_DIRECTORY;

/// Inserts all modules.
///
/// # Errors
/// The kernel refuses one.
pub fn insert_all() -> anyhow::Result<()> {
    let directory = Path::new(MODULES_DIRECTORY);
    let list = fs::read_to_string(directory.join("list")).context("reading the list of modules")?;
    for name in list.lines() {
        let object = File::open(directory.join(format!("{name}.ko")))
            .with_context(|| format!("opening module {name}"))?;
        match finit_module(&object, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(|| format!("inserting module {name}")),
        }
    }
    Ok(())
}
