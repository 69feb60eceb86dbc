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

/// A living connection.
#[inline]
pub(crate) fn resolve(
    groups: &mut Groups,
    handle: Handle,
) -> Option<(Place, &mut Conn, &mut Cold)> {
    group_mut(groups, handle.group())?.resolve(handle)
}
