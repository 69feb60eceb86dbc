//! The daemon is killed, again and again, while it grants threads and moves flow groups: the service never notices, and
//! the state converges.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::dataplane::{Dataplane, Kind, LINES, Standing};
use crate::support::{Caller, Daemon, Dir, PATIENCE, Service, until};

const CONTROL: &str = "[metrics]\nlisten = \"\"";
/// A governed service of which something is decided every few milliseconds. Not by prediction: what a packet takes changes
/// with the load here, and would be learned only from many packets.
const POLICY: &str = "[control]\npolicy = \"energy\"\nslo_us = 4000\nperiod_ms = 5\n";

#[test]
fn killed_twenty_times_the_daemon_takes_over_what_it_finds() {
    let dir = Dir::new("killed");
    let config = dir.config(CONTROL);
    dir.put(
        "services/kv.toml",
        "[control]\npolicy = \"latency-target\"\nslo_us = 500\nperiod_ms = 5\n",
    );
    let service = Service::start(&dir.path("run"), "kv", 4);
    let inside = &service.inside;
    let mut acted = 0;
    for round in 0..20u64 {
        // Mostly load that one thread cannot serve, so that something is always under way; else too many threads.
        let calm = round % 4 == 3;
        service.set_queue(if calm { 1 } else { 400 });
        service.reset(if calm { 4 } else { 1 });
        let before = inside.requests.load(Ordering::Relaxed);
        let mut daemon = Daemon::start(&config);
        // Each is killed somewhere else: also before it has reached anybody.
        std::thread::sleep(Duration::from_millis(20 + round * 67 % 300));
        if round % 3 == 0 {
            until("the daemon does something", || inside.requests.load(Ordering::Relaxed) > before);
        }
        daemon.kill();
        acted += u64::from(inside.requests.load(Ordering::Relaxed) > before);
        assert!(!inside.running().is_empty(), "nobody serves");
    }
    assert!(acted >= 7, "the daemon did something in {acted} rounds");
    let _daemon = Daemon::start(&config);
    service.set_queue(400);
    until("all threads run and share the groups", || {
        inside.running().len() == 4 && inside.spread(4).iter().all(|groups| *groups >= 12)
    });
    service.set_queue(1);
    until("one thread has all groups, the others sleep", || {
        inside.running() == [0] && inside.spread(4) == [64, 0, 0, 0]
    });
    let violations = inside.violations.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(violations.is_empty(), "{violations:?}");
    let mut caller = Caller::connect(&dir);
    caller.wait_for_mode("kv", "policy");
    let status = caller.status("kv");
    assert_eq!(status["running"]["pid"], json!(std::process::id()));
    assert_eq!(status["problem"], json!(null));
}

/// Kills of the daemon of a real dataplane: as many, and more where chance has it that too few hit something.
const KILLS: usize = 100;
const KILLS_MAX: usize = 400;
/// Of these at least so many hit a migration under way, and a grant, and a park.
const HITS_MIN: [(Kind, usize); 3] = [(Kind::Move, 25), (Kind::Grant, 5), (Kind::Park, 5)];

/// Numbers that a seed repeats (SplitMix64).
struct Chance(u64);

impl Chance {
    /// Below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// From `TAILPLANE_KILL_SEED`, or of the moment.
fn seed() -> u64 {
    let given = std::env::var("TAILPLANE_KILL_SEED").ok().and_then(|text| text.parse().ok());
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
    given.unwrap_or_else(now)
}

/// One daemon's life: it finds a load that mostly asks for what is not so, and is killed soon after it has asked for
/// something, or at any moment. What it had asked for and had no answer to when it was killed.
fn one_life(plane: &Dataplane, config: &Path, chance: &mut Chance) -> Vec<Kind> {
    let alone = plane.standing().is_some_and(|now| now.groups[1] == 0);
    plane.press(if chance.below(8) == 0 { !alone } else { alone });
    let before = plane.received();
    let mut daemon = Daemon::start(config);
    if chance.below(5) > 0 {
        plane.await_request(before + chance.below(2), Duration::from_secs(1));
    } else {
        std::thread::sleep(Duration::from_millis(chance.below(60)));
    }
    let within_us = [1, 800, 20_000][chance.below(3) as usize];
    std::thread::sleep(Duration::from_micros(chance.below(within_us)));
    daemon.0.kill().expect("it is ours");
    // It does nothing any more from here on.
    let hit = plane.unanswered();
    daemon.kill();
    hit
}

/// A daemon that stays: under load both threads share the flow groups, without it one has all and the other is parked;
/// segment, service and daemon say the same.
fn converges(plane: &Dataplane, dir: &Dir, config: &Path) {
    let _daemon = Daemon::start(config);
    let mut caller = Caller::connect(dir);
    caller.wait_for_mode("kv", "policy");
    let mut agreed = |what: &str, is: &dyn Fn(&Standing) -> bool| {
        let began = Instant::now();
        loop {
            let said = caller.status("kv");
            let threads = said["running"]["threads"].as_array().expect("threads").clone();
            let all = plane.standing();
            let said = Standing {
                parked: std::array::from_fn(|one| threads[one]["state"] == "parked"),
                groups: std::array::from_fn(|one| {
                    threads[one]["groups"].as_u64().expect("groups") as usize
                }),
            };
            if all.as_ref().is_some_and(|all| *all == said && is(all)) {
                return;
            }
            let seen = format_args!("{all:?}, said: {said:?}, shared: {:?}", plane.connections());
            assert!(began.elapsed() < PATIENCE, "in vain: {what}; {seen}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    plane.press(true);
    agreed("both threads run and share the connections", &|now| {
        let shares = |connections: &u64| *connections >= LINES as u64 / 4;
        now.parked == [false, false] && plane.connections().iter().all(shares)
    });
    plane.go_on();
    plane.press(false);
    agreed("one thread has all groups, the other sleeps", &|now| {
        now.parked == [false, true] && now.groups[1] == 0 && plane.connections()[0] == LINES as u64
    });
    plane.go_on();
    assert_eq!(caller.status("kv")["problem"], json!(null));
}

#[test]
fn killed_a_hundred_times_amid_migrations_and_grants_no_connection_notices() {
    let began = Instant::now();
    let dir = Dir::new("amid");
    let config = dir.config(&format!("{CONTROL}\n[log]\nlevel = \"error\""));
    dir.put("services/kv.toml", POLICY);
    let plane = Dataplane::start(&dir.path("run"), "kv");
    let seed = seed();
    println!("moments from TAILPLANE_KILL_SEED={seed}");
    let mut chance = Chance(seed);
    let mut hits: BTreeMap<Kind, usize> = BTreeMap::new();
    let mut kills = 0;
    let enough = |hits: &BTreeMap<Kind, usize>| {
        HITS_MIN.iter().all(|(kind, least)| hits.get(kind).is_some_and(|count| count >= least))
    };
    while kills < KILLS || kills < KILLS_MAX && !enough(&hits) {
        let mut hit = one_life(&plane, &config, &mut chance);
        hit.dedup();
        hit.into_iter().for_each(|kind| *hits.entry(kind).or_default() += 1);
        kills += 1;
        plane.go_on();
    }
    println!("{kills} kills, under way: {hits:?}; {:?}", began.elapsed());
    assert!(enough(&hits), "of {kills} kills too few hit something: {hits:?}");
    until("what was begun is completed", || plane.unanswered().is_empty());
    converges(&plane, &dir, &config);
    println!("converged after {:?}", began.elapsed());
    plane.end();
}

#[test]
fn only_one_daemon_has_a_run_directory() {
    let dir = Dir::new("twice");
    let config = dir.config(CONTROL);
    let first = Daemon::start(&config);
    Caller::connect(&dir);
    let second = Daemon::command(&config).output().expect("it ran");
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another tailplaned runs"), "{said}");
    Caller::connect(&dir);
    drop(first);
    // Killed as it was, it left its socket and its lock behind.
    let _third = Daemon::start(&config);
    until("the third one answers", || {
        let mut caller = Caller::connect(&dir);
        caller.send(&json!({ "method": "io.tailplane.Control.List" }));
        caller.hear().is_some()
    });
}
