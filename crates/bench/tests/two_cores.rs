//! Both schedulers on real threads: each connection's requests are seen in order, all of them once.

use clock::Duration;
use dataplane::ConservingConfig;
use tailplane_bench::two_cores::{Arrivals, Config, Found, Scheduler, run};

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
