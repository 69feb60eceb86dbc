//! A curve of latency over load, from the command line, with the simulator's own speed:
//!
//! ```text
//! cargo run --release -p tailplane-multicore --example curve -- [COSTS] [LAW] [MEAN_US] [B] [REQUESTS]
//! ```
//!
//! `COSTS` is `zero`, `sandy-bridge-dune` or a file that `tailplane calibrate -o`
//! wrote.

use multicore::{Costs, RunToCompletion, Scheduler, Search, Setup, max_load_at_slo, sweep};
use queueing::Law;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
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
    println!("{}, {}, {law:?} of {mean_us} us, B = {batch}", RunToCompletion.name(), setup.costs);
    println!(" load   MRPS    p50    p99  busy  overhead  batch  simulated/s");
    let loads: Vec<f64> = (1..20).map(|step| f64::from(step) * 0.05).collect();
    for point in sweep(&RunToCompletion, &setup, &loads, requests, 1)? {
        let outcome = point.outcome;
        let counts = outcome.counts();
        println!(
            "{:5.2} {:6.3} {:6.1} {:6.1} {:5.2} {:7.0} ns {:6.2} {:8.0} k{}",
            point.load,
            outcome.throughput() / 1e6,
            outcome.latency_us(0.5),
            outcome.latency_us(0.99),
            outcome.busy(),
            outcome.overhead_ns(),
            counts.requests as f64 / counts.crossings.max(1) as f64,
            outcome.speed() / 1e3,
            if outcome.given_up { "  overloaded" } else { "" },
        );
    }
    let search = Search { requests, ..Search::zygos() };
    let found = max_load_at_slo(&RunToCompletion, &setup, &search)?;
    println!("load at p99 <= 10 S: {:.3} ({:.3} to {:.3})", found.mean, found.low, found.high);
    Ok(())
}
