//! IX Figures 5b and 5c: echo by round trips per connection, and by message size.

use load::{CloseMode, LoadConfig, LoadReport, Mode, Wait};
use measure::Kept;
use measure::stats::median_of;
use reproduce::{Axis, ChartId, Figure, Measured, Recorder, Takes};

use super::Testbed;
use super::local::{LoopbackEcho, ShmService};
use super::testbed::{
    self, Client, FULL_FRAME_BYTES, Server, carry, draw, echo_load, reflected, start,
};
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
/// The bound's name in plots.
const REFLECTOR: &str = "bare AF_XDP reflector";
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
    recorder.plan((rounds * (2 * SERVERS.len() + 1)) as u64);
    let chart = chart(recorder, "rate", "64 B messages per second");
    let mut contestants = with_bound();
    let kept =
        testbed::rounds(recorder, &mut contestants, rounds, |contestant| match contestant {
            None => reflected(lab, 60, 1),
            Some(server) => {
                let (_running, target) = start(lab, *server)?;
                churn_rps(trips, options.seed, |load| carry(lab, Client::Dataplane, load, target))
            }
        })?;
    for (contestant, kept) in contestants.iter().zip(&kept) {
        draw(recorder, chart, contestant.map_or(REFLECTOR, Server::name), trips, kept);
    }
    let [bound, ours, spinning, blocking] = kept.as_slice() else { return Ok(()) };
    let (kernel, which) = faster(spinning, blocking);
    recorder.note(format!(
        "The ratio to Linux is to its faster server, the {which} one, with {} round trips per connection.",
        trips.last().copied().unwrap_or(0)
    ));
    recorder.claim(VS_LINUX, Measured::ratio_of((ours, LAST), (kernel, LAST), options.seed))?;
    recorder.claim(FRACTION, Measured::ratio_of((ours, LAST), (bound, LAST), options.seed))?;
    local(recorder, trips)
}

/// The bare reflector (none), and the servers.
fn with_bound() -> Vec<Option<Server>> {
    [None].into_iter().chain(SERVERS.map(Some)).collect()
}

/// The last of one round's rates: at the longest connections, or the largest messages.
const LAST: fn(&Vec<f64>) -> f64 = |rates| rates.last().copied().unwrap_or(f64::NAN);

/// The same between two processes, without a NIC.
fn local(recorder: &mut Recorder<'_>, trips: &[u32]) -> anyhow::Result<()> {
    let options = recorder.options();
    let title = "64 B messages per second between two processes of one machine";
    let chart = chart(recorder, "local", title);
    let mut servers = LOCAL_SERVERS;
    let rounds = ROUNDS * options.repeats as usize;
    let kept = testbed::rounds(recorder, &mut servers, rounds, |(_, wait)| match wait {
        None => {
            let (service, port) = (ShmService::start("echo")?, Tailplane::ECHO_TARGET.port());
            churn_rps(trips, options.seed, |load| service.carry(load, port))
        }
        Some(wait) => {
            let echo = LoopbackEcho::start(*wait)?;
            churn_rps(trips, options.seed, |load| echo.carry(load))
        }
    })?;
    for ((name, _), kept) in LOCAL_SERVERS.into_iter().zip(&kept) {
        draw(recorder, chart, name, trips, kept);
    }
    let [ours, spinning, blocking] = kept.as_slice() else { return Ok(()) };
    let (kernel, _) = faster(spinning, blocking);
    recorder.claim(LOCAL, Measured::ratio_of((ours, LAST), (kernel, LAST), options.seed))
}

/// The local comparison: ours, and the kernel's loopback whose two ends wait so.
const LOCAL_SERVERS: [(&str, Option<Wait>); 3] = [
    ("tailplane, shared memory", None),
    ("Linux loopback, spinning", Some(Wait::Spin)),
    ("Linux loopback, blocking", Some(Wait::Block)),
];

fn chart(recorder: &mut Recorder<'_>, name: &str, title: &str) -> ChartId {
    let x = Axis::log("round trips per connection", "");
    recorder.chart(name, title, x, Axis::linear("messages", "1/s"))
}

/// Messages per second, by round trips per connection, as `carry` carries them to a server.
fn churn_rps(
    trips: &[u32],
    seed: u64,
    carry: impl Fn(&LoadConfig) -> anyhow::Result<LoadReport>,
) -> anyhow::Result<Vec<f64>> {
    let rate = |&requests: &u32| {
        let mode = Mode::Churn { requests, close: CloseMode::Rst };
        Ok(carry(&echo_load(mode, CONNECTIONS, 64, seed, WINDOW_MS))?.answers_rps)
    };
    trips.iter().map(rate).collect()
}

/// The kernel's faster server, and which it is.
fn faster<'a>(
    spinning: &'a Kept<Vec<f64>>,
    blocking: &'a Kept<Vec<f64>>,
) -> (&'a Kept<Vec<f64>>, &'static str) {
    let median = |kept: &Kept<Vec<f64>>| median_of(kept.values(LAST));
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
    recorder.plan(u64::from(options.repeats) * (SERVERS.len() as u64 + 1));
    let (x, y) = (Axis::log("message size", "bytes"), Axis::linear("goodput", "Gb/s"));
    let chart = recorder.chart("goodput", "Goodput by message size", x, y);
    let gbps = |rps: f64, bytes: f64| rps * bytes * 8.0 / 1e9;
    let mut contestants = with_bound();
    let rounds = options.repeats as usize;
    let kept =
        testbed::rounds(recorder, &mut contestants, rounds, |contestant| match contestant {
            None => {
                let frames_rps = reflected(lab, FULL_FRAME_BYTES, 1)?;
                Ok(frames_rps.into_iter().map(|rps| gbps(rps, FULL_FRAME_BYTES as f64)).collect())
            }
            Some(server) => {
                let (_running, target) = start(lab, *server)?;
                let goodput = |&bytes: &u32| -> anyhow::Result<f64> {
                    let load = echo_load(Mode::closed(1), CONNECTIONS, bytes, options.seed, 400);
                    let report = carry(lab, Client::Dataplane, &load, target)?;
                    Ok(gbps(report.achieved_rps, bytes.into()))
                };
                sizes.iter().map(goodput).collect()
            }
        })?;
    for (contestant, kept) in contestants.iter().zip(&kept) {
        let name = contestant.map_or("bare AF_XDP reflector, 1,514 B frames", Server::name);
        draw(recorder, chart, name, sizes, kept);
    }
    let [link, ours, ..] = kept.as_slice() else { return Ok(()) };
    recorder.claim(GOODPUT, Measured::ratio_of((ours, LAST), (link, LAST), options.seed))
}
