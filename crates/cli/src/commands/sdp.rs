//! `tailplane sdp`: the many-tenant software data plane, to try.
//!
//! ```text
//! tailplane sdp serve --socket /tmp/sdp.sock          in one terminal; Ctrl-C ends it
//! tailplane sdp tenant --socket /tmp/sdp.sock --queues 20   in as many others as you like
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use sdp::{
    Arrangement, Counts, DoorbellLayout, Handler, Notify, Outcome, Plane, PlaneConfig, PlaneReport,
    RateLimit, Shape, SubmitError, Tenant, TenantQueue, handler,
};
use serde::Serialize;

use crate::cleanup;

/// What `--help` teaches beside the options.
const HELP: &str = "\
A data plane serves queue pairs of many processes, which it does not trust, on a few cores (HyperPlane,
MICRO 2020, section II-A). `serve` is the plane; `tenant` is a process that joins it, sends requests on
N queues, checks the replies, and reports their latency. Run as many tenants as you like; kill them; the
plane and the others go on.

How a core learns of work (--notify): `qwait` keeps a ready set, and sleeps when nothing is ready; `spin`
looks at every queue in turn; `spin-dpdk` does so at the cost of a poll-mode driver's poll.

EXAMPLES
  tailplane sdp serve --socket /tmp/sdp.sock --service work:1000
  tailplane sdp serve --socket /tmp/sdp.sock --cores 2 --arrangement scale-up:2 --cpus 0,1
  tailplane sdp tenant --socket /tmp/sdp.sock --queues 200 --active 1 --doorbells paged --rate 10000
  tailplane sdp tenant --socket /tmp/sdp.sock --count 100000 --json -";

/// Arguments of `tailplane sdp`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What `tailplane sdp` does.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Serve tenants.
    Serve(ServeArgs),
    /// Be a tenant: a small load.
    Tenant(TenantArgs),
}

/// Arguments of `tailplane sdp serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Where tenants join.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// The socket's permissions, octal: who may join.
    #[arg(long, default_value = "600", value_name = "MODE")]
    pub mode: String,
    /// Data-plane cores, 1 to 4.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub cores: u32,
    /// The processor of each core, comma separated; none: not pinned.
    #[arg(long, value_delimiter = ',', value_name = "CPU,…")]
    pub cpus: Vec<usize>,
    /// Which cores serve which queues: `scale-out` (each its own), or `scale-up:N` (groups of N cores
    /// share theirs).
    #[arg(long, default_value = "scale-out", value_name = "HOW")]
    pub arrangement: String,
    /// How a core learns of work: `qwait`, `spin` or `spin-dpdk`.
    #[arg(long, default_value = "qwait", value_name = "HOW")]
    pub notify: Notify,
    /// What is served: `echo`; `work:NS`, which is busy for NS nanoseconds, then echoes; `encryption`
    /// (AES-256-CBC); `raid:DISKS` (P + Q); `reed-solomon:DATA+PARITY`.
    #[arg(long, default_value = "echo", value_name = "NAME")]
    pub service: String,
    /// Requests of one visit to a queue of weight 1, 1 to 64.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: u32,
    /// Looks that find nothing before a core sleeps (qwait).
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    pub spin_looks: u32,
    /// Most requests a second of each tenant; 0: no limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub tenant_rate: u64,
    /// End after this many seconds instead of at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Write what was counted as JSON when it ends; `-`: to the standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Arguments of `tailplane sdp tenant`.
#[derive(Debug, clap::Args)]
pub struct TenantArgs {
    /// Where the plane is.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// Queue pairs, 1 to 1,024.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub queues: u32,
    /// Queues that are used, the first ones; the others stay empty. All by default.
    #[arg(long, value_name = "N")]
    pub active: Option<u32>,
    /// Entries of each ring: a power of two, 32 to 1,024.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub depth: u32,
    /// Bytes of a request: 8 to 4,096.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub bytes: u32,
    /// How the doorbells lie: `packed`, or `paged`, each on a page of its own.
    #[arg(long, default_value = "packed", value_name = "HOW")]
    pub doorbells: String,
    /// Requests a second over all queues, evenly spaced; latency counts from when each was due. 0: one
    /// outstanding on each queue, as fast as replies come.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub rate: u64,
    /// End after so many requests.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// End after so many seconds.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub seconds: u64,
    /// Replies may hold anything: for services that do not echo.
    #[arg(long)]
    pub any_reply: bool,
    /// Sleep until replies come instead of looking for them all the time.
    #[arg(long)]
    pub wait: bool,
    /// Write the result as JSON; `-`: to the standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs `tailplane sdp`.
///
/// # Errors
/// A plane that cannot be started or joined, a reply that is not what was sent, or a file that cannot
/// be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    cleanup::first_signal_sets(Arc::clone(&stop)).context("catching signals")?;
    match args.action {
        Action::Serve(args) => serve(&args, &stop),
        Action::Tenant(args) => tenant(&args, &stop),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn arrangement(name: &str) -> anyhow::Result<Arrangement> {
    if name == "scale-out" {
        return Ok(Arrangement::ScaleOut);
    }
    let cores = name.strip_prefix("scale-up:").and_then(|cores| cores.parse().ok());
    let Some(cores_per_group) = cores else {
        bail!("`--arrangement {name}`: there are `scale-out` and `scale-up:N`");
    };
    Ok(Arrangement::ScaleUp { cores_per_group })
}

fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    if path == Path::new("-") {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| format!("cannot write '{}'", path.display()))
}

// ---- services --------------------------------------------------------------------------------

/// A service of HyperPlane's six, for tenants. A request that it refuses has an empty reply.
struct Served<S>(S);

impl<S: services::Service> Handler for Served<S> {
    fn handle(&mut self, _: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        Outcome::Reply(self.0.serve(request, reply).unwrap_or(0))
    }
}

/// A service by its name.
fn service(name: &str) -> Option<Box<dyn Handler>> {
    if let Some(disks) = name.strip_prefix("raid:") {
        return Some(Box::new(Served(services::Raid::new(disks.parse().ok()?).ok()?)));
    }
    if let Some(shape) = name.strip_prefix("reed-solomon:") {
        let (data, parity) = shape.split_once('+')?;
        let code = services::ReedSolomon::new(data.parse().ok()?, parity.parse().ok()?);
        return Some(Box::new(Served(code.ok()?)));
    }
    if name == "encryption" {
        // Keys of this run, which nobody can decrypt with: what is tried here is the service's cost.
        let mut keys = [[0; services::KEY_LEN]; 2];
        for key in &mut keys {
            rustix::rand::getrandom(key, rustix::rand::GetRandomFlags::empty()).ok()?;
        }
        return Some(Box::new(Served(services::Encryption::new(&keys[0], &keys[1]))));
    }
    handler(name)
}

// ---- the plane --------------------------------------------------------------------------------

fn serve(args: &ServeArgs, stop: &AtomicBool) -> anyhow::Result<()> {
    if service(&args.service).is_none() {
        bail!(
            "`--service {}`: there are `echo`, `work:NS`, `encryption`, `raid:DISKS` and \
             `reed-solomon:DATA+PARITY`",
            args.service
        );
    }
    let mode = u32::from_str_radix(&args.mode, 8).ok().filter(|&mode| mode <= 0o777);
    let socket_mode =
        mode.with_context(|| format!("`--mode {}` is no octal mode such as 660", args.mode))?;
    let config = PlaneConfig {
        socket_mode,
        cores: args.cores,
        cpus: args.cpus.clone(),
        arrangement: arrangement(&args.arrangement)?,
        notify: args.notify,
        batch: args.batch,
        spin_looks: args.spin_looks,
        rate_limit: RateLimit {
            requests_per_s: args.tenant_rate,
            burst_requests: (args.tenant_rate / 1_000).max(1),
            ..RateLimit::NONE
        },
        ..PlaneConfig::new(&args.socket)
    };
    let name = args.service.clone();
    // The name was found above, and the registry does not change.
    let plane =
        Plane::start(config, move |_core| service(&name).unwrap_or_else(|| Box::new(sdp::Echo)))?;
    let idle = match args.notify {
        Notify::Qwait => format!("sleeps after {} empty looks", args.spin_looks),
        _ => "spins for ever".to_owned(),
    };
    eprintln!(
        "{} at {}\n  cores      {}, {}\n  notify     {} ({idle}), batch {}\n  try it     tailplane \
         sdp tenant --socket {} --queues 10",
        args.service,
        args.socket.display(),
        args.cores,
        args.arrangement,
        args.notify.name(),
        args.batch,
        args.socket.display(),
    );
    let start = Instant::now();
    let over = |start: Instant| args.seconds.is_some_and(|end| start.elapsed().as_secs() >= end);
    while !stop.load(Ordering::Relaxed) && !over(start) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = plane.report();
    plane.stop();
    match &args.json {
        Some(path) => write_json(path, &plane_json(args, &report)),
        None => {
            print!("{}", plane_text(&report));
            Ok(())
        }
    }
}

fn counted(counts: &Counts) -> String {
    let odd = counts.entries().filter(|(_, value)| *value > 0);
    odd.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn plane_text(report: &PlaneReport) -> String {
    let mut text = String::new();
    for (core, counts) in report.cores.iter().enumerate() {
        text += &format!("core {core}: {}\n", counted(counts));
    }
    for tenant in &report.tenants {
        text += &format!(
            "tenant {} (process {}, user {}, {} queues): {}\n",
            tenant.id,
            tenant.pid,
            tenant.uid,
            tenant.queues,
            counted(&tenant.counts)
        );
    }
    let joins = &report.joins;
    text += &format!(
        "tenants: {} joined, {} left, {} refused, {} dropped, {} disconnected\n",
        joins.joined, joins.left, joins.refused, joins.dropped, joins.disconnected
    );
    text
}

fn plane_json(args: &ServeArgs, report: &PlaneReport) -> serde_json::Value {
    let counts = |counts: &Counts| {
        let pairs = counts.entries().map(|(name, value)| (name.to_owned(), value.into()));
        serde_json::Value::Object(pairs.collect())
    };
    let tenants = report.tenants.iter().map(|tenant| {
        serde_json::json!({
            "id": tenant.id, "pid": tenant.pid, "uid": tenant.uid, "queues": tenant.queues,
            "counts": counts(&tenant.counts),
        })
    });
    serde_json::json!({
        "conditions": {
            "service": args.service, "cores": args.cores, "arrangement": args.arrangement,
            "notify": args.notify.name(), "batch": args.batch, "spin_looks": args.spin_looks,
        },
        "cores": report.cores.iter().map(counts).collect::<Vec<_>>(),
        "tenants": tenants.collect::<Vec<_>>(),
        "gone": counts(&report.gone),
        "joined": report.joins.joined,
        "left": report.joins.left,
        "refused": report.joins.refused,
    })
}

// ---- a tenant ---------------------------------------------------------------------------------

/// What a tenant measured.
#[derive(Debug, Serialize)]
struct TenantResult {
    queues: u32,
    active: u32,
    bytes: u32,
    doorbells: String,
    rate: u64,
    replies: u64,
    seconds: f64,
    replies_per_s: f64,
    /// Times that a queue was full when a request was due.
    full: u64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
}

/// The load while it runs.
struct Load<'a> {
    args: &'a TenantArgs,
    tenant: Tenant,
    active: u32,
    /// By queue: when each outstanding request was due, and its number.
    due: Vec<VecDeque<(Instant, u64)>>,
    request: Vec<u8>,
    sent: u64,
    replies: u64,
    full: u64,
    latency_ns: Histogram<u64>,
}

fn tenant(args: &TenantArgs, stop: &AtomicBool) -> anyhow::Result<()> {
    let doorbells = match args.doorbells.as_str() {
        "packed" => DoorbellLayout::Packed,
        "paged" => DoorbellLayout::Paged,
        other => bail!("`--doorbells {other}`: there are `packed` and `paged`"),
    };
    if !(8..=sdp::SLOT_BYTES_MAX).contains(&args.bytes) {
        bail!("`--bytes` is {}; allowed: 8 to {}", args.bytes, sdp::SLOT_BYTES_MAX);
    }
    let active = args.active.unwrap_or(args.queues);
    if active == 0 || active > args.queues {
        bail!("`--active` is {active}; allowed: 1 to {}, the queues", args.queues);
    }
    let slot_bytes = args.bytes.next_multiple_of(8).max(sdp::SLOT_BYTES_MIN);
    let shape = Shape { queues: args.queues, depth: args.depth, slot_bytes, doorbells };
    let mut load = Load {
        tenant: Tenant::join(&args.socket, shape)?,
        active,
        due: (0..active).map(|_| VecDeque::with_capacity(args.depth as usize)).collect(),
        request: vec![0; args.bytes as usize],
        sent: 0,
        replies: 0,
        full: 0,
        latency_ns: Histogram::new_with_bounds(1, 60_000_000_000, 3)?,
        args,
    };
    let start = Instant::now();
    load.run(start, stop)?;
    let result = load.result(start.elapsed());
    match &args.json {
        Some(path) => write_json(path, &result),
        None => {
            println!(
                "{} replies in {:.2} s: {:.0}/s; latency mean {:.1} us, p50 {:.1}, p99 {:.1}, \
                 p99.9 {:.1}, max {:.1}; queue full {} times",
                result.replies,
                result.seconds,
                result.replies_per_s,
                result.mean_us,
                result.p50_us,
                result.p99_us,
                result.p999_us,
                result.max_us,
                result.full
            );
            Ok(())
        }
    }
}

impl Load<'_> {
    fn run(&mut self, start: Instant, stop: &AtomicBool) -> anyhow::Result<()> {
        let (end, count) = (start + Duration::from_secs(self.args.seconds), self.args.count);
        let over = |sent: u64, now: Instant| {
            now >= end || count.is_some_and(|count| sent >= count) || stop.load(Ordering::Relaxed)
        };
        loop {
            let now = Instant::now();
            if over(self.sent, now) {
                break;
            }
            self.send_due(start, now)?;
            self.receive()?;
            if self.args.wait {
                self.tenant.wait(self.until_next(start))?;
            }
        }
        // What is outstanding is still to be answered.
        let patience = Instant::now() + Duration::from_secs(5);
        while self.replies < self.sent {
            self.tenant.wait(Duration::from_millis(100))?;
            self.receive()?;
            if Instant::now() > patience {
                bail!("{} replies are missing after 5 s", self.sent - self.replies);
            }
        }
        Ok(())
    }

    /// When request number `sent` is due after the start.
    fn offset(&self, number: u64) -> Duration {
        // A rate of 0 has no due times.
        let nanos = u128::from(number) * 1_000_000_000 / u128::from(self.args.rate.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn until_next(&self, start: Instant) -> Duration {
        if self.args.rate == 0 {
            return Duration::from_millis(100);
        }
        (start + self.offset(self.sent)).saturating_duration_since(Instant::now())
    }

    fn send_due(&mut self, start: Instant, now: Instant) -> anyhow::Result<()> {
        let left = self.args.count.map_or(u64::MAX, |count| count - self.sent);
        if self.args.rate == 0 {
            for queue in 0..self.active {
                if self.due[queue as usize].is_empty()
                    && (self.sent < self.args.count.unwrap_or(u64::MAX))
                {
                    self.send(queue, now)?;
                }
            }
            return Ok(());
        }
        // No more than a ring at a time, so that replies are looked at in between.
        for _ in 0..left.min(u64::from(self.args.depth)) {
            let due = start + self.offset(self.sent);
            if due > now || !self.send((self.sent % u64::from(self.active)) as u32, due)? {
                break;
            }
        }
        Ok(())
    }

    /// Sends one request; false where the queue is full.
    fn send(&mut self, queue: u32, due: Instant) -> anyhow::Result<bool> {
        self.request[..8].copy_from_slice(&self.sent.to_le_bytes());
        match self.tenant.submit(queue, &self.request) {
            Ok(()) => {}
            Err(SubmitError::Full) => {
                self.full += 1;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        self.due[queue as usize].push_back((due, self.sent));
        self.sent += 1;
        Ok(true)
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        for queue in 0..self.active {
            if self.due[queue as usize].is_empty() {
                continue;
            }
            while let Some(reply) = self.tenant.poll(queue) {
                let expected = self.due[queue as usize].pop_front();
                let (due, number) = expected.context("a reply that nobody asked for")?;
                let wrong = !self.args.any_reply && !reply.bytes.starts_with(&number.to_le_bytes());
                if reply.refused || wrong {
                    bail!("queue {queue}: the reply to request {number} is not what was sent");
                }
                self.replies += 1;
                let nanos = due.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
                self.latency_ns.saturating_record(nanos);
            }
        }
        Ok(())
    }

    fn result(&self, elapsed: Duration) -> TenantResult {
        let at = |quantile: f64| self.latency_ns.value_at_quantile(quantile) as f64 / 1_000.0;
        TenantResult {
            queues: self.args.queues,
            active: self.active,
            bytes: self.args.bytes,
            doorbells: self.args.doorbells.clone(),
            rate: self.args.rate,
            replies: self.replies,
            seconds: elapsed.as_secs_f64(),
            replies_per_s: self.replies as f64 / elapsed.as_secs_f64().max(1e-9),
            full: self.full,
            mean_us: self.latency_ns.mean() / 1_000.0,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.latency_ns.max() as f64 / 1_000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrangements_are_read_by_name() {
        assert_eq!(arrangement("scale-out").ok(), Some(Arrangement::ScaleOut));
        let shared = Arrangement::ScaleUp { cores_per_group: 2 };
        assert_eq!(arrangement("scale-up:2").ok(), Some(shared));
        for wrong in ["", "scale-up", "scale-up:", "scale-up:x", "out"] {
            assert!(arrangement(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn services_are_found_by_name() {
        let mut reply = [0; 256];
        let from = TenantQueue { tenant: 1, queue: 0 };
        for (name, request, expected) in [
            ("echo", 64, 64),
            ("encryption", 64, 16 + 64 + 16),
            ("raid:4", 64, 32),
            ("raid:4", 63, 0),
            ("reed-solomon:4+2", 64, 32),
        ] {
            let mut service = service(name).expect("known");
            let outcome = service.handle(from, &[7; 256][..request], &mut reply);
            assert_eq!(outcome, Outcome::Reply(expected), "{name} {request}");
        }
        for unknown in ["raid", "raid:x", "raid:0", "reed-solomon:4", "aes", ""] {
            assert!(service(unknown).is_none(), "{unknown}");
        }
    }

    #[test]
    fn a_tenant_is_served_and_its_replies_are_checked() {
        let socket = std::env::temp_dir().join(format!("tailplane-cli-sdp-{}", std::process::id()));
        let plane =
            Plane::start(PlaneConfig::new(&socket), |_| Box::new(sdp::Echo)).expect("started");
        let args = |rate, wait| TenantArgs {
            socket: socket.clone(),
            queues: 70,
            active: Some(9),
            depth: 32,
            bytes: 100,
            doorbells: "paged".into(),
            rate,
            count: Some(500),
            seconds: 60,
            any_reply: false,
            wait,
            json: None,
        };
        let stop = AtomicBool::new(false);
        for (rate, wait) in [(0, true), (20_000, false), (5_000, true)] {
            tenant(&args(rate, wait), &stop).expect("served");
        }
        let start = Instant::now();
        while plane.report().total().served < 1_500 {
            assert!(start.elapsed() < Duration::from_secs(10), "all is counted");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(plane.report().total().lies, 0);
        let wrong = TenantArgs { active: Some(71), ..args(0, true) };
        assert!(tenant(&wrong, &stop).is_err());
    }
}
