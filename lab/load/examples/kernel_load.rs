//! A load over kernel sockets, from the command line:
//! `cargo run --release -p load --example kernel_load -- 127.0.0.1:11211 usr 50000 16`
//! (target, workload, requests per second or `closed`, `pingpong`, `fin`, `rst`, or `slo`,
//! connections).

use load::{
    CloseMode, KernelConfig, LoadConfig, LoadError, Mode, SearchConfig, Wait, WorkloadConfig,
    kernel, throughput_at_slo,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, workload, mode, connections] = arguments.as_slice() else {
        return Err("four arguments: TARGET WORKLOAD RATE|closed|pingpong|fin|rst|slo N".into());
    };
    let mut config = LoadConfig::new(WorkloadConfig::named(workload)?);
    config.connections = connections.parse()?;
    let transport = KernelConfig::new(target.parse()?);
    let report = match mode.as_str() {
        "pingpong" => {
            config.connections = 1;
            kernel::run(&config, &KernelConfig { wait: Wait::Spin, ..transport })?
        }
        "slo" => {
            let search = SearchConfig::default();
            config.measure_ms = 300;
            let found = throughput_at_slo(&search, |rps| -> Result<_, LoadError> {
                config.mode = Mode::open(rps);
                let report = kernel::run(&config, &transport)?;
                println!("{rps:>9.0} /s offered, p99 {:.1} us", report.p99_us);
                config.preload = false;
                Ok(report)
            })?;
            println!("limit: {:?}\n", found.limit);
            found.best.ok_or("not even the lowest load met the objective")?
        }
        mode => {
            config.mode = match mode {
                "closed" => Mode::closed(1),
                "fin" => Mode::Churn { requests: 1, close: CloseMode::Fin },
                "rst" => Mode::Churn { requests: 1, close: CloseMode::Rst },
                rate => Mode::open(rate.parse()?),
            };
            kernel::run(&config, &transport)?
        }
    };
    print!("{}", report.to_table());
    Ok(())
}
