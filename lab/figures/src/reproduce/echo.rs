//! IX Figures 5b and 5c: echo by round trips per connection, and by message size.

use load::{CloseMode, LoadConfig, Mode, Wait};
use reproduce::{Axis, Figure, Measured, Recorder, Takes};

use super::Testbed;
use super::local::{LoopbackEcho, ShmService};
use super::testbed::{Client, FULL_FRAME_BYTES, Server, carry, echo_load, ratio, reflected, start};
use crate::demo::systems::Tailplane;

const VS_LINUX: &str = "ix.fig5b.messages_per_s_vs_linux";
const LOCAL: &str = "ix.fig5b.messages_per_s_local_vs_loopback";
const FRACTION: &str = "ix.fig5b.fraction_of_reflector";
const GOODPUT: &str = "ix.fig5c.goodput_fraction_of_link_8KB";
const SERVERS: [Server; 3] = [Server::Tailplane, Server::LinuxSpinning, Server::LinuxBlocking];
/// Connections at a time.
const CONNECTIONS: u32 = 64;
/// One measurement. Every answer counts, so that it need not hold many of the longest connections.
const WINDOW_MS: u64 = 400;
/// Rounds over all servers for each repeat that was asked for: short ones that alternate, since a host's speed
/// changes from second to second, and what decides are ratios.
const ROUNDS: usize = 2;

/// Figure 5b.
pub const FIG5B: Figure<Testbed> = Figure {
    id: "ix/fig5b",
    title: "Messages per second by round trips per connection",
    section: "IX (TOCS'16) §5.2, Figure 5b",
    what: "64-byte echo on 64 connections at a time; each is closed by reset after n round trips and \
           opened again. One server core; the client is our own dataplane for every server, since a \
           kernel client is the bottleneck. The bound is a bare AF_XDP reflector of 60-byte frames \
           on the same pair. The local comparison is between two processes of this machine: our \
           dataplanes joined by shared memory, the kernel's loopback with kernel sockets at both ends.",
    claims: &[VS_LINUX, LOCAL, FRACTION],
    takes: Takes { quick_s: 60, full_s: 240 },
    run: round_trips,
};

fn round_trips(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let lab = testbed.lab(recorder)?;
    let trips: &[u32] = if options.quick { &[1, 32, 1024] } else { &[1, 2, 8, 32, 128, 512, 1024] };
    let rounds = ROUNDS * options.repeats as usize;
    recorder.plan(((rounds + 1) * SERVERS.len()) as u64);
    let chart = recorder.chart(
        "rate",
        "64 B messages per second",
        Axis::log("round trips per connection", ""),
        Axis::linear("messages", "1/s"),
    );
    let mut bound = Vec::new();
    let mut rates = vec![vec![Vec::new(); trips.len()]; SERVERS.len()];
    for round in 1..=rounds {
        bound.extend(reflected(lab, 60, 1)?);
        for (server, rates) in SERVERS.into_iter().zip(&mut rates) {
            recorder.step(&format!("{}, round {round} of {rounds}", server.name()))?;
            let (_running, target) = start(lab, server)?;
            for (&requests, rates) in trips.iter().zip(rates) {
                let load = echo_load(churn(requests), CONNECTIONS, 64, options.seed, WINDOW_MS);
                rates.push(carry(lab, Client::Dataplane, &load, target)?.answers_rps);
            }
        }
    }
    let mut draw = |name: &str, rates: &[Vec<f64>]| {
        let series = recorder.series(chart, name);
        for (&count, rates) in trips.iter().zip(rates) {
            recorder.point(series, count.into(), Measured::samples(rates));
        }
    };
    draw("bare AF_XDP reflector", &vec![bound.clone(); trips.len()]);
    for (server, rates) in SERVERS.into_iter().zip(&rates) {
        draw(server.name(), rates);
    }
    let longest: Vec<&[f64]> = rates.iter().filter_map(|of| Some(of.last()?.as_slice())).collect();
    let [ours, spinning, blocking] = longest[..] else { return Ok(()) };
    let (kernel, which) = faster(spinning, blocking);
    recorder.note(format!(
        "The ratio to Linux is to its faster server, the {which} one, with {} round trips per connection.",
        trips.last().copied().unwrap_or(0)
    ));
    recorder.claim(VS_LINUX, ratio(ours, kernel, options.seed))?;
    recorder.claim(FRACTION, ratio(ours, &bound, options.seed))?;
    local(recorder, trips)
}

/// The same between two processes, without a NIC.
fn local(recorder: &mut Recorder<'_>, trips: &[u32]) -> anyhow::Result<()> {
    let options = recorder.options();
    let chart = recorder.chart(
        "local",
        "64 B messages per second between two processes of one machine",
        Axis::log("round trips per connection", ""),
        Axis::linear("messages", "1/s"),
    );
    let mut at_most: Vec<Vec<f64>> = Vec::new();
    let rounds = ROUNDS * options.repeats as usize;
    let carried = |load: &LoadConfig, server: &Local| match server {
        Local::Shm(server) => server.carry(load, Tailplane::echo_target().port()),
        Local::Loopback(server) => server.carry(load),
    };
    for name in ["tailplane, shared memory", "Linux loopback, spinning", "Linux loopback, blocking"]
    {
        let server = match name {
            "tailplane, shared memory" => Local::Shm(ShmService::start("echo")?),
            "Linux loopback, spinning" => Local::Loopback(LoopbackEcho::start(Wait::Spin)?),
            _ => Local::Loopback(LoopbackEcho::start(Wait::Block)?),
        };
        let series = recorder.series(chart, name);
        for &requests in trips {
            recorder.step(&format!("{name}, n = {requests}"))?;
            let load = echo_load(churn(requests), CONNECTIONS, 64, options.seed, WINDOW_MS);
            let rates = (0..rounds)
                .map(|_| Ok(carried(&load, &server)?.answers_rps))
                .collect::<anyhow::Result<Vec<f64>>>()?;
            recorder.point(series, requests.into(), Measured::samples(&rates));
            if Some(&requests) == trips.last() {
                at_most.push(rates);
            }
        }
    }
    let [ours, spinning, blocking] = at_most.as_slice() else { return Ok(()) };
    recorder.claim(LOCAL, ratio(ours, faster(spinning, blocking).0, options.seed))?;
    Ok(())
}

/// A server of the local comparison.
enum Local {
    Shm(ShmService),
    Loopback(LoopbackEcho),
}

fn churn(requests: u32) -> Mode {
    Mode::Churn { requests, close: CloseMode::Rst }
}

/// The kernel's faster server, and which it is.
fn faster<'a>(spinning: &'a [f64], blocking: &'a [f64]) -> (&'a [f64], &'static str) {
    let median = |rates: &[f64]| Measured::samples(rates).value().unwrap_or(0.0);
    match median(spinning) >= median(blocking) {
        true => (spinning, "spinning"),
        false => (blocking, "blocking"),
    }
}

/// Figure 5c.
pub const FIG5C: Figure<Testbed> = Figure {
    id: "ix/fig5c",
    title: "Goodput by message size",
    section: "IX (TOCS'16) §5.2, Figure 5c",
    what: "Echo of messages of each size on 64 connections, one outstanding on each. Goodput counts \
           payload in one direction. The link's rate is what a bare AF_XDP reflector returns of \
           1,514-byte frames on the same pair.",
    claims: &[GOODPUT],
    takes: Takes { quick_s: 30, full_s: 120 },
    run: sizes,
};

fn sizes(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let lab = testbed.lab(recorder)?;
    let sizes: &[u32] =
        if options.quick { &[64, 1024, 8192] } else { &[64, 256, 1024, 2048, 4096, 8192] };
    recorder.plan((SERVERS.len() * sizes.len() + 1) as u64);
    let chart = recorder.chart(
        "goodput",
        "Goodput by message size",
        Axis::log("message size", "bytes"),
        Axis::linear("goodput", "Gb/s"),
    );
    let gbps = |rps: f64, bytes: f64| rps * bytes * 8.0 / 1e9;
    recorder.step("the bound: a bare reflector of full frames")?;
    let link: Vec<f64> = reflected(lab, FULL_FRAME_BYTES, options.repeats)?
        .into_iter()
        .map(|rps| gbps(rps, FULL_FRAME_BYTES as f64))
        .collect();
    let series = recorder.series(chart, "bare AF_XDP reflector, 1,514 B frames");
    for &bytes in sizes {
        recorder.point(series, bytes.into(), Measured::samples(&link));
    }
    for server in SERVERS {
        let series = recorder.series(chart, server.name());
        let (_running, target) = start(lab, server)?;
        for &bytes in sizes {
            recorder.step(&format!("{}, {bytes} B", server.name()))?;
            let load = echo_load(Mode::closed(1), CONNECTIONS, bytes, options.seed, 400);
            let mut rates = Vec::new();
            for _ in 0..options.repeats {
                let report = carry(lab, Client::Dataplane, &load, target)?;
                rates.push(gbps(report.achieved_rps, bytes.into()));
            }
            recorder.point(series, bytes.into(), Measured::samples(&rates));
            if server == Server::Tailplane && Some(&bytes) == sizes.last() {
                recorder.claim(GOODPUT, ratio(&rates, &link, options.seed))?;
            }
        }
    }
    Ok(())
}
