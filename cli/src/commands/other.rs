//! A subcommand that this program does not have: as cargo and git do, it is looked for as a program of its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use rustix::fs::{Access, access};

/// The program that measures: a name for which there is no program is a subcommand of this one.
const LABORATORY: &str = "tailplane-lab";

/// The variable that says for which subcommand a program was started.
const CALLED_FROM: &str = "TAILPLANE_SUBCOMMAND";

/// Runs the subcommand that the first word names with the other words, in place of this process.
///
/// # Errors
/// There is no program for it.
pub fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let Some((name, arguments)) = words.split_first() else { bail!("no subcommand is named") };
    let mut own = OsString::from("tailplane-");
    own.push(name);
    let is_plain = name.to_str().is_some_and(|name| !name.is_empty() && !name.contains('/'));
    let mut command = match find(&own).filter(|_| is_plain) {
        Some(program) => Command::new(program),
        None => {
            let program = find(OsStr::new(LABORATORY)).with_context(|| {
                format!(
                    "cannot run subcommand '{}': found none in this program and no {LABORATORY} beside it; see \
                     `tailplane --help`, or do `cargo build --release --package figures`",
                    name.display()
                )
            })?;
            let mut command = Command::new(program);
            command.arg(name);
            command
        }
    };
    if std::env::var_os(CALLED_FROM).is_some_and(|caller| caller == *name) {
        bail!("cannot run subcommand '{}': its program asked for it again", name.display());
    }
    command.args(arguments).env(CALLED_FROM, name);
    let program = command.get_program().to_owned();
    Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
}

/// The program of this name: beside this one, or where `PATH` says. It is this program's owner's, or root's: the name of
/// a subcommand is no reason to run what another user has put there.
fn find(name: &OsStr) -> Option<PathBuf> {
    let own = std::env::current_exe().ok();
    let owner = own.as_deref().and_then(|own| own.metadata().ok()).map(|own| own.uid());
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = beside.into_iter().chain(std::env::split_paths(&path));
    // A relative one is wherever the caller stands: a folder of others, perhaps.
    let places = places.filter(|place| place.is_absolute());
    let is_program = |file: &PathBuf| {
        let Ok(found) = file.metadata() else { return false };
        let can_run = found.is_file() && access(file, Access::EXEC_OK).is_ok();
        can_run && (found.uid() == 0 || Some(found.uid()) == owner)
    };
    places.map(|place| place.join(name)).find(is_program)
}
