//! A flow group: one entry of the RSS indirection table, and all that belongs to it (IX §4.4).
//!
//! It owns its connections, their buffers and their deadlines, so that moving a group to another core
//! moves one value. To touch a connection one must hold the group. The core's timing wheel only knows
//! when to ask which connection.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::Instant;
use domain::Handle;
use mem::{Pool, TableBox, prefetch};
use wire::FlowKey;

use super::backlog::Backlogs;
use super::conn::{Cold, Conn, Flags, Place, State};
use super::fields::Ends;
use super::handshake::HalfOpens;
use super::table::FlowTable;
use super::{keepalive, rtt};
use crate::context::Context;

/// Connections that are allocated together.
const PAGE: usize = 16;

/// Hot and cold state of `PAGE` connections. Pages are never moved or freed: a growing table
/// copies nothing.
#[derive(Debug)]
struct Page {
    hot: [Conn; PAGE],
    cold: [Cold; PAGE],
}

/// Where connections live.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    pages: Vec<TableBox<Page>>,
    /// Slots that are free, newest last.
    free: Vec<u32>,
}

impl Slots {
    #[inline]
    pub fn hot(&mut self, slot: u32) -> &mut Conn {
        &mut self.pages[slot as usize / PAGE].hot[slot as usize % PAGE]
    }

    /// The hot and the cold part.
    #[inline]
    pub fn both(&mut self, slot: u32) -> (&mut Conn, &mut Cold) {
        let page = &mut *self.pages[slot as usize / PAGE];
        (&mut page.hot[slot as usize % PAGE], &mut page.cold[slot as usize % PAGE])
    }

    /// Slots that there are, free ones among them.
    pub fn capacity(&self) -> u32 {
        (self.pages.len() * PAGE) as u32
    }

    /// A free slot. Allocates a page now and then: a connection's opening, not its segments.
    fn take(&mut self) -> Option<u32> {
        if self.free.is_empty() {
            let first = self.capacity();
            if first + PAGE as u32 > Handle::MAX_SLOTS {
                return None;
            }
            self.pages.push(TableBox::new(Page {
                hot: core::array::from_fn(|_| Conn::default()),
                cold: core::array::from_fn(|_| Cold::default()),
            }));
            self.free.extend((first..first + PAGE as u32).rev());
        }
        self.free.pop()
    }
}

/// A connection that entered TIME-WAIT, or went on with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeWait {
    pub slot: u32,
    pub generation: u32,
    /// The tick at which it ends.
    pub due: u64,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct FlowGroup {
    pub index: u16,
    pub slots: Slots,
    /// Connections by the hash of their ends.
    pub table: FlowTable,
    /// Connections in TIME-WAIT, the one that ends first before all others; some may have ended since,
    /// or go on. They all wait equally long, so they need no wheel.
    pub time_wait: VecDeque<TimeWait>,
    /// How many they are.
    pub in_time_wait: u32,
    /// Connections that the application closed and that are not in TIME-WAIT yet.
    pub closed: u32,
    /// Its part of the core's backlogs.
    pub backlogs: Backlogs,
    pub half_open: HalfOpens,
    /// When a SYN cookie was last sent.
    pub cookie_made_at: Option<Instant>,
    /// Segments received while it was here last.
    pub received: u64,
}

impl FlowGroup {
    pub fn new(index: u16) -> Self {
        Self { index, ..Self::default() }
    }

    /// The connection with these ends.
    #[inline]
    pub fn lookup(&self, hash: u32, flow: FlowKey) -> Option<u32> {
        let pages = &self.slots.pages;
        let of_flow =
            |slot: u32| pages[slot as usize / PAGE].hot[slot as usize % PAGE].flow == flow;
        self.table.find(hash, of_flow)
    }

    /// Starts loading the connection in `slot`, both of its lines.
    #[inline(always)]
    pub fn prefetch(&mut self, slot: u32) {
        let conn = self.slots.hot(slot);
        prefetch(&conn.cookie);
        prefetch(&conn.snd_una);
    }

    /// The same for a slot that somebody else names, who may be wrong.
    #[inline]
    pub fn prefetch_if_there(&mut self, slot: u32) {
        if slot < self.slots.capacity() {
            self.prefetch(slot);
        }
    }

    /// The connection that a handle names, if it is a living one of this group.
    #[inline]
    pub fn resolve(&mut self, handle: Handle) -> Option<(Place, &mut Conn, &mut Cold)> {
        let slot = handle.slot();
        let page = &mut **self.slots.pages.get_mut(slot as usize / PAGE)?;
        let conn = &mut page.hot[slot as usize % PAGE];
        let alive = !matches!(conn.state, State::Closed | State::TimeWait);
        let place = Place { group: self.index, slot };
        (alive && conn.generation == handle.generation()).then_some((
            place,
            conn,
            &mut page.cold[slot as usize % PAGE],
        ))
    }

    /// Where the connection in `slot` lives, and its state.
    #[inline]
    pub fn at(&mut self, slot: u32) -> (Place, &mut Conn, &mut Cold) {
        let (conn, cold) = self.slots.both(slot);
        (Place { group: self.index, slot }, conn, cold)
    }

    /// As [`resolve`](Self::resolve), to look at only.
    pub fn cold_of(&self, handle: Handle) -> Option<&Cold> {
        let slot = handle.slot() as usize;
        let page = self.slots.pages.get(slot / PAGE)?;
        let conn = &page.hot[slot % PAGE];
        (conn.state != State::Closed && conn.generation == handle.generation())
            .then(|| &page.cold[slot % PAGE])
    }

    /// A fresh connection, entered in the table; `None` where memory or a limit stands against it.
    pub fn create(&mut self, hash: u32, flow: FlowKey, ctx: &mut Context<'_>) -> Option<u32> {
        if ctx.census.connections >= ctx.shared.config.max_connections {
            return None;
        }
        let flow = ctx.hold(self.index, flow)?;
        let Some(slot) = self.slots.take() else {
            ctx.pairs.release(flow.pair());
            return None;
        };
        ctx.census.connections += 1;
        let conn = self.slots.hot(slot);
        *conn = Conn::new(conn.generation, flow);
        conn.rto = rtt::initial_rto(&ctx.shared.ticks);
        if ctx.shared.ticks.keepalive.is_some() {
            conn.flags.set(Flags::KEEPALIVE);
        }
        self.table.insert(hash, slot);
        if let Some(register) = ctx.shared.register() {
            let Ends { local, remote } = ctx.ends(flow);
            register.opened(self.index, slot, ctx.shared.config.name_of(local), remote);
        }
        Some(slot)
    }

    /// Frees a connection and all that it holds. Its handle is stale from now on.
    pub fn destroy(&mut self, slot: u32, ctx: &mut Context<'_>) {
        let conn = self.slots.hot(slot);
        if conn.state == State::Closed {
            return;
        }
        if conn.state == State::TimeWait {
            self.in_time_wait -= 1;
            ctx.census.time_wait -= 1;
        }
        let hash = ctx.hash_of(conn.flow);
        self.leave_closed(slot, ctx);
        self.table.remove(hash, slot);
        self.release(slot, ctx);
        let conn = self.slots.hot(slot);
        ctx.pairs.release(conn.flow.pair());
        conn.state = State::Closed;
        // Entries of the wheel may still fire: nothing is to be due then.
        conn.flags = Flags::default();
        conn.generation = (conn.generation + 1) % Handle::GENERATIONS;
        self.slots.free.push(slot);
        if let Some(register) = ctx.shared.register() {
            register.closed(self.index, slot);
        }
        ctx.census.connections -= 1;
    }

    /// A connection is none any more that was closed and has to end yet.
    pub fn leave_closed(&mut self, slot: u32, ctx: &mut Context<'_>) {
        let conn = self.slots.hot(slot);
        if conn.flags.has(Flags::CLOSED) {
            conn.flags.clear(Flags::CLOSED);
            self.closed -= 1;
            ctx.census.closed -= 1;
        }
    }

    /// Gives back every buffer that a connection holds, and counts them.
    pub fn release(&mut self, slot: u32, ctx: &mut Context<'_>) {
        ctx.counting_kept(self.index, |pool| self.release_buffers(slot, pool));
    }

    /// The same where nobody counts any more.
    pub fn release_buffers(&mut self, slot: u32, pool: &mut Pool) {
        let (conn, cold) = self.slots.both(slot);
        while let Some(segment) = conn.sent.pop().or_else(|| cold.unsent.pop()) {
            pool.release(segment);
        }
        while let Some(mbuf) = cold.held.pop().or_else(|| cold.undelivered.pop()) {
            pool.unkeep();
            pool.free(mbuf);
        }
        if let Some(mut reassembly) = cold.reassembly.take() {
            reassembly.clear(pool);
        }
        while let Some(recovery) = &mut cold.recovery
            && let Some(segment) = recovery.board.pop()
        {
            pool.release(segment);
        }
        *cold = Cold::default();
        conn.listed = 0;
        conn.flags.clear(Flags::TRACKED);
        conn.rcv_used = 0;
    }

    /// Sets the connection's timer no later than its next deadline. One that moved later leaves the
    /// entry where it is: it will be asked again when that fires.
    #[inline]
    pub fn schedule(&mut self, slot: u32, ctx: &mut Context<'_>) {
        let conn = self.slots.hot(slot);
        let Some(deadline) = deadline(conn, ctx) else { return };
        if conn.timer.covers_about(deadline as u32, ctx.tick as u32) {
            return;
        }
        let place = Place { group: self.index, slot };
        conn.timer.note(ctx.out.wheel.insert(place.to_word(), deadline));
    }

    /// The next tick at which a TIME-WAIT ends or a half-open connection has waited long enough.
    pub fn due(&self) -> u64 {
        let time_wait = self.time_wait.front().map_or(u64::MAX, |first| first.due);
        time_wait.min(self.half_open.next_due())
    }

    /// Connections, half-open ones among them.
    pub fn connections(&self) -> usize {
        self.table.len() + self.half_open.len()
    }

    /// Connections that live here, and bytes of their state.
    pub fn footprint(&self) -> (usize, usize) {
        let bytes = self.slots.pages.len() * size_of::<Page>()
            + self.slots.pages.capacity() * size_of::<usize>()
            + self.slots.free.capacity() * size_of::<u32>()
            + self.table.bytes()
            + self.time_wait.capacity() * size_of::<TimeWait>()
            + self.half_open.bytes()
            + size_of::<Self>();
        (self.connections(), bytes)
    }
}

/// The tick at which the connection next wants to be looked at.
#[inline]
fn deadline(conn: &Conn, ctx: &Context<'_>) -> Option<u64> {
    let (mut next, tick) = (None, ctx.tick);
    if conn.flags.has(Flags::RTX_ARMED) {
        next = Some(expand(conn.rtx_at.wrapping_sub(tick as u32) as i32 as i64, tick));
    }
    if conn.flags.has(Flags::ACK_ARMED) {
        let ack = expand(conn.ack_at.wrapping_sub(tick as u16) as i16 as i64, tick);
        next = Some(next.map_or(ack, |rtx: u64| rtx.min(ack)));
    }
    if next.is_none() && conn.flags.has(Flags::KEEPALIVE) {
        next = keepalive::deadline(conn, ctx);
    }
    next
}

#[inline]
fn expand(ahead: i64, tick: u64) -> u64 {
    tick.saturating_add_signed(ahead)
}
