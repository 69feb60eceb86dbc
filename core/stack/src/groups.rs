//! The flow groups of a core, and the connections in them by their handles.

use alloc::boxed::Box;

use domain::Handle;

use crate::shared::FLOW_GROUPS;
use crate::tcp::conn::{Cold, Conn, Place};
use crate::tcp::group::FlowGroup;

/// The flow groups of a core, by number; `None`: at home elsewhere.
pub(crate) type Groups = [Option<Box<FlowGroup>>; FLOW_GROUPS];

/// A flow group that is at home here.
#[inline]
pub(crate) fn group_mut(groups: &mut Groups, index: u16) -> Option<&mut FlowGroup> {
    groups.get_mut(index as usize)?.as_deref_mut()
}

/// One step of a walk over the slots of all groups, from `at` on: the slot there, and `at` is the next. `None`: the group
/// has no more, and `at` is the first slot of the next group.
pub(crate) fn step(groups: &mut Groups, at: &mut Place) -> Option<Place> {
    let here = *at;
    let has_slot = |group: &mut FlowGroup| here.slot < group.slots.capacity();
    if group_mut(groups, here.group).is_some_and(has_slot) {
        at.slot += 1;
        return Some(here);
    }
    *at = Place { group: (here.group + 1) % FLOW_GROUPS as u16, slot: 0 };
    None
}

/// A living connection.
#[inline]
pub(crate) fn resolve(
    groups: &mut Groups,
    handle: Handle,
) -> Option<(Place, &mut Conn, &mut Cold)> {
    group_mut(groups, handle.group())?.resolve(handle)
}
