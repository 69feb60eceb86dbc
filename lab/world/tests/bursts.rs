//! Work conservation with sleeping cores (ZygOS §4): a burst at one core is served by as many cores as it needs, each
//! within a few microseconds, though most of them sleep when it comes.

use std::sync::Arc;

use dataplane::{Classes, ConservingConfig, ServicePolicy, WhileAway};
use queueing::Law;
use world::cores::{
    Costs, Outcome, Planned, Replay, Run, Scheduler, Setup, WorkConserving, simulate,
};

/// Requests of the burst, and how long each takes.
const BURST: usize = 8;
const LONG_NS: u64 = 1_000_000;
/// Short requests keep a quarter of the cores awake until the burst comes.
const AWAKE_NS: u64 = 2_000_000;
const SHORT_NS: u64 = 500;
const EVERY_NS: u64 = 8_000;
/// Idle cores sleep after so long.
const SLEEP_AFTER_NS: u64 = 20_000;
/// Within so long each core that is needed serves.
const REACTION_US: f64 = 20.0;

/// One burst at core 0 of so many cores, three quarters of which sleep.
fn burst(cores: usize) -> Setup {
    let at = |part: usize, of: usize| (part as f64 + 0.5) / of as f64;
    let mut requests = Vec::new();
    for after_ns in (EVERY_NS..AWAKE_NS).step_by(EVERY_NS as usize) {
        for core in 0..cores / 4 {
            let (home, among) = (at(core, cores), at(requests.len() % 7, 7));
            requests.push(Planned { after_ns, home, among, service_ns: SHORT_NS });
        }
    }
    for number in 0..BURST {
        let (home, among) = (at(0, cores), at(number, BURST));
        requests.push(Planned { after_ns: AWAKE_NS, home, among, service_ns: LONG_NS });
    }
    // What cores do is counted until the last request is due.
    let (home, among, after_ns) = (at(0, cores), at(0, BURST), AWAKE_NS + 4 * LONG_NS);
    requests.push(Planned { after_ns, home, among, service_ns: SHORT_NS });
    let setup = Setup::zygos(Costs::sandy_bridge_dune(), Law::Deterministic, 10.0);
    let replay = Some(Arc::new(Replay { requests, interruptions: Vec::new() }));
    let connections = 64 * cores;
    let sleep_after_ns = Some(SLEEP_AFTER_NS);
    Setup { cores, batch: 64, connections, replay, sleep_after_ns, ..setup }
}

fn serve(scheduler: &impl Scheduler, cores: usize, seed: u64) -> Outcome {
    let run = Run { seed, ..Run::new(0.1, 1) };
    simulate(scheduler, &burst(cores), &run).expect("a valid run")
}

/// The longest latency of a burst for which each core serves so many requests, one after the other.
fn bound_us(rounds: f64) -> f64 {
    let setup = burst(4);
    let each_us = (LONG_NS as f64 + setup.costs.per_request(1.0)) / 1e3;
    2.0 * setup.wire_ns as f64 / 1e3 + rounds * (each_us + REACTION_US)
}

/// Three quarters of the cores sleep when the burst comes, and those that it needs take their first step soon.
fn all_slept_and_begin_soon(outcome: &Outcome, what: &str) {
    let cores = outcome.naps.len();
    let came_ns = AWAKE_NS + burst(cores).wire_ns;
    let slept = outcome.naps.iter().filter_map(|naps| naps.iter().find(|nap| nap.holds(came_ns)));
    let mut ends: Vec<u64> = slept.map(|nap| nap.to_ns).collect();
    assert_eq!(ends.len(), cores - cores / 4, "{what}: cores that sleep");
    ends.sort_unstable();
    // Those that are awake serve, too.
    let needed = &ends[..cores.min(BURST) - cores / 4];
    let latest_us = (needed[needed.len() - 1] - came_ns) as f64 / 1e3;
    assert!(latest_us <= REACTION_US, "{what}: the last core begins after {latest_us} us");
}

fn all_needed_cores_serve(scheduler: &impl Scheduler) {
    for seed in 1..=5 {
        for (cores, rounds) in [(4, 2.0), (16, 1.0)] {
            let outcome = serve(scheduler, cores, seed);
            let busy = outcome.budgets.iter().filter(|one| one.application_ns >= LONG_NS as f64);
            let (busy, longest) = (busy.count(), outcome.latency_ns.max() / 1e3);
            let what = format!("{} on {cores} cores, seed {seed}", scheduler.name());
            assert_eq!(busy, cores.min(BURST), "{what}: cores that serve");
            all_slept_and_begin_soon(&outcome, &what);
            assert!(longest <= bound_us(rounds), "{what}: {longest} us, {}", bound_us(rounds));
        }
    }
}

#[test]
fn a_burst_wakes_as_many_cores_as_it_needs() {
    all_needed_cores_serve(&WorkConserving::default());
}

#[test]
fn it_does_so_where_nobody_runs_the_network_layer_of_a_busy_core() {
    for while_away in [WhileAway::Wait, WhileAway::Kick] {
        let config = ConservingConfig { while_away, ..ConservingConfig::default() };
        all_needed_cores_serve(&WorkConserving { config });
    }
}

#[test]
fn it_does_so_where_the_cores_share_one_ready_set() {
    let classes = Classes::new(ServicePolicy::RoundRobin);
    all_needed_cores_serve(&WorkConserving::default().by_class(classes));
}

/// Short requests that their own core serves at once wake nobody: a core that sleeps saves energy.
#[test]
fn a_trickle_lets_the_others_sleep() {
    let mut setup = burst(4);
    let mut replay = Replay::clone(setup.replay.as_deref().expect("there is one"));
    replay.requests.retain(|request| request.service_ns == SHORT_NS);
    // But for the very last, after whose arrival nothing is counted.
    let served = replay.requests.len() as u64 - 1;
    setup.replay = Some(Arc::new(replay));
    let run = Run::new(0.1, 1);
    let outcome = simulate(&WorkConserving::default(), &setup, &run).expect("a valid run");
    assert_eq!(outcome.counts[0].requests, served, "{:?}", outcome.counts);
}

/// All cores are busy when the burst comes to core 0, which takes it in while none is idle. Whoever is done first is to
/// find the events of a core that is in the application with one of them.
#[test]
fn a_burst_is_found_by_cores_that_were_busy_when_it_came() {
    let cores = 4;
    let home = |core: usize| (core as f64 + 0.5) / cores as f64;
    // Core 0 is the first to be done, and takes the burst in.
    let keep_busy = |core: usize| Planned {
        after_ns: AWAKE_NS,
        home: home(core),
        among: 0.9,
        service_ns: LONG_NS / 4 + core as u64 * LONG_NS / 40,
    };
    let of_burst = |number: usize| {
        let (after_ns, among) = (AWAKE_NS + LONG_NS / 8, number as f64 / 10.0);
        Planned { after_ns, home: home(0), among, service_ns: LONG_NS }
    };
    let last = Planned { after_ns: AWAKE_NS + 5 * LONG_NS, service_ns: SHORT_NS, ..of_burst(0) };
    let requests = (0..cores).map(keep_busy).chain((0..BURST).map(of_burst)).chain([last]);
    let replay = Replay { requests: requests.collect(), interruptions: Vec::new() };
    let setup = Setup { replay: Some(Arc::new(replay)), sleep_after_ns: None, ..burst(cores) };
    for while_away in [WhileAway::Borrow, WhileAway::Kick] {
        let config = ConservingConfig { while_away, ..ConservingConfig::default() };
        for seed in 1..=5 {
            let run = Run { seed, ..Run::new(0.1, 1) };
            let outcome = simulate(&WorkConserving { config }, &setup, &run).expect("a valid run");
            let longest = outcome.latency_ns.max() / 1e3;
            // What is left of the requests before, and two for each core.
            let bound = bound_us(2.0) + 0.3 * LONG_NS as f64 / 1e3;
            assert!(longest <= bound, "{while_away:?}, seed {seed}: {longest} us, {bound} us");
        }
    }
}
