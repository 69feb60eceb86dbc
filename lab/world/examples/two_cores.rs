//! Both schedulers on two processors, with one core's connections idle.
use clock::Duration;
use world::two_cores::{Arrivals, Config, Scheduler, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let service_us: f64 = args.next().map_or(Ok(50.0), |arg| arg.parse())?;
    let one_sided = args.next().is_none_or(|arg| arg == "one");
    for load in [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.2, 1.4, 1.6, 1.7, 1.8] {
        for scheduler in [Scheduler::RunToCompletion, Scheduler::WorkConserving(Default::default())]
        {
            let config = Config {
                scheduler,
                connections: 64,
                one_sided,
                arrivals: Arrivals::Open {
                    rate: load * 1e6 / service_us,
                    span: Duration::from_millis(400),
                    depth: 4,
                },
                service_ns: service_us * 1e3,
                realtime: true,
                seed: 7,
            };
            let found = run(&config)?;
            let name = match scheduler {
                Scheduler::RunToCompletion => "rtc",
                Scheduler::WorkConserving(_) => "wc",
            };
            println!("{load} {name} {found:?}");
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
    }
    Ok(())
}
