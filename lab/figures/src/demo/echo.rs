//! 64-byte echo under a client on kernel sockets: our service beside the kernel's own stack with a
//! server that spins as ours does. Round-trip time, message rate at 32 and 1,000 connections, and
//! connect-request-close.
//!
//! The two servers take turns, in rounds of short windows whose order a seed draws, and each round gives one ratio: what
//! the machine's neighbours do in a minute then touches both alike.

use std::net::SocketAddrV4;

use anyhow::bail;
use load::{CloseMode, LoadConfig, LoadReport, Mode, Wait};
use measure::stats::median_of;
use measure::{QUIET, rounds, until_quiet, watched};

use super::config::{News, Progress};
use super::processors::CLIENT_CPU;
use super::report::{Churn, Echo, EchoRatio, EchoSystem};
use super::sockperf;
use super::window::TRIES;
use crate::commands::load::DataplaneClient;
use crate::reproduce::testbed::{Client as From, Server, carry, start};
use service::lab::Lab;

const BYTES: u32 = 64;
/// Rounds of the two servers.
pub(super) const ROUNDS: usize = 9;
const WINDOW_MS: u64 = 300;
/// Connections that are opened and closed at a time.
const CHURN_SLOTS: u32 = 32;

/// What one server did in one round.
struct Round {
    round_trip: LoadReport,
    rps_32: f64,
    rps_1000: f64,
}

/// Windows of connect-request-close in a row, so that a decay shows.
const CHURN_WINDOWS: u32 = 5;

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
    let client = Client { lab, seed };
    let mut servers = [Server::Tailplane, Server::LinuxSpinning];
    let mut windows = 0;
    let kept = rounds(&mut servers, ROUNDS, seed, |server| {
        windows += 1;
        progress(News::Step(&format!("64-byte echo, kernel client: {windows} of {}", 2 * ROUNDS)));
        let (_running, target) = start(lab, *server)?;
        client.round(target)
    })?;
    let [ours, kernels] = kept.as_slice() else { bail!("two servers had no two results") };
    let sockperf = sockperf::measure(lab, seed, progress)?;
    let says = format!("connect, request, close for {churn_seconds} s");
    progress(News::Step(&format!("tailplane: {says}")));
    let (service, target) = start(lab, Server::Tailplane)?;
    let our_churn = client.churn(target, churn_seconds)?;
    progress(News::Step(&format!("tailplane: {says}, our own client")));
    let own_client_churn = churn(churn_seconds, |load| {
        DataplaneClient::open(lab, 1, &[CLIENT_CPU])?.run(&client.load(load), target)
    })?;
    drop(service);
    progress(News::Step(&format!("linux-spinning: {says}")));
    let (service, target) = start(lab, Server::LinuxSpinning)?;
    let kernel_churn = client.churn(target, churn_seconds)?;
    drop(service);

    let ratio = |key: fn(&Round) -> f64| {
        median_of(ours.paired(kernels).map(|(ours, kernel)| key(ours) / key(kernel)))
    };
    let ratio = EchoRatio {
        rounds: ROUNDS,
        round_trip_p50: 1.0 / ratio(|round| round.round_trip.p50_us),
        rps_32: ratio(|round| round.rps_32),
        rps_1000: ratio(|round| round.rps_1000),
    };
    let systems = vec![
        system("tailplane", &ours.found, our_churn),
        system("linux-spinning", &kernels.found, kernel_churn),
    ];
    Ok(Echo { bytes: BYTES, systems, ratio, sockperf, own_client_churn })
}

/// The medians of all rounds.
fn system(name: &str, rounds: &[Round], churn: Churn) -> EchoSystem {
    let median = |key: fn(&Round) -> f64| median_of(rounds.iter().map(key));
    EchoSystem {
        name: name.to_owned(),
        round_trip_p50_us: median(|round| round.round_trip.p50_us),
        round_trip_p99_us: median(|round| round.round_trip.p99_us),
        rps_32: median(|round| round.rps_32),
        rps_1000: median(|round| round.rps_1000),
        churn,
    }
}

/// Connect-request-close, in windows that `run` measures.
fn churn(
    seconds: f64,
    mut run: impl FnMut(Windowed) -> anyhow::Result<LoadReport>,
) -> anyhow::Result<Churn> {
    let mode = Mode::Churn { requests: 1, close: CloseMode::Rst };
    let window_s = seconds / f64::from(CHURN_WINDOWS);
    let measure_ms = ((window_s * 1e3) as u64).max(100);
    let mut churn = Churn {
        cycles_per_s: Vec::new(),
        cycles: 0,
        errors: 0,
        seconds,
        close: CloseMode::Rst.note().to_owned(),
    };
    for _ in 0..CHURN_WINDOWS {
        let report = run(Windowed { mode, connections: CHURN_SLOTS, measure_ms })?;
        churn.cycles_per_s.push(report.achieved_rps);
        churn.errors += report.errors;
        churn.cycles += report.requests;
    }
    Ok(churn)
}

/// What a window measures.
#[derive(Clone, Copy)]
struct Windowed {
    mode: Mode,
    connections: u32,
    measure_ms: u64,
}

/// The client's end.
struct Client<'a> {
    lab: &'a Lab,
    seed: u64,
}

impl Client<'_> {
    fn round(&self, target: SocketAddrV4) -> anyhow::Result<Round> {
        Ok(Round {
            round_trip: self.quiet(1, target)?,
            rps_32: self.quiet(32, target)?.achieved_rps,
            rps_1000: self.quiet(1_000, target)?.achieved_rps,
        })
    }

    /// A window, again where somebody else used the machine, a few times.
    fn quiet(&self, connections: u32, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        let window = Windowed { mode: Mode::closed(1), connections, measure_ms: WINDOW_MS };
        let again = || watched(&[], || self.run(window, target));
        Ok(until_quiet(TRIES, &QUIET, again)?.0)
    }

    fn churn(&self, target: SocketAddrV4, seconds: f64) -> anyhow::Result<Churn> {
        churn(seconds, |window| self.run(window, target))
    }

    fn load(&self, window: Windowed) -> LoadConfig {
        let Windowed { mode, connections, measure_ms } = window;
        let seed = self.seed;
        LoadConfig {
            mode,
            connections,
            measure_ms,
            warmup_ms: 100,
            seed,
            ..LoadConfig::echo(BYTES)
        }
    }

    fn run(&self, window: Windowed, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        carry(self.lab, From::Kernel(Wait::Spin), &self.load(window), target)
    }
}
