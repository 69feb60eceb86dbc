//! Flow groups that move between real threads while a client checks the sequence of all that it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use mem::Region;
use nic::shm::{ShmConfig, ShmNic};
use runtime::{ConservingConfig, GroupSet, MoveCommand, MoveError, Phase, ReadySetConfig};
use runtime::{CoreReport, Mover, MoverError, RuntimeError, Scheduler, run, run_moved};
use tailplane::{MacAddr, Server, SharedSlots};

mod common;

use common::{CLIENT, CONNECTIONS, Counting, Echo, SERVER, config, wire};

const CORES: usize = 2;
const RUNS_FOR: Duration = Duration::from_millis(1_500);
/// Moves that say something.
const ENOUGH: usize = 20;
const LONGER: Duration = Duration::from_secs(10);

/// Moves whatever is at home on one thread to the other, a third of it or all, one command after the other.
/// Answers how many were complete.
fn control(mover: &Mover, until: Wall) -> usize {
    let (mut moved, mut round) = (0, 0);
    // On a busy machine it takes longer.
    while Wall::now() < until || (moved < ENOUGH && Wall::now() < until + LONGER) {
        round += 1;
        let from = round % CORES;
        let all = mover.groups_of(from);
        let part = |group: &u16| round % 3 == 0 || usize::from(*group) % 3 == round % 3;
        let groups: GroupSet = all.iter().filter(part).collect();
        let command = MoveCommand { token: round as u64, groups, to: ((from + 1) % CORES) as u8 };
        if groups.is_empty() || mover.post(from, command).is_err() {
            continue;
        }
        let report = loop {
            if let Some(report) = mover.report(from) {
                break report;
            }
            assert!(Wall::now() < until + 2 * LONGER, "a command without a report");
            std::thread::sleep(Duration::from_micros(200));
        };
        assert_eq!(report.token, round as u64);
        let done = report.outcome.expect("nothing stands against it");
        assert_eq!(done.groups, groups.len());
        assert!(done.times.total_ns() >= done.times.of_ns(Phase::Wait));
        moved += 1;
    }
    moved
}

fn moves_under_load(scheduler: Scheduler) {
    let (near, far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
    let regions = [Region::heap(8_192), Region::heap(8_192)];
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let [heard, wrong] = [const { AtomicUsize::new(0) }; 2];
    let (mover, slots) = (Mover::new(CORES), Arc::new(SharedSlots::new(CORES, 1_024)));
    let (reports, moved): (Vec<CoreReport>, usize) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
            let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
            run_moved(&config, &regions[0], near, make, || {}, &mover, &stop)
        });
        let client = scope.spawn(|| {
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            let (heard, wrong) = (&heard, &wrong);
            let make = |_| Counting { asked: 0, lines: Vec::new(), heard, wrong };
            run(&config, &regions[1], far, make, &done)
        });
        let began = Wall::now();
        while heard.load(Ordering::Relaxed) < CORES * CONNECTIONS {
            assert!(began.elapsed() < Duration::from_secs(20), "it does not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        let moved = control(&mover, Wall::now() + RUNS_FOR);
        let before = heard.load(Ordering::Relaxed);
        while heard.load(Ordering::Relaxed) < before + 1_000 {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        client.join().expect("no panic").expect("it runs");
        stop.store(true, Ordering::Relaxed);
        let reports = server.join().expect("no panic").expect("it runs");
        (reports.into_iter().map(|(report, _)| report).collect(), moved)
    });
    let (heard, wrong) = (heard.into_inner(), wrong.into_inner());
    let completed: u64 = reports.iter().map(|report| report.migrations.completed).sum();
    let packets: u64 = reports.iter().map(|report| report.migrations.packets).sum();
    println!("{heard} words, {moved} migrations, {packets} packets deferred");
    assert_eq!((wrong, completed), (0, moved as u64));
    assert!(moved >= ENOUGH && heard > 1_000, "{moved} migrations, {heard} words");
    for region in &regions {
        assert_eq!(region.depot_len(), region.chunks() as usize, "all memory is back");
    }
}

#[test]
fn run_to_completion() {
    moves_under_load(Scheduler::RunToCompletion);
}

#[test]
fn work_conserving() {
    moves_under_load(Scheduler::WorkConserving(ConservingConfig::default()));
}

#[test]
fn ready_set() {
    moves_under_load(Scheduler::ReadySet(ReadySetConfig::default()));
}

#[test]
fn what_cannot_be_moved_is_refused() {
    let refusal = |mover: &Mover, shared: bool| -> RuntimeError {
        let wire = ShmConfig::default();
        let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
        let config = config(SERVER.addr, MacAddr([2; 6]), Scheduler::RunToCompletion);
        let (region, stop) = (Region::heap(4_096), AtomicBool::new(shared));
        let ran = match shared {
            true => {
                let slots = Arc::new(SharedSlots::new(1, 64));
                let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
                run_moved(&config, &region, vec![near], make, || {}, mover, &stop).map(|_| ())
            }
            false => {
                let make = |_| Server::new(Echo::default());
                run_moved(&config, &region, vec![near], make, || {}, mover, &stop).map(|_| ())
            }
        };
        ran.expect_err("it is refused")
    };
    let refused = refusal(&Mover::new(1), false);
    assert!(refused.to_string().contains("runs anywhere"), "{refused}");
    let refused = refusal(&Mover::new(2), true);
    assert!(matches!(refused, RuntimeError::Mover { cores: 1 }), "{refused}");
    let mover = Mover::new(2);
    let command = MoveCommand { token: 1, groups: GroupSet::one(1), to: 1 };
    assert_eq!(mover.post(0, command), Err(MoverError::NotRunning));
    assert_eq!((mover.report(0), mover.groups_of(0)), (None, GroupSet::NONE));
    assert!(MoveError::NoGroups.to_string().contains("no flow group"));
}
