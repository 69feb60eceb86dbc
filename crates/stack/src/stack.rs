//! The stack of one elastic thread: the flow groups that are at home here, and the kernel's part of
//! each step of the cycle (IX Figure 2).

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{
    CallArray, CallError, CallKind, CallRecord, ConnectError, EventArray, EventRecord, Handle,
    Held, Staged,
};
use mem::{Mbuf, Pool, TxFrame};
use wire::{FlowKey, UnreachableCode};

use crate::context::{Census, Context, Outbox};
use crate::input::{Parsed, discard, is_martian, parse};
use crate::shared::{FLOW_GROUPS, Shared};
use crate::stats::StackStats;
use crate::tcp::conn::{Cold, Conn, Place};
use crate::tcp::group::FlowGroup;
use crate::tcp::{calls, connect, output, receive, segment, timers};
use crate::unsafe_prefetch::prefetch;
use crate::wheel::{TICK_SHIFT, tick_of};
use crate::{arp, icmp, udp};

/// Events that one packet may cause: input stops short of a full event array by this much.
const EVENTS_PER_PACKET: usize = 8;

/// See the module's comment.
pub struct Stack {
    core: u8,
    shared: Arc<Shared>,
    /// By flow group; `None`: at home elsewhere.
    groups: Vec<Option<Box<FlowGroup>>>,
    out: Outbox,
    census: Census,
    stats: StackStats,
    /// Of one batch, kept for its memory.
    parsed: Vec<Parsed>,
    /// Where the search for an ephemeral port goes on.
    port_counter: u32,
    /// Received checksums need not be verified on this core's device.
    verified: bool,
}

/// Makes the context and calls `$body` with it and the groups: they are borrowed apart.
macro_rules! with_context {
    ($self:ident, $now:expr, $pool:expr, $events:expr, |$ctx:ident, $groups:ident| $body:expr) => {{
        let Stack { shared, groups: $groups, out, census, stats, .. } = $self;
        let mut context = Context {
            now: $now,
            tick: tick_of($now),
            shared,
            pool: $pool,
            events: $events,
            out,
            stats,
            census,
        };
        let $ctx = &mut context;
        $body
    }};
}

#[inline]
fn group_mut(groups: &mut [Option<Box<FlowGroup>>], index: u16) -> Option<&mut FlowGroup> {
    groups.get_mut(index as usize)?.as_deref_mut()
}

/// A living connection.
#[inline]
fn resolve(
    groups: &mut [Option<Box<FlowGroup>>],
    handle: Handle,
) -> Option<(Place, &mut Conn, &mut Cold)> {
    group_mut(groups, handle.group())?.resolve(handle)
}

impl Stack {
    /// The stack of elastic thread `core`, with all flow groups that are at home there. At most
    /// `max_frames` frames wait for the NIC.
    pub fn new(shared: Arc<Shared>, core: u8, now: Instant, max_frames: usize) -> Self {
        let groups = (0..FLOW_GROUPS as u16)
            .map(|index| {
                (shared.home_of(index) == core)
                    .then(|| Box::new(FlowGroup::new(index, tick_of(now))))
            })
            .collect();
        let verified = shared.config.rx_checksums_verified;
        Self {
            core,
            shared,
            groups,
            out: Outbox::new(max_frames.max(1)),
            census: Census::default(),
            stats: StackStats::default(),
            parsed: Vec::with_capacity(256),
            port_counter: 0,
            verified,
        }
    }

    /// What all threads share.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Counters.
    pub fn stats(&self) -> StackStats {
        self.stats
    }

    /// Connections of this core, all states.
    pub fn connections(&self) -> u32 {
        self.census.connections
    }

    /// Connections and bytes of their state, tables included, buffers not.
    pub fn footprint(&self) -> (usize, usize) {
        let groups = self.groups.iter().flatten();
        groups
            .map(|group| group.footprint())
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Frames for the NIC, in order: step 6 takes them from the front.
    pub fn frames(&mut self) -> &mut VecDeque<TxFrame> {
        &mut self.out.frames
    }

    /// Whether something waits that needs no packet and no timer: connections to be looked at, or
    /// events that did not fit.
    pub fn has_work(&self) -> bool {
        !self.out.pending.is_empty()
            || !self.out.undelivered.is_empty()
            || !self.out.late_events.is_empty()
            || !self.out.frames.is_empty()
    }

    /// No timer fires before this moment.
    pub fn next_timer(&self) -> Option<Instant> {
        let timer = (self.out.min_due != u64::MAX)
            .then(|| Instant::from_nanos(self.out.min_due << TICK_SHIFT));
        timer.into_iter().chain(self.out.unresolved.next_look()).min()
    }

    /// Begin of step 2: events that did not fit the last batch.
    pub fn deliver(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        if self.out.late_events.is_empty() && self.out.undelivered.is_empty() {
            return;
        }
        with_context!(self, now, pool, events, |ctx, groups| {
            while let Some(record) = ctx.out.late_events.pop_front() {
                if let Err(record) = ctx.events.push(record) {
                    ctx.out.late_events.push_front(record);
                    return;
                }
            }
            for _ in 0..ctx.out.undelivered.len() {
                let Some(place) = ctx.out.undelivered.pop_front() else { return };
                if let Some(group) = group_mut(groups, place.group) {
                    receive::deliver(group, place.slot, ctx);
                }
            }
        });
    }

    /// Step 2: carries frames through the stack, oldest first, as long as their events fit. Frames
    /// of flow groups with another home are handed out with that core's number; what is not
    /// processed for want of room stays in `frames`.
    pub fn input(
        &mut self,
        now: Instant,
        frames: &mut Vec<Mbuf>,
        pool: &mut Pool,
        events: &mut EventArray,
        mut forward: impl FnMut(u8, Mbuf, &mut Pool),
    ) {
        let (core, verified) = (self.core, self.verified);
        let mut parsed = core::mem::take(&mut self.parsed);
        let fitting = frames.len().min(events.room() / EVENTS_PER_PACKET);
        if parsed.len() < fitting {
            // Once: batches are bounded.
            parsed.resize(fitting, Parsed::Drop);
        }
        for (mbuf, found) in frames[..fitting].iter_mut().zip(&mut parsed) {
            parse(mbuf, core, verified, &self.shared, &mut self.stats, found);
            if let Parsed::Tcp { segment, group, slot } = found
                && let Some(group) = group_mut(&mut self.groups, *group)
            {
                *slot = group.lookup(segment.hash, segment.flow);
                if let Some(slot) = *slot {
                    prefetch(&group.slots.hot(slot).snd_una);
                } else if is_martian(segment.flow.remote_addr(), &self.shared) {
                    // No connection has such an end, so only here it has to be asked.
                    self.stats.not_for_us += 1;
                    *found = Parsed::Drop;
                }
            }
        }
        with_context!(self, now, pool, events, |ctx, groups| {
            for (mbuf, found) in frames.drain(..fitting).zip(&parsed) {
                // Asked first, and not among the others: nearly every frame is one.
                if let Parsed::Tcp { segment, group, slot } = found {
                    match group_mut(groups, *group) {
                        Some(group) => segment::arrive(group, *slot, segment, mbuf, ctx),
                        None => discard(mbuf, ctx),
                    }
                    continue;
                }
                match *found {
                    Parsed::Elsewhere(home) => {
                        ctx.stats.forwarded += 1;
                        forward(home, mbuf, ctx.pool);
                    }
                    Parsed::Arp => arp::arrive(mbuf, ctx),
                    Parsed::Icmp { at, len, src } => {
                        icmp::arrive(mbuf, at as usize, len as usize, src, ctx);
                    }
                    Parsed::Udp { at, len, src } => {
                        udp::arrive(mbuf, at as usize, len as usize, src, ctx);
                    }
                    Parsed::UnknownProtocol { src } => {
                        icmp::unreachable(UnreachableCode::Protocol, &mbuf, src, ctx);
                        discard(mbuf, ctx);
                    }
                    Parsed::Drop | Parsed::Tcp { .. } => discard(mbuf, ctx),
                }
            }
        });
        self.parsed = parsed;
    }

    /// Step 4: executes the application's batched system calls, in order. Failures come as events
    /// of the next batch, so `events` must have been consumed.
    pub fn execute(
        &mut self,
        now: Instant,
        array: &mut CallArray,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        if array.is_empty() {
            return;
        }
        let (records, mut payloads) = array.take();
        let (core, mut counter) = (self.core, self.port_counter);
        with_context!(self, now, pool, events, |ctx, groups| {
            let mut staged = payloads.drain(..);
            let mut rest = &records[..];
            while let [record, after @ ..] = rest {
                rest = after;
                match *record {
                    CallRecord::Sendv { handle, staged: Staged { count, .. } } => {
                        let Some((place, conn, cold)) = resolve(groups, handle) else {
                            let payloads = staged.by_ref().take(count as usize);
                            payloads.for_each(|(mbuf, _)| ctx.pool.free(mbuf));
                            stale(CallKind::Sendv, handle, ctx);
                            continue;
                        };
                        if count == 1
                            && let Some((mbuf, sum)) = staged.next()
                        {
                            calls::send_one(place, conn, cold, mbuf, sum, ctx);
                        } else {
                            let payloads = staged.by_ref().take(count as usize);
                            calls::sendv(place, conn, cold, payloads, ctx);
                        }
                        // What is given back beside a reply finds its connection looked up.
                        if let [CallRecord::RecvDone { handle: same, bytes }, after @ ..] = rest
                            && *same == handle
                        {
                            rest = after;
                            calls::recv_done(place, conn, cold, *bytes, ctx);
                        }
                    }
                    CallRecord::RecvDone { handle, bytes } => {
                        // Of a connection that is gone it is the usual race with the peer.
                        if let Some((place, conn, cold)) = resolve(groups, handle) {
                            calls::recv_done(place, conn, cold, bytes, ctx);
                        }
                    }
                    CallRecord::UdpSendv { local_port, peer, staged: Staged { count, .. } } => {
                        udp::send(local_port, peer, staged.by_ref().take(count as usize), ctx);
                    }
                    CallRecord::Connect { cookie, peer } => {
                        let in_use = |group, hash, port| {
                            group_mut(groups, group).is_none_or(|group| {
                                group.lookup(hash, FlowKey::new(peer, port)).is_some()
                            })
                        };
                        let chosen =
                            connect::choose_port(ctx.shared, core, peer, &mut counter, in_use);
                        match chosen {
                            Some((port, hash)) => {
                                if let Some(group) = group_mut(groups, Shared::group_of(hash)) {
                                    connect::open(group, hash, port, peer, cookie, ctx);
                                }
                            }
                            None => ctx.event(EventRecord::ConnectFailed {
                                cookie,
                                error: ConnectError::NoPort,
                            }),
                        }
                    }
                    ref other => control(groups, other, ctx),
                }
            }
        });
        self.port_counter = counter;
        array.restore(records, payloads);
    }

    /// End of step 4: the buffers of the batch that the application has seen, each with the connection
    /// that it belongs to (`None`: a datagram's). They are freed where their bytes were given back.
    pub fn settle_all(
        &mut self,
        now: Instant,
        buffers: &mut Vec<(Option<Handle>, Mbuf)>,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        with_context!(self, now, pool, events, |ctx, groups| {
            for (handle, mbuf) in buffers.drain(..) {
                match handle.and_then(|handle| resolve(groups, handle)) {
                    Some((place, conn, cold)) => receive::settle(place, conn, cold, mbuf, ctx),
                    None => ctx.pool.free(mbuf),
                }
            }
        });
    }

    /// As [`settle_all`](Self::settle_all), for one buffer.
    pub fn settle(
        &mut self,
        now: Instant,
        handle: Option<Handle>,
        mbuf: Mbuf,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let Some(handle) = handle else { return pool.free(mbuf) };
        with_context!(self, now, pool, events, |ctx, groups| {
            match resolve(groups, handle) {
                Some((place, conn, cold)) => receive::settle(place, conn, cold, mbuf, ctx),
                None => ctx.pool.free(mbuf),
            }
        });
    }

    /// Step 5: runs the timers that are due.
    pub fn run_timers(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let tick = tick_of(now);
        if tick < self.out.min_due {
            return;
        }
        with_context!(self, now, pool, events, |ctx, groups| {
            ctx.out.min_due = u64::MAX;
            for index in 0..FLOW_GROUPS {
                if ctx.out.due[index] <= tick
                    && let Some(group) = group_mut(groups, index as u16)
                {
                    while let Some(slot) = group.wheel.pop_expired(&mut group.slots, tick) {
                        timers::fire(group, slot, ctx);
                    }
                    ctx.out.due[index] = group.wheel.next_due();
                }
                ctx.out.min_due = ctx.out.min_due.min(ctx.out.due[index]);
            }
        });
    }

    /// Begin of step 6: acknowledgments that no reply took along, timers of all connections that
    /// were touched.
    pub fn flush(&mut self, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let looks = self.out.unresolved.next_look().is_some_and(|at| at <= now);
        with_context!(self, now, pool, events, |ctx, groups| {
            if looks {
                ctx.look_at_unresolved();
            }
            let pending = core::mem::take(&mut ctx.out.looked_at);
            let mut pending = core::mem::replace(&mut ctx.out.pending, pending);
            for place in pending.drain(..) {
                if let Some(group) = group_mut(groups, place.group) {
                    output::flush(group, place.slot, ctx);
                }
            }
            ctx.out.looked_at = pending;
        });
    }
}

fn control(groups: &mut [Option<Box<FlowGroup>>], record: &CallRecord, ctx: &mut Context<'_>) {
    let (kind, handle) = match *record {
        CallRecord::Accept { handle, .. } => (CallKind::Accept, handle),
        CallRecord::Close { handle } => (CallKind::Close, handle),
        CallRecord::Abort { handle } => (CallKind::Abort, handle),
        // Executed by the caller.
        CallRecord::Connect { .. }
        | CallRecord::Sendv { .. }
        | CallRecord::RecvDone { .. }
        | CallRecord::UdpSendv { .. } => {
            return;
        }
    };
    let Some(group) = group_mut(groups, handle.group()) else { return stale(kind, handle, ctx) };
    let Some((Place { slot, .. }, ..)) = group.resolve(handle) else {
        return stale(kind, handle, ctx);
    };
    match *record {
        CallRecord::Accept { cookie, .. } => calls::accept(group, slot, cookie, ctx),
        CallRecord::Close { .. } => calls::close(group, slot, ctx),
        _ => calls::abort(group, slot, ctx),
    }
}

/// A handle of a connection that is gone. For `close` that is the usual race with the peer and needs no event: `Dead` was told, or is in the same batch.
#[cold]
fn stale(call: CallKind, handle: Handle, ctx: &mut Context<'_>) {
    if matches!(call, CallKind::Accept | CallKind::Sendv) {
        calls::fail(call, handle, domain::Cookie(0), CallError::BadHandle, ctx);
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
