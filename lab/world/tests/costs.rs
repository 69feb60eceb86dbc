//! The costs are charged, each where it belongs, and nothing else takes time.

use queueing::Law;
use world::cores::{
    CoreParts, Costs, Looks, Run, RunToCompletion, Scheduler, Setup, WorldError, simulate,
};

/// Each cost is a number of its own, so that one that is charged twice or not at all is seen.
fn odd() -> Costs {
    Costs {
        cycle: 100.0,
        receive: 1_001.0,
        segment: 2_003.0,
        crossing: 4_007.0,
        event: 8_009.0,
        call: 16_033.0,
        transmit: 32_069.0,
        doorbell: 64_151.0,
        ..Costs::zero()
    }
}

fn small(costs: Costs) -> Setup {
    let setup = Setup::zygos(costs, Law::Deterministic, 10.0);
    Setup { cores: 2, connections: 16, wire_ns: 700, ..setup }
}

#[test]
fn a_lone_request_takes_the_sum_of_its_costs() {
    let least = 2.0 * 700.0
        + 1_001.0
        + 2_003.0
        + 4_007.0
        + 8_009.0
        + 10_000.0
        + 2.0 * 16_033.0
        + 32_069.0
        + 64_151.0;
    // One request in half a second: none ever waits for another, nor for the acknowledgment of another's
    // answer. In half a minute no neighbour is asked again for its link address.
    let run = Run::new(1e-5, 50);
    let outcome = simulate(&RunToCompletion, &small(odd()), &run).expect("a valid run");
    let (lowest, highest) = (outcome.latency_ns.quantile(0.0), outcome.latency_ns.max());
    // The cycle's own 100 ns, and up to as much until the idle core polls.
    assert!(lowest >= least + 100.0, "{lowest} {least}");
    assert!(lowest < least + 125.0, "some request comes just before a poll: {lowest} {least}");
    assert!(highest <= least + 200.0 && highest > least + 175.0, "{highest} {least}");
    // Without a poll period it is the very sum, every time, and steps are charged to their cause.
    let exact = small(Costs { cycle: 0.0, ..odd() });
    let outcome = simulate(&RunToCompletion, &exact, &run).expect("a valid run");
    assert_eq!((outcome.latency_ns.quantile(0.0), outcome.latency_ns.max()), (least, least));
    let (budget, counts) = (outcome.budget(), outcome.counts());
    let network = counts.packets as f64 * 3_004.0
        + counts.calls as f64 * 16_033.0
        + counts.frames as f64 * (32_069.0 + 64_151.0);
    assert_eq!(budget.network_ns, network);
    let crossing = counts.crossings as f64 * 4_007.0 + counts.events as f64 * 8_009.0;
    assert_eq!(budget.crossing_ns, crossing);
    assert_eq!(budget.application_ns, counts.requests as f64 * 10_000.0);
    assert_eq!((budget.steal_ns, counts.steals, counts.packets_abroad), (0.0, 0, 0));
    assert_eq!(counts.calls, 2 * counts.requests);
}

#[test]
fn a_sleeping_core_is_woken() {
    let costs = Costs { wake: 50_000.0, ..Costs::zero() };
    let spinning = small(costs);
    let sleeping = Setup { sleep_after_ns: Some(1_000), ..spinning.clone() };
    let run = Run::new(2e-6, 200);
    let longest = |setup: &Setup| {
        simulate(&RunToCompletion, setup, &run).expect("a valid run").latency_ns.max()
    };
    assert_eq!(longest(&spinning), 11_400.0);
    assert_eq!(longest(&sleeping), 61_400.0);
}

#[test]
fn batching_shares_what_a_cycle_costs_once() {
    let costs = Costs::sandy_bridge_dune();
    // More than one request a cycle can serve, less than batches of them can.
    let alone = Setup { connections: 256, ..small(costs) };
    let alone = Setup { mean_us: 1.0, ..alone };
    let many = Setup { batch: 64, ..alone.clone() };
    let load = 0.30;
    assert!(load > 1_000.0 / (1_000.0 + alone.costs.per_request(1.0)));
    let run = Run::new(load, 40_000);
    let alone = simulate(&RunToCompletion, &alone, &run).expect("a valid run");
    let many = simulate(&RunToCompletion, &many, &run).expect("a valid run");
    assert!(alone.busy() > 0.99 && alone.latency_us(0.99) > 10.0 * many.latency_us(0.99));
    let counts = many.counts();
    assert!(counts.requests > 2 * counts.crossings, "{counts:?}");
    assert!(many.overhead_ns() < 0.8 * alone.overhead_ns());
}

/// Run to completion whose idle cores look at everything: whatever happens anywhere makes them poll.
struct Restless;

impl Scheduler for Restless {
    type Thread = <RunToCompletion as Scheduler>::Thread;

    fn name(&self) -> &'static str {
        "restless"
    }

    fn looks(&self) -> Looks {
        Looks::Everywhere
    }

    fn threads(&self, parts: CoreParts) -> Vec<Self::Thread> {
        RunToCompletion.threads(parts)
    }
}

#[test]
fn polls_that_are_left_out_are_not_missed() {
    let setup = Setup { law: Law::Exponential, ..small(Costs::sandy_bridge_dune()) };
    let setup = Setup { cores: 4, connections: 100, ..setup };
    let run = Run::new(0.5, 20_000);
    let resting = simulate(&RunToCompletion, &setup, &run).expect("a valid run");
    let restless = simulate(&Restless, &setup, &run).expect("a valid run");
    assert!(restless.steps > resting.steps + 10_000, "{} {}", restless.steps, resting.steps);
    assert_eq!(restless.counts, resting.counts);
    assert_eq!(restless.budgets, resting.budgets);
    for share in [0.0, 0.5, 0.9, 0.99, 1.0] {
        assert_eq!(restless.latency_ns.quantile(share), resting.latency_ns.quantile(share));
    }
}

#[test]
fn one_seed_replays_one_run() {
    let setup = Setup { law: Law::Bimodal1, ..small(Costs::sandy_bridge_dune()) };
    let outcome = |seed| {
        let run = Run { seed, ..Run::new(0.4, 5_000) };
        let outcome = simulate(&RunToCompletion, &setup, &run).expect("a valid run");
        (outcome.steps, outcome.latency_ns.mean(), outcome.counts, outcome.budgets)
    };
    assert_eq!(outcome(3), outcome(3));
    assert_ne!(outcome(3), outcome(4));
}

#[test]
fn more_than_can_be_served_is_given_up_and_nonsense_refused() {
    let setup = small(Costs::zero());
    let run = Run { warmup: 0, ..Run::new(3.0, 1_000_000) };
    let outcome = simulate(&RunToCompletion, &setup, &run).expect("runs");
    assert!(outcome.given_up && outcome.completed < outcome.due);
    assert!(outcome.busy() > 0.99);
    for bad in [
        Setup { cores: 0, ..setup.clone() },
        Setup { batch: 0, ..setup.clone() },
        Setup { connections: 1 << 20, ..setup.clone() },
        Setup { mean_us: f64::NAN, ..setup.clone() },
        Setup { costs: Costs { wake: -1.0, ..Costs::zero() }, ..setup.clone() },
    ] {
        let error = simulate(&RunToCompletion, &bad, &Run::new(0.5, 10)).expect_err("refused");
        assert!(matches!(error, WorldError::Invalid { .. } | WorldError::Costs(_)), "{error}");
    }
    assert!(simulate(&RunToCompletion, &setup, &Run::new(0.0, 10)).is_err());
}

/// Makes fewer threads than it should.
struct Lazy;

impl Scheduler for Lazy {
    type Thread = <RunToCompletion as Scheduler>::Thread;

    fn name(&self) -> &'static str {
        "lazy"
    }

    fn looks(&self) -> Looks {
        Looks::AtItsOwn
    }

    fn threads(&self, mut parts: CoreParts) -> Vec<Self::Thread> {
        parts.cores.pop();
        RunToCompletion.threads(parts)
    }
}

#[test]
fn a_scheduler_that_leaves_a_core_out_is_refused() {
    let error = simulate(&Lazy, &small(Costs::zero()), &Run::new(0.5, 10)).expect_err("refused");
    assert_eq!(error, WorldError::Threads { scheduler: "lazy", made: 1, cores: 2 });
}
