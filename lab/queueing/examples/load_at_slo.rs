//! Maximum load at p99 <= 10 S for the four laws and the four models of ZygOS §2.3, n = 16.
//!
//! ```text
//! cargo run --release -p queueing --example load_at_slo -- 2000000 3
//! ```
//!
//! The arguments are the requests of a run and the replications. It also says how many requests a
//! second were simulated.

use std::time::Instant;

use queueing::{Exceeding, Law, Model, Replications, Service, max_load_at_slo, observe};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let jobs = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let count = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let runs = Replications { count, ..Replications::new().of_jobs(jobs) };
    for law in Law::ALL {
        let service = Service::unit(law);
        for model in Model::zygos(16) {
            let since = Instant::now();
            let run = runs.run(0, &service, 0.5);
            observe(&model, &run, &mut Exceeding::new(run.window(&model), 10.0))?;
            let rate = (run.jobs + run.warmup) as f64 / since.elapsed().as_secs_f64() / 1e6;
            let load = max_load_at_slo(&model, &service, 0.99, 10.0, &runs)?;
            println!(
                "{:14} {:18} {:6.2} % [{:.2}, {:.2}]  {rate:.1} M requests/s at half load",
                law.name(),
                model.name(),
                100.0 * load.mean,
                100.0 * load.low,
                100.0 * load.high,
            );
        }
    }
    Ok(())
}
