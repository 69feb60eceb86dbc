//! Which class a tenant has: strict priority, as the plane's owner says.
//!
//! ```
//! use sdp::{CLASS_LOWEST, ClassPolicy};
//! // User 1000 before user 1001 before everybody else.
//! let policy = ClassPolicy::by_uid([(1000, 0), (1001, 1)]);
//! assert_eq!(policy.admit(1001, None), Ok(1));
//! assert_eq!(policy.admit(7, None), Ok(CLASS_LOWEST));
//! // What a tenant wishes counts only where that is allowed, and never raises it.
//! assert!(policy.admit(7, Some(0)).is_err());
//! let policy = ClassPolicy { wishes: true, ..policy };
//! assert_eq!(policy.admit(1000, Some(5)), Ok(5));
//! assert!(policy.admit(1001, Some(0)).is_err());
//! ```
//!
//! The user is who the kernel says that is at the other end of the connection.

use std::collections::BTreeMap;

use qwait::{TENANT_CLASS_LOWEST, TENANT_CLASSES};

use crate::limits::refusal;

/// Classes: 0 is served first, strictly.
pub const CLASSES: u8 = TENANT_CLASSES;
/// The class that is served last.
pub const CLASS_LOWEST: u8 = TENANT_CLASS_LOWEST;

/// How a plane's tenants get their classes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPolicy {
    /// The class of each of these users' tenants.
    pub users: BTreeMap<u32, u8>,
    /// That of all others'.
    pub others: u8,
    /// Whether a tenant may ask for another class, which is not above its user's. Without, an ask for
    /// any other class is refused.
    pub wishes: bool,
}

impl Default for ClassPolicy {
    /// All are alike, and wishes do not count.
    fn default() -> Self {
        Self::by_uid([])
    }
}

impl ClassPolicy {
    /// These users' tenants have these classes, all others' the lowest.
    pub fn by_uid(users: impl IntoIterator<Item = (u32, u8)>) -> Self {
        Self { users: users.into_iter().collect(), others: CLASS_LOWEST, wishes: false }
    }

    /// The class of a tenant of this user that wishes this.
    ///
    /// # Errors
    /// In words, for the tenant: a class that it may not have.
    pub fn admit(&self, uid: u32, wish: Option<u8>) -> Result<u8, String> {
        let given = self.users.get(&uid).copied().unwrap_or(self.others);
        match wish {
            None => Ok(given),
            Some(wish) if wish == given => Ok(given),
            Some(wish) if !self.wishes => {
                let found = format_args!("class {wish} asked for by user {uid}, who has {given}");
                Err(refusal(found, "ask for none"))
            }
            Some(wish) if (given..CLASSES).contains(&wish) => Ok(wish),
            Some(wish) => Err(refusal(
                format_args!("class {wish} asked for by user {uid}"),
                &format!("ask for {given} to {CLASS_LOWEST}"),
            )),
        }
    }

    /// The first class that there is not.
    pub(crate) fn wrong(&self) -> Option<u8> {
        self.users.values().copied().chain([self.others]).find(|&class| class >= CLASSES)
    }
}
