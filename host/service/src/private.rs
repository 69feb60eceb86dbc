//! Directories of a command's own, below the one for temporary files, where everybody may make files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::Context;
use tempfile::{Builder, TempDir};

/// A new directory that only this process's user can look into, with a name that nobody can make first. Dropping it
/// removes it with all that it contains.
///
/// # Errors
/// It cannot be made.
pub fn directory(purpose: &str) -> anyhow::Result<TempDir> {
    Builder::new()
        .prefix(&format!("tailplane-{purpose}-"))
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
        .with_context(|| format!("cannot make a directory in {}", std::env::temp_dir().display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_directory_is_the_users_own_and_nobody_can_make_it_first() {
        let [one, two] = ["figures", "figures"].map(|name| directory(name).expect("is made"));
        assert_ne!(one.path(), two.path());
        let found = std::fs::symlink_metadata(one.path()).expect("is there");
        assert!(found.is_dir());
        assert_eq!(found.mode() & 0o777, 0o700);
        assert_eq!(found.uid(), rustix::process::geteuid().as_raw());
        let name = one.path().file_name().and_then(|name| name.to_str()).expect("of this program");
        let guessed = format!("tailplane-figures-{}", std::process::id());
        assert!(name.starts_with("tailplane-figures-") && name != guessed, "{name}");
        let path = one.path().to_owned();
        std::fs::write(path.join("file"), "of it").expect("is its own");
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
