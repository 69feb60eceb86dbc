//! 64-byte echo under a client on kernel sockets: our service beside the kernel's own stack with a
//! server that spins as ours does. Round-trip time, message rate at 32 and 1,000 connections, and
//! connect-request-close.
//!
//! The two servers take turns, in rounds of short windows whose order a seed draws, and each round gives one ratio: what
//! the machine's neighbours do in a minute then touches both alike.

use std::net::SocketAddrV4;

use anyhow::bail;
use load::{CloseMode, LoadConfig, LoadReport, Mode, Wait};
use measure::{Disturbance, Kept, QUIET, Tried, contest, until_quiet, watched};
use reproduce::{Measured, Progress};

use super::processors::CLIENT_CPU;
use super::report::{Churn, Echo, EchoRatio, EchoRound, EchoSystem};
use super::sockperf;
use super::window::{TRIES, disturbed_words, every_round};
use crate::commands::load::DataplaneClient;
use crate::reproduce::testbed::{Client as From, Server, carry, start};
use service::lab::Lab;

const BYTES: u32 = 64;
/// Rounds of the two servers.
pub(super) const ROUNDS: usize = 9;
const WINDOW_MS: u64 = 300;
/// Connections that are opened and closed at a time.
const CHURN_SLOTS: u32 = 32;

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
    progress: &mut dyn Progress,
) -> anyhow::Result<Echo> {
    let client = Client { lab, seed };
    let mut servers = [Server::Tailplane, Server::LinuxSpinning];
    let (mut windows, mut left_out) = (0, 0);
    let kept = contest(&mut servers, every_round(ROUNDS, seed), |server| {
        windows += 1;
        progress.step(&format!("64-byte echo, kernel client: {windows} of {}", 2 * ROUNDS));
        let (_running, target) = start(lab, *server)?;
        client.round(target, &mut left_out)
    })?;
    let [ours, kernels] = kept.as_slice() else { bail!("two servers had no two results") };
    let sockperf = sockperf::measure(lab, seed, progress)?;
    let says = format!("connect, request, close for {churn_seconds} s");
    progress.step(&format!("tailplane: {says}"));
    let (service, target) = start(lab, Server::Tailplane)?;
    let our_churn = client.churn(churn_seconds, |load| client.run(load, target))?;
    progress.step(&format!("tailplane: {says}, our own client"));
    let own_client_churn = client.churn(churn_seconds, |load| {
        DataplaneClient::open(lab, 1, &[CLIENT_CPU])?.run(load, target)
    })?;
    drop(service);
    progress.step(&format!("linux-spinning: {says}"));
    let (service, target) = start(lab, Server::LinuxSpinning)?;
    let kernel_churn = client.churn(churn_seconds, |load| client.run(load, target))?;
    drop(service);

    let trip: fn(&EchoRound) -> f64 = |round| round.round_trip_p50_us;
    let ratio_of = |key| Measured::ratio_of((ours, key), (kernels, key), seed);
    let ratio = EchoRatio {
        rounds: ours.paired(kernels).count(),
        round_trip_p50: Measured::ratio_of((kernels, trip), (ours, trip), seed),
        rps_32: ratio_of(|round| round.rps_32),
        rps_1000: ratio_of(|round| round.rps_1000),
    };
    let disturbed = disturbed_words(&kept, left_out);
    let systems = vec![
        system("tailplane", ours, our_churn, seed),
        system("linux-spinning", kernels, kernel_churn, seed),
    ];
    Ok(Echo { bytes: BYTES, systems, ratio, sockperf, own_client_churn, disturbed })
}

/// The medians of the rounds that count.
fn system(name: &str, kept: &Kept<EchoRound>, churn: Churn, seed: u64) -> EchoSystem {
    let of = |key: fn(&EchoRound) -> f64| Measured::windows(kept, seed, key);
    EchoSystem {
        name: name.to_owned(),
        round_trip_p50_us: of(|round| round.round_trip_p50_us),
        round_trip_p99_us: of(|round| round.round_trip_p99_us),
        rps_32: of(|round| round.rps_32),
        rps_1000: of(|round| round.rps_1000),
        churn,
    }
}

/// The client's end.
struct Client<'a> {
    lab: &'a Lab,
    seed: u64,
}

impl Client<'_> {
    /// One window for each number of connections, each again where others used the machine, a few times. Adds the
    /// tries that were left out to `left_out`; returns what disturbed the last ones.
    fn round(
        &self,
        target: SocketAddrV4,
        left_out: &mut usize,
    ) -> anyhow::Result<(EchoRound, Disturbance)> {
        let mut disturbed = Disturbance::default();
        let mut quiet = |connections| {
            let load = self.load(Mode::closed(1), connections, WINDOW_MS);
            let again = || watched(&[], || self.run(&load, target));
            let tried: Tried<LoadReport> = until_quiet(TRIES, &QUIET, again)?;
            *left_out += tried.left_out;
            disturbed = disturbed.and(tried.disturbance);
            anyhow::Ok(tried.found)
        };
        let round_trip = quiet(1)?;
        let round = EchoRound {
            round_trip_p50_us: round_trip.p50_us,
            round_trip_p99_us: round_trip.p99_us,
            rps_32: quiet(32)?.achieved_rps,
            rps_1000: quiet(1_000)?.achieved_rps,
        };
        Ok((round, disturbed))
    }

    /// Connect-request-close, in windows that `run` measures.
    fn churn(
        &self,
        seconds: f64,
        mut run: impl FnMut(&LoadConfig) -> anyhow::Result<LoadReport>,
    ) -> anyhow::Result<Churn> {
        let (close, window_s) = (CloseMode::Rst, seconds / f64::from(CHURN_WINDOWS));
        let mode = Mode::Churn { requests: 1, close };
        let load = self.load(mode, CHURN_SLOTS, ((window_s * 1e3) as u64).max(100));
        let reports = (0..CHURN_WINDOWS).map(|_| run(&load)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Churn {
            cycles_per_s: reports.iter().map(|report| report.achieved_rps).collect(),
            cycles: reports.iter().map(|report| report.requests).sum(),
            errors: reports.iter().map(|report| report.errors).sum(),
            seconds,
            close: close.note().to_owned(),
        })
    }

    fn load(&self, mode: Mode, connections: u32, measure_ms: u64) -> LoadConfig {
        let (warmup_ms, seed) = (100, self.seed);
        LoadConfig { mode, connections, measure_ms, warmup_ms, seed, ..LoadConfig::echo(BYTES) }
    }

    fn run(&self, load: &LoadConfig, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        carry(self.lab, From::Kernel(Wait::Spin), load, target)
    }
}
