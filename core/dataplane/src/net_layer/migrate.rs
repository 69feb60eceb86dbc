//! What the network layer does for migrations: carries out what the two ends decide (`migration`), between the
//! steps of its cycle.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallError, CallKind, CallRecord, Cookie, EventRecord, Handle, Received};
use mem::Mbuf;
use nic::Nic;
use stack::{Elsewhere, GroupSet};

use super::NetLayer;
use crate::migration::{
    Control, Departure, Finished, Migration, Mistake, MoveCommand, MoveError, MoveId, MoveMailbox,
    MoveReport, Moved, Parcel, PhaseTimes, Redirected,
};

impl<N: Nic> NetLayer<N> {
    /// Before anything is taken in: groups that have come are taken in, and packets that were deferred fill the
    /// batch first. Answers how many those are.
    #[cold]
    pub(super) fn before_receive(&mut self, now: Instant, room: usize) -> usize {
        self.adopt(now);
        if self.migration.errs(Mistake::ParkedLast) {
            return 0;
        }
        self.take_deferred(room)
    }

    fn take_deferred(&mut self, room: usize) -> usize {
        let count = self.migration.arrivals.take_deferred(&mut self.rx, room);
        // They were kept for as long as they waited.
        (0..count).for_each(|_| self.pool.unkeep());
        count
    }

    /// After reception: what other cores have said. `room`: what the batch could still hold. Answers how many
    /// deferred packets were added.
    #[cold]
    pub(super) fn after_receive(&mut self, now: Instant, room: usize) -> usize {
        let late =
            if self.migration.errs(Mistake::ParkedLast) { self.take_deferred(room) } else { 0 };
        for (from, control) in core::mem::take(&mut self.migration.heard) {
            self.hear(now, from, *control);
        }
        late
    }

    fn hear(&mut self, now: Instant, from: u8, control: Control) {
        match control {
            Control::Expect { id, set } => {
                if self.migration.arrivals.expect(id, set) {
                    self.tell(id.from, Control::Met { id });
                }
            }
            Control::Fence { id } => {
                self.tell(id.from, Control::Fenced { id });
            }
            Control::Fenced { id } => self.migration.departures.fenced(id, from),
            Control::Met { id } => self.migration.departures.met(id),
            Control::Cancel { id } => {
                self.migration.arrivals.cancel(id);
                self.route_waiting(now);
            }
            Control::Groups(parcel) => self.migration.arrivals.parcels.push_back(parcel),
            Control::Done { id, finished } => self.complete(id, finished),
            Control::Calls(calls) => self.route(now, calls),
        }
    }

    /// Tells another core something, which may sleep. Answers whether that core is there.
    fn tell(&mut self, to: u8, control: Control) -> bool {
        self.forwarded |= 1u128.checked_shl(to.into()).unwrap_or(0);
        match self.ports.tell(to, control) {
            Ok(()) => true,
            Err(control) => {
                control.discard(&mut self.pool);
                false
            }
        }
    }

    /// A packet whose group is on its way here.
    #[cold]
    pub(super) fn park(&mut self, group: u16, mbuf: Mbuf) {
        // As bytes that are kept for the application: parked packets leave memory to receive in.
        if !self.pool.allows(mem::Want::Receive) {
            self.migration.stats.parked_drops += 1;
            return self.pool.free(mbuf);
        }
        match self.migration.arrivals.park(group, mbuf) {
            Ok(met) => {
                self.pool.keep();
                if let Some(id) = met {
                    self.tell(id.from, Control::Met { id });
                }
            }
            Err(mbuf) => {
                self.migration.stats.parked_drops += 1;
                self.pool.free(mbuf);
            }
        }
    }

    /// Takes in groups that have come, one parcel after the other. Not while packets are left over from the last
    /// batch: they are younger than those that are parked.
    fn adopt(&mut self, now: Instant) {
        while self.rx.is_empty()
            && let Some(mut parcel) = self.migration.arrivals.parcels.pop_front()
        {
            while let Some((record, buffer)) = parcel.events.pop_front() {
                if let Err(buffer) = self.events.append(record, buffer) {
                    // Once the application has seen what there is.
                    parcel.events.push_front((record, buffer));
                    return self.migration.arrivals.parcels.push_front(parcel);
                }
            }
            self.unpack(now, parcel);
        }
    }

    fn unpack(&mut self, now: Instant, parcel: Parcel) {
        let Parcel { id, set, groups, classes, .. } = parcel;
        let Self { stack, pool, events, migration, .. } = self;
        for group in groups {
            stack.take_in(group, now, pool, events);
        }
        // Those that stay after all have never left.
        stack.unseal(set, now, pool, events);
        // What may be sent has changed since events were made that have come along.
        events.renew_windows(|handle| stack.window(handle));
        if let Some(table) = &mut self.classes {
            classes.into_iter().for_each(|(group, of)| table.put(group, of));
        }
        let deferred = migration.arrivals.adopted(id, set, now);
        if migration.errs(Mistake::ForgetParked) {
            let mut forgotten = Vec::new();
            migration.arrivals.take_deferred(&mut forgotten, deferred);
            for mbuf in forgotten {
                pool.unkeep();
                pool.free(mbuf);
            }
        }
        self.route_waiting(now);
    }

    /// After a cycle's steps: goes on with what is under way. `is_busy` answers whether the application has
    /// connections of some groups in hand. Answers whether the next cycle should begin at once.
    #[cold]
    pub(super) fn migrate(&mut self, now: Instant, is_busy: impl Fn(GroupSet) -> bool) -> bool {
        while let Some(command) = self.migration.mailbox.as_mut().and_then(MoveMailbox::take) {
            self.begin(now, &command);
        }
        let alive = self.ports.alive();
        for departure in self.migration.departures.alive(alive) {
            let to = departure.to;
            self.undo(departure, MoveError::HasLeft { to });
        }
        let (ring, taken) = (self.queues.rx_backlog(), self.rx.len());
        let at_once = self.migration.errs(Mistake::NoFence);
        let departures = &mut self.migration.departures;
        let seal = match at_once {
            true => departures.step_at_once(now),
            false => departures.step(now, ring, taken),
        };
        self.migration.stats.unfenced = departures.unanswered();
        if !seal.is_empty() {
            self.stack.seal(seal);
            self.set_aside();
        }
        let hurry = self.hand_over(is_busy);
        self.finish_arrivals(now);
        let settled = self.ports.flush();
        let Self { migration, .. } = self;
        hurry
            || !settled
            || migration.departures.is_pending()
            || migration.arrivals.has_deferred()
            || !migration.arrivals.parcels.is_empty()
    }

    fn begin(&mut self, now: Instant, command: &MoveCommand) {
        let MoveCommand { token, groups, to } = *command;
        let alive = self.ports.alive();
        let mut free = self.stack.here();
        free.remove(self.migration.arrivals.coming());
        let sets = [free, self.migration.arrivals.coming()];
        let cores = self.ports.cores();
        let begun = match self.migration.leaving {
            true => Err(MoveError::Leaving),
            false => self.migration.departures.begin(now, command, sets, cores, alive),
        };
        let id = match begun {
            Ok(departure) => departure.id,
            Err(error) => {
                self.migration.stats.refused += 1;
                return self.report(token, Err(error));
            }
        };
        self.migration.stats.begun += 1;
        // The groups are announced before anybody sends a packet of them there.
        self.tell(to, Control::Expect { id, set: groups });
        groups.iter().for_each(|group| self.stack.shared().set_home(group, to));
        let own = self.migration.departures.core();
        for core in (0..cores).filter(|core| *core != own && alive >> core & 1 != 0) {
            self.tell(core, Control::Fence { id });
        }
        // After the home words: what comes to the new home by the new table finds them.
        self.redirect(id, groups, to);
    }

    /// The device's table, where it can be changed. Where it cannot, packets are forwarded, as before.
    fn redirect(&mut self, id: MoveId, groups: GroupSet, to: u8) {
        let Migration { mailbox, departures, stats, .. } = &mut self.migration;
        let own = departures.core();
        match mailbox.as_mut().and_then(|mailbox| mailbox.redirect(groups, own, to)) {
            None => return,
            Some(Redirected::No) => return stats.not_redirected += 1,
            Some(Redirected::Yes) => {}
            Some(Redirected::Probed(token)) => departures.probing(id, token),
        }
        stats.redirected += 1;
    }

    /// Takes probes out of the last `received` packets, which came out of the receive ring. They were put there
    /// behind all that the ring was given before a migration: that was taken before, or is among these.
    #[cold]
    pub(super) fn take_probes(&mut self, received: usize) {
        let own = self.stack.shared().config.address();
        let mut at = self.rx.len() - received;
        while at < self.rx.len() {
            let token = nic::probe::token_of(self.rx[at].bytes(), own);
            match token.filter(|&token| self.migration.departures.probed(token)) {
                Some(_) => {
                    let probe = self.rx.remove(at);
                    self.pool.free(probe);
                }
                None => at += 1,
            }
        }
    }

    fn report(&mut self, token: u64, outcome: Result<Moved, MoveError>) {
        if let Some(mailbox) = &mut self.migration.mailbox {
            mailbox.tell(MoveReport { token, outcome });
        }
    }

    /// Gives groups away that are sealed, and of whose connections the application has none in hand. Answers
    /// whether some could not be given away, for want of memory.
    fn hand_over(&mut self, is_busy: impl Fn(GroupSet) -> bool) -> bool {
        let sealed: Vec<_> = self.migration.departures.sealed().collect();
        let mut hurry = false;
        for (id, set, to) in sealed {
            if is_busy(set) && !self.migration.errs(Mistake::IgnoreTurns) {
                continue;
            }
            let Ok(groups) = self.stack.pack(set, &mut self.pool) else {
                hurry = true;
                continue;
            };
            let connections = groups.iter().map(stack::PackedGroup::connections).sum::<usize>();
            let events = self.aside_of(set);
            let classes = self.classes.as_mut().map_or(Vec::new(), |table| {
                set.iter().map(|group| (group, table.take(group))).collect()
            });
            let parcel = Parcel { id, set, groups, events, classes };
            self.migration.departures.handed(id, connections as u32);
            self.tell(to, Control::Groups(parcel));
        }
        hurry
    }

    /// Events of sealed groups are the new home's to hand out.
    pub(super) fn set_aside(&mut self) {
        let set = self.stack.sealed();
        let concerned = self.events.records().iter().any(|record| is_of(record, set));
        if !concerned || self.migration.errs(Mistake::LeaveEvents) {
            return;
        }
        let Self { events, migration, .. } = self;
        let mut stay = Vec::new();
        events.hand_out(|record, buffer| {
            if is_of(&record, set) {
                migration.aside.push_back((record, buffer));
            } else {
                stay.push((record, buffer));
            }
        });
        for (record, buffer) in stay {
            let appended = events.append(record, buffer);
            debug_assert!(appended.is_ok(), "there was room for all");
        }
    }

    /// Calls that the application has issued here on connections that are not.
    #[cold]
    pub(super) fn route_calls(&mut self, now: Instant) {
        let calls = self.stack.take_elsewhere(Elsewhere::default());
        self.route(now, calls);
    }

    /// Calls that waited for groups that have come, or that do not.
    fn route_waiting(&mut self, now: Instant) {
        for calls in core::mem::take(&mut self.migration.arrivals.calls) {
            self.route(now, calls);
        }
    }

    /// Executes calls on connections that are here, sends others to their homes, and keeps those whose groups
    /// are on their way here.
    fn route(&mut self, now: Instant, calls: Elsewhere) {
        let Elsewhere { records, payloads } = calls;
        let own = self.migration.departures.core();
        let here = self.stack.here();
        // By home; this core's first are those that it can execute.
        let mut local = Elsewhere::default();
        let mut by_home: Vec<(u8, Elsewhere)> = Vec::new();
        let mut payloads = payloads.into_iter();
        for record in records {
            let (handle, buffers) = addressee(&record);
            let home = self.stack.shared().home_of(handle.group());
            let batch = if here.has(handle.group()) {
                &mut local
            } else {
                match by_home.iter().position(|(other, _)| *other == home) {
                    Some(at) => &mut by_home[at].1,
                    None => {
                        by_home.push((home, Elsewhere::default()));
                        let last = by_home.len() - 1;
                        &mut by_home[last].1
                    }
                }
            };
            batch.records.push(record);
            batch.payloads.extend(payloads.by_ref().take(buffers));
        }
        self.stack.execute_carried(now, &mut local, &mut self.pool, &mut self.events);
        for (home, calls) in by_home {
            let waiting: usize =
                self.migration.arrivals.calls.iter().map(|calls| calls.records.len()).sum();
            let full = match home == own {
                true => waiting + calls.records.len() > self.migration.config.calls,
                false => self.ports.backlog(home) >= self.migration.config.calls,
            };
            if full || self.migration.errs(Mistake::RefuseCalls) {
                self.refuse(calls);
            } else if home == own {
                self.migration.arrivals.calls.push(calls);
            } else {
                self.migration.stats.calls_forwarded += calls.records.len() as u64;
                self.tell(home, Control::Calls(calls));
            }
        }
    }

    /// As many calls wait as may.
    #[cold]
    fn refuse(&mut self, mut calls: Elsewhere) {
        self.migration.stats.calls_refused += calls.records.len() as u64;
        for record in &calls.records {
            if let Some((call, handle)) = failing(record) {
                let (cookie, error) = (Cookie(0), CallError::Busy);
                self.stack.tell_late(EventRecord::Failed { call, handle, cookie, error });
            }
        }
        calls.clear(&mut self.pool);
    }

    /// Migrations of which this is the new home, and all of whose deferred packets are processed.
    fn finish_arrivals(&mut self, now: Instant) {
        while self.rx.is_empty()
            && let Some((id, finished)) = self.migration.arrivals.finish(now)
        {
            // Of those that stay after all nobody waits for it.
            if id.from != self.migration.departures.core() {
                self.tell(id.from, Control::Done { id, finished });
            }
        }
    }

    fn complete(&mut self, id: MoveId, finished: Finished) {
        let Some(departure) = self.migration.departures.done(id) else { return };
        let Finished { packets, adopted_at, done_at } = finished;
        let Departure { commanded_at, prepared_at, sealed_at, connections, .. } = departure;
        let times =
            PhaseTimes::between([commanded_at, prepared_at, sealed_at, adopted_at, done_at]);
        let groups = departure.set.len();
        let moved = Moved { groups, connections, packets, times };
        self.migration.stats.probed += u64::from(departure.was_probed());
        self.migration.stats.complete(&moved);
        if let Some(mailbox) = &self.migration.mailbox {
            mailbox.bear_witness(departure.set, departure.to);
        }
        self.report(departure.token, Ok(moved));
    }

    /// The groups stay, if they are still here. Those that were sealed are taken in like others, behind the
    /// events that were set aside.
    fn undo(&mut self, departure: Departure, error: MoveError) {
        let Departure { id, set, to, token, .. } = departure;
        if !departure.is_handed() {
            let own = self.migration.departures.core();
            set.iter().for_each(|group| self.stack.shared().set_home(group, own));
            // Nobody takes what comes to the other queue any more.
            self.redirect_back(set, to);
            if departure.is_sealed() {
                let events = self.aside_of(set);
                let (groups, classes) = (Vec::new(), Vec::new());
                let parcel = Parcel { id, set, groups, events, classes };
                self.migration.arrivals.parcels.push_back(parcel);
            }
            self.tell(to, Control::Cancel { id });
        }
        self.migration.stats.given_up += 1;
        self.report(token, Err(error));
    }

    /// The device's table, where groups stay after all.
    fn redirect_back(&mut self, set: GroupSet, from: u8) {
        let Migration { mailbox, departures, .. } = &mut self.migration;
        let own = departures.core();
        // Whatever becomes of it: there is nothing to wait for.
        let _ = mailbox.as_mut().and_then(|mailbox| mailbox.redirect(set, from, own));
    }

    /// Takes out the events of these groups that were set aside.
    fn aside_of(&mut self, set: GroupSet) -> VecDeque<(EventRecord, Option<Received>)> {
        let all = core::mem::take(&mut self.migration.aside);
        let (of, others) = all.into_iter().partition(|(record, _)| is_of(record, set));
        self.migration.aside = others;
        of
    }

    /// This core leaves: groups that have not left stay, and no further ones are sent or asked for.
    pub(super) fn stop_migrations(&mut self) {
        if core::mem::replace(&mut self.migration.leaving, true) {
            return;
        }
        for departure in self.migration.departures.give_up() {
            self.undo(departure, MoveError::Leaving);
        }
    }

    /// The end: groups that have come are this core's, to be ended with all others; what waits is given up.
    pub(super) fn end_migrations(&mut self) {
        let now = Instant::ZERO;
        self.stop_migrations();
        let mut heard = core::mem::take(&mut self.migration.heard);
        self.ports.receive(&mut self.rx, usize::MAX, &mut heard);
        let parcels = heard.into_iter().filter_map(|(_, control)| match *control {
            Control::Groups(parcel) => Some(parcel),
            other => {
                other.discard(&mut self.pool);
                None
            }
        });
        self.migration.arrivals.parcels.extend(parcels);
        while let Some(parcel) = self.migration.arrivals.parcels.pop_front() {
            self.take_parcel_apart(now, parcel);
        }
        let Self { migration, pool, .. } = self;
        for mbuf in migration.arrivals.drain() {
            pool.unkeep();
            pool.free(mbuf);
        }
        migration.arrivals.calls.drain(..).for_each(|mut calls| calls.clear(pool));
        let aside = migration.aside.drain(..);
        aside.filter_map(|(_, buffer)| buffer).for_each(|(_, mbuf)| pool.free(mbuf));
    }

    fn take_parcel_apart(&mut self, now: Instant, parcel: Parcel) {
        let Self { stack, pool, events, .. } = self;
        let buffers = parcel.events.into_iter().filter_map(|(_, buffer)| buffer);
        buffers.for_each(|(_, mbuf): (Option<Handle>, Mbuf)| pool.free(mbuf));
        for group in parcel.groups {
            stack.take_in(group, now, pool, events);
        }
    }
}

/// Whether an event is about a connection of these groups.
fn is_of(record: &EventRecord, set: GroupSet) -> bool {
    record.connection().is_some_and(|handle| set.has(handle.group()))
}

/// The connection that a call is about, and how many payload buffers it consumes. Only calls on connections are
/// carried from core to core.
fn addressee(record: &CallRecord) -> (Handle, usize) {
    let buffers = match record {
        CallRecord::Sendv { staged, .. } => staged.count as usize,
        _ => 0,
    };
    (record.connection().unwrap_or(Handle::from_bits(u64::MAX)), buffers)
}

/// What an application is told of a call that is not executed.
fn failing(record: &CallRecord) -> Option<(CallKind, Handle)> {
    match *record {
        CallRecord::Sendv { handle, .. } | CallRecord::SendvPlaced { handle, .. } => {
            Some((CallKind::Sendv, handle))
        }
        CallRecord::Accept { handle, .. } => Some((CallKind::Accept, handle)),
        CallRecord::RecvDone { handle, .. } => Some((CallKind::RecvDone, handle)),
        CallRecord::Shutdown { handle } => Some((CallKind::Shutdown, handle)),
        CallRecord::Close { handle } => Some((CallKind::Close, handle)),
        CallRecord::Abort { handle } => Some((CallKind::Abort, handle)),
        _ => None,
    }
}
