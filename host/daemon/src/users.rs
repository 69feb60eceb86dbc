//! Names of users and groups, from `/etc/passwd` and `/etc/group`.
//!
//! Those files alone: a daemon that controls the machine asks no network service who its administrators are. A user or
//! group that stands elsewhere is given by its number.

use std::path::Path;

use anyhow::{Context, bail};

use crate::config::Who;

/// Which of both files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users.
    User,
    /// Groups.
    Group,
}

/// The number of a user or group; `etc` is where the files are.
///
/// # Errors
/// The file cannot be read, or does not name it.
pub fn number(etc: &Path, kind: Kind, who: &Who) -> anyhow::Result<u32> {
    let name = match who {
        Who::Number(number) => return Ok(*number),
        Who::Name(name) => name,
    };
    let (file, what) = match kind {
        Kind::User => (etc.join("passwd"), "user"),
        Kind::Group => (etc.join("group"), "group"),
    };
    let text = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot look up the {what} \"{name}\" in {}", file.display()))?;
    // Both files: NAME:PASSWORD:NUMBER:...
    let of_line = |line: &str| {
        let mut parts = line.split(':');
        (parts.next() == Some(name)).then(|| parts.nth(1)?.parse::<u32>().ok())?
    };
    match text.lines().find_map(of_line) {
        Some(number) => Ok(number),
        None => {
            bail!("there is no {what} \"{name}\" in {}; make it, or give a number", file.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::Directory;

    #[test]
    fn names_have_the_numbers_of_the_files() {
        let etc = Directory::new("etc");
        etc.put("passwd", "root:x:0:0:root:/:/bin/sh\nop:x:12:13::/:/bin/sh\n");
        etc.put("group", "wheel:x:10:op\nbroken:x\nop:x:none:\n");
        let of = |kind, name: &str| number(etc.path(), kind, &Who::Name(name.to_owned()));
        assert_eq!(of(Kind::User, "op").expect("there"), 12);
        assert_eq!(of(Kind::Group, "wheel").expect("there"), 10);
        for name in ["op", "broken", "nobody", "whee", "wheel:x"] {
            let error = of(Kind::Group, name).unwrap_err().to_string();
            assert!(error.contains(&format!("no group \"{name}\"")), "{error}");
        }
        assert_eq!(number(etc.path(), Kind::Group, &Who::Number(7)).expect("a number"), 7);
        std::fs::remove_file(etc.path().join("group")).expect("there");
        let error = format!("{:#}", of(Kind::Group, "wheel").unwrap_err());
        assert!(error.contains("cannot look up the group \"wheel\""), "{error}");
    }
}
