//! Connections that the application asked to be told of again (`Calls::again`): it left something undone
//! for want of room in a batch, or of packet memory.
//!
//! [`note`] enters a connection in step 4, [`tell`] makes its event at the begin of the next step 2. Each
//! connection stands in the list at most once, however often it is asked for: the list is as long as there
//! are connections, and a batch tells of each once.

use domain::{EventRecord, Handle};

use crate::context::Context;
use crate::groups::{Groups, resolve};
use crate::tcp::conn::Flags;
use crate::tcp::half_open;

/// The application asks to be told of a connection again. Of one that is gone it is the usual race.
#[cold]
pub(crate) fn note(groups: &mut Groups, handle: Handle, ctx: &mut Context<'_>) {
    if let Some((_, _, cold)) = resolve(groups, handle)
        && !core::mem::replace(&mut cold.again, true)
    {
        ctx.out.again.push_back(handle);
    }
}

/// Makes their events, those that have waited longest first. Half of the room in the batch is left for
/// what packets bring: where memory is short, nothing but their acknowledgments frees any, and an
/// application that tries again and again must not keep them out.
pub(crate) fn tell(groups: &mut Groups, ctx: &mut Context<'_>) {
    let most = ctx.events.room().div_ceil(2);
    for _ in 0..ctx.out.again.len().min(most) {
        let Some(handle) = ctx.out.again.pop_front() else { return };
        let Some((place, conn, cold)) = resolve(groups, handle) else { continue };
        cold.again = false;
        // One that is half open has not knocked: its handle was guessed.
        if !conn.state.is_synchronized() {
            continue;
        }
        let (cookie, window) = (conn.cookie, conn.credit());
        let record = if conn.flags.has(Flags::ACCEPTED) {
            EventRecord::Again { handle, cookie, window }
        } else {
            half_open::knock(place, conn, ctx)
        };
        ctx.event(record);
    }
}
