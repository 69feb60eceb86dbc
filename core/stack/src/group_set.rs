//! A set of flow groups: what one migration moves (IX §4.5).
//!
//! ```
//! use stack::GroupSet;
//! let set: GroupSet = [3, 70].into_iter().collect();
//! assert!(set.has(70) && !set.has(4));
//! assert_eq!(set.iter().collect::<Vec<_>>(), [3, 70]);
//! ```

use crate::shared::FLOW_GROUPS;

/// See the module's comment. Numbers that name no flow group are in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSet(u128);

const _: () = assert!(FLOW_GROUPS <= 128);

impl GroupSet {
    /// None.
    pub const NONE: Self = Self(0);

    /// One.
    pub const fn one(group: u16) -> Self {
        if (group as usize) < FLOW_GROUPS { Self(1 << group) } else { Self::NONE }
    }

    /// Whether a flow group is in it.
    #[inline]
    pub const fn has(self, group: u16) -> bool {
        self.0 & Self::one(group).0 != 0
    }

    /// Adds one.
    pub const fn insert(&mut self, group: u16) {
        self.0 |= Self::one(group).0;
    }

    /// Takes out all of `other`.
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Those in either.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those in both.
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether there is none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Their numbers, upwards.
    pub fn iter(self) -> impl Iterator<Item = u16> {
        let mut left = self.0;
        core::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as u16);
            left &= left.wrapping_sub(1);
            next
        })
    }
}

impl FromIterator<u16> for GroupSet {
    fn from_iter<I: IntoIterator<Item = u16>>(groups: I) -> Self {
        groups.into_iter().fold(Self::NONE, |set, group| set.union(Self::one(group)))
    }
}
