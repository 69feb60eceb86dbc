//! The end of a stack: its peers are told, and every buffer goes back to the pool.
//!
//! ```text
//! while stack.reset_connections(now, ...)     a portion each time, in otherwise ordinary cycles
//! stack.close(&mut pool)
//! ```
//!
//! Between the two the stack goes on hearing: a link address that was asked for comes, peers reset
//! connections of their own accord, and whoever knocks is refused.

use clock::Instant;
use domain::EventArray;
use mem::Pool;

use super::Stack;
use super::leaving::{Ended, Leaving};
use crate::context::Context;
use crate::groups::{Groups, group_mut, step};
use crate::shared::FLOW_GROUPS;
use crate::tcp::close::{self, Farewell};
use crate::tcp::conn::{Place, State};
use crate::tcp::half_open;
use crate::wheel::tick_of;

/// Slots that are looked at in one go, so that frames leave meanwhile.
const PORTION: usize = 4_096;

impl Stack {
    /// Ends a portion of the connections as ABORT does (RFC 9293 §3.10.5), as far as the NIC's queue has room
    /// for their resets; from now on nobody is let in. Answers whether there are more: those of peers whose
    /// link address has to be asked for stay until it comes. The application is not told; events that come of
    /// other steps are nobody's.
    pub fn reset_connections(
        &mut self,
        now: Instant,
        pool: &mut Pool,
        events: &mut EventArray,
    ) -> bool {
        self.census.leaving = true;
        let leaving = &mut self.leaving;
        with_context!(self, now, pool, events, |ctx, groups| reset_portion(groups, leaving, ctx));
        self.connections() > 0 || self.out.owed.len() > 0
    }

    /// Gives back every buffer that the stack holds: what connections have sent, have not said, or hold of
    /// what they received, and frames that wait for the NIC or a link address. Connections that are left end
    /// without a word. What the NIC has of it comes back from there.
    pub fn close(mut self, pool: &mut Pool) -> Ended {
        let mut ended = self.leaving.ended;
        ended.untold += self.out.owed.len() as u64;
        let sealed = core::mem::take(&mut self.sealed);
        let mut groups = self.groups.into_iter().flatten().collect::<alloc::vec::Vec<_>>();
        groups.extend(sealed.into_iter().map(|sealed| sealed.group));
        self.out.elsewhere.clear(pool);
        for mut group in groups {
            ended.untold += group.half_open.len() as u64;
            for slot in 0..group.slots.capacity() {
                ended.untold += u64::from(close::owes_reset(group.slots.hot(slot)));
                group.release_buffers(slot, pool);
            }
        }
        self.out.frames.drain(..).for_each(|frame| pool.complete(frame));
        self.out.unresolved.clear(pool);
        self.out.incomplete.clear(pool);
        ended
    }
}

fn reset_portion(groups: &mut Groups, leaving: &mut Leaving, ctx: &mut Context<'_>) {
    let Leaving { at, ended } = leaving;
    let mut visits = PORTION;
    // Each group once at most: those that have to wait are looked at again in the next portion.
    let mut passed = 0;
    while visits > 0 && passed <= FLOW_GROUPS && ctx.can_send() {
        if at.slot == 0
            && let Some(group) = group_mut(groups, at.group)
        {
            ended.reset += half_open::reset_all(group, ctx);
        }
        let Some(Place { group, slot }) = step(groups, at) else {
            passed += 1;
            continue;
        };
        visits -= 1;
        if let Some(group) = group_mut(groups, group)
            && group.slots.hot(slot).state != State::Closed
        {
            match close::leave(group, slot, ctx) {
                Farewell::Reset => ended.reset += 1,
                Farewell::Untold => ended.untold += 1,
                Farewell::Silent | Farewell::Waits => {}
            }
        }
    }
}
