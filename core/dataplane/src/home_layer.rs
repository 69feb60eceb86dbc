//! A network layer together with the turns of its connections: what a core that runs it, at home or in its
//! home's stead, does before and after the application.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallArray, EventArray, Handle};
use nic::Nic;
use shuffle::{Home, ShuffleLayer};
use stack::GroupSet;

use crate::cycle::{CycleStats, Left, Progress};
use crate::net_layer::{Buffers, NetLayer};
use crate::turn::{ConnectionTurn, number_of};

/// Turns in somebody's hands.
pub(crate) type Turns = Vec<Box<ConnectionTurn>>;

/// See the module's comment.
pub(crate) struct HomeLayer<N: Nic> {
    pub net: NetLayer<N>,
    core: usize,
    pub home: Home<ConnectionTurn>,
    /// Connections whose events the home core took straight from the array: they are held in name only,
    /// until somebody else hands out turns meanwhile.
    direct: Vec<Handle>,
    direct_held: bool,
    /// The array's first events are older than calls that were executed since.
    aged: bool,
    /// Kept for its memory.
    buffers: Buffers,
    /// What was done here by kicks.
    pub kicked: CycleStats,
    /// Calls executed since whoever runs the layer has counted them.
    executed: u64,
    /// Packets taken since its home has asked, by whoever ran the layer.
    taken: usize,
    /// Another thread than its home's did something here since the home's last cycle: what the home knows of its
    /// deadlines and of work that is left is stale.
    is_stale: bool,
    /// The latest moment that the layer has seen: cores read the clock before they come in here.
    now: Instant,
}

impl<N: Nic> HomeLayer<N> {
    pub fn new(net: NetLayer<N>, core: u8, now: Instant) -> Self {
        let shared = Arc::clone(net.stack.shared());
        Self {
            net,
            core: core as usize,
            home: Home::new(move || ConnectionTurn::new(core, &shared.config)),
            direct: Vec::new(),
            direct_held: false,
            aged: false,
            buffers: Vec::new(),
            kicked: CycleStats::default(),
            executed: 0,
            taken: 0,
            is_stale: false,
            now,
        }
    }

    /// Time does not go back in here.
    pub fn at(&mut self, now: Instant) -> Instant {
        self.now = self.now.max(now);
        self.now
    }

    /// Steps 1 and 2, and step 4 for what other cores have run. Answers whether there was anything.
    pub fn receive(&mut self, now: Instant, shuffle: &ShuffleLayer<ConnectionTurn>) -> bool {
        let mut returned = false;
        while let Some(turn) = shuffle.pop_remote_calls(self.core) {
            self.end(now, turn);
            returned = true;
        }
        self.net.receive(now);
        self.taken += self.net.received;
        returned || self.net.received > 0 || !self.net.events.is_empty() || self.net.has_relayed()
    }

    /// Executes what the application asked for in a turn, and releases its connection.
    pub fn end(&mut self, now: Instant, mut turn: Box<ConnectionTurn>) {
        let ConnectionTurn { events, calls, .. } = &mut *turn;
        self.execute(now, events, calls, usize::MAX);
        self.home.finish(turn);
    }

    /// Step 4 for events that the application has seen; at most `kept` of their buffers came with turns.
    fn execute(
        &mut self,
        now: Instant,
        events: &mut EventArray,
        calls: &mut CallArray,
        kept: usize,
    ) {
        events.take_buffers(&mut self.buffers);
        for _ in self.buffers.iter().take(kept) {
            self.net.pool.unkeep();
        }
        self.executed += calls.len() as u64;
        self.aged |= !calls.is_empty();
        self.net.execute(now, calls, &mut self.buffers);
    }

    /// Executes what the application asked for in a crossing at home, whose events came straight from the
    /// array or from `turns`. `kept`: buffers of the latter.
    pub fn end_crossing(
        &mut self,
        now: Instant,
        events: &mut EventArray,
        calls: &mut CallArray,
        turns: &mut Turns,
        kept: usize,
    ) {
        self.execute(now, events, calls, kept);
        turns.drain(..).for_each(|turn| self.home.finish(turn));
        if core::mem::take(&mut self.direct_held) {
            for handle in self.direct.drain(..) {
                self.home.release(number_of(Some(handle)));
            }
        }
        self.direct.clear();
    }

    /// Moves up to `count` events straight to the home core's own array, without making turns of them.
    /// Only where no turn is under way.
    pub fn take_directly(&mut self, count: usize, into: &mut EventArray) {
        debug_assert!(self.home.is_idle() && self.direct.is_empty());
        self.net.events.split_front(count, into);
        if self.aged {
            let stack = &mut self.net.stack;
            into.renew_windows(|handle| stack.window(handle));
            self.aged = !self.net.events.is_empty();
        }
        self.direct.extend(into.records().iter().filter_map(|record| record.connection()));
    }

    /// Makes turns of all events, and hands out those that are due. Answers how many.
    pub fn hand_out(&mut self, shuffle: &ShuffleLayer<ConnectionTurn>) -> u64 {
        if !self.net.events.is_empty() {
            self.distribute();
        }
        if !self.home.has_due() {
            return 0;
        }
        let Self { net, home, core, .. } = self;
        let mut made = 0;
        home.hand_out(|mut turn| {
            // It may have waited for the turn before it.
            turn.events.renew_windows(|handle| net.stack.window(handle));
            made += 1;
            match turn.any_core {
                true => shuffle.publish(*core, turn),
                false => shuffle.publish_own(*core, turn),
            }
        });
        made
    }

    /// Calls executed since the last time that somebody asked.
    pub fn take_executed(&mut self) -> u64 {
        core::mem::take(&mut self.executed)
    }

    /// Packets taken since the last time that its home asked.
    pub fn take_taken(&mut self) -> usize {
        core::mem::take(&mut self.taken)
    }

    fn distribute(&mut self) {
        if !self.direct.is_empty() && !core::mem::replace(&mut self.direct_held, true) {
            let Self { direct, home, .. } = self;
            // A connection with several events stands there several times, and is held and released once.
            direct.retain(|&handle| home.hold(number_of(Some(handle))));
        }
        let Self { net: NetLayer { events, pool, classes, .. }, home, .. } = self;
        events.hand_out(|record, buffer| {
            // It is kept until the turn ends, which counts against what reception may keep.
            if buffer.is_some() {
                pool.keep();
            }
            let class = classes.as_mut().map_or(0, |classes| classes.class_of(&record));
            home.arrive(number_of(record.connection()), |turn| turn.add(record, buffer, class));
        });
        self.aged = false;
    }

    /// Steps 5 and 6 of its home's cycle.
    pub fn finish(&mut self, now: Instant, worked: bool) -> Progress {
        self.is_stale = false;
        self.end_cycle(now, worked)
    }

    /// Steps 5 and 6 for another thread, which `found` something in the steps before. Answers whether the home has to
    /// look: for turns that only it may take, timers that are new, work that is left. Ring for it then.
    pub fn finish_away(&mut self, now: Instant, found: bool) -> bool {
        let progress = self.end_cycle(now, false);
        let has_changed = found || progress.worked;
        self.is_stale |= has_changed;
        has_changed
    }

    /// Whether another thread changed something since the home's last cycle.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    fn end_cycle(&mut self, now: Instant, worked: bool) -> Progress {
        let Self { net, home, direct, .. } = self;
        // A turn that is ready or in some core's hands ends where it began; so does a crossing at home.
        let is_busy = |set: GroupSet| {
            direct.iter().any(|handle| set.has(handle.group()))
                || home.holds(|connection| set.has(Handle::from_bits(connection).group()))
        };
        let mut progress = net.finish(now, worked, is_busy);
        progress.pending |= self.home.has_due();
        progress.ready = self.net.events.len() + self.home.held();
        progress
    }

    /// As [`NetLayer::withdraw`]. What other cores have run is done before; turns that none has taken are
    /// dropped.
    pub fn withdraw(&mut self, now: Instant, shuffle: &ShuffleLayer<ConnectionTurn>) -> bool {
        while let Some(turn) = shuffle.pop_remote_calls(self.core) {
            self.end(now, turn);
        }
        while let Some(mut turn) = shuffle.take(self.core) {
            let buffers = turn.give_back(&mut self.net.pool);
            (0..buffers).for_each(|_| self.net.pool.unkeep());
            self.home.finish(turn);
        }
        self.net.withdraw(now)
    }

    /// As [`NetLayer::close`], with the turns in this core's lane. Only where no other core runs any more.
    pub fn close(mut self, shuffle: &ShuffleLayer<ConnectionTurn>) -> Left {
        let pool = &mut self.net.pool;
        while let Some(mut turn) =
            shuffle.pop_remote_calls(self.core).or_else(|| shuffle.take(self.core))
        {
            turn.give_back(pool);
        }
        for mut turn in self.home.drain() {
            turn.give_back(pool);
        }
        self.net.close()
    }
}
