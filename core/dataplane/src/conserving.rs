//! The work-conserving elastic thread (ZygOS §4): no core idles while a request waits anywhere.
//!
//! A core runs its network layer; where nobody waits for work it takes events straight from there, as many
//! as a short crossing takes, and is then no different from one that runs to completion. Where some other
//! core has nothing to do, every event becomes part of its connection's turn, for any core to take, and a
//! crossing is one turn long.
//!
//! A core that has nothing of its own to do takes a turn of another; where there is none, it *borrows*: it
//! runs the network layer of a core that is in the application, so that packets which came meanwhile become
//! turns, and replies of stolen turns leave. A network layer is therefore behind a lock, which is held for
//! steps of the network layer only, never while the application runs; it is tried, and who does not get it
//! does something else.
//!
//! # The ready set
//!
//! The scheduler `ready-set` ([`Floor::ready_set`]) is the same thread with one difference: the turns that
//! any core may run stand in one set for all cores, by the classes of their connections, and a service policy
//! says which class every core serves next, the turns' homes among them. So every event becomes a turn: one
//! that its home took straight from the network layer would pass by those of a more urgent class.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use clock::{Duration, Instant};
use domain::{CallArray, Calls, EventArray, Events};
use mem::Pool;
use nic::{Nic, NicStats, QueueSet};
use shuffle::{Guard, Taker};
use stack::Stack;

use crate::cycle::{CycleStats, Left, Progress};
use crate::elastic::{Elastic, FIRST_EVENT_NS, learned};
use crate::floor::{ConservingConfig, Floor, Hints, OwnTender, Side, Tender, WhileAway};
use crate::home_layer::{HomeLayer, Turns};
use crate::longest::Longest;
use crate::migration::{MigrationStats, MoveMailbox};
use crate::turn::{ConnectionTurn, discard};

/// One elastic thread of a work-conserving dataplane. See the module's comment.
pub struct ConservingThread<N: Nic> {
    floor: Arc<Floor<N>>,
    core: usize,
    /// Memory for what the application sends: the network layer's may be in another core's hands.
    pool: Pool,
    /// Its place in the ready set, where there is one.
    taker: Option<Taker>,
    /// The crossing at home: events, calls, the turns that the events came from, and how many buffers those
    /// had.
    events: EventArray,
    calls: CallArray,
    turns: Turns,
    kept: usize,
    /// Another core's turn.
    stolen: Option<Box<ConnectionTurn>>,
    /// One that came out of the ready set behind the present crossing's.
    next: Option<Box<ConnectionTurn>>,
    /// One that its home has no room for yet: nothing else is stolen before it is there.
    outbox: Option<Box<ConnectionTurn>>,
    /// When the present crossing began.
    began: Instant,
    /// The last cycle that found something.
    worked_at: Instant,
    /// What an event costs in the application, on average.
    event_ns: u64,
    /// What it costs at most, of late.
    longest: Longest,
    /// How long a core's network layer is left alone after a look.
    borrow_pause: Duration,
    random: u32,
    /// Turns were published for which no core was woken yet.
    published: bool,
    wakes: u128,
    kicks: u128,
    /// What its [`OwnTender`] upgrades to.
    own_tender: Option<Arc<Tender<N>>>,
    /// Its processor is for others: see [`Elastic::set_parked`].
    parked: bool,
    stats: CycleStats,
}

impl<N: Nic> ConservingThread<N> {
    /// Thread `core` of `floor`, with memory for what its application sends and room for its calls.
    pub(crate) fn new(
        floor: Arc<Floor<N>>,
        core: usize,
        pool: Pool,
        taker: Option<Taker>,
        calls: CallArray,
        now: Instant,
    ) -> Self {
        let borrow_pause = floor.config.borrow_after;
        let floor_crossing = floor.config.crossing;
        Self {
            floor,
            core,
            pool,
            taker,
            events: EventArray::growing(),
            calls,
            turns: Vec::new(),
            kept: 0,
            stolen: None,
            next: None,
            outbox: None,
            began: now,
            worked_at: now,
            // Long, so that few enter the first crossing.
            event_ns: FIRST_EVENT_NS,
            longest: Longest::of(floor_crossing),
            borrow_pause,
            random: 0x9e37_79b9 ^ core as u32,
            published: false,
            wakes: 0,
            kicks: 0,
            own_tender: None,
            parked: false,
            stats: CycleStats::default(),
        }
    }

    fn side(&self) -> &Side<N> {
        &self.floor.sides[self.core]
    }

    fn layer(&self) -> Guard<'_, HomeLayer<N>> {
        self.side().layer.home()
    }

    /// Events that a crossing of the configured length holds, if each is as long as the longest of late: none waits
    /// behind a long one while another core is idle.
    fn crossing_len(&self) -> usize {
        let fits = self.floor.config.crossing.as_nanos() as u64 / self.longest.event_ns().max(1);
        (fits as usize).max(1)
    }

    /// Runs the own network layer, and takes what is next of the own. Answers whether there is something.
    fn work_at_home(&mut self, now: Instant) -> bool {
        let somebody_waits = self.floor.shuffle.somebody_idle(self.core);
        let limit = if somebody_waits { 1 } else { self.crossing_len() };
        let Self { floor, core, pool, events, published, wakes, stats, .. } = self;
        let core = *core;
        // Where another core runs it just now, its turns are there to be taken all the same.
        if let Some(mut layer) = floor.sides[core].layer.try_home() {
            let now = layer.at(now);
            layer.receive(now, &floor.shuffle);
            *wakes |= core::mem::take(&mut layer.net.forwarded);
            // What is taken from the one comes back to the other.
            pool.top_up(&mut layer.net.pool);
            if !floor.shuffle.is_by_class() && layer.home.is_idle() {
                // An application whose calls fail makes events as fast as it takes them: it takes all where they
                // keep packets out, else they pile up without a bound.
                let is_crowded = !somebody_waits && layer.net.lacks_room();
                layer.take_directly(if is_crowded { usize::MAX } else { limit }, events);
                stats.calls += layer.take_executed();
                if !somebody_waits {
                    return !events.is_empty();
                }
            }
            *published |= floor.hand_out(&mut layer, core, stats);
        }
        // As many turns as one crossing has time for, and one at least.
        while self.next.is_none()
            && self.events.len() < limit
            && let Some(turn) = self.take()
        {
            self.add(turn);
        }
        !self.events.is_empty()
    }

    /// The next turn to be run here.
    #[inline]
    fn take(&mut self) -> Option<Box<ConnectionTurn>> {
        let shuffle = &self.floor.shuffle;
        match &mut self.taker {
            None => shuffle.take(self.core),
            // Another core's turn could not be brought home: of the set nothing is taken then. Nor by one that is
            // parked: nobody has the set's turns for it.
            Some(_) if self.outbox.is_some() || self.parked => shuffle.take_own(self.core),
            Some(taker) => shuffle.take_own(self.core).or_else(|| shuffle.take_shared(taker)),
        }
    }

    /// Puts a turn into the crossing at home, or another core's aside.
    #[inline]
    fn add(&mut self, mut turn: Box<ConnectionTurn>) {
        if usize::from(turn.home) != self.core {
            self.next = Some(turn);
            return;
        }
        let Self { events, turns, kept, .. } = self;
        turn.events.hand_out(|record, buffer| {
            *kept += usize::from(buffer.is_some());
            let appended = events.append(record, buffer);
            debug_assert!(appended.is_ok(), "it has no bound");
        });
        turns.push(turn);
    }

    /// Takes a turn of another core; if there is none, looks after the network layer of one that is in the
    /// application.
    fn work_elsewhere(&mut self, now: Instant) -> bool {
        if !self.bring_home(now) {
            return false;
        }
        if self.parked {
            // What it took out of the set before it was parked.
            self.stolen = self.next.take();
            self.stats.stolen += u64::from(self.stolen.is_some());
            return self.stolen.is_some();
        }
        self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let random = self.random >> 16;
        self.stolen = match self.taker {
            None => self.floor.shuffle.steal(self.core, random),
            // The set was asked a moment ago.
            Some(_) => self.next.take(),
        };
        if self.stolen.is_none() && self.borrow(now, random) {
            self.take_borrowed(random);
        }
        self.stats.stolen += u64::from(self.stolen.is_some());
        self.stolen.is_some() || !self.events.is_empty()
    }

    /// Shows the others that this core is about to be in the application.
    #[inline]
    fn goes_away(&mut self, now: Instant) {
        // Whoever counted upon this core for another turn is served by the next idle one.
        self.published |= self.floor.shuffle.declare_busy(self.core);
        self.side().hints.away_since.store(now.as_nanos().max(1), Ordering::Relaxed);
    }

    /// Has as many idle cores woken as turns wait, if this core has published some since the last time or ceased to
    /// be one that others count upon. Before the application: a turn does not wait behind a request that runs here.
    fn call_others(&mut self) {
        if core::mem::take(&mut self.published) {
            self.wakes |= u128::from(self.floor.shuffle.call(self.core));
        }
    }

    /// Takes a turn, now that another core's network layer was run. What comes out of the ready set may be
    /// this core's own all the same, and then goes into its own crossing.
    fn take_borrowed(&mut self, random: u32) {
        if self.taker.is_none() {
            self.stolen = self.floor.shuffle.steal(self.core, random);
        } else if let Some(turn) = self.take() {
            self.add(turn);
            self.stolen = self.next.take();
        }
    }

    /// Runs the network layer of a core that is away. Answers whether one was.
    fn borrow(&mut self, now: Instant, random: u32) -> bool {
        let cores = self.floor.sides.len();
        for offset in 0..cores {
            let victim = (random as usize + offset) % cores;
            let Floor { sides, config, .. } = &*self.floor;
            let from = sides[victim].hints.look_from(config);
            if victim == self.core || from.is_none_or(|from| now < from) {
                continue;
            }
            match config.while_away {
                WhileAway::Wait => return false,
                WhileAway::Kick => {
                    let worth_it = self.is_worth_a_kick(victim);
                    self.pause_after(now, victim, worth_it);
                    if worth_it {
                        self.kick(now, victim);
                    }
                    continue;
                }
                WhileAway::Borrow => {}
            }
            let Some(worth_it) = self.tend(now, victim) else { continue };
            self.pause_after(now, victim, worth_it);
            return true;
        }
        false
    }

    /// The network layer of `victim` was looked at. Where nothing waits, others look less and less often: a look
    /// takes lines from it, and its lock.
    fn pause_after(&mut self, now: Instant, victim: usize, worth_it: bool) {
        let ConservingConfig { borrow_after: least, borrow_pause: most, .. } = self.floor.config;
        let pause = if worth_it { least } else { 2 * self.borrow_pause };
        self.borrow_pause = pause.clamp(least, most.max(least));
        let next = now + self.borrow_pause;
        let hints = &self.floor.sides[victim].hints;
        hints.borrow_not_before.store(next.as_nanos(), Ordering::Relaxed);
    }

    /// Whether something waits for the network layer of `victim`: turns that came back, frames, its own or those of other
    /// cores, or what its home took
    /// in and made no turns of, as nobody was idle then.
    fn is_worth_a_kick(&self, victim: usize) -> bool {
        let Floor { shuffle, sides, .. } = &*self.floor;
        let has_work = |layer: Guard<'_, HomeLayer<N>>| {
            let HomeLayer { net, home, .. } = &*layer;
            net.queues.rx_backlog() > 0
                || !net.events.is_empty()
                || home.has_due()
                || net.has_relayed()
                || net.hears_others()
        };
        shuffle.has_remote_calls(victim) || sides[victim].layer.borrow().is_some_and(has_work)
    }

    /// Has core `home` interrupted, unless it was a moment ago.
    fn kick(&mut self, now: Instant, home: usize) {
        let Hints { kick_not_before: not_before, .. } = &self.floor.sides[home].hints;
        if now.as_nanos() >= not_before.load(Ordering::Relaxed) {
            let next = now + self.floor.config.borrow_pause;
            not_before.store(next.as_nanos(), Ordering::Relaxed);
            self.kicks |= 1 << home;
            self.stats.kicks += 1;
        }
    }

    /// Runs the network layer of core `home`, which is in the application or asleep, in its stead: with the turn in
    /// the outbox, if it is from there. Answers whether there was anything; `None`: somebody has the layer.
    fn tend(&mut self, now: Instant, home: usize) -> Option<bool> {
        let Self { floor, outbox, published, wakes, stats, .. } = self;
        let mut layer = floor.sides[home].layer.borrow()?;
        let now = layer.at(now);
        let brought = outbox.take_if(|turn| turn.home as usize == home);
        let mut worth_it = brought.is_some();
        if let Some(turn) = brought {
            layer.end(now, turn);
        }
        worth_it |= layer.receive(now, &floor.shuffle);
        *published |= floor.hand_out(&mut layer, home, stats);
        if layer.finish_away(now, worth_it) {
            *wakes |= 1 << home;
        }
        // What it left for others is not to wait until its home comes back.
        *wakes |= core::mem::take(&mut layer.net.forwarded);
        stats.borrowed += 1;
        Some(worth_it)
    }

    /// Ends the crossing, wherever it stands: nothing that was asked for in it is done. Answers whether a turn
    /// that came from elsewhere is home again.
    fn put_down(&mut self, now: Instant) -> bool {
        if let Some(mut turn) = self.stolen.take() {
            discard(&mut turn.calls, &mut self.pool);
            self.outbox = Some(turn);
        }
        let Self { floor, core, pool, events, calls, turns, kept, published, .. } = self;
        discard(calls, pool);
        // Nobody makes turns for it any more, nor runs its network layer.
        *published |= floor.shuffle.declare_busy(*core);
        let side = &floor.sides[*core];
        let mut layer = side.layer.home();
        side.hints.away_since.store(0, Ordering::Relaxed);
        let now = layer.at(now);
        layer.end_crossing(now, events, calls, turns, core::mem::take(kept));
        drop(layer);
        self.call_others();
        // One that was put aside goes the same way, if there is room.
        if self.bring_home(now) {
            self.outbox = self.next.take();
        }
        self.bring_home(now)
    }

    /// Ends the turn in the outbox: here, where its home is in the application and could not do so soon; else
    /// it is sent home. Answers whether the outbox is empty.
    fn bring_home(&mut self, now: Instant) -> bool {
        let Some(home) = self.outbox.as_ref().map(|turn| turn.home as usize) else { return true };
        // A hint, as in `borrow`.
        let is_away = self.floor.sides[home].hints.away_since.load(Ordering::Relaxed) != 0;
        if is_away && self.floor.config.while_away == WhileAway::Borrow {
            self.tend(now, home);
        }
        let Some(turn) = self.outbox.take() else { return true };
        match self.floor.shuffle.push_remote_calls(home, turn) {
            Ok(()) => {
                // It may sleep: rung for in any case, as its bell asks whether it does.
                self.wakes |= 1 << home;
                if is_away && self.floor.config.while_away == WhileAway::Kick {
                    self.kick(now, home);
                }
                true
            }
            Err(turn) => {
                self.outbox = Some(turn);
                false
            }
        }
    }

    /// What runs the network layer of this thread's core when the thread is kicked; the thread itself is in
    /// the application then.
    pub fn tender(&self) -> Tender<N> {
        Tender { floor: Arc::clone(&self.floor), core: self.core }
    }

    /// The same for the thread itself, while it waits for an application in another process: it does not keep
    /// the network layer from being taken apart.
    pub fn own_tender(&mut self) -> OwnTender<N> {
        let tender = self.tender();
        OwnTender(Arc::downgrade(self.own_tender.get_or_insert_with(|| Arc::new(tender))))
    }
}

impl<N: Nic> Elastic for ConservingThread<N> {
    type Nic = N;

    fn begin(&mut self, now: Instant) -> bool {
        self.bring_home(now);
        // One that was put aside was taken before what its network layer has now.
        let found = match self.next {
            Some(_) if self.outbox.is_none() => self.work_elsewhere(now),
            _ => self.work_at_home(now) || self.work_elsewhere(now),
        };
        if found {
            self.goes_away(now);
        }
        self.call_others();
        found
    }

    fn begin_by_wish(&mut self, now: Instant) {
        self.goes_away(now);
        self.call_others();
    }

    fn crossing(&mut self, now: impl FnOnce() -> Instant) -> (Events<'_>, Calls<'_>) {
        self.began = now();
        let Self { floor, began, stolen, events, calls, pool, stats, .. } = self;
        let (events, calls) = match stolen {
            Some(turn) => (&mut turn.events, &mut turn.calls),
            None => (events, calls),
        };
        stats.crossings += 1;
        stats.events += events.len() as u64;
        let yield_at = floor.config.quantum.map(|quantum| *began + quantum);
        (events.view(&()), Calls::new(calls, pool).until(yield_at))
    }

    fn finish(&mut self, now: Instant) -> Progress {
        let events = self.stolen.as_ref().map_or(self.events.len(), |turn| turn.events.len());
        if events > 0 {
            let spent = now.since(self.began);
            self.longest.learn(spent, events, self.event_ns);
            self.event_ns = learned(self.event_ns, spent, events);
        }
        if let Some(turn) = self.stolen.take() {
            self.outbox = Some(turn);
            self.bring_home(now);
        }
        let worked = events > 0 || !self.calls.is_empty();
        let Self { floor, core, events, calls, turns, kept, wakes, stats, .. } = self;
        let side = &floor.sides[*core];
        let mut layer = side.layer.home();
        side.hints.away_since.store(0, Ordering::Relaxed);
        let now = layer.at(now);
        layer.end_crossing(now, events, calls, turns, core::mem::take(kept));
        stats.calls += layer.take_executed();
        let mut progress = layer.finish(now, worked);
        progress.ready_ns = (progress.ready as u64).saturating_mul(self.event_ns);
        progress.received = layer.take_taken();
        *wakes |= core::mem::take(&mut layer.net.forwarded);
        drop(layer);
        self.call_others();
        progress.pending |= self.outbox.is_some() || self.next.is_some();
        if progress.worked {
            self.worked_at = now;
        } else if !self.parked && now.since(self.worked_at) >= self.floor.config.idle_after {
            self.floor.shuffle.mark_idle(self.core);
        }
        progress
    }

    fn looks_again(&self) -> Option<Instant> {
        let Floor { shuffle, sides, config, .. } = &*self.floor;
        let marked = shuffle.is_marked_idle(self.core);
        let mark = (!marked && !self.parked).then(|| self.worked_at + config.idle_after);
        let sides = if config.while_away == WhileAway::Wait { &[] } else { &**sides };
        let away = |(core, side): (usize, &Side<N>)| {
            side.hints.look_from(config).filter(|_| core != self.core)
        };
        sides.iter().enumerate().filter_map(away).chain(mark).min()
    }

    fn withdraw(&mut self, now: Instant) -> bool {
        let is_home = self.put_down(now);
        let mut layer = self.layer();
        let now = layer.at(now);
        layer.withdraw(now, &self.floor.shuffle) || !is_home
    }

    fn leave(mut self) -> Left {
        self.put_down(Instant::ZERO);
        for mut turn in self.outbox.take().into_iter().chain(self.next.take()) {
            turn.give_back(&mut self.pool);
        }
        // Nobody runs its network layer any more.
        self.layer().net.fall_silent();
        let mut left = Left::default();
        self.own_tender = None;
        // The last one: what the others had of it they gave up when they left.
        if let Some(Floor { shuffle, sides, .. }) = Arc::into_inner(self.floor) {
            while let Some(mut turn) =
                self.taker.as_mut().and_then(|taker| shuffle.take_shared(taker))
            {
                turn.give_back(&mut self.pool);
            }
            for side in sides {
                left += side.layer.into_inner().close(&shuffle);
            }
        }
        left
    }

    fn take_wakes(&mut self) -> u128 {
        core::mem::take(&mut self.wakes)
    }

    fn take_kicks(&mut self) -> u128 {
        core::mem::take(&mut self.kicks)
    }

    fn kicked(&mut self, now: Instant) {
        self.wakes |= self.floor.kicked(now, self.core);
    }

    fn stats(&self) -> CycleStats {
        let (net, kicked) = {
            let layer = self.layer();
            (layer.net.stats, layer.kicked)
        };
        let own = self.stats;
        CycleStats {
            crossings: own.crossings,
            events: own.events,
            calls: own.calls + kicked.calls,
            turns: own.turns + kicked.turns,
            stolen: own.stolen,
            borrowed: own.borrowed,
            kicks: own.kicks,
            kicked: kicked.kicked,
            ..net
        }
    }

    fn nic_stats(&self) -> NicStats {
        self.layer().net.queues.stats()
    }

    fn obey(&mut self, mailbox: MoveMailbox) {
        self.layer().net.migration.mailbox = Some(mailbox);
    }

    fn migrations(&self) -> MigrationStats {
        self.layer().net.migration.stats
    }

    fn inspect<R>(&self, body: impl FnOnce(&Stack, &Pool) -> R) -> R {
        let layer = self.layer();
        body(&layer.net.stack, &layer.net.pool)
    }

    fn free_chunks(&self) -> usize {
        self.pool.free_len() + self.layer().net.pool.free_len()
    }

    fn is_quiet(&mut self) -> bool {
        // Others are called and woken before this thread sleeps.
        !self.published
            && self.wakes == 0
            && self.outbox.is_none()
            && self.next.is_none()
            && match self.parked {
                // Nobody is to think that it waits for work.
                true => self.floor.shuffle.is_empty_at(self.core),
                false => self.floor.shuffle.declare_idle(self.core),
            }
            && {
                let layer = self.layer();
                !layer.is_stale() && !layer.net.hears_others()
            }
    }

    fn is_asked(&self) -> bool {
        self.layer().net.migration.is_asked()
    }

    fn arm(&mut self, now: Instant) -> bool {
        let is_armed = self.layer().net.arm();
        if is_armed {
            // Another core may run its network layer while it sleeps.
            self.side().hints.away_since.store(now.as_nanos().max(1), Ordering::Relaxed);
        }
        is_armed
    }

    fn disarm(&mut self) {
        self.side().hints.away_since.store(0, Ordering::Relaxed);
        self.layer().net.queues.disarm();
    }

    fn set_parked(&mut self, parked: bool) {
        self.parked = parked;
        // The mark says that it would take others' work. Whoever has seen it and wakes this thread in vain has
        // the turn in a queue that it looks into itself before it sleeps.
        self.published |= self.floor.shuffle.declare_busy(self.core);
    }

    fn with_queues<R>(&mut self, body: impl FnOnce(&mut QueueSet<N>) -> R) -> R {
        body(&mut self.layer().net.queues)
    }
}

impl<N: Nic> core::fmt::Debug for ConservingThread<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("ConservingThread")
            .field("core", &self.core)
            .field("shuffle", &self.floor.shuffle)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}
