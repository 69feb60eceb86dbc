//! What the controller decides, carried out: at once, or when its time has come.

use clock::{Duration, Instant};
use control::metrics::{GroupId, GroupSample, Sample};
use control::{Decision, Outcome as Done};
use dataplane::{GroupSet, MoveCommand};
use stack::FLOW_GROUPS;

use super::{Governor, Order, Part};

impl Governor<'_> {
    /// Whether a turn of the loop is due; if so the next one is a period later.
    pub fn turns(&mut self, now: Instant) -> bool {
        let due = self.next_turn <= now;
        if due {
            self.next_turn = now + self.period;
        }
        due
    }

    /// A turn of the loop.
    pub fn turn(&mut self, now: Instant, samples: &[Sample], groups: &[GroupSample]) {
        let decisions = self.controller.step(self.since(now), samples, groups);
        let done = self.carry_out(now, decisions);
        self.go_on(now, done);
    }

    /// What has come to its end: clocks, waking, migrations.
    pub fn advance(&mut self, now: Instant) {
        debug_assert!(self.orders.is_empty(), "the world obeys at once");
        let mut done = self.reports(now);
        if let Some((_, clock)) = self.next_clock.take_if(|(at, _)| *at <= now) {
            self.meter.clock = clock;
            self.reckon_speeds();
            self.orders.push(Order::Halt((self.model.reconfiguration.clock_halt_us * 1e3) as u64));
        }
        for (_, thread) in self.waking.extract_if(.., |(at, _)| *at <= now) {
            self.running[usize::from(thread.0)] = true;
            self.orders.push(Order::SetParked(thread.0.into(), false));
            done.push(Done::Granted(thread));
        }
        if !self.orders.is_empty() {
            self.reckon_speeds();
        }
        self.go_on(now, done);
    }

    /// What became of things goes to the controller, and what that makes possible is begun, until there is no more.
    fn go_on(&mut self, now: Instant, mut done: Vec<Done>) {
        while !done.is_empty() {
            done.iter().for_each(|outcome| self.controller.outcome(outcome));
            let decisions = self.controller.proceed();
            done = self.carry_out(now, decisions);
        }
    }

    /// Begins what was decided; answers what is done at once.
    fn carry_out(&mut self, now: Instant, decisions: Vec<Decision>) -> Vec<Done> {
        let costs = &self.model.reconfiguration;
        let after = |us: f64| now + Duration::from_nanos((us * 1e3) as u64);
        let (clock_at, wake_at) = (after(costs.clock_us), after(costs.wake_us));
        let mut done = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Background(cores) => self.meter.background = cores,
                Decision::SetClock(clock) => self.next_clock = Some((clock_at, clock)),
                Decision::Grant(thread) => self.waking.push((wake_at, thread)),
                Decision::Migrate { request, to, groups, .. } => {
                    for (from, groups) in self.by_home(&groups) {
                        // Threads whose groups all go are about to be parked.
                        let home = |group: &u16| usize::from(self.shared.home_of(*group)) == from;
                        let all = (0..FLOW_GROUPS as u16).filter(home).count();
                        let (asked, adding) = (now, all > groups.len());
                        let part = Part { token: 0, request, from, to, groups, asked, adding };
                        done.extend(self.begin_migration(part));
                    }
                }
                Decision::Park(thread) => {
                    self.running[usize::from(thread.0)] = false;
                    self.reckon_speeds();
                    self.orders.push(Order::SetParked(thread.0.into(), true));
                    done.push(Done::Parked(thread));
                }
            }
        }
        done
    }

    /// Flow groups by the thread that is their home now, whatever the request says.
    fn by_home(&self, groups: &[GroupId]) -> Vec<(usize, Vec<GroupId>)> {
        let of = |from| {
            let at_home = |group: &&GroupId| usize::from(self.shared.home_of(group.0)) == from;
            (from, groups.iter().filter(at_home).copied().collect::<Vec<_>>())
        };
        (0..self.controls.len()).map(of).filter(|(_, groups)| !groups.is_empty()).collect()
    }

    /// Asks a thread to give flow groups up; answers what is known at once. As on real machines any number of
    /// migrations may be under way: each waits for what stood in its thread's ring, and all of them for the same.
    fn begin_migration(&mut self, part: Part) -> Option<Done> {
        let Part { request, from, to, groups, .. } = part;
        if from == usize::from(to.0) {
            return Some(Done::Migrated { request: Some(request), to, groups });
        }
        let set: GroupSet = groups.iter().map(|group| group.0).collect();
        self.tokens += 1;
        let token = self.tokens;
        let command = MoveCommand { token, groups: set, to: to.0 as u8 };
        if self.controls[from].post(command).is_err() {
            return Some(Done::MigrationFailed { request, groups });
        }
        self.orders.push(Order::Rouse(from));
        self.under_way.push(Part { token, groups, ..part });
        None
    }

    /// Migrations that have ended.
    fn reports(&mut self, now: Instant) -> Vec<Done> {
        let mut done = Vec::new();
        for (from, control) in self.controls.iter_mut().enumerate() {
            while let Some(report) = control.report() {
                let of_it = |part: &Part| part.from == from && part.token == report.token;
                let Some(at) = self.under_way.iter().position(of_it) else { continue };
                let Part { request, to, groups, asked, adding, .. } =
                    self.under_way.swap_remove(at);
                if report.outcome.is_err() {
                    done.push(Done::MigrationFailed { request, groups });
                    continue;
                }
                let took_us = now.since(asked).as_nanos() as f64 / 1e3;
                self.record.migrations.push((took_us, adding));
                self.groups_moved += groups.len() as u32;
                done.push(Done::Migrated { request: Some(request), to, groups });
            }
        }
        done
    }
}
