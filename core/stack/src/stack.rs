//! The stack of one elastic thread: the flow groups that are at home here, and the kernel's part of
//! each step of the cycle (IX Figure 2).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallArray, CallRecord, EventArray, Handle, Held};
use mem::{Mbuf, Pool, TxFrame};
use wire::established::{V4, V6};
use wire::{Address, Sum};

use crate::context::{Census, Context, Outbox, Shares};
use crate::elsewhere::Elsewhere;
use crate::execute::{self, Batch};
use crate::group_set::GroupSet;
use crate::groups::{self, Groups, group_mut};
use crate::input::{Parsed, Parser, is_v6, parse_established_v4};
use crate::pairs::Pairs;
use crate::shared::{FLOW_GROUPS, Shared};
use crate::stats::StackStats;
use crate::tcp::conn::Place;
use crate::tcp::group::FlowGroup;
use crate::tcp::{
    close, half_open, predicted, receive, reset, segment, settle, timers, too_big, unlisten,
};
use crate::wheel::{Entry, TICK_SHIFT, tick_of};
use crate::{again, arp, fragments, icmp, udp};

/// Events that one packet may cause: input stops short of a full event array by this much.
const EVENTS_PER_PACKET: usize = 8;

/// Connections beyond which those of a batch are asked for ahead: the state of fewer is in the nearest cache.
const NEAR: u32 = 256;
/// Connections beyond which what they have sent is asked for ahead too, and those that calls name: that of fewer is in
/// the caches.
const CACHED: u32 = 4_096;
/// Timers of one cycle, and connections that end their TIME-WAIT in it: as packets, they are taken in bounded batches,
/// so that those of many connections that came together hold up nobody's packets.
const TIMERS: usize = 64;
/// Connections that are asked for ahead of the timer that fires.
const AHEAD: usize = 6;

/// See the module's comment.
pub struct Stack {
    core: u8,
    shared: Arc<Shared>,
    /// By flow group; `None`: at home elsewhere.
    groups: Box<Groups>,
    /// Which those are.
    here: GroupSet,
    /// Flow groups that are about to leave: they take nothing in any more.
    sealed: Vec<Sealed>,
    out: Outbox,
    census: Census,
    pairs: Pairs,
    stats: StackStats,
    /// TCP segments received of flow groups that have left, by group, while they were here.
    received_before: [u64; FLOW_GROUPS],
    /// Of one batch, kept for its memory.
    parsed: Vec<Parsed>,
    /// Where the search for an ephemeral port goes on.
    port_counter: u32,
    /// Received checksums need not be verified on this core's device.
    verified: bool,
    /// Where the search for those who hold most ahead of a gap goes on.
    relieve_at: Place,
    closing: unlisten::Closing,
    leaving: Leaving,
}

/// Makes the context and calls `$body` with it and the groups: they are borrowed apart.
macro_rules! with_context {
    ($self:ident, $now:expr, $pool:expr, $events:expr, |$ctx:ident, $groups:ident| $body:expr) => {{
        let Stack { shared, groups, out, census, pairs, stats, .. } = $self;
        let $groups = &mut **groups;
        let mut context = Context {
            now: $now,
            tick: tick_of($now),
            clock: ($now.as_nanos() >> crate::context::STAMP_SHIFT) as u32,
            shared,
            pool: $pool,
            events: $events,
            out,
            stats,
            census,
            pairs,
            plenty: false,
        };
        let $ctx = &mut context;
        $body
    }};
}

pub(crate) mod baggage;
mod leave;
mod leaving;
mod migrate;
#[cfg(test)]
mod pair_holds;

use baggage::Sealed;
use leaving::Leaving;

pub use crate::input::{Away, FORWARDED};
pub use leaving::Ended;

impl Stack {
    /// The stack of elastic thread `core`, with all flow groups that are at home there. At most
    /// `max_frames` frames wait for the NIC.
    pub fn new(shared: Arc<Shared>, core: u8, now: Instant, max_frames: usize) -> Self {
        let group = |index| {
            let here = shared.home_of(index as u16) == core;
            here.then(|| Box::new(FlowGroup::new(index as u16)))
        };
        let groups: Box<Groups> = Box::new(core::array::from_fn(group));
        let here = groups.iter().flatten().map(|group| group.index).collect();
        let verified = shared.config.rx_checksums_verified;
        Self {
            core,
            pairs: Pairs::new(shared.port_key),
            shared,
            groups,
            here,
            sealed: Vec::new(),
            out: Outbox::new(max_frames.max(1), tick_of(now)),
            census: Census::default(),
            stats: StackStats::default(),
            received_before: [0; FLOW_GROUPS],
            parsed: Vec::with_capacity(256),
            port_counter: 0,
            verified,
            relieve_at: Place::default(),
            closing: unlisten::Closing::default(),
            leaving: Leaving::default(),
        }
    }

    /// What all threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Counters.
    pub fn stats(&self) -> StackStats {
        // Counted by flow group.
        StackStats { tcp_segments_in: self.group_packets().iter().sum(), ..self.stats }
    }

    /// TCP segments received of each flow group, while it was here: what the control plane spreads groups by.
    pub fn group_packets(&self) -> [u64; FLOW_GROUPS] {
        let mut packets = self.received_before;
        for group in self.groups.iter().flatten() {
            packets[usize::from(group.index)] += group.received;
        }
        packets
    }

    /// Connections of this core, all states.
    pub fn connections(&self) -> u32 {
        self.census.connections + self.census.backlogs.half_open()
    }

    /// Connections and bytes of their state, tables included, buffers not.
    pub fn footprint(&self) -> (usize, usize) {
        let groups = self.groups.iter().flatten();
        groups
            .map(|group| group.footprint())
            .fold((0, self.out.wheel.bytes() + self.pairs.bytes()), |sum, one| {
                (sum.0 + one.0, sum.1 + one.1)
            })
    }

    /// Bytes that may be sent on a connection now; none where the handle is stale.
    pub fn window(&mut self, handle: Handle) -> u32 {
        let found = match groups::resolve(&mut self.groups, handle) {
            None => self.resolve_sealed(handle),
            found => found,
        };
        found.map_or(0, |(_, conn, _)| conn.credit())
    }

    /// Frames for the NIC, in order: step 6 takes them from the front.
    pub fn frames(&mut self) -> &mut Vec<TxFrame> {
        &mut self.out.frames
    }

    /// Whether something waits that needs no packet and no timer: connections to be looked at or to be
    /// told of again, events that did not fit, or frames.
    pub fn has_work(&self) -> bool {
        self.has_work_of_its_own() || self.has_work_for_application() || !self.out.frames.is_empty()
    }

    /// Of it, what needs neither the NIC nor room for events.
    pub fn has_work_of_its_own(&self) -> bool {
        !self.out.pending.is_empty() || self.out.owed.len() > 0 || self.closing.is_due()
    }

    /// Of it, what becomes events as soon as there is room for them.
    pub fn has_work_for_application(&self) -> bool {
        !self.out.undelivered.is_empty()
            || !self.out.late_events.is_empty()
            || !self.out.again.is_empty()
    }

    /// No timer fires before this moment.
    pub fn next_timer(&self) -> Option<Instant> {
        let due = self.out.wheel.next_due().min(self.out.min_group_due);
        let timer = (due != u64::MAX).then(|| Instant::from_nanos(due << TICK_SHIFT));
        timer.into_iter().chain(self.out.unresolved.next_look()).min()
    }

    /// Whether events wait for room in the array.
    pub fn has_late_events(&self) -> bool {
        !self.out.late_events.is_empty()
    }

    /// Whether `events` has room for all that a packet may cause.
    pub fn takes_packets(events: &EventArray) -> bool {
        events.room() >= EVENTS_PER_PACKET
    }

    /// Begin of step 2: events that did not fit the last batch, and connections that the application
    /// asked to be told of again.
    pub fn deliver(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let Outbox { late_events, undelivered, again, .. } = &self.out;
        if late_events.is_empty() && undelivered.is_empty() && again.is_empty() {
            return;
        }
        with_context!(self, now, pool, events, |ctx, groups| {
            while let Some(record) = ctx.out.late_events.pop_front() {
                if let Err(record) = ctx.events.push(record) {
                    ctx.out.late_events.push_front(record);
                    return;
                }
            }
            again::tell(groups, ctx);
            for _ in 0..ctx.out.undelivered.len() {
                let Some(place) = ctx.out.undelivered.pop_front() else { return };
                if let Some(group) = group_mut(groups, place.group) {
                    receive::deliver(group, place.slot, ctx);
                }
            }
        });
    }

    /// Step 2: carries frames through the stack, oldest first, as long as their events fit. Frames
    /// of flow groups that are not here are handed out with their home's number, which is this core's own
    /// where the group is on its way here; what is not processed for want of room stays in `frames`.
    // Not inlined: its loops need the registers.
    #[inline(never)]
    pub fn input(
        &mut self,
        now: Instant,
        frames: &mut Vec<Mbuf>,
        pool: &mut Pool,
        events: &mut EventArray,
        mut forward: impl FnMut(Away, Mbuf, &mut Pool),
    ) {
        let (here, verified) = (self.here, self.verified);
        let mut parsed = core::mem::take(&mut self.parsed);
        let fitting = frames.len().min(events.room() / EVENTS_PER_PACKET);
        if parsed.len() < fitting {
            // Once: batches are bounded.
            parsed.resize(fitting, Parsed::Drop);
        }
        let is_far = self.census.connections > NEAR;
        let (shared, pairs, stats) = (&*self.shared, &mut self.pairs, &mut self.stats);
        pairs.begin_batch();
        let mut parser = Parser { here, verified, shared, pairs, stats };
        let (first, toeplitz) = (shared.firsts[0], &*shared.toeplitz);
        // Which contributes nothing.
        let mut last = (Address::from_octets([0; 16]), 0);
        for (mbuf, found) in frames[..fitting].iter_mut().zip(&mut parsed) {
            if is_v6(mbuf.bytes()) {
                *found = parser.over_v6(mbuf, &mut last);
                continue;
            }
            let Some(hash) = parse_established_v4(mbuf.bytes(), verified, first, toeplitz) else {
                *found = parser.parse_any(mbuf);
                continue;
            };
            let group = Shared::group_of(hash);
            let Some(owned) = group_mut(&mut self.groups, group) else {
                *found = Parsed::Elsewhere(Away { home: shared.home_of(group), group });
                continue;
            };
            if is_far {
                owned.table.prefetch(hash);
            }
            *found = Parsed::Established { hash, slot: None };
        }
        if is_far {
            self.prefetch(&mut parsed[..fitting]);
        }
        with_context!(self, now, pool, events, |ctx, groups| {
            ctx.out.shares = Shares::of(ctx.pool);
            ctx.plenty = predicted::is_plenty(fitting, ctx);
            for (mbuf, found) in frames.drain(..fitting).zip(&parsed) {
                // Asked first, and not among the others: nearly every frame is one.
                if let Parsed::Established { hash, slot } = *found
                    && let Some(group) = group_mut(groups, Shared::group_of(hash))
                {
                    let slot = slot.or_else(|| group.table.candidate(hash));
                    predicted::arrive::<V4>(group, slot, hash, mbuf, ctx);
                } else if let Parsed::EstablishedV6 { hash, slot } = *found
                    && let Some(group) = group_mut(groups, Shared::group_of(hash))
                {
                    let slot = slot.or_else(|| group.table.candidate(hash));
                    predicted::arrive::<V6>(group, slot, hash, mbuf, ctx);
                } else if let Some((away, mbuf)) = other(groups, here, found, mbuf, ctx) {
                    ctx.stats.forwarded += 1;
                    forward(away, mbuf, ctx.pool);
                }
            }
        });
        self.parsed = parsed;
    }

    /// Asks for the connections of a batch, and then for what they have sent: with many connections it lies in no cache
    /// when it is acknowledged.
    #[inline(never)]
    fn prefetch(&mut self, parsed: &mut [Parsed]) {
        for found in &mut *parsed {
            if let Parsed::Established { hash, slot } | Parsed::EstablishedV6 { hash, slot } = found
                && let Some(group) = group_mut(&mut self.groups, Shared::group_of(*hash))
            {
                *slot = group.table.candidate(*hash);
                if let Some(slot) = *slot {
                    group.prefetch(slot);
                }
            }
        }
        if self.census.connections <= CACHED {
            return;
        }
        for found in parsed {
            if let Parsed::Established { hash, slot: Some(slot) }
            | Parsed::EstablishedV6 { hash, slot: Some(slot) } = *found
                && let Some(group) = group_mut(&mut self.groups, Shared::group_of(hash))
            {
                group.slots.hot(slot).sent.prefetch();
            }
        }
    }

    /// Step 4: executes the application's batched system calls, in order. Failures come as events of
    /// the next batch, so `events` must have been consumed. `buffers` are those of the batch that the
    /// application has seen, each with the connection that it belongs to (`None`: a datagram's): they
    /// are freed where their bytes were given back, and else kept until they are.
    pub fn execute(
        &mut self,
        now: Instant,
        array: &mut CallArray,
        buffers: &mut Vec<(Option<Handle>, Mbuf)>,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let (records, mut payloads) = array.take();
        if !self.sealed.is_empty() {
            self.execute_with_sealed(now, &records, &mut payloads, buffers, pool, events);
            return array.restore(records, payloads);
        }
        self.execute_records(now, &records, &mut payloads, buffers, pool, events);
        array.restore(records, payloads);
    }

    /// The same for calls that came from another core, where a connection was at home before: their payloads
    /// come with them.
    pub fn execute_carried(
        &mut self,
        now: Instant,
        calls: &mut Elsewhere,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let Elsewhere { records, payloads } = calls;
        self.execute_records(now, records, payloads, &mut Vec::new(), pool, events);
        records.clear();
    }

    /// Calls on connections of flow groups that are not here, since somebody last took them; in exchange for
    /// `empty`, for its memory.
    pub fn take_elsewhere(&mut self, empty: Elsewhere) -> Elsewhere {
        core::mem::replace(&mut self.out.elsewhere, empty)
    }

    /// Whether there are such calls.
    #[inline]
    pub fn has_elsewhere(&self) -> bool {
        !self.out.elsewhere.is_empty()
    }

    #[inline]
    fn execute_records(
        &mut self,
        now: Instant,
        records: &[CallRecord],
        payloads: &mut Vec<(Mbuf, Sum)>,
        buffers: &mut Vec<(Option<Handle>, Mbuf)>,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        if self.census.connections > CACHED {
            execute::prefetch(&mut self.groups, records);
        }
        let (core, ports) = (self.core, &mut self.port_counter);
        with_context!(self, now, pool, events, |ctx, groups| {
            ctx.out.shares = Shares::of(ctx.pool);
            ctx.pairs.begin_batch();
            ctx.forget_template();
            let mut batch = Batch { payloads: payloads.drain(..), buffers: buffers.drain(..) };
            execute::run(groups, core, ports, records, &mut batch, ctx);
        });
    }

    /// Step 5: runs timers that are due, a bounded number of them: where more are, [`next_timer`](Self::next_timer) goes on
    /// to say that they are.
    pub fn run_timers(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let tick = tick_of(now);
        if tick >= self.out.wheel.next_due() {
            let sealed = &mut self.sealed;
            with_context!(self, now, pool, events, |ctx, groups| fire_expired(groups, sealed, ctx));
        }
        self.out.wheel.advance(tick);
        if tick >= self.out.min_group_due {
            with_context!(self, now, pool, events, |ctx, groups| run_group_queues(groups, ctx));
        }
    }

    /// Begin of step 6: acknowledgments that no reply took along, timers of all connections that
    /// were touched.
    pub fn flush(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let looks = self.out.unresolved.next_look().is_some_and(|at| at <= now);
        let (relieve_at, closing) = (&mut self.relieve_at, &mut self.closing);
        with_context!(self, now, pool, events, |ctx, groups| {
            if looks {
                ctx.look_at_unresolved();
            }
            if core::mem::take(&mut ctx.out.is_short) {
                receive::relieve(groups, relieve_at, ctx);
            }
            reset::pay(ctx);
            unlisten::look(groups, closing, ctx);
            let pending = core::mem::take(&mut ctx.out.looked_at);
            let mut pending = core::mem::replace(&mut ctx.out.pending, pending);
            for place in pending.drain(..) {
                if let Some(group) = group_mut(groups, place.group) {
                    settle::flush(group, place.slot, ctx);
                }
            }
            ctx.out.looked_at = pending;
            ctx.out.twice.clear();
        });
    }
}

/// Asks connections whose entries in the wheel fired.
fn fire_expired(groups: &mut Groups, sealed: &mut [Sealed], ctx: &mut Context<'_>) {
    for _ in 0..TIMERS {
        let Some(entry) = ctx.out.wheel.pop_expired(ctx.tick) else { break };
        let Entry { index, tick: at } = entry;
        if let Some(later) = ctx.out.wheel.upcoming().iter().rev().nth(AHEAD) {
            let Place { group, slot } = Place::of_word(later.index);
            if let Some(group) = group_mut(groups, group) {
                group.prefetch_if_there(slot);
            }
        }
        let Place { group, slot } = Place::of_word(index);
        // Of a slot that has another connection by now, at worst it is asked once too often.
        match group_mut(groups, group) {
            Some(group) => {
                if group.slots.hot(slot).timer.take(at) {
                    timers::fire(group, slot, ctx);
                }
            }
            None => baggage::put_off(sealed, group, entry),
        }
    }
}

/// Ends TIME-WAIT, and looks at half-open connections.
fn run_group_queues(groups: &mut Groups, ctx: &mut Context<'_>) {
    ctx.out.min_group_due = fragments::expire(ctx);
    let mut left = TIMERS;
    for index in 0..FLOW_GROUPS {
        if ctx.out.group_due[index] <= ctx.tick
            && let Some(group) = group_mut(groups, index as u16)
        {
            left = close::end_time_wait(group, left, ctx);
            left = half_open::run_due(group, left, ctx);
            ctx.out.group_due[index] = group.due();
        }
        ctx.out.min_group_due = ctx.out.min_group_due.min(ctx.out.group_due[index]);
    }
}

/// What is not of an established connection's form. Answers what is another core's.
#[inline(never)]
fn other(
    groups: &mut Groups,
    here: GroupSet,
    found: &Parsed,
    mbuf: Mbuf,
    ctx: &mut Context<'_>,
) -> Option<(Away, Mbuf)> {
    match *found {
        Parsed::Elsewhere(away) => Some((away, mbuf)),
        Parsed::Fragment(ref fragment) => {
            let mut whole = fragments::arrive(fragment, mbuf, ctx)?;
            let Context { shared, pairs, stats, .. } = ctx;
            let found =
                Parser { here, verified: false, shared, pairs, stats }.parse_any(&mut whole);
            // A TCP segment has other ports to find its core by than its fragments, which have none.
            if let Parsed::Elsewhere(away) = found {
                whole.tag = FORWARDED;
                return Some((away, whole));
            }
            deliver(groups, &found, false, whole, ctx);
            None
        }
        _ => {
            deliver(groups, found, ctx.shared.config.rx_checksums_verified, mbuf, ctx);
            None
        }
    }
}

/// A packet for this core. `verified`: its checksums are.
fn deliver(groups: &mut Groups, found: &Parsed, verified: bool, mbuf: Mbuf, ctx: &mut Context<'_>) {
    match *found {
        Parsed::Tcp { ref segment } => match group_mut(groups, Shared::group_of(segment.hash)) {
            Some(group) => segment::arrive(group, segment, mbuf, ctx),
            None => ctx.pool.free(mbuf),
        },
        Parsed::Arp => arp::arrive(mbuf, ctx),
        Parsed::Icmp { at, len, pair } => {
            icmp::arrive(mbuf, at as usize, len as usize, pair, ctx);
        }
        Parsed::TooBig(ref message) => {
            ctx.pool.free(mbuf);
            if let Some(group) = group_mut(groups, Shared::group_of(message.hash)) {
                too_big::arrive(group, message, ctx);
            }
        }
        Parsed::Udp { at, len, pair } => {
            udp::arrive(mbuf, (at as usize, len as usize), pair, verified, ctx);
        }
        Parsed::Unknown { why, pair } => {
            icmp::undelivered(why, &mbuf, pair, ctx);
            ctx.pool.free(mbuf);
        }
        Parsed::Drop
        | Parsed::Established { .. }
        | Parsed::EstablishedV6 { .. }
        | Parsed::Fragment(_)
        | Parsed::Elsewhere(_) => ctx.pool.free(mbuf),
    }
}

impl Held for Stack {
    fn held(&self, handle: Handle, visit: &mut dyn FnMut(&[u8])) {
        let group = self.groups.get(handle.group() as usize).and_then(|group| group.as_deref());
        if let Some(cold) = group.and_then(|group| group.cold_of(handle)) {
            cold.held.iter().for_each(visit);
        }
    }
}

impl core::fmt::Debug for Stack {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stack")
            .field("core", &self.core)
            .field("connections", &self.census.connections)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
