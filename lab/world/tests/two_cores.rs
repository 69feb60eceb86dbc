//! Both schedulers on real threads: each connection's requests are seen in order, all of them once.

use clock::Duration;
use dataplane::ConservingConfig;
use world::two_cores::{Arrivals, Config, Found, Scheduler, run};

/// As many requests outstanding as fit few segments, of random service times around a microsecond.
fn pipelined(scheduler: Scheduler, one_sided: bool, total: u64, seed: u64) -> Found {
    let config = Config {
        scheduler,
        connections: 64,
        one_sided,
        arrivals: Arrivals::Closed { depth: 8, total },
        service_ns: 1_000.0,
        realtime: false,
        seed,
    };
    let found = run(&config).expect("two processors, and memory");
    println!("{scheduler:?}, one-sided {one_sided}: {found:?}");
    assert!(found.answered >= total, "{found:?}");
    assert_eq!((found.out_of_order, found.failures), (0, 0), "{found:?}");
    found
}

#[test]
fn requests_of_a_connection_keep_their_order() {
    pipelined(Scheduler::RunToCompletion, false, 20_000, 1);
    let mut stolen = 0;
    for (seed, one_sided) in [(2, false), (3, true)] {
        let scheduler = Scheduler::WorkConserving(ConservingConfig::default());
        stolen += pipelined(scheduler, one_sided, 100_000, seed).stolen;
    }
    assert!(stolen > 0, "nothing was stolen: the test shows nothing");
}

/// Crossings of one event, and network layers that are run for others at once: as much as can go wrong.
#[test]
fn they_do_so_where_everything_is_shared() {
    let eager = ConservingConfig {
        crossing: Duration::ZERO,
        borrow_after: Duration::ZERO,
        idle_after: Duration::ZERO,
        turns: 2,
        ..ConservingConfig::default()
    };
    let found = pipelined(Scheduler::WorkConserving(eager), true, 50_000, 4);
    assert!(found.stolen > 0 && found.borrowed > 0, "{found:?}");
}

#[test]
#[ignore = "ten million requests take half a minute"]
fn ten_million_requests_keep_their_order() {
    let scheduler = Scheduler::WorkConserving(ConservingConfig::default());
    let found = pipelined(scheduler, true, 10_000_000, 5);
    assert!(found.stolen > 100_000, "{found:?}");
}

/// What a simulation is given to predict a run: every request at the moment it was on the wire, and the times
/// that the client had of the second core.
#[test]
fn an_open_loop_tells_what_it_asked_and_when_it_was_held_up() {
    let config = Config {
        scheduler: Scheduler::RunToCompletion,
        connections: 64,
        one_sided: false,
        arrivals: Arrivals::Open { rate: 5e3, span: Duration::from_millis(200), depth: 4 },
        service_ns: 20_000.0,
        realtime: false,
        seed: 3,
    };
    let found = run(&config).expect("two processors, and memory");
    assert_eq!((found.out_of_order, found.failures, found.left), (0, 0, 0), "{found:?}");
    assert!((800..1_200).contains(&found.answered), "{found:?}");
    assert_eq!(found.asked.len() as u64, found.answered);
    assert!(found.asked.is_sorted_by_key(|asked| asked.after_ns));
    let asked_us = found.asked.iter().map(|asked| asked.service_ns as f64 / 1e3).sum::<f64>();
    assert!((asked_us / found.answered as f64 / found.service_us - 1.0).abs() < 1e-9);
    // From the wire on, no request can be served in less than it asks for; from when it was due, it takes longer.
    assert!(found.served_us[0] <= found.p50_us && found.served_us[1] <= found.p99_us);
    assert!(found.interruptions.is_sorted_by_key(|interruption| interruption.after_ns));
    let of_client: f64 = (found.interruptions.iter().filter(|one| one.core == 1))
        .map(|one| one.took_ns as f64 / 1e3)
        .sum();
    assert!(of_client >= found.client_us * found.answered as f64 * 0.99, "{found:?}");
}
