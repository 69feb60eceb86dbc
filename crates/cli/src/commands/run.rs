//! `tailplane run`: a service on the dataplane.
//!
//! ```text
//! tailplane run docs/kv.toml            in a terminal; Ctrl-C ends it
//! tailplane lab exec -- ping 10.77.0.2  in another one
//! tailplane run docs/echo.toml -- ./my-service   a program of one's own, in a process of its own
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use tailplane::runtime::CoreReport;

use crate::cleanup;
use crate::service::config::{DomainName, NetworkConfig, RunConfig};
use crate::service::host::{Host, lab};

/// Arguments of `tailplane run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration: TOML; `docs/kv.toml` and `docs/echo.toml` show every key.
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
    /// End after this many seconds instead of at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// A program to serve instead of the built-in service, in a process of its own (the `process` domain): one
    /// that uses `tailplane::application::serve`. Of `[service]` only the ports count then.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs `tailplane run`.
///
/// # Errors
/// What the configuration, the lab or the dataplane could not do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut config = RunConfig::load(&args.config)?;
    if !args.program.is_empty() {
        config.dataplane.domain = DomainName::Process;
    }
    let stop = Arc::new(AtomicBool::new(false));
    cleanup::first_signal_sets(Arc::clone(&stop)).context("catching signals")?;
    let lab = lab(&config)?;
    let host = Host::open(&config, lab.as_ref())?;
    let announcement = announcement(&config, &host);
    if let Some(seconds) = args.seconds {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(seconds));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
    let ready = || print!("{announcement}");
    let reports = match &args.program[..] {
        [] => host.run_app(&config, ready, &stop)?,
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments);
            host.run_program(&config, command, ready, &stop)?
        }
    };
    summarize(&reports);
    drop(lab);
    Ok(ExitCode::SUCCESS)
}

/// What is active, so that nobody has to guess.
fn announcement(config: &RunConfig, host: &Host) -> String {
    let (stack, plane) = (&host.runtime.stack, &config.dataplane);
    let idle = match plane.spin_us {
        ..0 => "spins for ever".to_owned(),
        spin => format!("sleeps after {spin} us without work"),
    };
    let try_it = match &config.network {
        NetworkConfig { interface: None, shm: None, .. } => {
            format!("  try it     tailplane lab exec -- ping -c 3 {}\n", stack.address)
        }
        NetworkConfig { shm: Some(path), .. } => format!(
            "  try it     tailplane load {}:{} --shm {}\n",
            stack.address,
            config.service.port(),
            path.display()
        ),
        _ => String::new(),
    };
    format!(
        "{:?} at {}:{}\n  driver     {}\n  threads    {} ({idle}), B = {}\n  \
         scheduler  {}, domain {}\n{try_it}",
        config.service.app,
        stack.address,
        config.service.port(),
        host.driver,
        plane.threads,
        plane.batch,
        plane.describe_scheduler(),
        plane.describe_domain(),
    )
}

fn summarize(reports: &[CoreReport]) {
    for (core, report) in reports.iter().enumerate() {
        let (connections, _) = report.footprint;
        println!(
            "thread {core}: {} packets in, {} out, {} cycles with work ({:.1} ms), {} sleeps, {} \
             connections accepted, {connections} left, {} reset",
            report.nic.rx_frames,
            report.nic.tx_frames,
            report.cycle.busy_cycles,
            report.busy_ns as f64 / 1e6,
            report.sleeps,
            report.stack.tcp_accepted,
            report.left.connections.reset,
        );
        let odd = report.stack.entries().filter(|(name, value)| {
            *value > 0 && (name.contains("drop") || name.contains("bad") || *name == "malformed")
        });
        let left = report.left;
        let unfinished = [
            ("not_reset_in_time", left.connections.untold),
            ("packet_memory_lost", u64::from(left.memory.lost)),
        ];
        for (name, value) in odd.chain(unfinished.into_iter().filter(|(_, value)| *value > 0)) {
            println!("  {name}: {value}");
        }
    }
}
