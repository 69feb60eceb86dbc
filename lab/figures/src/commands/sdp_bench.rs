//! `tailplane sdp-bench`: the throughput of the plane as a whole, by strategy, arrangement, queues and
//! traffic shape (HyperPlane §V-B, Figure 8, in software and over processes).
//!
//! One cell is measured in windows of some milliseconds, its contenders in turn, as `notify` measures
//! ready sets without tenants. For each window a plane is started and a tenant's process joins it; where
//! there is real-time priority, core and tenant have it from the window's first request on and no longer
//! than it lasts ([`WINDOW_TIMEOUT`] at the most), so that nothing on this machine is starved.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use measure::process::switches_of;
use measure::stats::{Summary, median_of};
use measure::{Disturbance, Kept, Plan, QUIET, contest};
use notify::Shape;
use reproduce::Grid;
use sdp::{Handler, Limits, Notify, Outcome, Plane, PlaneConfig, TenantQueue};
use serde::Serialize;

use super::sdp_bench_tenant::{Found, shape};
use super::{allowed, is_stdout};
use crate::demo::child::Killed;
use crate::demo::processors::REALTIME;
use cli::commands::sdp::serve_args::arrangement;
use cli::commands::sdp::services::service;
use cli::commands::sdp::write_json;
use service::{cleanup, private};

/// How long a tenant may take to join: a thousand queues are some megabytes.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a window may take, its first requests included: real-time priority lasts no longer.
const WINDOW_TIMEOUT: Duration = Duration::from_millis(900);
/// Times that a window is begun, where a busy machine does not let it come to its end.
const ATTEMPTS: u32 = 4;
/// Before each window: the rest of the machine gets its turn.
const PAUSE: Duration = Duration::from_millis(20);

/// Arguments of `tailplane sdp-bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Queue pairs of the tenant, comma separated.
    #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000", value_name = "N,…")]
    pub queues: Vec<u32>,
    /// Queue pairs of one tenant at most: more of them are several tenants, of one process.
    #[arg(long, default_value_t = sdp::QUEUES_MAX, value_name = "N")]
    pub queues_each: u32,
    /// Which queues have work: `FB` all, `PC` a fifth and some others, `NC` a hundred and some others,
    /// `SQ` one.
    #[arg(long, value_delimiter = ',', default_value = "FB,SQ", value_parser = shape, value_name = "SHAPE,…")]
    pub shape: Vec<Shape>,
    /// How cores learn of work.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "qwait,spin,spin-dpdk",
        value_name = "HOW,…"
    )]
    pub notify: Vec<Notify>,
    /// Which cores serve which queues: `scale-out`, `scale-up:N`.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "scale-out,scale-up:1",
        value_name = "HOW,…"
    )]
    pub arrangement: Vec<String>,
    /// Data-plane cores, on the first processors; the tenant has the next one.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub cores: u32,
    /// What is served; as for `serve`, but no gateway.
    #[arg(long, default_value = "echo", value_name = "NAME")]
    pub service: String,
    /// Bytes of a request: 8 to 4,096.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub bytes: u32,
    /// Requests of one visit.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: u32,
    /// Doorbells on pages of their own.
    #[arg(long)]
    pub paged: bool,
    /// Quiet windows for each value.
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub windows: usize,
    /// Length of a window in milliseconds, 5 to 50.
    #[arg(long, default_value_t = 20, value_name = "MS")]
    pub window_ms: u64,
    /// Ordinary priority, where this machine does other work: more windows are disturbed then.
    #[arg(long)]
    pub no_realtime: bool,
    /// Of the traffic.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Write the result as JSON; `-`: to the standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// One value, as it is written.
#[derive(Clone, Debug, Serialize)]
struct Cell {
    queues: u32,
    shape: &'static str,
    arrangement: String,
    notify: &'static str,
    /// Median of the windows, and their span.
    requests_per_s: f64,
    low: f64,
    high: f64,
    /// Requests of a visit, and the tenant's idle share: medians.
    requests_per_visit: f64,
    tenant_idle: f64,
    windows: usize,
    discarded: usize,
    /// What disturbed it, where no window was quiet.
    disturbed: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    conditions: BTreeMap<String, String>,
    cells: Vec<Cell>,
}

/// A contender of a cell: its arrangement, and how cores learn of work.
type Contender<'a> = (&'a String, Notify);

/// A window's numbers.
#[derive(Clone, Debug)]
struct Window {
    per_s: f64,
    per_visit: f64,
    idle: f64,
}

/// What cells share.
struct Bench<'a> {
    args: &'a BenchArgs,
    stop: &'a AtomicBool,
    /// Windows in which not everybody had real-time priority.
    ordinary: AtomicU32,
}

// ---- the plane's side ------------------------------------------------------------------------

/// The core takes its place with the first request: from there on the window counts.
struct Placed {
    service: Box<dyn Handler>,
    watch: Arc<Watch>,
    has_begun: bool,
}

/// What is known of a core.
#[derive(Debug, Default)]
struct Watch {
    wants_realtime: bool,
    has_realtime: AtomicBool,
    /// The thread, and how often it had lost its processor when the window began.
    thread: AtomicU64,
    switches: AtomicU64,
}

impl Watch {
    fn begin(&self) {
        if self.wants_realtime && runtime::set_realtime(REALTIME).is_ok() {
            self.has_realtime.store(true, Ordering::Relaxed);
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        self.switches.store(switches_of(thread), Ordering::Relaxed);
        self.thread.store(thread, Ordering::Release);
    }

    /// Times that the core lost its processor since the window began. `None`: it never began.
    fn switches_since(&self) -> Option<u64> {
        let thread = self.thread.load(Ordering::Acquire);
        let before = self.switches.load(Ordering::Relaxed);
        (thread != 0).then(|| switches_of(thread).saturating_sub(before))
    }
}

impl Handler for Placed {
    #[inline]
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        if !self.has_begun {
            self.has_begun = true;
            self.watch.begin();
        }
        self.service.handle(from, request, reply)
    }
}

// ---- the tenant's side -----------------------------------------------------------------------

/// A tenant's process. Dropping it kills it.
struct Process {
    _child: Killed,
    lines: Receiver<String>,
}

impl Process {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting a tenant's process")?;
        let output = child.stdout.take().context("a pipe of its own")?;
        let (told, lines) = channel();
        // Ends with the process, or when nobody listens any more.
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).all(|line| told.send(line).is_ok())
        });
        Ok(Self { _child: Killed(child), lines })
    }

    fn line(&mut self, timeout: Duration, what: &str) -> anyhow::Result<String> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => {
                bail!(
                    "the tenant's process did not {what} within {timeout:?}: is its processor taken \
                     by a program of real-time priority?"
                )
            }
            // What was wrong it has said itself.
            Err(RecvTimeoutError::Disconnected) => {
                bail!("the tenant's process ended before it could {what}")
            }
        }
    }
}

// ---- windows ---------------------------------------------------------------------------------

impl Bench<'_> {
    /// One window: a plane, a process, and what it found.
    fn window(
        &self,
        (arranged, notify): &Contender<'_>,
        queues: u32,
        shape: Shape,
    ) -> anyhow::Result<(Window, Disturbance)> {
        let args = self.args;
        let directory = private::directory("sdp-bench")?;
        let config = PlaneConfig {
            cores: args.cores,
            cpus: (0..args.cores as usize).collect(),
            arrangement: arrangement(arranged)?,
            notify: *notify,
            batch: args.batch,
            // All of its tenants are this user's.
            limits: Limits::default().of_one_user(),
            ..PlaneConfig::new(directory.path().join("socket"))
        };
        let socket = config.socket.clone();
        let watches: Arc<Mutex<Vec<Arc<Watch>>>> = Arc::default();
        let (theirs, name) = (Arc::clone(&watches), args.service.clone());
        let wants_realtime = !args.no_realtime;
        let plane = Plane::start(config, move |_core| {
            let watch = Arc::new(Watch { wants_realtime, ..Watch::default() });
            theirs.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&watch));
            // The name was found before, and the registry does not change.
            let service = service(&name).unwrap_or_else(|| Box::new(sdp::Echo));
            Box::new(Placed { service, watch, has_begun: false })
        })?;
        let mut process = Process::start(&mut self.tenant(&socket, queues, shape)?)?;
        let ready = process.line(JOIN_TIMEOUT, "join")?;
        ensure!(ready == "ready", "the tenant's process said '{ready}'");
        let line = process.line(WINDOW_TIMEOUT, "finish its window")?;
        let found: Found = serde_json::from_str(&line).context("what the tenant found")?;
        let watches = std::mem::take(&mut *watches.lock().unwrap_or_else(PoisonError::into_inner));
        let switches = watches.iter().filter_map(|watch| watch.switches_since()).sum();
        let total = plane.report().total();
        // With it ends the core's thread, and its priority.
        plane.stop();
        let begun = |watch: &&Arc<Watch>| watch.switches_since().is_some();
        let all_realtime = found.realtime
            && watches.iter().filter(begun).all(|watch| watch.has_realtime.load(Ordering::Relaxed));
        self.ordinary.fetch_add(u32::from(!all_realtime), Ordering::Relaxed);
        let disturbance = found.disturbance.and(Disturbance { switches, ..Disturbance::default() });
        let window = Window {
            per_s: found.replies as f64 * 1e9 / found.elapsed_ns.max(1) as f64,
            per_visit: total.served as f64 / total.visits.max(1) as f64,
            idle: found.idle,
        };
        Ok((window, disturbance))
    }

    fn tenant(
        &self,
        socket: &std::path::Path,
        queues: u32,
        shape: Shape,
    ) -> anyhow::Result<Command> {
        let args = self.args;
        let mut command = Command::new(std::env::current_exe().context("this program's file")?);
        command.args(["sdp-bench-tenant", "--shape", shape.short()]).arg("--socket").arg(socket);
        let cpu = args.cores.to_string();
        let numbers = [
            ("--queues", queues.to_string()),
            ("--queues-each", args.queues_each.to_string()),
            ("--bytes", args.bytes.to_string()),
            ("--window-ms", args.window_ms.to_string()),
            ("--seed", args.seed.to_string()),
            ("--cpu", cpu),
        ];
        numbers.iter().for_each(|(key, value)| _ = command.args([key, value.as_str()]));
        for (flag, on) in [("--paged", args.paged), ("--realtime", !args.no_realtime)] {
            command.args(on.then_some(flag));
        }
        Ok(command)
    }

    /// All contenders with the same queues and traffic, in turn.
    fn cell(&self, queues: u32, shape: Shape) -> anyhow::Result<Vec<Cell>> {
        let BenchArgs { arrangement, notify, windows, .. } = self.args;
        let with_each = |arranged| notify.iter().map(move |&notify| (arranged, notify));
        let mut contenders: Vec<Contender<'_>> = arrangement.iter().flat_map(with_each).collect();
        let windows = *windows;
        let (tries, pause, seed) = (3 * windows, PAUSE, self.args.seed);
        let plan = Plan { windows, tries, pause, quiet: QUIET, seed };
        let kept = contest(&mut contenders, plan, |contender| {
            ensure!(!self.stop.load(Ordering::Relaxed), "interrupted");
            let again = |_| self.window(contender, queues, shape);
            // A process that gets no processor for so long has measured nothing: once more.
            (1..ATTEMPTS).fold(again(0), |found, attempt| found.or_else(|_| again(attempt)))
        })
        .with_context(|| format!("{queues} queues, {}", shape.short()))?;
        let cells = contenders.iter().zip(kept);
        Ok(cells.map(|(contender, kept)| cell(contender, queues, shape, &kept)).collect())
    }
}

fn cell(
    (arranged, notify): &Contender<'_>,
    queues: u32,
    shape: Shape,
    kept: &Kept<Window>,
) -> Cell {
    let rates = Summary::of(&kept.values(|window| window.per_s));
    let rate = |of: fn(&Summary) -> f64| rates.as_ref().map_or(0.0, of);
    Cell {
        queues,
        shape: shape.short(),
        arrangement: (*arranged).clone(),
        notify: notify.name(),
        requests_per_s: rate(|rates| rates.median),
        low: rate(|rates| rates.min),
        high: rate(|rates| rates.max),
        requests_per_visit: median_of(kept.values(|window| window.per_visit)),
        tenant_idle: median_of(kept.values(|window| window.idle)),
        windows: kept.quiet(),
        discarded: kept.discarded,
        disturbed: kept.disturbed.map(|disturbance| disturbance.to_string()),
    }
}

fn check(args: &BenchArgs) -> anyhow::Result<()> {
    if service(&args.service).is_none() {
        bail!("`--service {}`: there are those of `sdp serve`, without `gateway`", args.service);
    }
    if let Some(queues) = args.queues.iter().find(|queues| !(1..=16_384).contains(*queues)) {
        bail!("`--queues {queues}`; allowed: 1 to 16384");
    }
    allowed("bytes", args.bytes, 8..=sdp::SLOT_BYTES_MAX)?;
    allowed("window-ms", args.window_ms, 5..=50)?;
    allowed("queues-each", args.queues_each, 1..=sdp::QUEUES_MAX)?;
    ensure!(args.windows > 0, "`--windows` is 0; allowed: 1 and more");
    args.arrangement.iter().try_for_each(|name| arrangement(name).map(drop))?;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(
        processors > args.cores as usize,
        "`--cores {}` and a tenant need {} processors; here are {processors}",
        args.cores,
        args.cores + 1
    );
    Ok(())
}

fn conditions(args: &BenchArgs, ordinary: u32) -> BTreeMap<String, String> {
    let mut all = measure::conditions::here();
    let on: Vec<String> = (0..args.cores).map(|cpu| cpu.to_string()).collect();
    let tenant = format!(
        "one process, closed loop, up to 16 outstanding on a busy queue, {} queues each",
        args.queues_each
    );
    let windows = format!(
        "{} quiet ones of {} ms for each value, of {} tries at most; contenders in an order that is drawn anew each round; quiet: no \
         context switch of core or tenant, no stolen tick, no stall over {} us",
        args.windows,
        args.window_ms,
        3 * args.windows,
        QUIET.stall_ns / 1_000
    );
    let priority = match (args.no_realtime, ordinary) {
        (true, _) => "ordinary, as asked for".to_owned(),
        (false, 0) => format!("real-time (FIFO {REALTIME}) in windows, of both"),
        (false, count) => format!("real-time was refused in {count} windows"),
    };
    let own = [
        ("service", args.service.clone()),
        ("data-plane cores", format!("{}, on processor {}", args.cores, on.join(", "))),
        ("tenant core", args.cores.to_string()),
        ("tenant", tenant),
        ("request", format!("{} bytes", args.bytes)),
        ("batch", args.batch.to_string()),
        ("doorbells", if args.paged { "a page each" } else { "128 bytes apart" }.into()),
        ("windows", windows),
        ("seed", args.seed.to_string()),
        ("priority", priority),
    ];
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all
}

/// Runs `tailplane sdp-bench`.
///
/// # Errors
/// Arguments that are not allowed, a plane or a tenant that cannot be had.
pub fn run(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    check(args)?;
    let stop = Arc::new(AtomicBool::new(false));
    cleanup::first_signal_sets(Arc::clone(&stop)).context("catching signals")?;
    let bench = Bench { args, stop: &stop, ordinary: AtomicU32::new(0) };
    let mut cells = Vec::new();
    for &shape in &args.shape {
        for &queues in &args.queues {
            let found = bench.cell(queues, shape)?;
            eprintln!("{} {queues}: {} values", shape.short(), found.len());
            cells.extend(found);
        }
    }
    let conditions = conditions(args, bench.ordinary.load(Ordering::Relaxed));
    let report = Report { conditions, cells };
    if !is_stdout(args.json.as_ref()) {
        print_table(&report);
    }
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table(report: &Report) {
    let mut table = Grid::new([
        "shape",
        "queues",
        "arrangement",
        "notify",
        "requests/s",
        "span",
        "a visit",
        "tenant idle",
        "windows",
    ]);
    for cell in &report.cells {
        let millions = |value: f64| format!("{:.2} M", value / 1e6);
        let windows = match &cell.disturbed {
            None => format!("{} of {}", cell.windows, cell.windows + cell.discarded),
            Some(disturbed) => format!("none quiet: {disturbed}"),
        };
        table.row([
            cell.shape.to_owned(),
            cell.queues.to_string(),
            cell.arrangement.clone(),
            cell.notify.to_owned(),
            millions(cell.requests_per_s),
            format!("{} to {}", millions(cell.low), millions(cell.high)),
            format!("{:.1}", cell.requests_per_visit),
            format!("{:.0} %", cell.tenant_idle * 100.0),
            windows,
        ]);
    }
    println!("{table}");
    for (key, value) in &report.conditions {
        println!("  {key}: {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_watched_from_its_first_request_on() {
        let watch = Arc::new(Watch::default());
        assert_eq!(watch.switches_since(), None);
        let service = Box::new(sdp::Echo);
        let mut placed = Placed { service, watch: Arc::clone(&watch), has_begun: false };
        let from = TenantQueue { tenant: 1, queue: 0 };
        let mut reply = [0; 8];
        assert_eq!(placed.handle(from, b"abc", &mut reply), Outcome::Reply(3));
        assert!(watch.switches_since().is_some());
        assert!(!watch.has_realtime.load(Ordering::Relaxed), "it was not asked for");
    }
}
