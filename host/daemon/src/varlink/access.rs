//! Who may do what: by the credentials that the kernel gives of whoever connected.

use crate::unsafe_peer::Peer;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Nothing.
    Nobody,
    /// Look at things.
    Read,
    /// Change things.
    Change,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The daemon's own user, who may what root may.
    pub own_uid: u32,
    /// The group that may change things.
    pub group: Option<u32>,
    /// Whether everybody who can connect may look at things.
    pub others_read: bool,
}

impl Access {
    /// What this peer may do.
    pub fn role(&self, peer: &Peer) -> Role {
        let in_group = self.group.is_some_and(|group| peer.gids.contains(&group));
        if peer.uid == 0 || peer.uid == self.own_uid || in_group {
            Role::Change
        } else if self.others_read {
            Role::Read
        } else {
            Role::Nobody
        }
    }

    /// Who may, in words.
    pub fn describe(&self, needed: Role) -> String {
        let group = self.group.map_or_else(String::new, |group| format!(" and group {group}"));
        let user = match self.own_uid {
            0 => "root".to_owned(),
            uid => format!("root, user {uid}"),
        };
        match needed {
            Role::Read | Role::Nobody => {
                format!("only {user}{group} may look at things here (`control.others_read`)")
            }
            Role::Change => format!("only {user}{group} may change things here (`control.group`)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_the_daemons_user_and_the_group_may_change_things() {
        let peer = |uid: u32, gids: &[u32]| Peer { pid: 1, uid, gids: gids.to_vec() };
        let closed = Access { own_uid: 50, group: Some(7), others_read: false };
        assert_eq!(closed.role(&peer(0, &[0])), Role::Change);
        assert_eq!(closed.role(&peer(50, &[1])), Role::Change);
        assert_eq!(closed.role(&peer(99, &[1, 7])), Role::Change);
        assert_eq!(closed.role(&peer(99, &[1])), Role::Nobody);
        let open = Access { group: None, others_read: true, ..closed };
        assert_eq!(open.role(&peer(99, &[1, 7])), Role::Read);
        assert!(closed.describe(Role::Change).contains("group 7"));
        assert!(open.describe(Role::Change).starts_with("only root, user 50 may change"));
    }
}
