//! What protection costs: the same echo with the application linked in, on another core, and on the same core.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use measure::stats::median_of;
use measure::{Disturbance, Kept, ONE_CORE_BELOW_NS, Plan, QUIET, alone, contest, pin};
use mem::{HugePages, Region};
use process::{Geometry, Hello, Near, Placement, Waiting};
use reproduce::{Axis, Figure, Measured, Recorder, Takes};
use runtime::set_realtime;
use tailplane::Service;
use world::rig::{RawEcho, Rig, RigConfig, empty_batches};

use super::Testbed;
use super::lines::{Lines, between_processors, word_ns};
use service::application::Started;

const CROSSING: &str = "ix.sec4.protection_crossing_ns";
/// Requests of one window: some milliseconds, in which both sides run before all others.
const WINDOW: u64 = 4_000;
/// Words that are sent to the other processor and back after each window.
const WORDS: u32 = 500;
/// Rounds that are held for each that is wanted, and what passes before a window: the rest of the machine gets its turn.
const TRIES: usize = 6;
const PAUSE: Duration = Duration::from_millis(10);
/// Real-time priorities; on a shared processor the dataplane's is the higher one.
const DATAPLANE: u8 = 3;
const APPLICATION: u8 = 2;

/// Chunks that the pool of what the application sends keeps to itself.
const STAGED: usize = 256;

/// See the module's comment.
pub const PROTECTION: Figure<Testbed> = Figure {
    id: "ix/protection",
    title: "What protection costs",
    section: "IX (TOCS'16) §4.1, §4.3",
    what: "Echoes of 64 bytes between two dataplanes that the loopback driver joins in one thread, on one \
           processor: with the server's application linked in (inline), in a process of its own on another processor \
           (split), and in one on the same processor (same-core). One request outstanding is a crossing for each \
           request, and the time of the whole round trip is told. 64 outstanding are one crossing for each with B = 1, \
           one for all with B = 64, and the time that the server's thread works for each is told: an application on \
           another processor works at the same time, and the thread looks for something else to do. The echo sends \
           what it received from where it stands; at last it is one that reads its request and writes an answer of \
           its own. The three take turns in an order that is drawn anew in each round, and are compared within a \
           round; a window counts where neither the machine nor its host disturbed it, by one bound for all.",
    claims: &[CROSSING],
    takes: Takes { quick_s: 40, full_s: 150 },
    run,
};

/// What separates the two.
const DOMAINS: [&str; 3] = ["inline", "process, split", "process, same-core"];

/// What is asked of the server.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// Requests outstanding.
    in_flight: usize,
    /// B.
    batch: usize,
    /// Its application writes an answer of its own.
    own_answers: bool,
}

const fn shape(name: &'static str, in_flight: usize, batch: usize, own_answers: bool) -> Shape {
    Shape { name, in_flight, batch, own_answers }
}

const SHAPES: [Shape; 4] = [
    shape("one request outstanding", 1, 64, false),
    shape("64 outstanding, B = 1", 64, 1, false),
    shape("64 outstanding, B = 64", 64, 64, false),
    shape("64 outstanding, B = 64, own answers", 64, 64, true),
];
/// Places among them.
const ALONE: usize = 0;
const BATCHED: usize = 2;
const OWN: usize = 3;
const PLACES: &str = "shape: 0 one outstanding (round trip), 1 B = 1, 2 B = 64, 3 B = 64 and own answers (server's work)";
/// Batches without an event, of each domain.
const EMPTY: usize = 2_000;

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let rounds = if options.quick { 25 } else { 100 };
    recorder.condition("driver", "loopback, client and server in one thread");
    let (x, y) = (Axis::linear(PLACES, ""), Axis::linear("time", "ns"));
    let chart = recorder.chart("request", "The time for a request", x, y);
    recorder.plan(SHAPES.len() as u64);
    let series = DOMAINS.map(|name| recorder.series(chart, name));
    let (mut times, mut empty) = (Vec::new(), Empty::default());
    let seed = options.seed;
    for (place, shape) in SHAPES.into_iter().enumerate() {
        recorder.step(shape.name)?;
        let (found, of_nothing) =
            measure(shape, rounds, seed).with_context(|| format!("measuring {}", shape.name))?;
        for (series, kept) in series.iter().zip(&found) {
            recorder.point(*series, place as f64, Measured::windows(kept, seed, TIME));
        }
        times.push(found);
        for (all, one) in empty.iter_mut().zip(of_nothing) {
            all.push(median_of(one));
        }
    }
    show_rates(recorder, &times);
    show_costs(recorder, &times, &empty)
}

/// Nanoseconds for a request of one shape, by domain.
type Times = Vec<Kept<f64>>;
/// Nanoseconds that batches without an event take, of the two domains with an application of their own.
type Empty = [Vec<f64>; DOMAINS.len() - 1];

fn show_rates(recorder: &mut Recorder<'_>, times: &[Times]) {
    let seed = recorder.options().seed;
    let title = "Requests that the server's thread serves in a second of its time";
    let (x, y) = (Axis::linear(PLACES, ""), Axis::linear("requests", "1/s"));
    let rates = recorder.chart("rate", title, x, y);
    for (which, name) in DOMAINS.into_iter().enumerate() {
        let points = times.iter().enumerate().map(|(place, times)| {
            (place as f64, Measured::windows(&times[which], seed, |ns| 1e9 / ns))
        });
        recorder.curve(rates, name, points);
    }
}

/// What protection adds, and what lies below that.
fn show_costs(recorder: &mut Recorder<'_>, times: &[Times], empty: &Empty) -> anyhow::Result<()> {
    let Lines { word_ns, echo_ns, own_ns } = between_processors()?;
    recorder.condition("a word to the other processor and back", format!("{word_ns:.0} ns"));
    for (which, most) in [(1, Some(300.0)), (2, None)] {
        let name = DOMAINS[which];
        let median = |place: usize, how: fn(f64, f64) -> f64| {
            let pairs = times[place][which].paired(&times[place][0]);
            median_of(pairs.map(|(with, without)| how(*with, *without)))
        };
        let bound = most.map_or(String::new(), |most| format!(" (at most {most:.0} wanted)"));
        let of_nothing = median_of(empty[which - 1].iter().copied());
        recorder.note(format!(
            "{name}: an unloaded round trip takes {:.0} ns more{bound}, of {:.0} ns, the client's part included; at \
             B = 64 a request costs the server {:.0} ns more, {:.0} % (at most 10 wanted), with answers of its own \
             {:.0} ns, {:.0} %. A batch without an event takes {of_nothing:.0} ns there and back, which is {:.0} ns for \
             each of 64 requests",
            median(ALONE, MORE),
            median_of(times[ALONE][0].values(TIME)),
            median(BATCHED, MORE),
            median(BATCHED, SHARE),
            median(OWN, MORE),
            median(OWN, SHARE),
            of_nothing / 64.0,
        ));
        let left_out = [ALONE, BATCHED, OWN].map(|place| {
            let Kept { discarded, held, .. } = times[place][which];
            format!("{discarded} of {held}")
        });
        recorder.note(format!("{name}: disturbed windows: {}", left_out.join("; ")));
    }
    recorder.note(format!(
        "a window is left out that more disturbed than this: {QUIET}; or in which the processors were two threads of \
         one core (less than {ONE_CORE_BELOW_NS} ns there and back)"
    ));
    let [inline, split, _] = times[ALONE].as_slice() else { anyhow::bail!("a domain is missing") };
    let crossing = |with, without| MORE(with, without) / 2.0;
    let seed = recorder.options().seed;
    recorder.claim(CROSSING, Measured::compared((split, TIME), (inline, TIME), seed, crossing))?;
    show_what_lies_below(recorder, word_ns, [echo_ns, own_ns]);
    Ok(())
}

const TIME: fn(&f64) -> f64 = |ns| *ns;
/// What a domain takes more than an application that is linked in, in nanoseconds and in percent.
const MORE: fn(f64, f64) -> f64 = |with, without| with - without;
const SHARE: fn(f64, f64) -> f64 = |with, without| 100.0 * (with / without - 1.0);

fn show_what_lies_below(recorder: &mut Recorder<'_>, word_ns: f64, [echo_ns, own_ns]: [f64; 2]) {
    recorder.note(format!(
        "a crossing is half of what there and back add to an unloaded request. Below it lies a word's way to the other \
         processor and back, {word_ns:.0} ns"
    ));
    recorder.note(format!(
        "where the application has another processor, the lines of a batch of 64 requests (events and calls) take this \
         one {echo_ns:.0} ns more for each request than where it has them to itself, with nothing done but writing and \
         reading them; where the application reads the frames and writes answers of its own, {own_ns:.0} ns. So much of \
         what split adds at B = 64 is the way of lines, as far as other work does not hide it"
    ));
    recorder.note(
        "copies: received bytes are read where the NIC put them in all domains. What an application sends of them is \
         copied once, inline and in the process domain. An answer of its own is copied once inline; in the process \
         domain once into the arena and once out of it, out of the application's reach before it is summed",
    );
}

/// The time for a request in windows of each domain, in nanoseconds, which take turns. And what batches without an event
/// take.
fn measure(shape: Shape, rounds: usize, seed: u64) -> anyhow::Result<(Times, Empty)> {
    let Shape { in_flight, batch, own_answers, .. } = shape;
    let config = RigConfig { connections: 64, batch, in_flight, ..RigConfig::default() };
    let echo = if own_answers { RawEcho::with_own_answers() } else { RawEcho::default() };
    let stop = AtomicBool::new(false);
    let (split, split_region) = application_at(config, own_answers, Placement::Split)?;
    let (same, same_region) = application_at(config, own_answers, Placement::SameCore)?;
    split.run(&stop, |mut split, _| {
        same.run(&stop, |mut same, _| {
            let one = "one elastic thread, one side";
            let mut split = split.pop().context(one)?;
            let mut same = same.pop().context(one)?;
            let mut attendant = same.attended();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        attendant.look();
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                let measured = on_first_processor(|| {
                    let empty = [
                        empty_batches(&mut split, &split_region, EMPTY),
                        empty_batches(&mut same, &same_region, EMPTY),
                    ];
                    let mut inline = Rig::new(config, echo);
                    let mut split = served(config, &split_region, split);
                    let mut same = served(config, &same_region, same);
                    let times = take_turns([&mut inline, &mut split, &mut same], rounds, seed)?;
                    let nanos = |took: &Duration| took.as_nanos() as f64;
                    Ok((times, empty.map(|all| all.iter().map(nanos).collect())))
                });
                over.store(true, Ordering::Relaxed);
                measured
            })
        })
    })
}

/// Starts an echo in a process of its own, with the packet memory of its dataplane.
fn application_at(
    config: RigConfig,
    own_answers: bool,
    placement: Placement,
) -> anyhow::Result<(Started, Arc<Region>)> {
    let region = Region::map(config.chunks as usize, HugePages::Try)?;
    let hello = Hello {
        geometry: Geometry::default(),
        waiting: Waiting { placement, ..Waiting::default() },
        segment_bytes: 1_448,
        sums: true,
    };
    let cpu = if placement == Placement::Split { "1" } else { "0" };
    let mut program = Command::new(std::env::current_exe()?);
    program.args(["raw-echo", "--cpu", cpu]);
    program.args(own_answers.then_some("--own-answers"));
    program.args(["--realtime", &APPLICATION.to_string()]);
    Ok((Started::new(hello, 1, &region, program, None)?, region))
}

/// A server with its application in another process. One with a processor of its own is not waited for.
fn served(config: RigConfig, region: &Arc<Region>, mut near: Near<'static>) -> Rig<Near<'static>> {
    let is_apart = near.placement() == Placement::Split && near.go_apart().is_some();
    if !is_apart {
        return Rig::over(config, region, near);
    }
    let mirror = near.mirror();
    Rig::over(RigConfig { staged: STAGED, ..config }, region, near).mirroring(mirror)
}

/// Something that is measured in windows.
trait Timed {
    /// Opens all connections.
    fn open(&mut self) -> anyhow::Result<()>;
    /// The time for a request in one window, in nanoseconds: the whole round trip's of one that is alone, the
    /// server's work of others.
    fn window(&mut self) -> anyhow::Result<(f64, Disturbance)>;
}

impl<S: Service> Timed for Rig<S> {
    fn open(&mut self) -> anyhow::Result<()> {
        self.open_all()?;
        Ok(self.exchange_all()?)
    }

    fn window(&mut self) -> anyhow::Result<(f64, Disturbance)> {
        // It may have slept.
        self.exchange(false, 0..64)?;
        let (nanos, disturbance) = alone(|watch| {
            self.take_longest_step();
            let (before, began) = (self.server_busy, Instant::now());
            let answered = self.caller.answered;
            while self.caller.answered - answered < WINDOW {
                self.exchange(false, 0..64)?;
            }
            watch.gap(self.take_longest_step().as_nanos() as u64);
            let served = self.caller.answered - answered;
            let time = match self.in_flight {
                1 => began.elapsed(),
                _ => self.server_busy - before,
            };
            anyhow::Ok(time.as_nanos() as f64 / served as f64)
        });
        Ok((nanos?, disturbance))
    }
}

/// The windows of each, and after each window the way between the processors.
fn take_turns(
    mut rigs: [&mut dyn Timed; DOMAINS.len()],
    rounds: usize,
    seed: u64,
) -> anyhow::Result<Times> {
    rigs.iter_mut().try_for_each(|rig| rig.open())?;
    let tries = TRIES * rounds;
    let plan = Plan { windows: rounds, tries, pause: PAUSE, quiet: QUIET, seed };
    contest(&mut rigs, plan, |rig| {
        let (nanos, disturbance) = rig.window()?;
        Ok((nanos, Disturbance { way_ns: word_ns(WORDS)? as u64, ..disturbance }))
    })
}

/// Runs `body` on a thread of its own that nothing but the client and the dataplane's server run on.
fn on_first_processor<R: Send>(
    body: impl FnOnce() -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(0)?;
            set_realtime(DATAPLANE)?;
            body()
        });
        thread.join().unwrap_or_else(|_| anyhow::bail!("the measurement panicked"))
    })
}

/// The application of these measurements: an echo with nothing between it and the dataplane, on the processor and
/// with the priority that are asked for.
///
/// # Errors
/// No dataplane started this process; it may not run so.
pub fn application(
    own_answers: bool,
    cpu: Option<usize>,
    realtime: Option<u8>,
) -> anyhow::Result<()> {
    // Before there are threads: they inherit both. What cannot be had would be measured otherwise unnoticed.
    if let Some(cpu) = cpu {
        pin(cpu)?;
    }
    if let Some(priority) = realtime {
        set_realtime(priority)?;
    }
    tailplane::application::serve(|_| match own_answers {
        true => RawEcho::with_own_answers(),
        false => RawEcho::default(),
    })?;
    Ok(())
}
