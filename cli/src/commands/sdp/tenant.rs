//! `tailplane sdp tenant`: a process that joins a plane, loads it, checks the replies and reports their
//! latency.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use sdp::{DoorbellLayout, Shape, SubmitError, Tenant};
use serde::Serialize;

use super::json::write_or_print;

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
    /// The class that it wishes: 0 is served first. The plane may refuse (`serve --class-wishes`).
    #[arg(long, value_name = "CLASS")]
    pub class: Option<u8>,
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

/// Runs `tailplane sdp tenant`.
///
/// # Errors
/// A plane that cannot be joined, or a reply that is not what was sent.
pub fn tenant(args: &TenantArgs, stop: &AtomicBool) -> anyhow::Result<()> {
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
        tenant: match args.class {
            None => Tenant::join(&args.socket, shape)?,
            Some(class) => Tenant::join_in_class(&args.socket, shape, class)?,
        },
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
    let TenantResult { replies, seconds, replies_per_s, full, .. } = result;
    let text = format!(
        "{replies} replies in {seconds:.2} s: {replies_per_s:.0}/s; latency mean {:.1} us, p50 \
         {:.1}, p99 {:.1}, p99.9 {:.1}, max {:.1}; queue full {full} times\n",
        result.mean_us, result.p50_us, result.p99_us, result.p999_us, result.max_us,
    );
    write_or_print(args.json.as_ref(), &result, &text)
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
    use sdp::{Plane, PlaneConfig};

    use super::*;

    #[test]
    fn a_tenant_is_served_and_its_replies_are_checked() {
        let socket = std::env::temp_dir().join(format!("tailplane-cli-sdp-{}", std::process::id()));
        let plane =
            Plane::start(PlaneConfig::new(&socket), |_| Box::new(sdp::Echo)).expect("started");
        let args = |rate, wait| TenantArgs {
            socket: socket.clone(),
            queues: 70,
            active: Some(9),
            class: None,
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
        let vain = TenantArgs { class: Some(0), ..args(0, true) };
        let refused = tenant(&vain, &stop).expect_err("nobody said that it may choose");
        assert!(refused.to_string().contains("class 0 asked for"), "{refused}");
    }
}
