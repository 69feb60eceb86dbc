//! Where services are found: one socket each in the run directory.

use std::io;
use std::path::{Path, PathBuf};

/// The environment variable that names another run directory than `/run/tailplane`.
pub const RUN_DIR_VARIABLE: &str = "TAILPLANE_RUN_DIR";
const RUN_DIR: &str = "/run/tailplane";
const SUFFIX: &str = ".sock";
/// Longest name of a service, in bytes.
const NAME_MAX: usize = 64;

/// A name that no service can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is no name for a service; allowed: 1 to {NAME_MAX} letters, digits, '-', '_' and '.', the first of them no '.'",
    name.escape_debug()
)]
pub struct NameError {
    /// What was given.
    pub name: String,
}

/// The run directory: `$TAILPLANE_RUN_DIR`, or `/run/tailplane`.
pub fn run_dir() -> PathBuf {
    let named = std::env::var_os(RUN_DIR_VARIABLE).filter(|named| !named.is_empty());
    named.map_or_else(|| PathBuf::from(RUN_DIR), PathBuf::from)
}

/// The path of a service's socket.
///
/// # Errors
/// [`NameError`].
pub fn socket_path(run_dir: &Path, name: &str) -> Result<PathBuf, NameError> {
    check_name(name)?;
    Ok(directory(run_dir).join(format!("{name}{SUFFIX}")))
}

/// Whether a service may be called so: it is part of a path, of commands and of metrics.
///
/// # Errors
/// [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    is_name(name).then_some(()).ok_or_else(|| NameError { name: name.to_owned() })
}

/// Entries of a run directory that are looked at: whoever may make sockets there may make any number of them.
pub const ENTRIES_MAX: usize = 4_096;

/// All sockets of services in a run directory, by name, with their paths: also those that nobody listens at any
/// more. None where there is no such directory.
///
/// # Errors
/// The directory cannot be read.
pub fn services(run_dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let entries = match std::fs::read_dir(directory(run_dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries.take(ENTRIES_MAX) {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(SUFFIX));
        if let Some(name) = name.filter(|name| is_name(name)) {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

pub(crate) fn directory(run_dir: &Path) -> PathBuf {
    run_dir.join("services")
}

fn is_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed) && !name.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_somebody_fills_is_not_read_for_ever() {
        let run = std::env::temp_dir().join(format!("tailplane-many-{}", std::process::id()));
        std::fs::create_dir_all(directory(&run)).expect("a directory of this test");
        for number in 0..ENTRIES_MAX + 100 {
            std::fs::write(directory(&run).join(format!("s{number}.sock")), "").expect("a file");
        }
        let found = services(&run).map(|found| found.len());
        std::fs::remove_dir_all(&run).expect("it is ours");
        assert_eq!(found.ok(), Some(ENTRIES_MAX));
    }

    #[test]
    fn names_that_would_be_other_paths_are_refused() {
        let dir = Path::new("/run/x");
        assert_eq!(socket_path(dir, "kv-1.a"), Ok(PathBuf::from("/run/x/services/kv-1.a.sock")));
        let long = "x".repeat(65);
        for name in ["", ".", "..", ".kv", "a/b", "a b", "ä", "a\0", &long] {
            let error = socket_path(dir, name).expect_err(name);
            assert!(error.to_string().contains("letters, digits"), "{error}");
        }
    }
}
