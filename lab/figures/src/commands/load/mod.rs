//! `tailplane load`: the load generator.
//!
//! ```text
//! tailplane load 10.77.0.2:11211 --workload usr --rate 100000 --connections 64
//! tailplane load 10.77.0.2:7 --workload echo:64 --connections 32          closed loop
//! tailplane load 10.77.0.2:11211 --transport dataplane --lab tailplane    our own client
//! tailplane load 10.77.0.2:7 --workload echo:64 --shm /run/echo.sock      the same, without a NIC
//! tailplane load 10.77.0.2:7070 --workload spin:exponential:10 --rate 50000 --probe
//! tailplane load 10.77.0.2:11211 --rate 100000 --pattern step --low 1000 --period 24 --seconds 24
//! tailplane load 10.77.0.2:11211 --slo-us 500 --repeats 6 --svg slo.svg    highest load in time
//! tailplane load 10.77.0.2:11211 --sweep 10000:200000:10 --svg curve.svg   latency over load
//! tailplane load 10.77.0.2:11211 --rate 1e6 --agents 4 --listen 0.0.0.0:7700   many machines
//! ```
//!
//! `arguments` says what can be asked; `carrier` carries one window, over whatever it is; `curve` makes many windows into
//! a search or a sweep; `picture` draws them; `dataplane` is our own client.

use std::process::ExitCode;

use anyhow::{Context, bail};
use load::{LoadConfig, Mode, Pattern, ProbeConfig, WorkloadConfig};

mod arguments;
mod carrier;
mod curve;
mod dataplane;
mod picture;
mod sweep;
#[cfg(test)]
mod tests;

pub use arguments::Args;
pub use dataplane::DataplaneClient;

use carrier::Carrier;
use curve::Curve;

/// Runs `tailplane load`.
///
/// # Errors
/// Settings that cannot be used, or what the transport could not do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = load_config(&args)?;
    let plan = curve::Plan::of(&args)?;
    let mut carrier = Carrier::open(&args)?;
    if let Some(plan) = plan {
        let curve = curve::measure(&plan, &config, &mut carrier);
        carrier.close(match &curve {
            Ok(curve) => curve.failed(),
            Err(error) => Some(format!("{error:#}")),
        });
        return show(&curve?, &args);
    }
    let report = carrier.window(&config);
    carrier.close(report.as_ref().err().map(|error| format!("{error:#}")));
    let report = report?;
    match args.json {
        true => println!("{}", report.to_json()),
        false => println!("{}", report.to_table()),
    }
    let what = if report.partial { "partial and invalid" } else { "invalid" };
    Ok(exit_code(what, report.invalid_reason.as_deref()))
}

/// Says why a result may not be used, where it may not.
fn exit_code(what: &str, invalid_reason: Option<&str>) -> ExitCode {
    let Some(reason) = invalid_reason else { return ExitCode::SUCCESS };
    eprintln!("tailplane: the result is {what}: {reason}");
    ExitCode::FAILURE
}

/// Prints a search or a sweep and draws it, as the arguments say.
///
/// # Errors
/// A picture that could not be written.
fn show(curve: &Curve, args: &Args) -> anyhow::Result<ExitCode> {
    match args.json {
        // Strings, numbers and lists of them always serialize.
        true => println!("{}", serde_json::to_string_pretty(curve).unwrap_or_default()),
        false => print!("{}", curve.to_table()),
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, picture::svg(curve))
            .with_context(|| format!("cannot write the plot '{}'", path.display()))?;
    }
    let what = if curve.partial { "partial" } else { "invalid" };
    Ok(exit_code(what, curve.invalid_reason.as_deref()))
}

fn load_config(args: &Args) -> anyhow::Result<LoadConfig> {
    let mut config = LoadConfig::new(WorkloadConfig::named(&args.workload)?);
    // Searches and sweeps begin with their first load.
    let first_rps = args.sweep.map(|sweep| sweep.low_rps).or(args.slo_us.map(|_| args.slo_start));
    config.mode = match (args.rate.or(first_rps), args.churn) {
        (Some(rps), _) => Mode::Open {
            rps,
            arrivals: args.arrivals,
            depth: args.depth.unwrap_or(load::Mode::open(rps).depth()),
        },
        (None, Some(requests)) => Mode::Churn { requests, close: args.close },
        (None, None) => Mode::closed(args.depth.unwrap_or(1)),
    };
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        bail!("`--seconds` is {}; allowed: above 0, to 3600", args.seconds);
    }
    if let Some(shape) = args.pattern {
        if !(args.period > 0.0 && args.period <= 3600.0) {
            bail!("`--period` is {}; allowed: above 0, to 3600", args.period);
        }
        config.pattern = Some(Pattern {
            shape,
            low_rps: args.low,
            period_ms: (args.period * 1000.0).ceil() as u64,
            seed: args.seed,
        });
    }
    config.connect_timeout_ms = args.connect_ms;
    config.probe = args
        .probe
        .then_some(ProbeConfig { connections: args.probe_connections, rps: args.probe_rate });
    config.series = args.series;
    config.hdr_log.clone_from(&args.hdr_log);
    config.connections = args.connections;
    config.measure_ms = (args.seconds * 1000.0).ceil() as u64;
    config.warmup_ms = args.warmup_ms;
    config.seed = args.seed;
    config.lag_limit_us = args.late_us;
    config.resolution_us = args.resolution_us;
    config.validate()?;
    Ok(config)
}
