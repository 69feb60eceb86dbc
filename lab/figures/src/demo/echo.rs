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
use reproduce::Measured;

use super::config::{News, Progress};
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
    progress: Progress<'_>,
) -> anyhow::Result<Echo> {
    let client = Client { lab, seed };
    let mut servers = [Server::Tailplane, Server::LinuxSpinning];
    let (mut windows, mut left_out) = (0, 0);
    let kept = contest(&mut servers, every_round(ROUNDS, seed), |server| {
        windows += 1;
        progress(News::Step(&format!("64-byte echo, kernel client: {windows} of {}", 2 * ROUNDS)));
        let (_running, target) = start(lab, *server)?;
        client.round(target, &mut left_out)
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

    let trip: fn(&EchoRound) -> f64 = |round| round.round_trip_p50_us;
    let ratio_of = |key| Measured::ratio_of((ours, key), (kernels, key), seed);
    let all = [
        Measured::ratio_of((kernels, trip), (ours, trip), seed),
        ratio_of(|round| round.rps_32),
        ratio_of(|round| round.rps_1000),
    ];
    let [round_trip_p50, rps_32, rps_1000] =
        all.each_ref().map(|ratio| ratio.value().unwrap_or(f64::NAN));
    let rounds = ours.paired(kernels).count();
    let disturbed = disturbed_words(&kept, left_out);
    let ratio = EchoRatio { rounds, round_trip_p50, rps_32, rps_1000, all };
    let systems = vec![
        system("tailplane", ours, our_churn, seed),
        system("linux-spinning", kernels, kernel_churn, seed),
    ];
    Ok(Echo { bytes: BYTES, systems, ratio, sockperf, own_client_churn, disturbed })
}

/// The medians of the rounds that count.
fn system(name: &str, kept: &Kept<EchoRound>, churn: Churn, seed: u64) -> EchoSystem {
    let of = |key: fn(&EchoRound) -> f64| Measured::windows(kept, seed, key);
    let all = [
        of(|round| round.round_trip_p50_us),
        of(|round| round.round_trip_p99_us),
        of(|round| round.rps_32),
        of(|round| round.rps_1000),
    ];
    let [round_trip_p50_us, round_trip_p99_us, rps_32, rps_1000] =
        all.each_ref().map(|measured| measured.value().unwrap_or(f64::NAN));
    let name = name.to_owned();
    EchoSystem { name, round_trip_p50_us, round_trip_p99_us, rps_32, rps_1000, churn, all }
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
    /// One window for each number of connections, each again where others used the machine, a few times. Adds the
    /// tries that were left out to `left_out`; returns what disturbed the last ones.
    fn round(
        &self,
        target: SocketAddrV4,
        left_out: &mut usize,
    ) -> anyhow::Result<(EchoRound, Disturbance)> {
        let mut disturbed = Disturbance::default();
        let mut quiet = |connections| {
            let window = Windowed { mode: Mode::closed(1), connections, measure_ms: WINDOW_MS };
            let again = || watched(&[], || self.run(window, target));
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
