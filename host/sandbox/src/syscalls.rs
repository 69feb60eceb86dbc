//! The names of Linux's system calls, and their numbers on this processor.
//!
//! ```
//! use sandbox::syscalls::{Known, look_up, nearest};
//! assert!(matches!(look_up("read"), Some(("read", Known::Number(_)))));
//! assert_eq!(look_up("raed"), None);
//! assert_eq!(nearest("raed"), Some("read"));
//! ```
//!
//! A policy file may be shared between machines: a name that exists on another processor only
//! ([`Known::Elsewhere`]) is no error and has no effect here. Names and numbers are the tables of the crate `syscalls`
//! for x86-64 and ARM64.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::LazyLock;

use ::syscalls::{Sysno, aarch64, x86_64};
use strsim::osa_distance;

/// Its name on both processors, and in the table of x86-64; that of ARM64 calls it otherwise.
const NEWFSTATAT: &str = "newfstatat";
const NEWFSTATAT_OF_ARM64: &str = "fstatat";

static NAMES: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let of_x86_64 = x86_64::Sysno::iter().map(|call| call.name());
    let of_arm64 = aarch64::Sysno::iter().map(|call| call.name());
    of_x86_64.chain(of_arm64.filter(|name| *name != NEWFSTATAT_OF_ARM64)).collect()
});

/// What is known of a system call's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It exists here, with this number.
    Number(i64),
    /// It exists on another processor only.
    Elsewhere,
}

/// The table's own spelling of `name`, and what is known of it; `None` for a name that no Linux has.
pub fn look_up(name: &str) -> Option<(&'static str, Known)> {
    let name = *NAMES.get(name)?;
    let number = match name {
        NEWFSTATAT => Some(libc::SYS_newfstatat),
        _ => Sysno::from_str(name).ok().map(|call| call.id().into()),
    };
    Some((name, number.map_or(Known::Elsewhere, Known::Number)))
}

/// The known name with the fewest changed letters from `name`, if that is few enough to be a slip.
pub fn nearest(name: &str) -> Option<&'static str> {
    // A name of a file may be long: no system call is over this, so nothing is near.
    const LONGEST_NAME: usize = 40;
    if name.len() > LONGEST_NAME {
        return None;
    }
    let most = 1 + name.len() / 4;
    names()
        .map(|known| (osa_distance(name, known), known))
        .filter(|(d, _)| *d <= most)
        .min()
        .map(|(_, n)| n)
}

/// Every name, those of other processors too.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "compares every two names, nothing of it unsafe")]
    fn every_name_is_found_once_and_under_itself() {
        let mut all: Vec<_> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        for name in all {
            assert_eq!(look_up(name).expect("a name of the table").0, name);
            assert_eq!(nearest(name), Some(name));
        }
        #[cfg(target_arch = "x86_64")]
        assert_eq!(look_up("open").unwrap().1, Known::Number(2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "compares names with all others, nothing of it unsafe")]
    fn a_slip_is_named_and_nonsense_is_not() {
        assert_eq!(nearest("opanat"), Some("openat"));
        assert_eq!(nearest("clock_gettme"), Some("clock_gettime"));
        assert_eq!(nearest("launch_the_missiles"), None);
        assert_eq!(nearest(&"x".repeat(1 << 20)), None);
    }
}
