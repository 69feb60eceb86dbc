//! Goodput over paths that lose, reorder and delay packets, beside the kernel's stack.

mod bed;
mod relay;

use std::sync::Barrier;
use std::time::Duration;

use anyhow::Context;
use measure::stats::quantile;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};
use world::dice::mix;
use world::path::Path;
use world::tail::Tail;

use self::bed::{Bed, Client, Server};
use self::relay::Carried;
use super::Testbed;
use super::testbed::{Running, rounds};
use crate::demo::processors::{CLIENT_CPU, SERVER_CPU};
use crate::demo::systems::MEMCACHED_CONDITION;

const WORST: &str = "tcp.goodput.worst_over_linux";
const TAIL: &str = "tcp.goodput.tail_loss_p99_over_linux";

/// See the module's comment.
pub const GOODPUT: Figure<Testbed> = Figure {
    id: "tcp/goodput",
    title: "Goodput over paths with faults",
    section: "beyond the papers: RFC 9438, 8985, 2018, 6675",
    what: "One connection of the memcached protocol on which large values are asked for, from a kernel's client behind \
           a relay: between two of our drivers, it passes frames on as a path of 200 Mbit/s does that has a queue of a \
           round trip's worth (100 KB at least), a round-trip time, and faults from a seed. The server is our \
           key-value service or the distribution's memcached on the kernel's stack, both with CUBIC, in an order that \
           is drawn anew in each round, with the same seeds; goodput is counted from the first request on. Then: \
           answers of 64 KB one after the other, of which every fifth loses up to eight segments at its end. No \
           segmentation offload.",
    claims: &[WORST, TAIL],
    takes: Takes { quick_s: 150, full_s: 1_500 },
    run,
};

/// Two flows beside each other.
pub const FAIRNESS: Figure<Testbed> = Figure {
    id: "tcp/fairness",
    title: "One flow of each stack over one queue",
    section: "beyond the papers: RFC 9438, RFC 5033",
    what: "The bed of tcp/goodput with a path of 20 ms without faults, over which our key-value service and the \
           distribution's memcached on the kernel's stack send at a time, both with CUBIC, one connection each. Both \
           begin at once. CUBIC takes seconds to grow back to where it lost something, and slow start ends by chance: \
           goodput is counted after 20 seconds (quick: 6), for 60 (18).",
    claims: &[],
    takes: Takes { quick_s: 90, full_s: 900 },
    run: fairness,
};

/// The key of what is answered with.
const KEY: &str = "k";
/// Bytes of the answers that fill a path, and how many are asked for ahead.
const LARGE: usize = 900_000;
const AHEAD: usize = 24;
/// The cell of the answers whose ends are lost, behind all others.
const TAILS: usize = 1_000;
/// Bytes of the answers whose ends are lost.
const SMALL: usize = 64 << 10;
/// The share of a link that each of two flows should get at least, and at most.
const FAIR: [f64; 2] = [0.4, 0.6];
/// Spans of a goodput after which two flows are measured that begin at once, and for how many.
const SETTLE_SPANS: u32 = 5;
const FAIR_SPANS: u32 = 15;

/// A path, but for its seed.
struct Cell {
    name: String,
    path: Path,
}

impl Cell {
    fn new(name: &str, rtt_ms: u64, path: impl FnOnce(Path) -> Path) -> Self {
        let path = path(Path::new(0, Duration::from_micros(rtt_ms * 500)));
        Self { name: format!("{rtt_ms} ms, {name}"), path }
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for rtt_ms in [1, 20, 100] {
            for (name, loss) in [("no loss", 0.0), ("0.1 % loss", 0.001), ("1 % loss", 0.01)] {
                all.push(Self::new(name, rtt_ms, |path| Path { loss, ..path }));
            }
        }
        all.push(Self::new("5 % reordered", 20, |path| Path { reorder: 0.05, ..path }));
        all.push(Self::new("bursts of losses", 20, |path| Path { burst: 0.0005, ..path }));
        all.push(Self::new("policed", 20, |path| Path { polices: true, ..path }));
        all
    }
}

/// A server of the comparison, with the seed of its paths and its rounds so far. Both have the same paths.
struct Contestant {
    server: Server,
    seed: u64,
    rounds: u64,
}

impl Contestant {
    fn new(server: Server, seed: u64) -> Self {
        Self { server, seed, rounds: 0 }
    }

    /// Both, over paths that `seed` and `cell` draw.
    fn all(seed: u64, cell: usize) -> [Self; 2] {
        Server::ALL.map(|server| Self::new(server, mix(seed) ^ cell as u64))
    }

    /// The path of the next round.
    fn path(&mut self, path: Path) -> Path {
        self.rounds += 1;
        // Of 32 bits: a path draws two numbers from it.
        Path { seed: mix(self.seed ^ self.rounds << 32) >> 32, ..path }
    }
}

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let quick = recorder.options().quick;
    let mut run = Run::begin(recorder)?;
    let cells = Cell::all();
    recorder.plan(2 * (cells.len() + 1) as u64 * run.count as u64);
    run.goodput(&cells, recorder)?;
    run.tails(if quick { 30 } else { 100 }, recorder)?;
    run.end(recorder);
    Ok(())
}

fn fairness(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let mut run = Run::begin(recorder)?;
    recorder.plan(run.count as u64);
    run.beside(recorder)?;
    run.end(recorder);
    Ok(())
}

/// What a run measures on, how many rounds, and how long a goodput is counted: so many seconds and round trips.
struct Run {
    bed: Bed,
    count: usize,
    seconds: u64,
    round_trips: u32,
}

impl Run {
    fn begin(recorder: &mut Recorder<'_>) -> anyhow::Result<Self> {
        let quick = recorder.options().quick;
        let (count, seconds, round_trips) = if quick { (3, 1, 10) } else { (10, 3, 50) };
        recorder.condition("paths", "200 Mbit/s, by a relay over AF_XDP in copy mode");
        recorder.condition("congestion control", "CUBIC on both");
        recorder.condition("server core", SERVER_CPU);
        recorder.condition("client and relay core", CLIENT_CPU);
        recorder.condition("priority", "real-time for both servers, and above them for the relay");
        recorder.condition("domain", "inline");
        recorder.condition("memcached", MEMCACHED_CONDITION);
        Ok(Self { bed: Bed::new()?, count, seconds, round_trips })
    }

    fn end(&self, recorder: &mut Recorder<'_>) {
        let Carried { frames, late } = self.bed.carried;
        recorder.note(format!(
            "The relay carried {frames} frames; {:.2} % left more than 1 ms after their time.",
            100.0 * late as f64 / frames.max(1) as f64
        ));
    }

    fn span(&self, path: Path) -> Duration {
        Duration::from_secs(self.seconds) + 2 * path.delay * self.round_trips
    }

    /// Goodput over each path.
    fn goodput(&mut self, cells: &[Cell], recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let seed = recorder.options().seed;
        let x = || Axis::category("path");
        let rates = recorder.chart("goodput", "Goodput", x(), Axis::linear("goodput", "Mbit/s"));
        let y = Axis::linear("tailplane over Linux", "");
        let ratios = recorder.chart("ratio", "Goodput over Linux's", x(), y);
        recorder.mark(ratios, Mark::horizontal(MarkOf::Objective, 0.95, "0.95"));
        let over = recorder.series(ratios, "tailplane over Linux");
        let mut worst: Option<(&str, Measured)> = None;
        for (cell, Cell { name, path }) in cells.iter().enumerate() {
            let both = &mut Contestant::all(seed, cell);
            let kept = rounds(recorder, both, self.count, |contestant| {
                let (server, path) = (contestant.server, contestant.path(*path));
                let _running = self.start(server, LARGE)?;
                let span = self.span(path);
                let rate =
                    self.bed.over(path, |_| false, || pour(server, (Duration::ZERO, span)))?;
                Ok(vec![rate])
            })?;
            let [ours, linux] = [0, 1].map(|which| kept[which].values(|rates| rates[0]));
            for (server, values) in Server::ALL.into_iter().zip([&ours, &linux]) {
                let series = recorder.series(rates, server.name());
                recorder.category(series, name, Measured::samples(values));
            }
            let ratio = Measured::ratio(&ours, &linux, seed);
            recorder.category(over, name, ratio.clone());
            if worst.as_ref().is_none_or(|(_, worst)| ratio.value() < worst.value()) {
                worst = Some((name, ratio));
            }
        }
        let (name, worst) = worst.context("there is a path")?;
        recorder.claim(WORST, worst.note(format!("at {name}")))
    }

    /// Answers whose ends are lost.
    fn tails(&mut self, answers: usize, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let path = Path::new(0, Duration::from_millis(10));
        let seed = recorder.options().seed;
        let both = &mut Contestant::all(seed, TAILS);
        let kept = rounds(recorder, both, self.count, |contestant| {
            let (server, path) = (contestant.server, contestant.path(path));
            let _running = self.start(server, SMALL)?;
            let mut tail = Tail::new(path.seed, SMALL as u32);
            let ask = || {
                let mut client = Client::connect(server)?;
                (0..answers).map(|_| client.ask(KEY, SMALL)).collect::<anyhow::Result<Vec<_>>>()
            };
            let took = self.bed.over(path, |frame| tail.dooms(frame), ask)?;
            Ok(took.iter().map(|took| took.as_secs_f64() * 1e3).collect())
        })?;
        let title = "Answers of 64 KB, of which every fifth loses its end (20 ms)";
        let (x, y) = (Axis::category("answers"), Axis::linear("time", "ms"));
        let chart = recorder.chart("tail", title, x, y);
        let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];
        let all = [0, 1].map(|which: usize| kept[which].found.concat());
        for (server, all) in Server::ALL.into_iter().zip(&all) {
            let series = recorder.series(chart, server.name());
            for (name, share) in shares {
                let value = quantile(all, share).context("there are answers")?;
                recorder.category(series, name, Measured::single(value));
            }
        }
        let p99 = |times: &[f64]| quantile(times, 0.99);
        let ratio = Measured::ratio_of_pools(&kept[0].found, &kept[1].found, seed, p99);
        recorder.claim(TAIL, ratio)
    }

    /// Both servers at a time, over one queue.
    fn beside(&mut self, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
        let path = Path::new(0, Duration::from_millis(10));
        let both = &mut [Contestant::new(Server::Tailplane, recorder.options().seed)];
        let span = self.span(path);
        let spans = (SETTLE_SPANS * span, FAIR_SPANS * span);
        let kept = rounds(recorder, both, self.count, |contestant| {
            let path = contestant.path(path);
            let _ours = self.start(Server::Tailplane, LARGE)?;
            let _linux = self.start(Server::Linux, LARGE)?;
            let start = Barrier::new(2);
            let at_once = |server| {
                start.wait();
                pour(server, spans)
            };
            let pour_both = || {
                std::thread::scope(|scope| {
                    let ours = scope.spawn(|| at_once(Server::Tailplane));
                    let linux = at_once(Server::Linux)?;
                    let ours = ours.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
                    Ok(vec![ours?, linux])
                })
            };
            self.bed.over(path, |_| false, pour_both)
        })?;
        let [settle_s, fair_s] = [spans.0, spans.1].map(|span| span.as_secs());
        let title = format!("Two flows over one queue (20 ms): {fair_s} s, after {settle_s} s");
        let (x, y) = (Axis::category("flow"), Axis::linear("share of both", ""));
        let chart = recorder.chart("beside", &title, x, y);
        for share in FAIR {
            let label = format!("{share}");
            recorder.mark(chart, Mark::horizontal(MarkOf::Objective, share, &label));
        }
        for (which, server) in Server::ALL.into_iter().enumerate() {
            let share = |rates: &Vec<f64>| rates[which] / (rates[0] + rates[1]);
            let series = recorder.series(chart, server.name());
            recorder.category(series, "share", Measured::samples(&kept[0].values(share)));
        }
        Ok(())
    }

    /// Starts a server, and stores what is to be answered with over a path without faults.
    fn start(&mut self, server: Server, answer_bytes: usize) -> anyhow::Result<Running> {
        let running = self.bed.start(server)?;
        let clean = Path::new(0, Duration::from_micros(500));
        let store = || Client::connect(server)?.store(KEY, answer_bytes);
        self.bed.over(clean, |_| false, store)?;
        Ok(running)
    }
}

/// The goodput of a new connection in Mbit/s, after so long, for so long.
fn pour(server: Server, spans: (Duration, Duration)) -> anyhow::Result<f64> {
    Ok(Client::connect(server)?.pour(KEY, LARGE, AHEAD, spans)? * 8.0 / 1e6)
}
