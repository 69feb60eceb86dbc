//! A few cells of the figures at once, for work on the ready set itself.
//!
//! `cargo build --release -p tailplane-notify --example probe && chrt -f 1 target/release/examples/probe`
//!
//! Prints medians over the quiet windows: nanoseconds an item, and light-load mean, median and p99.

use std::time::Duration;

use notify::window::pin;
use notify::{Bench, Chain, Disturbance, Layout, Nothing, Shape, Side, Strategy, Traffic, set_up};

const WINDOWS: usize = 9;
const TRIES: usize = 40;
const LENGTH: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(25);

fn place(side: Side) -> Result<(), String> {
    pin(if side == Side::Consumer { 0 } else { 1 })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn windows<T>(mut window: impl FnMut() -> (T, Disturbance)) -> Vec<T> {
    let mut kept = Vec::new();
    for _ in 0..TRIES {
        std::thread::sleep(PAUSE);
        let (found, disturbance) = window();
        if disturbance.is_quiet() {
            kept.push(found);
        }
        if kept.len() == WINDOWS {
            break;
        }
    }
    kept
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
        for strategy in strategies {
            let mut row =
                format!("{} {queues:>5} {layout:?} {:<20}", shape.short(), strategy.name());
            let ends = set_up(strategy, queues, layout)?;
            let mut bench = Bench::new(ends, Traffic::new(shape, queues, 1), queues);
            let mut idle = 0.0f64;
            for work_ns in [100.0, 400.0, 1_000.0] {
                let mut work = Chain::of(work_ns, step_ns);
                let found = windows(|| {
                    let found = bench.backlog(&place, LENGTH, &mut work).expect("ran");
                    idle = idle.max(found.idle_looks_per_item);
                    (found.ns_per_item, found.disturbance)
                });
                row += &format!(" {:>8.1}", median(found));
            }
            let found = windows(|| {
                let found = bench.light(&place, 2 * LENGTH, 20_000.0, &mut Nothing).expect("ran");
                let times = [found.mean_ns(), found.quantile_ns(0.5), found.quantile_ns(0.99)];
                (times, found.disturbance)
            });
            for index in 0..3 {
                row +=
                    &format!(" {:>7.0}", median(found.iter().map(|times| times[index]).collect()));
            }
            println!("{row}  ({} quiet; idle looks {idle:.3})", found.len());
        }
    }
    Ok(())
}
