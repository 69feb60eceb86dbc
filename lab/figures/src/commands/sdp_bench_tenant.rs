//! A tenant of `tailplane sdp-bench`, in a process of its own: one window of a closed loop.
//!
//! It joins, prints `ready`, runs its window, and prints one line of JSON ([`Found`]).

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use measure::{Disturbance, Side, Stopwatch, WINDOW_MAX, Watch, pin, together};
use notify::{Fill, Shape, Traffic};
use sdp::{DoorbellLayout, QUEUES_MAX, Tenant};
use serde::{Deserialize, Serialize};

use crate::demo::processors::REALTIME;

/// Requests outstanding on a busy queue at most.
const WINDOW: u32 = 16;
/// Queues that are polled between two looks at the clock.
const POLLS: usize = 32;
/// Share of a window before anything is counted: caches, branch predictors, page faults.
const WARM_UP: f64 = 0.1;
/// How long the first replies may take.
const PATIENCE_NS: u64 = 300_000_000;

/// Arguments of `tailplane-lab sdp-bench-tenant`, which `sdp-bench` starts.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchTenantArgs {
    /// Where the plane is.
    #[arg(long)]
    pub socket: PathBuf,
    /// Queue pairs in all.
    #[arg(long)]
    pub queues: u32,
    /// Of each tenant at most; the process joins as often as that needs.
    #[arg(long, default_value_t = QUEUES_MAX)]
    pub queues_each: u32,
    /// Which of them have work: `FB`, `PC`, `NC`, `SQ`.
    #[arg(long, value_parser = shape)]
    pub shape: Shape,
    /// Bytes of a request.
    #[arg(long)]
    pub bytes: u32,
    /// Whether doorbells lie on pages of their own.
    #[arg(long)]
    pub paged: bool,
    /// Length of the window in milliseconds.
    #[arg(long)]
    pub window_ms: u64,
    /// The processor that it runs on; none: not pinned.
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Real-time priority in the window.
    #[arg(long)]
    pub realtime: bool,
    /// Of the traffic.
    #[arg(long)]
    pub seed: u64,
}

/// A traffic shape by its short name.
///
/// # Errors
/// What there is.
pub fn shape(name: &str) -> Result<Shape, String> {
    let found = Shape::ALL.into_iter().find(|shape| shape.short().eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("'{name}' is none of FB, PC, NC, SQ"))
}

/// What a window found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Replies that count.
    pub replies: u64,
    /// In so many nanoseconds.
    pub elapsed_ns: u64,
    /// Share of its looks at queues that found nothing to do: the rest of its time it was the tenant that
    /// had to keep up.
    pub idle: f64,
    /// It had real-time priority.
    pub realtime: bool,
    /// What disturbed it, on its side; a plane that stalls shows as a stall, too.
    pub disturbance: Disturbance,
}

/// The queues of all tenants of this process, numbered through.
struct Load {
    tenants: Vec<Tenant>,
    each: u32,
    request: Vec<u8>,
    /// Queues with requests outstanding, in no order, and whether each is there.
    open: Vec<u32>,
    is_open: Vec<bool>,
    next: usize,
    refused: u64,
}

impl Load {
    fn join(args: &BenchTenantArgs) -> anyhow::Result<Self> {
        let doorbells = if args.paged { DoorbellLayout::Paged } else { DoorbellLayout::Packed };
        let each = args.queues_each.clamp(1, QUEUES_MAX);
        let mut tenants = Vec::new();
        for first in (0..args.queues).step_by(each as usize) {
            let queues = each.min(args.queues - first);
            let slot_bytes = args.bytes.next_multiple_of(8).max(sdp::SLOT_BYTES_MIN);
            let shape = sdp::Shape { queues, depth: 32, slot_bytes, doorbells };
            tenants.push(Tenant::join(&args.socket, shape)?);
        }
        Ok(Self {
            tenants,
            each,
            request: vec![7; args.bytes as usize],
            open: Vec::with_capacity(args.queues as usize),
            is_open: vec![false; args.queues as usize],
            next: 0,
            refused: 0,
        })
    }

    fn outstanding(&self, queue: u32) -> u32 {
        let tenant = self.tenants.get((queue / self.each) as usize);
        tenant.map_or(0, |tenant| tenant.outstanding(queue % self.each))
    }

    /// Submits until so many are outstanding on a queue; how many it took.
    fn up_to(&mut self, queue: u32, wanted: u32) -> u32 {
        let missing = wanted.saturating_sub(self.outstanding(queue));
        let Some(tenant) = self.tenants.get_mut((queue / self.each) as usize) else { return 0 };
        let mut sent = 0;
        while sent < missing && tenant.submit(queue % self.each, &self.request).is_ok() {
            sent += 1;
        }
        if sent > 0 && !std::mem::replace(&mut self.is_open[queue as usize], true) {
            self.open.push(queue);
        }
        sent
    }

    /// Polls some of the open queues; how many replies.
    fn poll(&mut self) -> u64 {
        let mut replies = 0;
        for _ in 0..POLLS.min(self.open.len()) {
            self.next = if self.next < self.open.len() { self.next } else { 0 };
            let Some(&queue) = self.open.get(self.next) else { break };
            let Some(tenant) = self.tenants.get_mut((queue / self.each) as usize) else { break };
            while let Some(reply) = tenant.poll(queue % self.each) {
                self.refused += u64::from(reply.refused);
                replies += 1;
            }
            if tenant.outstanding(queue % self.each) == 0 {
                self.is_open[queue as usize] = false;
                self.open.swap_remove(self.next);
            } else {
                self.next += 1;
            }
        }
        replies
    }

    /// The first request of each core: it takes its place on it. False: no replies in time.
    fn begin(&mut self, clock: Stopwatch) -> bool {
        let queues = self.is_open.len().min(sdp::CORES_MAX as usize) as u32;
        (0..queues).for_each(|queue| _ = self.up_to(queue, 1));
        let start_ns = clock.now_ns();
        while !self.open.is_empty() {
            self.poll();
            if clock.now_ns() - start_ns > PATIENCE_NS {
                return false;
            }
        }
        true
    }
}

impl Fill for Load {
    /// Half a window at a time: fewer would move the lines for each request.
    fn fill(&mut self, queue: u32) -> u32 {
        match self.outstanding(queue) {
            ..=8 => self.up_to(queue, WINDOW),
            _ => 0,
        }
    }

    fn one(&mut self, queue: u32) {
        self.up_to(queue, self.outstanding(queue) + 1);
    }
}

/// What the loop counted.
#[derive(Default)]
struct Counted {
    replies: u64,
    elapsed_ns: u64,
    idle_turns: u64,
    turns: u64,
    answered: bool,
}

fn window(load: &mut Load, traffic: &mut Traffic, length_ns: u64, watch: &mut Watch) -> Counted {
    let clock = Stopwatch::start();
    let mut counted = Counted { answered: load.begin(clock), ..Counted::default() };
    if !counted.answered {
        return counted;
    }
    traffic.prime(load);
    let begun_ns = clock.now_ns();
    let (warm_ns, end_ns) = (begun_ns + (length_ns as f64 * WARM_UP) as u64, begun_ns + length_ns);
    let (mut from_ns, mut last_ns, mut answered_ns) = (None, begun_ns, begun_ns);
    loop {
        let mut sent = 0;
        for _ in 0..POLLS {
            sent += traffic.step(load);
        }
        let replies = load.poll();
        let now_ns = clock.now_ns();
        if let Some(from_ns) = from_ns {
            counted.replies += replies;
            counted.turns += 1;
            counted.idle_turns += u64::from(replies == 0 && sent == 0);
            // Stalls of its own, and times without any reply.
            watch.gap((now_ns - last_ns).max(now_ns.saturating_sub(answered_ns)));
            counted.elapsed_ns = now_ns - from_ns;
        } else if now_ns >= warm_ns {
            from_ns = Some(now_ns);
        }
        last_ns = now_ns;
        answered_ns = if replies > 0 || from_ns == Some(now_ns) { now_ns } else { answered_ns };
        if now_ns >= end_ns {
            return counted;
        }
    }
}

/// Runs `tailplane-lab sdp-bench-tenant`.
///
/// # Errors
/// A plane that cannot be joined, or does not answer.
pub fn run(args: &BenchTenantArgs) -> anyhow::Result<ExitCode> {
    let mut load = Load::join(args)?;
    let mut traffic = Traffic::new(args.shape, args.queues, args.seed);
    println!("ready");
    std::io::stdout().flush().context("telling that it joined")?;
    let realtime = AtomicBool::new(false);
    let place = |side| match (side, args.cpu) {
        (Side::Consumer, Some(cpu)) => pin(cpu),
        _ => Ok(()),
    };
    let length = Duration::from_millis(args.window_ms).min(WINDOW_MAX);
    let length_ns = length.as_nanos() as u64;
    let run = |watch: &mut Watch| {
        // Not before both threads have met. The thread, and so its priority, ends with the window.
        let had = args.realtime && runtime::set_realtime(REALTIME).is_ok();
        realtime.store(had, Ordering::Relaxed);
        window(&mut load, &mut traffic, length_ns, watch)
    };
    // The other side of the wire is another process: nothing to be done here.
    let (counted, (), disturbance) = together(&place, run, |_| ())?;
    ensure!(counted.answered, "the plane did not answer within {} ms", PATIENCE_NS / 1_000_000);
    if load.refused > 0 {
        bail!("{} requests were refused: the plane found their lengths impossible", load.refused);
    }
    let found = Found {
        replies: counted.replies,
        elapsed_ns: counted.elapsed_ns,
        idle: counted.idle_turns as f64 / counted.turns.max(1) as f64,
        realtime: realtime.load(Ordering::Relaxed),
        disturbance,
    };
    println!("{}", serde_json::to_string(&found)?);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use measure::alone;
    use sdp::{Plane, PlaneConfig};

    use super::*;

    #[test]
    fn a_window_counts_replies_of_every_shape_over_several_tenants() {
        let socket = std::env::temp_dir().join(format!("sdp-bench-unit-{}", std::process::id()));
        let plane =
            Plane::start(PlaneConfig::new(&socket), |_| Box::new(sdp::Echo)).expect("started");
        for name in ["FB", "pc", "NC", "SQ"] {
            let args = BenchTenantArgs {
                socket: socket.clone(),
                queues: 150,
                queues_each: 70,
                shape: shape(name).expect("known"),
                bytes: 64,
                paged: name == "SQ",
                window_ms: 20,
                cpu: None,
                realtime: false,
                seed: 1,
            };
            let mut load = Load::join(&args).expect("joined");
            assert_eq!(load.tenants.len(), 3);
            let mut traffic = Traffic::new(args.shape, args.queues, args.seed);
            // A thread that gets no processor for a whole window has seen nothing: once more.
            let counted = (0..100)
                .map(|_| alone(|watch| window(&mut load, &mut traffic, 20_000_000, watch)).0);
            let mut counted = counted.into_iter().filter(|counted| counted.replies > 0);
            let counted = counted.next().expect("a window with replies");
            assert!(counted.answered && counted.elapsed_ns > 0);
            assert!(counted.idle_turns <= counted.turns);
            assert_eq!(load.refused, 0);
        }
        assert!(shape("XY").is_err_and(|error| error.contains("FB, PC, NC, SQ")));
        plane.stop();
    }
}
