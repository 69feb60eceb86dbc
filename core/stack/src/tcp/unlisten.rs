//! Ports that are not listened on any more: what the application has not accepted there is reset, as Linux does.
//!
//! The core that executes the call looks through its flow groups at once, every other one in its next cycle.

use domain::DeadReason;

use super::conn::{Flags, Place, State};
use super::group::FlowGroup;
use super::{close, half_open};
use crate::context::Context;
use crate::groups::{Groups, group_mut};
use crate::shared::{FLOW_GROUPS, Shared};

/// Slots that are looked at in one go: an application that closes ports does not hold up its peers' packets.
const PORTION: usize = 4_096;

/// How far a core has come with looking for connections of closed ports.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// How many closings it has seen.
    seen: u32,
    at: Place,
    /// Flow groups that it has to look at.
    left: usize,
}

impl Closing {
    /// Looks at all flow groups, once more where it is among them: at the rest of this one, then at each from its first slot.
    fn begin(&mut self) {
        self.left = FLOW_GROUPS + 1;
    }

    /// A flow group came, which the core that it left may not have looked at.
    pub fn take_in(&mut self, group: &FlowGroup, shared: &Shared) {
        if has_closed(group, shared) {
            self.begin();
        }
    }

    /// Whether there is something to look at.
    pub fn is_due(&self) -> bool {
        self.left > 0
    }
}

/// Looks at a portion.
#[inline]
pub(crate) fn look(groups: &mut Groups, closing: &mut Closing, ctx: &mut Context<'_>) {
    let closings = ctx.shared.tcp_ports.closings();
    if closings != closing.seen {
        closing.seen = closings;
        closing.begin();
    }
    if closing.is_due() {
        look_at_portion(groups, closing, ctx);
    }
}

#[cold]
fn look_at_portion(groups: &mut Groups, closing: &mut Closing, ctx: &mut Context<'_>) {
    let mut visits = PORTION;
    while closing.left > 0 && visits > 0 && ctx.events.room() > 0 {
        let Place { group: index, slot } = closing.at;
        let mut here = group_mut(groups, index);
        if slot == 0 {
            here = here.filter(|group| has_closed(group, ctx.shared));
            here.iter_mut().for_each(|group| half_open::forget_closed(group, ctx));
        }
        let Some(group) = here.filter(|group| slot < group.slots.capacity()) else {
            closing.at = Place { group: (index + 1) % FLOW_GROUPS as u16, slot: 0 };
            closing.left -= 1;
            continue;
        };
        visits -= 1;
        closing.at.slot += 1;
        end_unaccepted(group, slot, ctx);
    }
}

/// Whether connections of a port that was closed are among those of a group that are not the application's.
fn has_closed(group: &FlowGroup, shared: &Shared) -> bool {
    group.backlogs.is_any_over(&shared.tcp_ports)
}

fn end_unaccepted(group: &mut FlowGroup, slot: u32, ctx: &mut Context<'_>) {
    let conn = group.slots.hot(slot);
    let is_unaccepted = conn.state != State::Closed
        && !conn.flags.has(Flags::ACTIVE.and(Flags::ACCEPTED))
        && group.backlogs.is_over(conn.flow.local_port(), &ctx.shared.tcp_ports);
    if is_unaccepted {
        close::abort(group, slot, DeadReason::Aborted, ctx);
    }
}
