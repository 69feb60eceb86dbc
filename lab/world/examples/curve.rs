//! A curve of latency over load, from the command line, with the simulator's own speed:
//!
//! ```text
//! cargo run --release -p world --example curve -- [SCHEDULER] [COSTS] [LAW] [MEAN_US] [B] [REQUESTS]
//! ```
//!
//! `SCHEDULER` is `run-to-completion` or `work-conserving`; `COSTS` is `zero`, `sandy-bridge-dune` or a file that `tailplane calibrate -o`
//! wrote.

use queueing::Law;
use world::cores::{
    Costs, Run, RunToCompletion, Scheduler, Search, Setup, WorkConserving, max_load_at_slo,
    simulate,
};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("run-to-completion") => curve(&RunToCompletion, words),
        Some("work-conserving") => curve(&WorkConserving::default(), words),
        other => {
            Err(format!("no scheduler {other:?}: run-to-completion or work-conserving").into())
        }
    }
}

fn curve<S: Scheduler>(
    scheduler: &S,
    mut words: impl Iterator<Item = String>,
) -> Result<(), Failure> {
    let mut word = |default: &str| words.next().unwrap_or_else(|| default.to_owned());
    let name = word("sandy-bridge-dune");
    let costs = match Costs::preset(&name) {
        Some(costs) => costs,
        None => Costs::from_toml(&std::fs::read_to_string(&name)?)?,
    };
    let law = word("exponential");
    let law = Law::from_name(&law).ok_or_else(|| format!("no law of service times: {law}"))?;
    let mean_us: f64 = word("10").parse()?;
    let batch: usize = word("1").parse()?;
    let requests: u64 = word("200000").parse()?;
    let setup = Setup { batch, ..Setup::zygos(costs, law, mean_us) };
    println!("{}, {}, {law:?} of {mean_us} us, B = {batch}", scheduler.name(), setup.costs);
    println!(
        " load   MRPS    p50    p99  busy  overhead  batch  stolen  steal borrow   turn   wait  simulated/s"
    );
    let loads: Vec<f64> = (1..20).map(|step| f64::from(step) * 0.05).collect();
    for load in loads {
        let outcome = simulate(scheduler, &setup, &Run::new(load, requests))?;
        let (counts, budget) = (outcome.counts(), outcome.budget());
        let each = |ns: f64| ns / counts.requests.max(1) as f64;
        println!(
            "{:5.2} {:6.3} {:6.1} {:6.1} {:5.2} {:7.0} ns {:6.2} {:7.3} {:6.0} {:6.0} {:6.0} {:6.0} {:8.0} k{}",
            load,
            outcome.throughput() / 1e6,
            outcome.latency_us(0.5),
            outcome.latency_us(0.99),
            outcome.busy(),
            outcome.overhead_ns(),
            counts.requests as f64 / counts.crossings.max(1) as f64,
            outcome.steal_rate(),
            each(budget.steal_ns),
            each(budget.borrow_ns),
            each(budget.turn_ns),
            each(budget.waiting_ns),
            outcome.speed() / 1e3,
            if outcome.given_up { "  overloaded" } else { "" },
        );
        // All beyond piles up requests, too.
        if outcome.given_up {
            break;
        }
    }
    let search = Search { requests, ..Search::zygos() };
    let found = max_load_at_slo(scheduler, &setup, &search)?;
    println!("load at p99 <= 10 S: {:.3} ({:.3} to {:.3})", found.mean, found.low, found.high);
    Ok(())
}
