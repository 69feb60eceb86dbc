//! The loop against random worlds: what it never does, whatever happens to it.

use proptest::prelude::*;

use super::*;
use crate::policy::{LatencyTarget, Sequence, Target};

/// A dataplane that does what it is told, sometimes late, sometimes not at all.
struct World {
    running: Vec<bool>,
    homes: Vec<usize>,
    /// Outcomes, and the turn in which each is told.
    to_tell: Vec<(u64, Outcome)>,
    random: u64,
    /// Of 100 decisions, so many fail, and so many are never heard of again.
    failing: u64,
    lost: u64,
    turn: u64,
    /// Migrations to threads that are not granted.
    refused: u64,
}

impl World {
    fn new(found: &Found, threads: usize, seed: u64, failing: u64, lost: u64) -> Self {
        let mut running = vec![false; threads];
        found.running.iter().for_each(|thread| running[usize::from(thread.0)] = true);
        let homes = found.homes.iter().map(|home| usize::from(home.0)).collect();
        let to_tell = Vec::new();
        Self { running, homes, to_tell, random: seed | 1, failing, lost, turn: 0, refused: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn execute(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let chance = self.draw(100);
            let (fails, is_lost) = (chance < self.failing, chance >= 100 - self.lost);
            let outcome = match decision {
                Decision::Grant(thread) if fails => Outcome::GrantFailed(*thread),
                Decision::Grant(thread) => {
                    self.running[usize::from(thread.0)] = true;
                    Outcome::Granted(*thread)
                }
                Decision::Park(thread) => {
                    let index = usize::from(thread.0);
                    assert!(!self.homes.contains(&index), "parked with flow groups");
                    self.running[index] = false;
                    assert!(self.running.contains(&true), "nobody runs any more");
                    Outcome::Parked(*thread)
                }
                Decision::Migrate { request, to, groups, .. }
                    if fails || !self.running[usize::from(to.0)] =>
                {
                    self.refused += u64::from(!self.running[usize::from(to.0)]);
                    Outcome::MigrationFailed { request: *request, groups: groups.clone() }
                }
                Decision::Migrate { request, to, groups, .. } => {
                    for group in groups {
                        self.homes[usize::from(group.0)] = usize::from(to.0);
                    }
                    Outcome::Migrated { request: Some(*request), to: *to, groups: groups.clone() }
                }
                Decision::SetClock(clock) if fails => Outcome::ClockFailed(*clock),
                Decision::Background(cores) if fails => Outcome::BackgroundFailed(*cores),
                Decision::SetClock(_) | Decision::Background(_) => continue,
            };
            // Parking is never lost here: a thread that sleeps and is thought to run is found by its silence.
            if !is_lost || matches!(outcome, Outcome::Parked(_)) {
                // Outcomes come through a ring: late, but in order.
                let last = self.to_tell.last().map_or(0, |told| told.0);
                let at = last.max(self.turn + self.draw(4));
                self.to_tell.push((at, outcome));
            }
        }
    }

    fn tell(&mut self, control: &mut ControlLoop) {
        let turn = self.turn;
        let (now, later) = std::mem::take(&mut self.to_tell).into_iter().partition(|t| t.0 <= turn);
        self.to_tell = later;
        let now: Vec<(u64, Outcome)> = now;
        now.iter().for_each(|(_, outcome)| control.outcome(outcome));
        self.turn += 1;
    }

    fn samples(&self, period_ns: u64, load: f64) -> Vec<Sample> {
        let count = self.running.iter().filter(|runs| **runs).count() as f64;
        let busy = load / count;
        let running = self.running.iter().enumerate().filter(|(_, runs)| **runs);
        let of = |(index, _): (usize, &bool)| Sample {
            thread: ThreadId(index as u16),
            period_ns,
            packets: (busy.min(1.0) * 300.0) as u64,
            queue_packets: if busy > 1.0 { 500.0 * busy } else { 0.0 },
            ready: 0.0,
            ready_ns: 0.0,
            iteration_ns: 200_000.0,
            batch_packets: 32.0,
            idle: (1.0 - busy).max(0.0),
            oldest_waiting_ns: 0,
            batch_max: 64,
        };
        running.map(of).collect()
    }
}

fn control(which: u8, found: Found) -> ControlLoop {
    let machine = Machine::ix();
    let scaling = Scaling::ix();
    let (policy, config): (Box<dyn Policy>, LoopConfig) = match which {
        0 => (Box::new(Sequence::energy(&machine, scaling)), LoopConfig::ixcp()),
        1 => (Box::new(Sequence::consolidation(&machine, scaling)), LoopConfig::ixcp()),
        _ => {
            let target = Target::of_objective(500_000.0, 33_000.0);
            let policy = LatencyTarget::new(Sequence::energy(&machine, scaling), 2, target);
            (Box::new(policy), LoopConfig::predicting())
        }
    };
    let places = Place::all(&machine);
    ControlLoop::new(policy, machine, scaling, places, found, config).expect("a machine")
}

fn fresh() -> Found {
    Found::first_thread(128, Machine::ix().lowest_clock())
}

/// Changes follow each other no faster than the pace allows.
fn keeps_pace(events: &[(u64, Event)], pace: &Pace) -> Result<(), TestCaseError> {
    let (mut add, mut remove): (Option<u64>, Option<u64>) = (None, None);
    let over =
        |last: Option<u64>, now: u64, least: u64| last.is_none_or(|last| now - last >= least);
    for (now, event) in events {
        let Event::Step { from, to, because } = event else { continue };
        if *because == Because::Adopted {
            continue;
        }
        if to > from {
            prop_assert!(over(add, *now, pace.add_after_add_ns), "added at {add:?} and {now}");
            prop_assert!(over(remove, *now, pace.add_after_remove_ns), "removed {remove:?}, {now}");
            add = Some(*now);
        } else {
            prop_assert!(over(add, *now, pace.remove_after_add_ns), "added {add:?}, removed {now}");
            prop_assert!(
                over(remove, *now, pace.remove_after_remove_ns),
                "removed {remove:?}, {now}"
            );
            remove = Some(*now);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Loads, gaps and clock jumps at random, decisions that fail or vanish: threads are never fewer than one,
    /// flow groups only go to threads that run, changes keep the pace; and when the world behaves again, it
    /// comes to rest with every group on a thread of the configuration.
    #[test]
    fn any_world_is_survived(
        which in 0u8..3, seed in any::<u64>(), failing in 0u64..30, lost in 0u64..10,
        turns in prop::collection::vec((0.0f64..20.0, 0u8..100), 50..300),
    ) {
        let found = fresh();
        let mut world = World::new(&found, 16, seed, failing, lost);
        let mut control = control(which, found);
        let (mut now_ns, mut events) = (1_000_000_000_000u64, Vec::new());
        let period_ns = if which == 2 { 10_000_000 } else { 100_000_000 };
        for &(load, jump) in &turns {
            now_ns = match jump {
                0 => now_ns - 900_000_000_000u64.min(now_ns / 2),
                1 => now_ns + 3_600_000_000_000,
                _ => now_ns + period_ns,
            };
            // Now and then a reading fails, as a whole.
            let samples = if jump == 2 { Vec::new() } else { world.samples(period_ns, load) };
            let decisions = control.step(now_ns, &samples, &[]);
            world.execute(&decisions);
            world.tell(&mut control);
            if jump == 3 {
                world.execute(&control.proceed());
            }
            prop_assert!(!control.running().is_empty() || failing + lost > 0);
            prop_assert!(control.running().len() <= 16);
            events.extend(control.take_events());
        }
        // Only who has lost an outcome, or its sense of time, may think that a thread runs which does not.
        let confused = lost > 0 || turns.iter().any(|&(_, jump)| jump < 2);
        prop_assert!(confused || world.refused == 0);
        keeps_pace(&events, &control.config.pace)?;
        // Good weather.
        (world.failing, world.lost) = (0, 0);
        for _ in 0..1_500 {
            now_ns += period_ns;
            let decisions = control.step(now_ns, &world.samples(period_ns, 6.0), &[]);
            world.execute(&decisions);
            world.tell(&mut control);
        }
        let machine = Machine::ix();
        // The load may let it swing between two steps; within a swing it comes to rest.
        let mut rested = false;
        for _ in 0..600 {
            now_ns += period_ns;
            let decisions = control.step(now_ns, &world.samples(period_ns, 6.0), &[]);
            let wanted = control.current().configuration.threads(&machine) as usize;
            let in_place = control.running().len() == wanted
                && world.homes.iter().all(|&home| control.running().contains(&ThreadId(home as u16)));
            rested |= in_place && control.is_settled;
            world.execute(&decisions);
            world.tell(&mut control);
        }
        prop_assert!(rested, "{} runs {:?}", control.current().configuration, control.running());
    }

    /// The same samples give the same decisions.
    #[test]
    fn a_seed_replays(which in 0u8..3, seed in any::<u64>()) {
        let run = || {
            let found = fresh();
            let mut world = World::new(&found, 16, seed, 10, 5);
            let mut control = control(which, found);
            let mut all = Vec::new();
            for turn in 0..200u64 {
                let load = (seed.rotate_left(turn as u32) % 18) as f64;
                let decisions = control.step(turn * 50_000_000, &world.samples(50_000_000, load), &[]);
                world.execute(&decisions);
                world.tell(&mut control);
                all.push(decisions);
            }
            all
        };
        prop_assert_eq!(run(), run());
    }
}

fn obey(control: &mut ControlLoop, decisions: &[Decision]) {
    for decision in decisions {
        match decision {
            Decision::Grant(thread) => control.outcome(&Outcome::Granted(*thread)),
            Decision::Park(thread) => control.outcome(&Outcome::Parked(*thread)),
            Decision::Migrate { request, to, groups, .. } => {
                let (request, groups) = (Some(*request), groups.clone());
                control.outcome(&Outcome::Migrated { request, to: *to, groups });
            }
            Decision::SetClock(_) | Decision::Background(_) => {}
        }
    }
}

/// A sample of each running thread.
fn each(control: &ControlLoop, period_ns: u64, queue_packets: f64, idle: f64) -> Vec<Sample> {
    let of = |thread| Sample {
        thread,
        period_ns,
        packets: 1_000,
        queue_packets,
        ready: 0.0,
        ready_ns: 0.0,
        iteration_ns: 200_000.0,
        batch_packets: 64.0,
        idle,
        oldest_waiting_ns: 0,
        batch_max: 64,
    };
    control.running().into_iter().map(of).collect()
}

const PERIOD_NS: u64 = 100_000_000;

fn turns(control: &mut ControlLoop, now_ns: &mut u64, count: u32, queue: f64, idle: f64) {
    for _ in 0..count {
        *now_ns += PERIOD_NS;
        let decisions = control.step(*now_ns, &each(control, PERIOD_NS, queue, idle), &[]);
        obey(control, &decisions);
        obey_all(control);
    }
}

fn obey_all(control: &mut ControlLoop) {
    for _ in 0..4 {
        let decisions = control.proceed();
        obey(control, &decisions);
    }
}

#[test]
fn it_climbs_the_whole_sequence_and_comes_back() {
    let mut control = control(0, fresh());
    let mut now_ns = 0;
    turns(&mut control, &mut now_ns, 100, 1_000.0, 0.0);
    assert_eq!((control.at(), control.running().len()), (21, 16));
    assert!(control.homes().iter().all(|home| home.0 < 16));
    turns(&mut control, &mut now_ns, 2_000, 0.0, 0.99);
    assert_eq!((control.at(), control.running()), (0, vec![ThreadId(0)]));
    assert!(control.homes().iter().all(|home| *home == ThreadId(0)));
    assert!(!control.take_events().is_empty());
}

#[test]
fn the_order_of_resources_keeps_the_service_served() {
    let mut found = fresh();
    found.background_cores = 7;
    found.clock = Machine::ix().nominal_clock();
    let mut control = control(1, found);
    let mut decisions = control.step(0, &[], &[]);
    // The base state has both hyperthreads of the first core.
    assert_eq!(decisions, [Decision::Grant(ThreadId(8))]);
    obey(&mut control, &decisions);
    obey_all(&mut control);
    let busy = each(&control, PERIOD_NS, 1_000.0, 0.0);
    decisions = control.step(PERIOD_NS, &busy, &[]);
    assert_eq!(
        decisions,
        [Decision::Background(6), Decision::Grant(ThreadId(1)), Decision::Grant(ThreadId(9))]
    );
    obey(&mut control, &decisions);
    obey_all(&mut control);
    let mut now_ns = PERIOD_NS;
    let mut seen = Vec::new();
    while control.at() == 1 || !seen.contains(&Decision::Background(7)) {
        now_ns += PERIOD_NS;
        let idle = each(&control, PERIOD_NS, 0.0, 0.9);
        let mut decisions = control.step(now_ns, &idle, &[]);
        while !decisions.is_empty() {
            obey(&mut control, &decisions);
            seen.extend(decisions);
            decisions = control.proceed();
        }
        assert!(now_ns < 60_000_000_000, "it gives the core back");
    }
    let place = |wanted: &dyn Fn(&Decision) -> bool| seen.iter().position(wanted).expect("decided");
    let park = place(&|decision| matches!(decision, Decision::Park(_)));
    let migrate = place(&|decision| matches!(decision, Decision::Migrate { .. }));
    let back = place(&|decision| *decision == Decision::Background(7));
    assert!(migrate < park && park < back, "{seen:?}");
}

#[test]
fn a_grant_that_fails_is_replaced_by_another_core() {
    let mut control = control(0, fresh());
    let busy = |control: &ControlLoop| each(control, PERIOD_NS, 1_000.0, 0.0);
    let decisions = control.step(0, &busy(&control), &[]);
    assert_eq!(decisions, [Decision::Grant(ThreadId(1))]);
    control.outcome(&Outcome::GrantFailed(ThreadId(1)));
    let decisions = control.step(PERIOD_NS, &busy(&control), &[]);
    assert_eq!(decisions, [Decision::Grant(ThreadId(2))]);
    obey(&mut control, &decisions);
    obey_all(&mut control);
    assert_eq!(control.running(), [ThreadId(0), ThreadId(2)]);
    assert!(control.homes().contains(&ThreadId(2)));
    // Without an outcome for too long it has failed as well.
    let mut now_ns = PERIOD_NS;
    let mut asked = Vec::new();
    for _ in 0..30 {
        now_ns += PERIOD_NS;
        asked.extend(control.step(now_ns, &busy(&control), &[]));
    }
    let grants: Vec<&Decision> = asked.iter().filter(|d| matches!(d, Decision::Grant(_))).collect();
    assert!(grants.len() >= 2, "{asked:?}");
    let failed = |event: &(u64, Event)| matches!(event.1, Event::GrantFailed(_));
    assert!(control.take_events().iter().filter(|event| failed(event)).count() >= 2);
}

#[test]
fn a_thread_that_vanishes_gives_its_groups_up() {
    let mut control = control(0, fresh());
    let mut now_ns = 0;
    turns(&mut control, &mut now_ns, 12, 1_000.0, 0.0);
    assert!(control.running().contains(&ThreadId(1)));
    control.outcome(&Outcome::Vanished(ThreadId(1)));
    obey_all(&mut control);
    assert!(!control.homes().contains(&ThreadId(1)));
    // One that says nothing while the others do has vanished as well.
    for _ in 0..15 {
        now_ns += PERIOD_NS;
        let mut samples = each(&control, PERIOD_NS, 10.0, 0.1);
        samples.retain(|sample| sample.thread != ThreadId(2));
        let decisions = control.step(now_ns, &samples, &[]);
        obey(&mut control, &decisions);
        obey_all(&mut control);
    }
    assert!(!control.running().contains(&ThreadId(2)));
    assert!(!control.homes().contains(&ThreadId(2)));
    let vanished = |event: &(u64, Event)| event.1 == Event::Vanished(ThreadId(2));
    assert!(control.take_events().iter().any(vanished));
}

#[test]
fn a_state_found_is_adopted_and_put_right() {
    let found = Found {
        running: vec![ThreadId(0), ThreadId(1), ThreadId(2), ThreadId(11)],
        homes: (0..128).map(|group| ThreadId(group % 3)).collect(),
        clock: Clock::Khz(1_200_000),
        background_cores: 0,
    };
    let mut control = control(0, found);
    // Three cores and a hyperthread of a fourth: four cores serve more.
    assert_eq!(control.current().configuration.cores, 4);
    let decisions = control.step(0, &[], &[]);
    assert_eq!(decisions, [Decision::Grant(ThreadId(3)), Decision::Park(ThreadId(11))]);
    obey(&mut control, &decisions);
    obey_all(&mut control);
    assert_eq!(control.running().len(), 4);
    assert_eq!(control.homes().iter().filter(|home| **home == ThreadId(3)).count(), 32);
    let wrong = Found { running: vec![ThreadId(99)], ..fresh() };
    let machine = Machine::ix();
    let policy = Box::new(Sequence::energy(&machine, Scaling::ix()));
    let places = Place::all(&machine);
    let made = ControlLoop::new(policy, machine, Scaling::ix(), places, wrong, LoopConfig::ixcp());
    assert!(made.is_err_and(|error| error.to_string().contains("running thread is 99")));
}

#[test]
fn gaps_and_clock_jumps_are_said_and_change_nothing() {
    let mut control = control(0, fresh());
    let calm = |control: &ControlLoop| each(control, PERIOD_NS, 0.0, 0.3);
    control.step(10_000_000_000, &calm(&control), &[]);
    assert!(control.step(5_000_000_000, &calm(&control), &[]).is_empty());
    assert!(control.step(500_000_000_000, &calm(&control), &[]).is_empty());
    assert!(control.step(500_100_000_000, &[], &[]).is_empty());
    let events: Vec<Event> = control.take_events().into_iter().map(|event| event.1).collect();
    let expected = [Event::TimeWentBack(5_000_000_000), Event::Gap(495_000_000_000)];
    assert_eq!(events, expected);
}

#[test]
fn an_application_that_does_not_return_is_said_once() {
    let mut control = control(0, fresh());
    let stuck = Sample {
        packets: 0,
        idle: 0.0,
        queue_packets: 0.0,
        iteration_ns: 0.0,
        ..each(&control, 4_000_000, 0.0, 0.0)[0]
    };
    for turn in 0..10 {
        control.step(turn * 4_000_000, &[stuck], &[]);
    }
    let said = control.take_events();
    let unresponsive = said.iter().filter(|event| event.1 == Event::Unresponsive(ThreadId(0)));
    assert_eq!(unresponsive.count(), 1, "{said:?}");
    // One that works off what it took before has cycles, though no packet comes.
    let mut control = self::control(0, fresh());
    let works = Sample { iteration_ns: 500_000.0, ..stuck };
    for turn in 0..10 {
        control.step(turn * 4_000_000, &[works], &[]);
    }
    let said = control.take_events();
    assert!(said.iter().all(|event| event.1 != Event::Unresponsive(ThreadId(0))), "{said:?}");
}

#[test]
fn uneven_groups_are_evened_out_while_the_threads_stay() {
    let found = Found {
        running: vec![ThreadId(0), ThreadId(1)],
        homes: (0..8).map(|group| ThreadId(group % 2)).collect(),
        clock: Clock::Khz(1_200_000),
        background_cores: 0,
    };
    let mut control = control(0, found);
    let loads = |turn: u64| -> Vec<GroupSample> {
        (0..8)
            .map(|group| GroupSample {
                group: GroupId(group),
                period_ns: PERIOD_NS,
                packets: if group < 4 && group % 2 == 0 { 900 } else { 100 + turn % 2 },
            })
            .collect()
    };
    let mut moved = false;
    for turn in 1..400 {
        let samples = each(&control, PERIOD_NS, 0.0, 0.4);
        let decisions = control.step(turn * PERIOD_NS, &samples, &loads(turn));
        moved |= decisions.iter().any(|decision| matches!(decision, Decision::Migrate { .. }));
        obey(&mut control, &decisions);
    }
    assert!(moved);
    let heavy: Vec<ThreadId> = [0, 2].iter().map(|&group| control.homes()[group]).collect();
    assert_ne!(heavy[0], heavy[1]);
    assert!(control.take_events().iter().any(|event| matches!(event.1, Event::Rebalanced(_))));
}

#[test]
fn a_clock_that_is_refused_is_tried_again_later() {
    let mut found = fresh();
    found.running = (0..16).map(ThreadId).collect();
    found.homes = (0..128).map(|group| ThreadId(group % 16)).collect();
    let mut control = control(0, found);
    let busy = |control: &ControlLoop| each(control, PERIOD_NS, 1_000.0, 0.0);
    let clock = Clock::Khz(1_300_000);
    assert_eq!(control.step(0, &busy(&control), &[]), [Decision::SetClock(clock)]);
    control.outcome(&Outcome::ClockFailed(clock));
    let mut asked_at = None;
    for turn in 1..100 {
        let decisions = control.step(turn * PERIOD_NS, &busy(&control), &[]);
        if decisions.iter().any(|decision| matches!(decision, Decision::SetClock(_))) {
            asked_at = Some(turn);
            break;
        }
    }
    assert_eq!(asked_at, Some(50), "after the time for another try");
}
