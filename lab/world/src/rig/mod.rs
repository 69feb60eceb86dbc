//! Two dataplanes, joined in memory by the loopback driver, in one thread on a virtual clock: what counts the server's
//! instructions and times its cycles.
//!
//! ```
//! use world::rig::{RawEcho, Rig, RigConfig};
//! let mut rig = Rig::open(RigConfig::default(), RawEcho::default())?;
//! rig.exchange_all()?;
//! assert_eq!(rig.caller.answered, 64);
//! # Ok::<(), world::rig::RigError>(())
//! ```

mod caller;
mod empty_batches;
mod raw_echo;

use std::sync::Arc;
use std::time::{Duration as RealDuration, Instant};

use clock::{Clock, Duration, VirtualClock};
use dataplane::{ElasticConfig, ElasticThread, ForwardPorts, Progress};
use domain::{EventMirror, Service};
use mem::{Pool, Region};
use nic::Nic;
use nic::loopback::{LoopbackConfig, LoopbackNic, WhenFull, pair};
use runtime::Shown;
use stack::{Secrets, Shared, StackConfig};
use statseg::Board;
use wire::{Address, Endpoint, Ipv4Addr, Ipv6Addr, MacAddr, Prefix};

pub use caller::Caller;
pub use empty_batches::empty_batches;
pub use raw_echo::RawEcho;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
/// The first of the ports that the server listens on.
const FIRST_PORT: u16 = 2000;
/// Connections to one server port: well below the ephemeral ports there are, so that the search for
/// a free one is not what is measured.
const PER_PORT: usize = 32_000;
/// Rounds without an answer after which a run is given up, if they took so long: an application in another process
/// may be waited for.
const STALLED_ROUNDS: u32 = 100_000;
const STALLED_FOR: RealDuration = RealDuration::from_secs(2);
/// Secrets that may be known, so that runs are alike: no stranger sends to these dataplanes.
pub(crate) const SECRETS: Secrets =
    Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 };

/// What a rig is made of.
#[derive(Clone, Copy, Debug)]
pub struct RigConfig {
    /// Established connections.
    pub connections: usize,
    /// B of the server (IX §3); the client's is always 64.
    pub batch: usize,
    /// Chunks of packet memory of each side. Half of them are what may wait for a delayed
    /// acknowledgment.
    pub chunks: u32,
    /// Requests that are unanswered at a time, on all connections together.
    pub in_flight: usize,
    /// Virtual time that a round takes.
    pub round: Duration,
    /// Of the server's chunks, those for what its application sends, where that has batches that last longer than a
    /// cycle ([`Service::has_batch`]); 0: it has none.
    pub staged: usize,
    /// Whether the server shows what it does, as one in a service does: see `runtime::Shown`.
    pub shown: bool,
    /// Whether both ends speak IPv6, and not IPv4.
    pub ipv6: bool,
    /// IPv4 addresses of the client, which its connections have in turn. At most 253: those of its network.
    pub client_addresses: usize,
    /// Whether the wire completes the checksums of what is sent and verifies those of what is received, as devices do.
    pub offloads: bool,
}

impl Default for RigConfig {
    fn default() -> Self {
        let round = Duration::from_micros(10);
        Self {
            connections: 64,
            batch: 64,
            chunks: 16_384,
            in_flight: 512,
            round,
            shown: false,
            staged: 0,
            ipv6: false,
            client_addresses: 1,
            offloads: false,
        }
    }
}

/// Why a run is worth nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{doing}: came to a halt with {open} connections open, {answered} right answers and {failures} failures"
)]
pub struct RigError {
    /// What was going on.
    doing: &'static str,
    /// Connections open, right answers, failures.
    open: usize,
    answered: u64,
    failures: u64,
}

/// One cycle of the server: the function that callgrind is told to count, and nothing else. Hence
/// its own symbol.
#[inline(never)]
pub fn measured_server_cycle<S: Service>(
    server: &mut ElasticThread<LoopbackNic>,
    service: &mut S,
    now: clock::Instant,
) -> Progress {
    server.run_cycle(now, service)
}

/// The same of a server that shows what it does, with what the loop around the cycle does for that.
#[inline(never)]
pub fn measured_server_cycle_shown<S: Service>(
    server: &mut ElasticThread<LoopbackNic>,
    service: &mut S,
    shown: &mut Shown<'static>,
    now: clock::Instant,
) -> Progress {
    shown.begin(now);
    let progress = server.run_cycle(now, &mut shown.watch(service));
    shown.end(&progress);
    if shown.is_due(now) {
        shown.copy(now, server);
    }
    progress
}

/// A server with its service, a client, and the wire between them.
pub struct Rig<S> {
    /// The server's elastic thread.
    pub server: ElasticThread<LoopbackNic>,
    /// The client's elastic thread.
    pub client: ElasticThread<LoopbackNic>,
    service: S,
    /// The client.
    pub caller: Caller,
    clock: VirtualClock,
    round: Duration,
    shown: Option<Shown<'static>>,
    /// Cycles of the server that were run through [`measured_server_cycle`].
    pub measured_cycles: u64,
    /// Real time of the server's cycles that did something.
    pub server_busy: RealDuration,
    looked_at: Instant,
    longest_step: RealDuration,
    /// Requests that are unanswered at a time.
    pub in_flight: usize,
}

/// The server's address, and the client's.
fn addresses(config: &RigConfig) -> [Address; 2] {
    match config.ipv6 {
        false => [SERVER, CLIENT].map(Address::from),
        true => [1, 2].map(|last| Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, last).into()),
    }
}

fn thread(
    address: Address,
    mac: MacAddr,
    nic: LoopbackNic,
    config: &RigConfig,
    region: &Arc<Region>,
    batch: usize,
) -> ElasticThread<LoopbackNic> {
    let mut settings = StackConfig::new(address, 24, mac);
    let ports = config.connections.div_ceil(PER_PORT).max(1) as u16;
    if address == CLIENT.into() {
        let others = (3..).take(config.client_addresses - 1);
        settings
            .addresses
            .extend(others.map(|last| Prefix::new(Ipv4Addr::new(10, 9, 0, last).into(), 24)));
    }
    settings.tcp_listen = (FIRST_PORT..FIRST_PORT + ports).collect();
    let capabilities = nic.capabilities();
    settings.rx_checksums_verified = capabilities.rx_checksums_verified;
    // The receiver runs what the wire does: the client's frames are to cost the server no such work.
    settings.tx_checksum_offload = capabilities.tx_checksum_offload && mac == MACS[0];
    settings.max_connections = settings.max_connections.max(config.connections as u32);
    let shared = Arc::new(Shared::new(settings, &SECRETS, 1));
    let pool = Pool::new(region, (config.chunks as usize).saturating_sub(2 * config.staged));
    let elastic = ElasticConfig { batch, ..ElasticConfig::default() };
    ElasticThread::new(0, shared, nic, pool, ForwardPorts::default(), elastic, clock::Instant::ZERO)
}

impl<S: Service> Rig<S> {
    /// A rig with all connections to `service` open.
    ///
    /// # Errors
    /// [`RigError`] where they do not all open.
    pub fn open(config: RigConfig, service: S) -> Result<Self, RigError> {
        let mut rig = Self::new(config, service);
        rig.open_all()?;
        Ok(rig)
    }

    /// A rig without connections.
    pub fn new(config: RigConfig, service: S) -> Self {
        Self::over(config, &Region::heap(config.chunks), service)
    }

    /// The same with the server's packets in `region`: where an application in another process is to see them.
    pub fn over(config: RigConfig, region: &Arc<Region>, service: S) -> Self {
        let wire = LoopbackConfig {
            macs: MACS,
            when_full: WhenFull::Wait,
            rx_checksums_verified: config.offloads,
            tx_checksum_offload: config.offloads,
            ..Default::default()
        };
        let (near, far) = pair(wire);
        let ports = config.connections.div_ceil(PER_PORT).max(1) as u16;
        let [server, client] = addresses(&config);
        let servers = (0..ports).map(|port| Endpoint::new(server, FIRST_PORT + port)).collect();
        // What that pool keeps is not to be had for the other.
        let staging = (config.staged > 0).then(|| Pool::new(region, config.staged));
        let mut server = thread(server, MACS[0], near, &config, region, config.batch);
        if let Some(staging) = staging {
            server = server.staging(staging);
        }
        let batch = ElasticConfig::default().batch;
        let mut rig = Self {
            server,
            client: thread(client, MACS[1], far, &config, &Region::heap(config.chunks), batch),
            service,
            caller: Caller::new(config.connections, config.in_flight, servers, PER_PORT)
                .from_addresses(config.client_addresses),
            clock: VirtualClock::default(),
            round: config.round,
            shown: config.shown.then(|| {
                // For the rest of the process: a rig or two.
                let board = Board::over(Box::leak(statseg::words()));
                Shown::new(board, None, 0, 0, config.batch, clock::Instant::ZERO)
            }),
            measured_cycles: 0,
            server_busy: RealDuration::ZERO,
            looked_at: Instant::now(),
            longest_step: RealDuration::ZERO,
            in_flight: config.in_flight,
        };
        rig.caller.set_request(&[b'e'; 64], &[b'e'; 64]);
        rig
    }

    /// With the server's events written to `mirror` as they come about: for a service in another process.
    #[must_use]
    pub fn mirroring(self, mirror: impl EventMirror + 'static) -> Self {
        Self { server: self.server.mirroring(mirror), ..self }
    }

    /// Opens all connections.
    ///
    /// # Errors
    /// [`RigError`] where they do not all open.
    pub fn open_all(&mut self) -> Result<(), RigError> {
        self.run_until("opening connections", false, |caller| caller.open == caller.connections())
    }

    /// Runs both sides until `done`, one crossing of the wire each per round.
    fn run_until(
        &mut self,
        doing: &'static str,
        measured: bool,
        done: impl Fn(&Caller) -> bool,
    ) -> Result<(), RigError> {
        let (mut stalled, mut last) = (0u32, (0, 0));
        let failed = self.caller.failures;
        let mut moved_at = Instant::now();
        while !done(&self.caller) {
            self.round(measured);
            let present = (self.caller.open, self.caller.answered);
            stalled = if present == last { stalled.saturating_add(1) } else { 0 };
            if stalled == 1 {
                moved_at = Instant::now();
            }
            last = present;
            let is_stalled = stalled > STALLED_ROUNDS && moved_at.elapsed() > STALLED_FOR;
            if is_stalled || self.caller.failures > failed {
                return Err(self.error(doing));
            }
        }
        Ok(())
    }

    fn error(&self, doing: &'static str) -> RigError {
        let caller = &self.caller;
        let (open, answered, failures) = (caller.open, caller.answered, caller.failures);
        RigError { doing, open, answered, failures }
    }

    /// The client sends, the server works until its receive ring is empty, the client receives.
    fn round(&mut self, measured: bool) {
        let now = self.clock.now();
        self.client.run_cycle(now, &mut self.caller);
        self.look();
        loop {
            let progress = if measured {
                self.measured_cycles += 1;
                let (server, service) = (&mut self.server, &mut self.service);
                match &mut self.shown {
                    None => measured_server_cycle(server, service, now),
                    Some(shown) => measured_server_cycle_shown(server, service, shown, now),
                }
            } else {
                self.server.run_cycle(now, &mut self.service)
            };
            let took = self.look();
            // Looking whether something has come is no work: a server whose application has all there is, looks.
            if progress.worked {
                self.server_busy += took;
            }
            if self.server.queues().rx_backlog() == 0 {
                break;
            }
        }
        self.clock.advance(self.round);
    }

    /// Looks at the clock: answers the time since the last look, and keeps the longest.
    fn look(&mut self) -> RealDuration {
        let now = Instant::now();
        let step = now - std::mem::replace(&mut self.looked_at, now);
        self.longest_step = self.longest_step.max(step);
        step
    }

    /// Lets virtual time pass with nothing sent, so that timers which the past has set (those of the
    /// handshakes, above all) fire now and not during what is measured.
    pub fn rest(&mut self, duration: Duration) {
        let end = self.clock.now() + duration;
        while self.clock.now() < end {
            self.round(false);
        }
    }

    /// Sends one request on every connection and waits for all answers.
    ///
    /// # Errors
    /// [`RigError`] where one is wrong or does not come.
    pub fn exchange_all(&mut self) -> Result<(), RigError> {
        self.exchange(false, 0..self.caller.connections() as u32)
    }

    /// Sends one request on each of `connections`, in this order, and waits for all answers; `measured`: the server's
    /// cycles are counted.
    ///
    /// # Errors
    /// [`RigError`] where one is wrong or does not come.
    pub fn exchange(
        &mut self,
        measured: bool,
        connections: impl Iterator<Item = u32>,
    ) -> Result<(), RigError> {
        let before = self.caller.answered;
        let mut asked = 0;
        for index in connections {
            self.caller.ask(index);
            asked += 1;
        }
        self.run_until("exchanging requests", measured, |caller| caller.answered - before >= asked)
    }

    /// As [`exchange_all`](Self::exchange_all), in rounds, with the server's cycles counted: the
    /// client sends all requests in one crossing, so the server's ring holds one for each
    /// connection when its first cycle begins. Answers the requests served.
    ///
    /// # Errors
    /// [`RigError`] where an answer is wrong or does not come in its round.
    pub fn exchange_measured(&mut self, rounds: u32) -> Result<u64, RigError> {
        let before = self.caller.answered;
        // What the last exchange left (acknowledgments) is no part of the next.
        self.round(false);
        for _ in 0..rounds {
            (0..self.caller.connections() as u32).for_each(|index| self.caller.ask(index));
            self.round(true);
            while self.client.queues().rx_backlog() > 0 {
                self.client.run_cycle(self.clock.now(), &mut self.caller);
            }
        }
        let served = self.caller.answered - before;
        if served != u64::from(rounds) * self.caller.connections() as u64
            || self.caller.failures > 0
        {
            return Err(self.error("counting requests"));
        }
        Ok(served)
    }

    /// The longest time since the last call in which nothing looked at the clock. There is a look before and after each
    /// cycle of the server, so that one that is much longer than a cycle was a stall.
    pub fn take_longest_step(&mut self) -> RealDuration {
        self.look();
        std::mem::take(&mut self.longest_step)
    }
}
