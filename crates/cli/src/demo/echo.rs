//! 64-byte echo under a client on kernel sockets: our service beside the kernel's own stack with a
//! server that spins as ours does. Round-trip time, message rate at 32 and 1,000 connections, and
//! connect-request-close.

use std::net::{SocketAddr, SocketAddrV4};

use load::{CloseMode, KernelConfig, LoadConfig, LoadReport, Mode, Wait};

use super::kernel_echo::KernelEcho;
use super::measure::{CLIENT_CPU, Progress};
use super::report::{Echo, EchoSystem};
use super::systems::Tailplane;
use crate::lab::{Lab, in_namespace};
use crate::service::config::App;

const BYTES: u32 = 64;
/// Windows of which the median is told.
const REPEATS: usize = 5;
const WINDOW_MS: u64 = 400;
/// Connections that are opened and closed at a time.
const CHURN_SLOTS: u32 = 32;

/// Measures both servers.
///
/// # Errors
/// What could not be set up.
pub fn measure(
    lab: &Lab,
    churn_seconds: f64,
    seed: u64,
    progress: Progress<'_>,
) -> anyhow::Result<Echo> {
    progress("64-byte echo: tailplane, kernel client");
    let ours = Tailplane::start_spinning(lab, App::Echo)?;
    let tailplane =
        system(lab, "tailplane", Tailplane::echo_target(), churn_seconds, seed, progress)?;
    ours.stop()?;
    progress("64-byte echo: the kernel's stack, spinning server, kernel client");
    let theirs = KernelEcho::start(lab, Wait::Spin)?;
    let kernel =
        system(lab, "linux-spinning", KernelEcho::target(), churn_seconds, seed, progress)?;
    drop(theirs);
    Ok(Echo { bytes: BYTES, systems: vec![tailplane, kernel] })
}

fn system(
    lab: &Lab,
    name: &str,
    target: SocketAddrV4,
    churn_seconds: f64,
    seed: u64,
    progress: Progress<'_>,
) -> anyhow::Result<EchoSystem> {
    let run = |mode, connections, measure_ms| -> anyhow::Result<LoadReport> {
        let load = LoadConfig {
            mode,
            connections,
            measure_ms,
            warmup_ms: 100,
            seed,
            ..LoadConfig::echo(BYTES)
        };
        let transport = KernelConfig {
            target: SocketAddr::V4(target),
            wait: Wait::Spin,
            threads: 1,
            cores: vec![CLIENT_CPU],
        };
        Ok(in_namespace(lab.client(), || load::kernel::run(&load, &transport))??)
    };
    let median = |connections, key: fn(&LoadReport) -> f64| -> anyhow::Result<LoadReport> {
        let mut reports = Vec::new();
        for _ in 0..REPEATS {
            reports.push(run(Mode::closed(1), connections, WINDOW_MS)?);
        }
        reports.sort_by(|a, b| key(a).total_cmp(&key(b)));
        Ok(reports.swap_remove(REPEATS / 2))
    };
    let round_trip = median(1, |report| report.p50_us)?;
    let few = median(32, |report| report.achieved_rps)?;
    let many = median(1000, |report| report.achieved_rps)?;
    progress(&format!("{name}: connect, request, close for {churn_seconds} s"));
    let churn_mode = Mode::Churn { requests: 1, close: CloseMode::Rst };
    // In windows of a fifth each, so that a decay shows.
    let mut rates = Vec::new();
    let (mut errors, mut cycles) = (0, 0);
    for _ in 0..5 {
        let report = run(churn_mode, CHURN_SLOTS, (churn_seconds * 200.0).max(100.0) as u64)?;
        rates.push(report.achieved_rps);
        errors += report.errors;
        cycles += report.requests;
    }
    Ok(EchoSystem {
        name: name.to_owned(),
        round_trip_p50_us: round_trip.p50_us,
        round_trip_p99_us: round_trip.p99_us,
        rps_32: few.achieved_rps,
        rps_1000: many.achieved_rps,
        churn_cycles_per_s: rates,
        churn_cycles: cycles,
        churn_errors: errors,
        churn_seconds,
        churn_close: CloseMode::Rst.note().to_owned(),
    })
}
