//! The daemon's logic against fake services: adoption, policies, commands, and what goes wrong.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use control::{Scaling, Topology};
use endpoint::{MoveSummary, RefusedKind, Request};
use statseg::State as ThreadState;

use crate::clocks::Clocks;
use crate::commands::{Command, Failure, PolicyChange, What};
use crate::config::Config;
use crate::governor::Facts;
use crate::tests::fake::{Directory, Fake, FakeWorld};
use configfile::PolicyName;

use crate::manager::Manager;
use crate::process::Ended;
use crate::records::{Records, Started};
use crate::world::Launch;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A daemon on a fake machine; it can be killed and begun anew.
struct Bench {
    directory: Directory,
    world: FakeWorld,
    manager: Option<Manager<FakeWorld>>,
    clocks: Option<Rc<RefCell<Clocks>>>,
    now_ns: u64,
    ticket: u64,
    said: Vec<String>,
}

impl Bench {
    /// With these services' files, on a machine of four cores.
    fn new(files: &[(&str, &str)], clocks: bool) -> Self {
        let directory = Directory::new("manager");
        directory.machine(4, clocks);
        for (name, text) in files {
            directory.put(&format!("services/{name}.toml"), text);
        }
        let world = FakeWorld::default();
        let mut this = Self {
            directory,
            world,
            manager: None,
            clocks: None,
            now_ns: 100 * S,
            ticket: 0,
            said: Vec::new(),
        };
        this.begin();
        this
    }

    fn config(&self) -> Config {
        let path = |name: &str| self.directory.path().join(name);
        let mut config = Config {
            run_directory: path("run"),
            services_directory: path("services"),
            ..Config::default()
        };
        (config.machine.sys, config.machine.cgroup) = (path("sys"), path("cg"));
        config
    }

    fn begin(&mut self) {
        let config = self.config();
        let topology = Topology::read(&config.machine.sys).expect("a machine");
        let records = Records::new(&config.records_directory());
        let (clocks, errors) = Clocks::new(topology.clone(), records);
        assert!(errors.is_empty(), "{errors:?}");
        self.clocks = Some(Rc::clone(&clocks));
        let settable = !topology.domains.is_empty();
        let facts = Facts {
            topology: Some(topology),
            clocks: settable.then_some(clocks),
            scaling: Scaling::ix(),
        };
        self.manager = Some(Manager::new(config, facts, self.world.clone(), self.now_ns));
    }

    /// It is killed, at this very moment: nothing is dropped, nothing is put back.
    fn kill(&mut self) {
        std::mem::forget((self.manager.take(), self.clocks.take()));
        self.now_ns += 10 * MS;
        self.begin();
    }

    fn manager(&mut self) -> &mut Manager<FakeWorld> {
        self.manager.as_mut().expect("it runs")
    }

    /// Time passes, in steps of 10 ms, each with `each` before it.
    fn run(&mut self, ms: u64, mut each: impl FnMut()) {
        for _ in 0..ms.div_ceil(10) {
            each();
            self.now_ns += 10 * MS;
            let now_ns = self.now_ns;
            let due_ns = self.manager().turn(now_ns, now_ns / MS);
            assert!(due_ns > now_ns, "a turn is due that was just done");
            let events = self.manager().events();
            self.said
                .extend(events.iter().map(|e| format!("{} {} {}", e.service, e.kind, e.detail())));
        }
    }

    fn wait(&mut self, ms: u64) {
        self.run(ms, || {});
    }

    fn heard(&self, part: &str) -> bool {
        self.said.iter().any(|line| line.contains(part))
    }

    /// Asks, and waits for the answer for as long as it takes, within a minute.
    fn ask(&mut self, service: &str, what: What) -> Result<Option<MoveSummary>, Failure> {
        self.ticket += 1;
        let (ticket, now_ns) = (self.ticket, self.now_ns);
        let command = Command { ticket, service: service.to_owned(), what };
        self.manager().command(now_ns, command);
        for _ in 0..6_000 {
            let mut answers = self.manager().answers();
            if let Some(answer) = answers.pop() {
                assert_eq!((answer.ticket, answers.len()), (ticket, 0));
                return answer.result;
            }
            self.wait(10);
        }
        panic!("no answer");
    }

    fn phase(&mut self, name: &str) -> Option<&'static str> {
        let now_ns = self.now_ns;
        let snapshot = self.manager().snapshot(now_ns);
        snapshot.services.into_iter().find(|one| one.name == name).map(|one| one.phase)
    }

    fn mode(&mut self, name: &str) -> &'static str {
        let now_ns = self.now_ns;
        let snapshot = self.manager().snapshot(now_ns);
        snapshot.services.into_iter().find(|one| one.name == name).expect("it is there").mode
    }
}

const ENERGY: &str = "[control]\npolicy = \"energy\"\n";

/// Each running thread has 200 packets waiting, for 9 of 10 ms.
fn overload(fake: &Fake) {
    fake.load(200, 90, 100_000);
}

/// And here hardly any.
fn calm(fake: &Fake) {
    fake.load(1, 10, 10_000);
}

#[test]
fn load_is_met_with_threads_and_calm_takes_them_back() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 4, 64);
    (1..4).for_each(|thread| fake.set_state(thread, ThreadState::Parked));
    bench.world.show("kv", &fake);
    let one = fake.clone();
    bench.run(5_000, move || overload(&one));
    assert_eq!(fake.running(), [0, 1, 2, 3], "{:?}", bench.said);
    let homes = fake.homes();
    assert!((0..4).all(|thread| homes.iter().filter(|home| **home == thread).count() >= 14));
    assert!(bench.heard("kv step ") && bench.heard("kv moved "), "{:?}", bench.said);
    let one = fake.clone();
    bench.run(60_000, move || calm(&one));
    assert_eq!(fake.running(), [0]);
    assert_eq!(fake.homes(), [0; 64]);
    let now_ns = bench.now_ns;
    let snapshot = bench.manager().snapshot(now_ns);
    let running = snapshot.services[0].running.as_ref().expect("it shows itself");
    assert!(running.totals.grants >= 3 && running.totals.parks >= 3);
    assert_eq!(running.step.as_ref().expect("a step").of, 4);
    assert_eq!(snapshot.line(), "1 of 1 services up");
}

#[test]
fn who_sleeps_is_idle_though_nothing_is_counted() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 2, 8);
    fake.set_home(1, 1);
    bench.world.show("kv", &fake);
    bench.wait(30_000);
    assert_eq!(fake.running(), [0], "threads that sleep are taken back: {:?}", bench.said);
    assert!(!bench.heard("unresponsive"), "{:?}", bench.said);
}

#[test]
fn an_application_that_does_not_return_is_said() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 1, 8);
    bench.world.show("kv", &fake);
    bench.wait(1_000);
    fake.enter(0, bench.now_ns);
    bench.wait(500);
    assert!(bench.heard("kv unresponsive thread=0"), "{:?}", bench.said);
    let now_ns = bench.now_ns;
    let snapshot = bench.manager().snapshot(now_ns);
    let threads = &snapshot.services[0].running.as_ref().expect("it shows itself").threads;
    assert_eq!(threads[0].away_ms, 500);
}

#[test]
fn a_daemon_that_is_killed_at_any_moment_is_followed_by_one_that_goes_on() {
    for kill_ms in (0..2_000).step_by(70) {
        let mut bench = Bench::new(&[("kv", ENERGY)], true);
        let fake = Fake::new("kv", 4, 64);
        (1..4).for_each(|thread| fake.set_state(thread, ThreadState::Parked));
        bench.world.show("kv", &fake);
        let one = fake.clone();
        bench.run(1_000 + kill_ms, move || overload(&one));
        bench.kill();
        let before = fake.homes();
        let one = fake.clone();
        bench.run(10, move || overload(&one));
        assert_eq!(fake.homes(), before, "nothing moves because a daemon begins");
        let one = fake.clone();
        bench.run(15_000, move || overload(&one));
        assert_eq!(fake.running(), [0, 1, 2, 3], "killed after {kill_ms} ms: {:?}", bench.said);
        let homes = fake.homes();
        let even = |thread| homes.iter().filter(|home| **home == thread).count() >= 14;
        assert!((0..4).all(even), "{homes:?}");
        assert!(bench.world.launched().is_empty(), "it ran: it is not started");
        let one = fake.clone();
        bench.run(90_000, move || calm(&one));
        assert_eq!(fake.running(), [0]);
        assert_eq!(
            bench.directory.get("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq"),
            "1000000"
        );
        drop(bench.manager.take());
        drop(bench.clocks.take());
        let range = bench.directory.get("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq");
        assert_eq!(range, "2000000", "what was before the first daemon");
    }
}

#[test]
fn answers_that_never_come_are_said_and_the_service_goes_on() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 2, 8);
    fake.set_state(1, ThreadState::Parked);
    bench.world.show("kv", &fake);
    bench.wait(1_000);
    fake.set_silent(true);
    let one = fake.clone();
    bench.run(8_000, move || overload(&one));
    assert!(bench.heard("kv grant-failed thread=1"), "{:?}", bench.said);
    assert!(bench.heard("kv unanswered request=\"grant thread 1\""), "{:?}", bench.said);
    assert_eq!(bench.phase("kv"), Some("up"));
    fake.set_silent(false);
    let one = fake.clone();
    bench.run(20_000, move || overload(&one));
    assert_eq!(fake.running(), [0, 1]);
    let homes = fake.homes();
    assert_eq!(homes.iter().filter(|home| **home == 1).count(), 4, "{:?}", bench.said);
}

#[test]
fn refusals_are_said_and_homes_that_changed_are_believed() {
    for kind in [RefusedKind::UnderWay, RefusedKind::NotHome, RefusedKind::System] {
        let mut bench = Bench::new(&[("kv", ENERGY)], false);
        let fake = Fake::new("kv", 2, 8);
        fake.set_state(1, ThreadState::Parked);
        bench.world.show("kv", &fake);
        bench.wait(500);
        fake.refuse(5, kind);
        let one = fake.clone();
        bench.run(20_000, move || overload(&one));
        let word: &str = kind.into();
        assert!(bench.heard(&format!("kind={word}")), "{:?}", bench.said);
        assert_eq!(fake.running(), [0, 1]);
        // Somebody else moves groups behind the daemon's back; then all go to thread 0 again.
        (0..8).for_each(|group| fake.set_home(group, 1));
        let one = fake.clone();
        bench.run(60_000, move || calm(&one));
        assert_eq!((fake.running(), fake.homes()), (vec![0], vec![0; 8]), "{:?}", bench.said);
    }
}

/// A daemon that is killed may have asked for something that happens only after the next one has looked.
#[test]
fn what_happens_after_the_first_look_is_believed() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 2, 8);
    (4..8).for_each(|group| fake.set_home(group, 1));
    bench.world.show("kv", &fake);
    let on_second = |fake: &Fake| fake.homes().iter().filter(|home| **home == 1).count();
    let run = |bench: &mut Bench, load: fn(&Fake), ms: u64| {
        let one = fake.clone();
        bench.run(ms, move || load(&one));
    };
    run(&mut bench, overload, 2_000);
    assert_eq!((fake.running(), on_second(&fake)), (vec![0, 1], 4));
    (0..8).for_each(|group| fake.set_home(group, 0));
    run(&mut bench, overload, 2_000);
    assert_eq!(on_second(&fake), 4, "groups that have moved are shared again: {:?}", bench.said);
    assert!(bench.heard("kv found-changed groups=4 threads=0"), "{:?}", bench.said);
    (0..8).for_each(|group| fake.set_home(group, 0));
    fake.set_state(1, ThreadState::Parked);
    run(&mut bench, overload, 2_000);
    assert_eq!((fake.running(), on_second(&fake)), (vec![0, 1], 4), "{:?}", bench.said);
    run(&mut bench, calm, 20_000);
    assert_eq!((fake.running(), on_second(&fake)), (vec![0], 0), "{:?}", bench.said);
    fake.set_state(1, ThreadState::Running);
    run(&mut bench, calm, 10_000);
    assert_eq!(fake.running(), [0], "who was granted for nothing is parked: {:?}", bench.said);
}

#[test]
fn by_hand_the_policy_rests_until_it_is_resumed() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 3, 8);
    bench.world.show("kv", &fake);
    bench.wait(200);
    assert_eq!(bench.mode("kv"), "policy");
    bench.ask("kv", What::ByHand(Request::Grant { thread: 2 })).expect("granted");
    let homes = fake.homes();
    let of_first = (0..8).filter(|group| homes[usize::from(*group)] == 0).take(2).collect();
    let request = Request::Move { from: 0, to: 2, groups: of_first };
    let moved = bench.ask("kv", What::ByHand(request)).expect("moved").expect("a summary");
    assert_eq!((moved.groups, moved.connections), (2, 5));
    assert_eq!(bench.mode("kv"), "hand");
    let moved = (0..8).filter(|&group| homes[group] == 0 && fake.homes()[group] == 2);
    assert_eq!(moved.count(), 2);
    let refused = bench.ask("kv", What::ByHand(Request::Park { thread: 2 }));
    assert_eq!(refused, Err(Failure::Refused("has-groups", "has-groups".to_owned())));
    (0..8).filter(|&group| fake.homes()[group] == 1).for_each(|group| fake.set_home(group, 0));
    bench.ask("kv", What::ByHand(Request::Park { thread: 1 })).expect("parked");
    bench.ask("kv", What::ByHand(Request::Place { thread: 0, cpu: 3 })).expect("placed");
    assert_eq!(fake.cpus()[0], Some(3));
    let one = fake.clone();
    bench.run(60_000, move || calm(&one));
    assert_eq!(fake.running(), [0, 2], "nobody interferes");
    bench.ask("kv", What::Resume).expect("resumed");
    let one = fake.clone();
    bench.run(60_000, move || calm(&one));
    assert_eq!((fake.running(), fake.homes()), (vec![0], vec![0; 8]), "{:?}", bench.said);
    fake.set_silent(true);
    let silent = bench.ask("kv", What::ByHand(Request::Grant { thread: 1 }));
    assert_eq!(silent, Err(Failure::TimedOut(10)));
}

#[test]
fn commands_about_nobody_are_refused() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    assert_eq!(bench.ask("none", What::Start), Err(Failure::NoSuchService));
    let grant = What::ByHand(Request::Grant { thread: 0 });
    assert_eq!(bench.ask("kv", grant), Err(Failure::NotRunning("it is down".to_owned())));
    assert!(matches!(bench.ask("kv", What::Resume), Err(Failure::NotRunning(_))));
    assert_eq!(bench.ask("kv", What::Stop), Ok(None), "it is down already");
    let change = PolicyChange {
        policy: PolicyName::LatencyTarget,
        slo_us: None,
        period_ms: None,
        sequence: None,
        over: None,
    };
    let Err(Failure::Failed(reason)) = bench.ask("kv", What::Policy(change.clone())) else {
        panic!("without an objective");
    };
    assert!(reason.contains("`control.slo_us`"), "{reason}");
    let change = PolicyChange { slo_us: Some(500.0), ..change };
    assert_eq!(bench.ask("kv", What::Policy(change)), Ok(None));
}

#[test]
fn a_service_is_started_stopped_and_started_again_where_it_failed() {
    let file = "[control]\nrestart = \"on-failure\"\nprogram = [\"./mine\", \"-x\"]\n";
    let mut bench = Bench::new(&[("kv", file)], false);
    let Err(Failure::Failed(reason)) = bench.ask("kv", What::Start) else {
        panic!("nothing is there")
    };
    assert!(reason.contains("cannot start \"tailplane\""), "{reason}");
    let fake = Fake::new("kv", 1, 8);
    bench.world.prepare(&fake, true);
    bench.ask("kv", What::Start).expect("started");
    let launched = bench.world.launched().pop().expect("started");
    let words: Vec<String> =
        launched.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    assert_eq!(
        (words[0].as_str(), &words[2..]),
        ("run", &["--", "./mine", "-x"].map(String::from)[..])
    );
    fake.end(Ended::Signal(11));
    bench.wait(100);
    assert!(bench.heard("kv ended asked=false how=\"signal 11\""), "{:?}", bench.said);
    assert_eq!(bench.phase("kv"), Some("waiting"));
    let again = Fake::new("kv", 1, 8);
    bench.world.prepare(&again, true);
    bench.wait(3_000);
    assert_eq!(bench.phase("kv"), Some("up"));
    bench.ask("kv", What::Stop).expect("stopped");
    assert!(again.has_ended() && again.signals().is_empty(), "it was asked, not signalled");
    bench.wait(5_000);
    assert_eq!((bench.phase("kv"), bench.world.launched().len()), (Some("down"), 3));
    assert!(!bench.directory.path().join("run/daemon/service-kv.json").exists());
}

#[test]
fn who_does_not_end_is_signalled() {
    let mut bench = Bench::new(&[], false);
    let fake = Fake::new("kv", 1, 8);
    fake.set_stubborn();
    bench.world.show("kv", &fake);
    bench.wait(100);
    bench.ask("kv", What::Stop).expect("stopped in the end");
    assert_eq!(fake.signals(), [15, 9]);
    bench.wait(100);
    assert_eq!(bench.phase("kv"), None, "nobody configured it");
}

#[test]
fn what_an_earlier_daemon_started_is_not_started_twice() {
    let file = "[control]\nautostart = true\n";
    // It was started, and does not answer yet.
    let mut bench = Bench::new(&[("kv", file)], false);
    let fake = Fake::new("kv", 1, 8);
    bench.world.prepare(&fake, false);
    bench.wait(600);
    assert_eq!(bench.world.launched().len(), 1);
    bench.kill();
    bench.wait(3_000);
    assert_eq!((bench.world.launched().len(), bench.phase("kv")), (1, Some("starting")));
    bench.world.show("kv", &fake);
    bench.wait(3_000);
    assert_eq!(bench.phase("kv"), Some("up"));
    // The daemon was killed between its start and its record.
    let mut bench = Bench::new(&[("kv", file)], false);
    let records = Records::new(&bench.config().records_directory());
    records.write("service-kv", &Started::Intended(5)).expect("written");
    let path = bench.directory.path().join("services/kv.toml");
    let launch = Launch { program: "tailplane".into(), arguments: vec!["run".into(), path.into()] };
    let fake = Fake::new("kv", 1, 8);
    bench.world.hide_away(launch, &fake);
    bench.kill();
    bench.wait(3_000);
    assert_eq!((bench.world.launched().len(), bench.phase("kv")), (0, Some("starting")));
    // Or before its start.
    let mut bench = Bench::new(&[("kv", file)], false);
    let records = Records::new(&bench.config().records_directory());
    records.write("service-kv", &Started::Intended(5)).expect("written");
    bench.world.prepare(&fake, false);
    bench.kill();
    bench.wait(3_000);
    assert_eq!(bench.world.launched().len(), 1);
}

#[test]
fn services_that_vanish_or_lose_us_are_told_apart() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 2, 8);
    bench.world.show("kv", &fake);
    bench.wait(200);
    fake.break_links();
    bench.wait(1_500);
    assert!(bench.heard("kv lost"), "{:?}", bench.said);
    assert_eq!((bench.phase("kv"), bench.mode("kv")), (Some("up"), "policy"), "reached again");
    fake.end(Ended::Unseen);
    bench.wait(100);
    assert_eq!(bench.phase("kv"), Some("down"));
    let other = Fake::new("other", 1, 8);
    bench.world.show("kv", &other);
    bench.wait(3_000);
    assert!(bench.heard("calls itself \\\"other\\\""), "{:?}", bench.said);
    assert_eq!(bench.said.iter().filter(|line| line.contains("unreachable")).count(), 1);
}

#[test]
fn what_cannot_be_governed_is_watched_and_said() {
    let mut bench =
        Bench::new(&[("kv", ENERGY), ("wide", ENERGY), ("bad", "[control]\nx = 1")], false);
    let (kv, wide) = (Fake::new("kv", 2, 8), Fake::new("wide", 2, 8));
    kv.describe(|described| described.movable = false);
    wide.describe(|described| described.cpus = vec![Some(0), Some(77)]);
    bench.world.show("kv", &kv);
    bench.world.show("wide", &wide);
    bench.wait(500);
    assert!(bench.heard("kv not-governed") && bench.heard("cannot be moved"), "{:?}", bench.said);
    assert!(bench.heard("wide not-governed") && bench.heard("processor 77"), "{:?}", bench.said);
    assert_eq!((bench.mode("kv"), bench.mode("wide")), ("watch", "watch"));
    let now_ns = bench.now_ns;
    let snapshot = bench.manager().snapshot(now_ns);
    assert!(snapshot.problems.iter().any(|one| one.contains("bad.toml") && one.contains('x')));
    assert_eq!(snapshot.line(), "2 of 2 services up; 3 problems");
    bench.directory.put("services/bad.toml", "");
    bench.manager().reload(now_ns);
    assert_eq!(bench.manager().snapshot(now_ns).line(), "2 of 3 services up; 2 problems");
}

#[test]
fn threads_run_where_the_file_says() {
    let file = format!("{ENERGY}cores = [3, 1, 0]\n");
    let mut bench = Bench::new(&[("kv", &file)], false);
    let fake = Fake::new("kv", 2, 8);
    bench.world.show("kv", &fake);
    bench.wait(300);
    assert_eq!(fake.cpus(), [Some(3), Some(1)]);
    fake.set_cpu(0, 0);
    bench.wait(6_000);
    assert_eq!(fake.cpus()[0], Some(3), "somebody took it away");
    assert!(bench.heard("kv threads-displaced threads=1"), "{:?}", bench.said);
}

#[test]
fn clocks_that_cannot_be_written_are_said_and_the_service_goes_on() {
    let mut bench = Bench::new(&[("kv", ENERGY)], true);
    let fake = Fake::new("kv", 2, 8);
    // A file that does not take what is written: a link to a device that swallows it.
    let max =
        bench.directory.path().join("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq");
    fake.set_state(1, ThreadState::Parked);
    bench.world.show("kv", &fake);
    let min = max.with_file_name("scaling_min_freq");
    bench.wait(10);
    std::fs::remove_file(&min).expect("it is there");
    std::os::unix::fs::symlink("/dev/null", &min).expect("a link");
    let one = fake.clone();
    bench.run(8_000, move || overload(&one));
    assert!(bench.heard("kv clock-failed") && bench.heard("actuator-failed"), "{:?}", bench.said);
    assert_eq!(fake.running(), [0, 1], "threads are granted all the same");
}

#[test]
fn a_daemon_that_is_late_says_how_many_turns_it_missed() {
    let mut bench = Bench::new(&[("kv", ENERGY)], false);
    let fake = Fake::new("kv", 1, 8);
    bench.world.show("kv", &fake);
    bench.wait(500);
    bench.now_ns += 1_000 * MS;
    bench.wait(10);
    assert!(bench.heard("kv turns-missed since_start=9 turns=9"), "{:?}", bench.said);
    bench.now_ns += 60 * S;
    bench.wait(200);
    assert!(bench.heard("kv gap"), "{:?}", bench.said);
    assert_eq!(bench.phase("kv"), Some("up"));
}

#[test]
fn the_background_job_has_the_cores_that_the_service_leaves() {
    let file = "[control]\npolicy = \"consolidation\"\nbackground = { cgroup = \"batch\" }\n";
    let mut bench = Bench::new(&[("kv", file)], false);
    bench.directory.put_batch();
    let fake = Fake::new("kv", 4, 64);
    (1..4).for_each(|thread| fake.set_state(thread, ThreadState::Parked));
    bench.world.show("kv", &fake);
    bench.wait(500);
    assert_eq!(bench.directory.get("cg/batch/cpuset.cpus"), "1-3", "{:?}", bench.said);
    let one = fake.clone();
    bench.run(10_000, move || overload(&one));
    assert_eq!(fake.running(), [0, 1, 2, 3]);
    assert_eq!(bench.directory.get("cg/batch/cgroup.freeze"), "1", "{:?}", bench.said);
    // Somebody takes the group away; it is made anew when it is needed.
    std::fs::rename(bench.directory.path().join("cg/batch"), bench.directory.path().join("cg/x"))
        .expect("it is there");
    let one = fake.clone();
    bench.run(30_000, move || calm(&one));
    assert!(bench.heard("kv background-failed cores="), "{:?}", bench.said);
    std::fs::rename(bench.directory.path().join("cg/x"), bench.directory.path().join("cg/batch"))
        .expect("it is there");
    let one = fake.clone();
    bench.run(30_000, move || calm(&one));
    assert_eq!(fake.running(), [0]);
    assert_eq!(bench.directory.get("cg/batch/cpuset.cpus"), "1-3", "{:?}", bench.said);
    assert_eq!(bench.directory.get("cg/batch/cgroup.freeze"), "0");
    let now_ns = bench.now_ns;
    let snapshot = bench.manager().snapshot(now_ns);
    let running = snapshot.services[0].running.as_ref().expect("it shows itself");
    let job = running.background.as_ref().expect("a job");
    assert_eq!((job.alive, &job.cpus[..]), (true, &[1, 2, 3][..]));
}

#[test]
fn a_sequence_is_a_file_of_the_services_directory_and_no_other_one() {
    let directory = Directory::new("own-file");
    let inside = directory.put("services/seq.json", "{}");
    let outside = directory.put("secret", "root's");
    directory.put("services/below/seq.json", "{}");
    let services = directory.path().join("services");
    std::os::unix::fs::symlink(&outside, services.join("link")).expect("a link");
    std::os::unix::fs::symlink(&inside, services.join("same")).expect("a link");
    let own = |named: &Path| crate::manager::own_file(&services, named);
    let inside = std::fs::canonicalize(inside).expect("it is there");
    for named in ["seq.json", "./seq.json", "below/../seq.json", "same"] {
        assert_eq!(own(Path::new(named)).as_ref(), Ok(&inside), "{named}");
    }
    assert_eq!(own(&inside).as_ref(), Ok(&inside), "by its whole path");
    for named in ["../secret", "link", "below/seq.json", "absent", "..", ".", ""] {
        let why = own(Path::new(named)).expect_err(named);
        assert!(why.contains("no file of the services directory"), "{why}");
    }
    own(&outside).expect_err("by its whole path");
    own(Path::new("/etc/passwd")).expect_err("anybody's");
}

#[test]
fn a_service_file_that_others_may_write_is_not_taken() {
    let mut bench = Bench::new(&[("mine", "[control]\n"), ("open", "[control]\n")], false);
    let file = |name: &str| bench.directory.path().join("services").join(name);
    let (mine, open, directory) = (file("mine.toml"), file("open.toml"), file(""));
    let mode = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("it is ours");
    };
    mode(&mine, 0o640);
    mode(&open, 0o664);
    let problems = |bench: &mut Bench| {
        let now_ns = bench.now_ns;
        bench.manager().reload(now_ns);
        bench.manager().snapshot(now_ns).problems
    };
    let found = problems(&mut bench);
    assert!(!found.iter().any(|line| line.contains("mine.toml")), "{found:?}");
    let about = found.iter().find(|line| line.contains("open.toml")).expect("a problem");
    assert!(about.contains("may write to it (mode 664)"), "{about}");
    mode(&open, 0o644);
    assert!(problems(&mut bench).is_empty());
    mode(&directory, 0o777);
    let found = problems(&mut bench);
    assert!(found.iter().any(|line| line.contains("cannot take files from")), "{found:?}");
    mode(&directory, 0o755);
    assert!(problems(&mut bench).is_empty());
    if !rustix::process::geteuid().is_root() {
        return println!("needs root: a second user cannot be played");
    }
    std::os::unix::fs::chown(&open, Some(65_534), None).expect("root may");
    let found = problems(&mut bench);
    assert!(found.iter().any(|line| line.contains("user 65534's")), "{found:?}");
}
