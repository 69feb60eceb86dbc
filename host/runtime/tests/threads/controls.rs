//! Elastic threads that are granted, parked and placed while a client checks the sequence of all that it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use endpoint::{Ask, Refused, RefusedKind, Request};
use mem::Region;
use nic::shm::{ShmConfig, ShmNic};
use runtime::{ConservingConfig, FLOW_GROUPS, IdlePolicy, ReadySetConfig};
use runtime::{Controls, RuntimeConfig, RuntimeError, Scheduler, run, run_controlled};
use statseg::{Layout, Segment, State, ThreadCounters};
use tailplane::{MacAddr, Server, SharedSlots};

use crate::common::{CLIENT, CONNECTIONS, Counting, Echo, Ends, SERVER, config, wire};

const CORES: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);

/// A service under load, and its client's counts.
struct Run<'a> {
    controls: &'a Controls,
    segment: &'a Segment,
    heard: &'a AtomicUsize,
    wrong: &'a AtomicUsize,
    /// The client stops when it is set.
    done: &'a AtomicBool,
}

impl Run<'_> {
    fn thread(&self, core: u16) -> ThreadCounters {
        self.segment.reading().thread(core).expect("there is one")
    }

    /// Waits until the client has heard so many words more.
    fn hear(&self, words: usize) {
        let before = self.heard.load(Ordering::Relaxed);
        wait_until("it goes on", || self.heard.load(Ordering::Relaxed) >= before + words);
    }

    fn carried_out(&self, request: Request) -> Result<(), Refused> {
        begin(self.controls, request.clone()).expect("nothing stands against it");
        let mut reports = Vec::new();
        wait_until("an order is seen", || {
            reports = self.controls.reports();
            !reports.is_empty()
        });
        assert_eq!((reports.len(), reports[0].id), (1, ID), "{reports:?}");
        let done = reports.remove(0).result?;
        assert!(request.is_done_by(&done), "{done:?}");
        Ok(())
    }

    fn move_all(&self, from: u16, groups: Vec<u16>, to: u16) {
        self.carried_out(Request::Move { from, to, groups }).expect("it is complete");
    }

    fn groups_of(&self, core: u16) -> Vec<u16> {
        self.controls.groups_of(core.into()).iter().collect()
    }
}

const ID: u64 = 9;

fn begin(controls: &Controls, request: Request) -> Result<(), Refused> {
    controls.begin(Ask { id: ID, request })
}

/// Why the request is not begun.
fn refusal(controls: &Controls, request: Request) -> Refused {
    begin(controls, request).expect_err("something stands against it")
}

fn park(thread: u16) -> Request {
    Request::Park { thread }
}

fn grant(thread: u16) -> Request {
    Request::Grant { thread }
}

fn place(thread: u16, cpu: usize) -> Request {
    Request::Place { thread, cpu }
}

fn move_one(group: u16, from: u16, to: u16) -> Request {
    Request::Move { from, to, groups: vec![group] }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Wall::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn segment() -> Arc<Segment> {
    let layout = Layout { threads: CORES as u16, groups: FLOW_GROUPS as u16, batch_max: 64 };
    Segment::create("controls-test", &layout).expect("memory")
}

fn schedulers() -> [Scheduler; 3] {
    [
        Scheduler::RunToCompletion,
        Scheduler::WorkConserving(ConservingConfig::default()),
        Scheduler::ReadySet(ReadySetConfig::default()),
    ]
}

/// Runs a service with `controls` under load of a client on both queues, and `body` beside it.
fn under_load(
    controls: &Controls,
    change: impl FnOnce(&mut RuntimeConfig),
    scheduler: Scheduler,
    body: impl FnOnce(&Run<'_>),
) {
    let (near, far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
    let regions = [Region::heap(8_192), Region::heap(8_192)];
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let [heard, wrong] = [const { AtomicUsize::new(0) }; 2];
    let (segment, slots) = (segment(), Arc::new(SharedSlots::new(CORES, 1_024)));
    let mut server_config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
    server_config.segment = Some(Arc::clone(&segment));
    change(&mut server_config);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
            run_controlled(&server_config, &regions[0], near, make, || {}, Some(controls), &stop)
        });
        let client = scope.spawn(|| {
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            let (heard, wrong) = (&heard, &wrong);
            let make = |_| Counting { asked: 0, lines: Vec::new(), heard, wrong };
            run(&config, &regions[1], far, make, &done)
        });
        // Whatever fails, the threads end.
        let ends = Ends([&done, &stop]);
        let run = Run { controls, segment: &segment, heard: &heard, wrong: &wrong, done: &done };
        run.hear(CORES * CONNECTIONS);
        // One thread may serve all of them before the other has had a processor.
        wait_until("all threads show themselves", || {
            (0..CORES as u16).all(|core| run.thread(core).state != State::Starting)
        });
        body(&run);
        assert_eq!(wrong.load(Ordering::Relaxed), 0);
        done.store(true, Ordering::Relaxed);
        client.join().expect("no panic").expect("it runs");
        drop(ends);
        server.join().expect("no panic").expect("it runs");
    });
    for core in 0..CORES as u16 {
        assert_eq!(segment.reading().thread(core).map(|one| one.state), Some(State::Leaving));
    }
    for region in &regions {
        assert_eq!(region.depot_len(), region.chunks() as usize, "all memory is back");
    }
}

/// Both queues go on getting packets; the thread of one is parked, and then granted again.
fn parks_and_serves(scheduler: Scheduler) {
    let controls = Controls::new(CORES);
    under_load(
        &controls,
        |_| {},
        scheduler,
        |run| {
            assert_eq!(run.thread(1).state, State::Running);
            let groups = run.groups_of(1);
            let refused = refusal(&controls, park(1));
            assert_eq!(refused.kind, RefusedKind::HasGroups);
            assert!(refused.reason.contains("thread 1 is home to 64"), "{refused}");
            run.move_all(1, groups.clone(), 0);
            let homes = run.segment.reading().homes();
            assert!(homes.iter().all(|home| *home == Some(0)), "{homes:?}");
            run.carried_out(park(1)).expect("parked");
            assert!(controls.is_parked(1) && !controls.is_parked(0));
            assert_eq!(run.thread(1).state, State::Parked);
            let refused = refusal(&controls, move_one(3, 0, 1));
            assert_eq!(refused.kind, RefusedKind::NotMovable);
            assert!(refused.reason.contains("thread 1 is parked"), "{refused}");
            run.hear(100);
            let before = run.thread(1);
            run.hear(3_000);
            wait_until("what it counts is told", || {
                run.thread(1).totals.forwarded > before.totals.forwarded + 100
            });
            let after = run.thread(1);
            assert!(after.packets > before.packets, "its queue is served");
            assert_eq!(after.totals.steals, before.totals.steals, "it takes nothing of others");
            assert_eq!(after.totals.connections, 0);
            run.carried_out(grant(1)).expect("granted");
            assert_eq!((run.thread(1).state, controls.is_parked(1)), (State::Running, false));
            run.move_all(0, groups, 1);
            let homes = run.segment.reading().homes();
            assert_eq!(homes.iter().filter(|home| **home == Some(1)).count(), 64);
            run.hear(1_000);
        },
    );
}

#[test]
fn a_parked_thread_forwards_what_comes_to_its_queue_run_to_completion() {
    parks_and_serves(Scheduler::RunToCompletion);
}

#[test]
fn a_parked_thread_forwards_what_comes_to_its_queue_work_conserving() {
    parks_and_serves(Scheduler::WorkConserving(ConservingConfig::default()));
}

#[test]
fn a_parked_thread_forwards_what_comes_to_its_queue_ready_set() {
    parks_and_serves(Scheduler::ReadySet(ReadySetConfig::default()));
}

/// Moves away, parks, grants, moves back, again and again.
fn many_rounds(scheduler: Scheduler, rounds: usize) {
    let controls = Controls::new(CORES);
    under_load(
        &controls,
        |_| {},
        scheduler,
        |run| {
            let began = Wall::now();
            for round in 0..rounds {
                let core = (round % CORES) as u16;
                let other = (core + 1) % CORES as u16;
                let groups = run.groups_of(core);
                if !groups.is_empty() {
                    run.move_all(core, groups, other);
                }
                run.carried_out(park(core)).expect("parked");
                if round % 7 == 0 {
                    run.hear(20);
                }
                run.carried_out(grant(core)).expect("granted");
                let back =
                    run.groups_of(other).into_iter().filter(|group| group % 2 == 0).collect();
                run.move_all(other, back, core);
                assert_eq!(run.wrong.load(Ordering::Relaxed), 0, "round {round}");
            }
            println!("{rounds} rounds in {:?}", began.elapsed());
            run.hear(1_000);
            let moved: u64 =
                (0..CORES as u16).map(|core| run.thread(core).migrations.completed).sum();
            assert!(moved >= rounds as u64, "{moved}");
        },
    );
}

#[test]
fn five_hundred_rounds_run_to_completion() {
    many_rounds(Scheduler::RunToCompletion, 500);
}

#[test]
fn five_hundred_rounds_work_conserving() {
    many_rounds(Scheduler::WorkConserving(ConservingConfig::default()), 500);
}

#[test]
fn five_hundred_rounds_ready_set() {
    many_rounds(Scheduler::ReadySet(ReadySetConfig::default()), 500);
}

#[test]
fn a_thread_that_spins_for_ever_sleeps_when_it_is_parked() {
    for scheduler in schedulers() {
        let controls = Controls::with_granted(CORES, 1);
        // Thread 0 spins for ever: tests run beside this one, for a short time.
        let change = |config: &mut RuntimeConfig| {
            config.idle = IdlePolicy { spin: None, ..IdlePolicy::default() };
        };
        under_load(&controls, change, scheduler, |run| {
            let homes = run.segment.reading().homes();
            assert!(homes.iter().all(|home| *home == Some(0)), "the other one began parked");
            assert!(controls.is_parked(1) && controls.groups_of(1).is_empty());
            assert_eq!(run.thread(1).state, State::Parked);
            run.hear(100);
            // The client falls silent, so nothing comes to the parked thread's queue.
            run.done.store(true, Ordering::Relaxed);
            wait_until("it sleeps", || {
                let before = run.thread(1);
                std::thread::sleep(Duration::from_millis(300));
                let after = run.thread(1);
                let looks = after.idle_cycles - before.idle_cycles;
                looks < 50 && (after.is_asleep() || after.sleeps > before.sleeps)
            });
            run.carried_out(grant(1)).expect("granted");
            let before = run.thread(1);
            wait_until("it spins again", || run.thread(1).idle_cycles > before.idle_cycles + 1_000);
        });
    }
}

#[test]
fn a_thread_is_placed_on_another_processor_and_stays_where_it_cannot() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the kernel says it");
    let cpus: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let absent = (0..rustix::thread::CpuSet::MAX_CPU).rev().find(|cpu| !allowed.is_set(*cpu));
    let controls = Controls::new(CORES);
    let change = |config: &mut RuntimeConfig| config.cpus = vec![cpus[0]; CORES];
    under_load(&controls, change, Scheduler::RunToCompletion, |run| {
        assert_eq!(run.thread(1).processor, Some(cpus[0]));
        let last = *cpus.last().expect("there is one");
        run.carried_out(place(1, last)).expect("placed");
        assert_eq!(run.thread(1).processor, Some(last));
        let absent = absent.expect("no machine has all of them");
        let refused = run.carried_out(place(1, absent)).expect_err("it is not there");
        let named = format!("thread 1 cannot run on processor {absent}");
        assert_eq!(refused.kind, RefusedKind::System);
        assert!(refused.reason.contains(&named) && refused.reason.contains("cpuset"), "{refused}");
        assert_eq!(refusal(&controls, place(0, usize::MAX)).kind, RefusedKind::System);
        assert_eq!(run.thread(1).processor, Some(last));
        // Parked, it can be placed, too; and stays parked.
        run.move_all(1, run.groups_of(1), 0);
        run.carried_out(park(1)).expect("parked");
        run.carried_out(place(1, cpus[0])).expect("placed");
        assert_eq!((run.thread(1).processor, run.thread(1).state), (Some(cpus[0]), State::Parked));
        run.hear(500);
    });
}

#[test]
fn a_thread_with_a_move_under_way_is_not_parked() {
    let controls = Controls::new(CORES);
    under_load(
        &controls,
        |_| {},
        Scheduler::RunToCompletion,
        |run| {
            let groups = run.groups_of(0);
            begin(&controls, Request::Move { from: 0, to: 1, groups }).expect("asked");
            // Until its report is taken, whether it is complete or not.
            for thread in [0, 1] {
                let refused = refusal(&controls, park(thread));
                assert_eq!(refused.kind, RefusedKind::UnderWay);
                let named = format!("on their way to elastic thread {thread}");
                assert!(refused.reason.contains(&named), "{refused}");
            }
            wait_until("the move ends", || !controls.reports().is_empty());
            assert!(!controls.is_waiting());
            let none = Request::Move { from: 0, to: 1, groups: Vec::new() };
            let refused = run.carried_out(none).expect_err("there is nothing to move");
            assert!(refused.reason.contains("no flow group"), "{refused}");
            run.carried_out(park(0)).expect("parked");
            let refused = refusal(&controls, park(2));
            assert_eq!(refused.kind, RefusedKind::NoSuchThread);
            assert!(refused.to_string().contains("from 0 on"), "{refused}");
        },
    );
}

/// A move without a packet ends in a cycle that did nothing else.
#[test]
fn moves_of_an_idle_service_are_told() {
    let controls = Controls::new(CORES);
    under_load(
        &controls,
        |_| {},
        Scheduler::RunToCompletion,
        |run| {
            run.done.store(true, Ordering::Relaxed);
            wait_until("the client is silent", || {
                let packets = || (run.thread(0).packets, run.thread(1).packets);
                let before = packets();
                std::thread::sleep(Duration::from_millis(100));
                before == packets()
            });
            for moved in 1..=5 {
                run.move_all(1, run.groups_of(1), 0);
                run.move_all(0, (0..64).collect(), 1);
                wait_until("both are told", || {
                    (0..CORES as u16).all(|core| run.thread(core).migrations.completed == moved)
                });
            }
        },
    );
}

/// Whether the threads have counted nothing in between.
fn has_settled(before: &[ThreadCounters], now: &[ThreadCounters]) -> bool {
    let counts = |threads: &[ThreadCounters]| -> Vec<(u64, u64)> {
        threads.iter().map(|thread| (thread.packets, thread.busy_cycles)).collect()
    };
    counts(before) == counts(now)
}

/// What does not agree in what the threads and the flow groups tell, if anything.
fn disagreement(threads: &[ThreadCounters], groups: &[u64]) -> Option<String> {
    let packets: u64 = threads.iter().map(|thread| thread.packets).sum();
    let of_groups: u64 = groups.iter().sum();
    // A packet that came to the wrong queue was taken twice; a few of no flow group (ARP) came besides.
    let forwarded: u64 = threads.iter().map(|thread| thread.totals.forwarded).sum();
    if packets.checked_sub(forwarded + of_groups).is_none_or(|others| others > 16) {
        return Some(format!("{packets} packets, {forwarded} forwarded, {of_groups} of groups"));
    }
    threads.iter().find_map(|thread| {
        let (batches, delays) =
            (thread.batches.iter().sum::<u64>(), thread.delays.iter().sum::<u64>());
        // Totals are told now and then, after all else.
        let totals = &thread.totals;
        let agrees = batches == thread.busy_cycles
            && delays == batches - thread.batches[0]
            && thread.in_application_since_ns == 0
            && totals.events > 0
            && totals.calls > 0
            && totals.crossings > 0;
        (!agrees).then(|| format!("{thread:?}"))
    })
}

#[test]
fn what_the_segment_shows_adds_up() {
    let controls = Controls::new(CORES);
    under_load(
        &controls,
        |_| {},
        Scheduler::RunToCompletion,
        |run| {
            run.hear(5_000);
            // One of the client's threads may have had no processor until now.
            wait_until("all threads serve", || {
                (0..CORES as u16).all(|core| run.thread(core).totals.events > 0)
            });
            run.done.store(true, Ordering::Relaxed);
            // A thread tells what it has counted a moment later, part after part, and may have no processor for a
            // while in between: wait until nothing changes any more and the parts agree.
            let mut threads = Vec::new();
            let began = Wall::now();
            let groups = loop {
                let (before, reading) = (std::mem::take(&mut threads), run.segment.reading());
                threads = reading.threads();
                let groups = reading.groups();
                let differs = disagreement(&threads, &groups);
                if has_settled(&before, &threads) && differs.is_none() {
                    break groups;
                }
                assert!(
                    began.elapsed() < PATIENCE,
                    "it does not add up, or does not end: {differs:?}"
                );
                std::thread::sleep(Duration::from_millis(100));
            };
            assert!(groups.iter().sum::<u64>() > 500, "{groups:?}");
            for thread in &threads {
                assert!(thread.busy_ns > 0 && thread.last_cycle_ns > 0, "{thread:?}");
            }
        },
    );
}

#[test]
fn controls_and_segments_for_another_number_of_threads_are_refused() {
    let refusal = |controls: &Controls, layout: Layout| -> RuntimeError {
        let wire = ShmConfig::default();
        let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
        let mut config = config(SERVER.addr, MacAddr([2; 6]), Scheduler::RunToCompletion);
        config.segment = Some(Segment::create("controls-test", &layout).expect("memory"));
        let (region, stop) = (Region::heap(4_096), AtomicBool::new(true));
        let make = |_| Server::new(Echo::default());
        let ran = run_controlled(&config, &region, vec![near], make, || {}, Some(controls), &stop);
        ran.map(|_| ()).expect_err("it is refused")
    };
    let good = Layout { threads: 1, groups: FLOW_GROUPS as u16, batch_max: 64 };
    let refused = refusal(&Controls::new(2), good);
    assert!(refused.to_string().contains("another number of elastic threads than 1"), "{refused}");
    let refused = refusal(&Controls::new(1), Layout { groups: 64, ..good });
    assert!(refused.to_string().contains("64 flow groups"), "{refused}");
    let controls = Controls::new(2);
    for request in [grant(0), park(1), move_one(1, 0, 1)] {
        assert_eq!(self::refusal(&controls, request).kind, RefusedKind::Leaving);
    }
    for request in [Request::Describe, Request::End] {
        assert_eq!(self::refusal(&controls, request).kind, RefusedKind::Unsupported);
    }
    assert!(controls.reports().is_empty() && controls.groups_of(0).is_empty());
}

/// A service that keeps its connections to each thread runs, and its threads can be placed; its groups stay.
#[test]
fn a_service_that_keeps_to_its_threads_is_not_moved() {
    let wire = ShmConfig::default();
    let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
    let config = config(SERVER.addr, MacAddr([2; 6]), Scheduler::RunToCompletion);
    let (region, stop, controls) = (Region::heap(4_096), AtomicBool::new(false), Controls::new(1));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let make = |_| Server::new(Echo::default());
            run_controlled(&config, &region, vec![near], make, || {}, Some(&controls), &stop)
        });
        let _ends = Ends([&stop, &stop]);
        wait_until("it runs", || begin(&controls, grant(0)).is_ok());
        assert_eq!(refusal(&controls, move_one(1, 0, 0)).kind, RefusedKind::NotMovable);
        assert!(!controls.is_movable());
        stop.store(true, Ordering::Relaxed);
        server.join().expect("no panic").expect("it runs");
    });
}

/// Threads that would sleep for long see the end of their run at once.
#[test]
fn the_end_of_a_run_wakes_threads_that_sleep() {
    for scheduler in schedulers() {
        let (near, _far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
        let region = Region::heap(8_192);
        let (stop, ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let (controls, slots) = (Controls::new(CORES), Arc::new(SharedSlots::new(CORES, 16)));
        let mut config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
        config.idle.longest_sleep = 2 * PATIENCE;
        std::thread::scope(|scope| {
            let ends = Ends([&stop, &stop]);
            let server = scope.spawn(|| {
                let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
                let ready = || ready.store(true, Ordering::Release);
                run_controlled(&config, &region, near, make, ready, Some(&controls), &stop)
            });
            wait_until("it is ready", || ready.load(Ordering::Acquire));
            // Both sleep by now.
            std::thread::sleep(Duration::from_millis(50));
            controls.end(&stop);
            wait_until("the run ends", || server.is_finished());
            let reports = server.join().expect("no panic").expect("it runs");
            assert!(reports.iter().all(|(report, _)| report.sleeps > 0), "they slept");
            drop(ends);
        });
    }
}
