//! The client, at the second core: its elastic thread's loop and its service's spinning call it whenever
//! something is due. A thread of its own would cost that core a switch and a timer for each request, ten times
//! what the client itself takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::{Clock, Duration, Instant};
use dataplane::{Elastic, ElasticConfig, ElasticThread, ForwardPorts};
use mem::{Pool, Region};
use nic::shm::ShmNic;
use queueing::{Law, Tail, Window};
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;
use stack::Shared;
use wire::Endpoint;

use super::config::{self, Config, OPEN_MAX, RUN_MAX};
use super::found::{Found, TwoCoresError};
use super::interruptions::Interruptions;
use super::split::Split;
use super::{CLIENT, MACS, PORT, SERVER, Signals, shared};
use crate::cores::client::{Arrivals, Client, Stamped};
use crate::cores::{Planned, Replay};

/// Longest time between two looks for answers in an open loop. The service says when they left, so nothing hangs
/// on when the client sees them, but for connections with as many requests outstanding as may be.
const LEISURE: Duration = Duration::from_micros(200);

/// See the module's comment.
pub struct Guest<'a> {
    config: Config,
    signals: &'a Signals,
    thread: ElasticThread<Split>,
    client: Client,
    /// When connections began to be opened, and requests to be made.
    began: Instant,
    asking: Option<Instant>,
    /// When it wants to look again.
    look_at: Instant,
    /// The time that it has had since requests were made.
    spent: Duration,
}

impl<'a> Guest<'a> {
    /// Joined by `ends` to the cores of the dataplane that `server` describes.
    pub fn new(
        config: &Config,
        signals: &'a Signals,
        server: &Arc<Shared>,
        ends: Vec<ShmNic>,
    ) -> Self {
        let region = Region::heap(16_384);
        let (pool, now) = (Pool::new(&region, 16_384), signals.clock.now());
        let own = shared(CLIENT, MACS[1], 1, config.seed ^ 1);
        let nic = Split::new(Arc::clone(server), ends);
        let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
        Self {
            config: *config,
            signals,
            thread: ElasticThread::new(0, own, nic, pool, ports, elastic, now),
            client: client(config),
            began: now,
            asking: None,
            look_at: Instant::ZERO,
            spent: Duration::ZERO,
        }
    }

    /// Does what is due, if anything is. Its time is not the elastic thread's.
    pub fn look(&mut self, now: Instant, interruptions: &mut Interruptions) {
        if now < self.look_at {
            return;
        }
        self.thread.run_cycle(now, &mut self.client);
        let clock = self.signals.clock;
        let done = clock.now();
        self.client.left(done);
        match self.asking {
            None if self.client.is_open() => {
                self.signals.ready.store(true, Ordering::Relaxed);
                let now = clock.now();
                self.asking = Some(now);
                self.client.start(now, Window { start: 0.0, end: f64::MAX }, f64::MAX);
            }
            None if now.since(self.began) > OPEN_MAX => self.signals.stop(),
            None => {}
            Some(since) => {
                self.spent += done.since(now);
                interruptions.took(now, done);
                let late = self.config.realtime && now.since(since) > RUN_MAX;
                if late || self.client.is_over() {
                    self.signals.stop();
                }
            }
        }
        self.look_at = match self.config.arrivals {
            config::Arrivals::Open { .. } if self.client.is_open() => {
                self.client.next_due().unwrap_or(Instant::FAR_FUTURE).min(done + LEISURE)
            }
            _ => done,
        };
    }

    /// What was found, and when requests began.
    pub fn found(self) -> Result<(Found, Instant), TwoCoresError> {
        let (open, wanted) = (self.client.located as u32, self.config.connections);
        let began = self.asking.ok_or(TwoCoresError::Connections { open, wanted })?;
        let seconds = self.signals.clock.now().since(began).as_secs_f64();
        let Client { found, stamped, open_requests, .. } = self.client;
        let Stamped { served, asked, .. } = stamped.unwrap_or_default();
        let quantile = |of: &Tail, share| match of.count() {
            0 => f64::NAN,
            _ => of.quantile(share) / 1e3,
        };
        Elastic::leave(self.thread);
        let found = Found {
            answered: found.all,
            left: open_requests,
            seconds,
            p50_us: quantile(&found.latency, 0.5),
            p99_us: quantile(&found.latency, 0.99),
            served_us: [0.5, 0.99].map(|share| quantile(&served, share)),
            asked,
            service_us: found.service_ns / 1e3 / found.due.max(1) as f64,
            client_us: self.spent.as_nanos() as f64 / 1e3 / found.all.max(1) as f64,
            out_of_order: found.wrong,
            failures: found.failures,
            ..Found::default()
        };
        Ok((found, began))
    }
}

fn client(config: &Config) -> Client {
    let (depth, closed, replay) = match config.arrivals {
        config::Arrivals::Closed { depth, total } => (depth, Some(total), None),
        config::Arrivals::Open { rate, span, depth } => {
            (depth, None, Some(Arc::new(plan(config, rate, span))))
        }
    };
    let arrivals = Arrivals {
        seed: config.seed,
        law: Law::Exponential,
        mean_ns: config.service_ns,
        gap_ns: f64::MAX,
        balanced: false,
        pipeline: depth as usize,
        pattern: None,
        replay,
        closed,
    };
    let server = Endpoint::new(SERVER, PORT);
    let mut client = Client::new(arrivals, config.connections as usize, MACS.len(), server);
    client.stamped = Some(Stamped::default());
    client
}

/// The requests of an open loop: `rate` in a second, exponentially apart.
fn plan(config: &Config, rate: f64, span: Duration) -> Replay {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(config.seed);
    let (mut at_ns, mut replay) = (0.0, Replay::default());
    loop {
        let [gap, service]: [f64; 2] = [(); 2].map(|()| Exp1.sample(&mut random));
        at_ns += gap * 1e9 / rate;
        if at_ns >= span.as_nanos() as f64 {
            return replay;
        }
        replay.requests.push(Planned {
            after_ns: at_ns as u64,
            home: random.random(),
            among: random.random(),
            service_ns: (service * config.service_ns) as u64,
        });
    }
}
