//! A few cells of the figures at once, for work on the ready set itself.
//!
//! `cargo build --release -p notify --example probe && chrt -f 1 target/release/examples/probe`
//!
//! Prints medians over the quiet windows: nanoseconds an item, and light-load mean, median and p99.

use std::time::Duration;

use measure::stats::median_of;
use measure::{Plan, QUIET, Side, WindowError, contest, pin};
use notify::{Bench, Chain, Layout, Nothing, Shape, Strategy, Traffic, set_up};

const PLAN: Plan =
    Plan { windows: 9, tries: 40, pause: Duration::from_millis(20), quiet: QUIET, seed: 1 };
const LENGTH: Duration = Duration::from_millis(15);

fn place(side: Side) -> Result<(), WindowError> {
    pin(if side == Side::Consumer { 0 } else { 1 })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let step_ns = Chain::step_ns();
    println!("one step of work: {step_ns:.3} ns");
    let strategies = [Strategy::Spin, Strategy::Burst, Strategy::Exclusive, Strategy::Shared];
    for (shape, queues, layout) in [
        (Shape::FullyBalanced, 1, Layout::Packed),
        (Shape::FullyBalanced, 8, Layout::Packed),
        (Shape::FullyBalanced, 64, Layout::Paged),
        (Shape::FullyBalanced, 1_000, Layout::Paged),
        (Shape::SingleQueue, 1_000, Layout::Paged),
    ] {
        let bench = |strategy: &Strategy| {
            let ends = set_up(*strategy, queues, layout)?;
            Ok(Bench::new(ends, Traffic::new(shape, queues, 1), queues))
        };
        let mut benches =
            strategies.iter().map(bench).collect::<Result<Vec<_>, notify::SetUpError>>()?;
        let mut rows: Vec<String> =
            strategies.iter().map(|of| format!("{:<22}", of.name())).collect();
        for work_ns in [100.0, 400.0, 1_000.0] {
            let mut work = Chain::of(work_ns, step_ns);
            let found = contest(&mut benches, PLAN, |bench| {
                let found = bench.backlog(&place, LENGTH, &mut work)?;
                Ok::<_, WindowError>((found, found.disturbance))
            })?;
            for (row, kept) in rows.iter_mut().zip(found) {
                let time = median_of(kept.values(|found| found.ns_per_item));
                let idle = median_of(kept.values(|found| found.idle_looks_per_item));
                *row += &format!(" {time:>8.1} ({idle:>4.2})");
            }
        }
        let found = contest(&mut benches, PLAN, |bench| {
            let found = bench.light(&place, 2 * LENGTH, 20_000.0, &mut Nothing)?;
            let times = [found.mean_ns(), found.quantile_ns(0.5), found.quantile_ns(0.99)];
            Ok::<_, WindowError>((times, found.disturbance))
        })?;
        println!(
            "{} {queues} {layout:?}: ns an item (idle looks) by work; latency mean, p50, p99",
            shape.short()
        );
        for (row, kept) in rows.iter_mut().zip(found) {
            for index in 0..3 {
                *row += &format!(" {:>7.0}", median_of(kept.values(|times| times[index])));
            }
            println!("  {row}  {} quiet, {} not", kept.found.len(), kept.discarded);
        }
    }
    Ok(())
}
