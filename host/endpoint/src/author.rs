//! Whose a configuration file is: a command takes orders from the files that only root and its own user can change.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Checks that `file` is root's or the caller's, and that no other user may write to it.
///
/// # Errors
/// What was found, and what to do; the file's name comes first.
pub fn check_author(file: &Path) -> Result<(), String> {
    let named = file.display();
    let found = fs::metadata(file)
        .map_err(|error| format!("'{named}': it cannot be looked at: {error}"))?;
    let (user, mode) = (found.uid(), found.mode());
    let own = rustix::process::geteuid().as_raw();
    if user != 0 && user != own {
        let allowed = match own {
            0 => "root's".to_owned(),
            own => format!("root's, and those of user {own}"),
        };
        return Err(format!("'{named}': it is user {user}'s; allowed: {allowed}: give it to root"));
    }
    // Group and others.
    if mode & 0o022 != 0 {
        return Err(format!(
            "'{named}': others than its user may write to it (mode {:o}): take that right away (chmod go-w)",
            mode & 0o777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "changes a file's mode")]
    fn a_file_is_roots_or_the_callers_and_nobody_else_writes_to_it() {
        let path = std::env::temp_dir().join(format!("tailplane-author-{}", std::process::id()));
        fs::write(&path, "").expect("written");
        let with_mode = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            check_author(&path)
        };
        assert_eq!((with_mode(0o644), with_mode(0o600)), (Ok(()), Ok(())));
        for mode in [0o664, 0o646] {
            let found = with_mode(mode).expect_err("others may write");
            assert!(found.contains(&format!("may write to it (mode {mode:o})")), "{found}");
        }
        if rustix::process::geteuid().is_root() {
            with_mode(0o644).expect("root's");
            chown(&path, Some(65_534), None).expect("root may");
            let found = check_author(&path).expect_err("another user's");
            assert!(found.contains("it is user 65534's"), "{found}");
        }
        fs::remove_file(&path).expect("removed");
        let found = check_author(&path).expect_err("it has gone");
        assert!(found.contains("cannot be looked at"), "{found}");
    }
}
