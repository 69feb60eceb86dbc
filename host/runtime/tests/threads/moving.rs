//! Flow groups that move between real threads while a client checks the sequence of all that it gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use endpoint::{Ask, Done, Request};
use mem::Region;
use runtime::{ConservingConfig, ReadySetConfig};
use runtime::{Controls, CoreReport, Scheduler, run, run_controlled};
use tailplane::{MacAddr, Server, SharedSlots};

use crate::common::{CLIENT, CONNECTIONS, Counting, Echo, SERVER, config, wire};

const CORES: usize = 2;
const RUNS_FOR: Duration = Duration::from_millis(1_500);
/// Moves that say something.
const ENOUGH: usize = 20;
const LONGER: Duration = Duration::from_secs(10);

/// Moves whatever is at home on one thread to the other, a third of it or all, one command after the other.
/// Answers how many were complete.
fn control(controls: &Controls, until: Wall) -> usize {
    let (mut moved, mut round) = (0, 0);
    // On a busy machine it takes longer.
    while Wall::now() < until || (moved < ENOUGH && Wall::now() < until + LONGER) {
        round += 1;
        let from = round % CORES;
        let all = controls.groups_of(from);
        let part = |group: &u16| round % 3 == 0 || usize::from(*group) % 3 == round % 3;
        let groups: Vec<u16> = all.iter().filter(part).collect();
        let (from, to, count) = (from as u16, ((from + 1) % CORES) as u16, groups.len());
        let ask = Ask { id: round as u64, request: Request::Move { from, to, groups } };
        if count == 0 || controls.begin(ask).is_err() {
            continue;
        }
        let report = loop {
            if let Some(report) = controls.reports().pop() {
                break report;
            }
            assert!(Wall::now() < until + 2 * LONGER, "a command without a report");
            std::thread::sleep(Duration::from_micros(200));
        };
        assert_eq!(report.id, round as u64);
        let Ok(Done::Moved(done)) = report.result else { panic!("{report:?}") };
        assert_eq!(done.groups as usize, count);
        assert!(done.phase_ns.iter().sum::<u64>() > 0, "{done:?}");
        moved += 1;
    }
    moved
}

fn moves_under_load(scheduler: Scheduler) {
    let (near, far): (Vec<_>, Vec<_>) = (0..CORES).map(|_| wire()).unzip();
    let regions = [Region::heap(8_192), Region::heap(8_192)];
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let [heard, wrong] = [const { AtomicUsize::new(0) }; 2];
    let (controls, slots) = (Controls::new(CORES), Arc::new(SharedSlots::new(CORES, 1_024)));
    let (reports, moved): (Vec<CoreReport>, usize) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let config = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
            let make = |core| Server::shared(core, Echo::default(), Arc::clone(&slots));
            run_controlled(&config, &regions[0], near, make, || {}, Some(&controls), &stop)
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
        let moved = control(&controls, Wall::now() + RUNS_FOR);
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
