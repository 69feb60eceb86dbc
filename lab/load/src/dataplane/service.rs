//! One elastic thread's part of a load: the generator between an event array and a call array.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tailplane::{
    Calls, ConnectError, Cookie, DeadReason, Duration, Endpoint, Event, Events, Handle, Instant,
    Service,
};

use super::outbox::Lines;
use super::shared::Shared;
use crate::churn::Dialer;
use crate::config::{LoadConfig, Mode};
use crate::connection::Sender;
use crate::course::{Phase, Poll};
use crate::error::LoadError;
use crate::generator::Generator;
use crate::measurement::{Measurement, Ran};
use crate::setting::ConfigError;
use crate::usage::WindowUsage;
use crate::workload::Workload;

/// Connections that are being opened at a time: the peer's listen backlog is bounded.
const CONNECTING_MAX: u32 = 64;
/// Connections that are closed in one batch when the run is over.
const CLOSE_BATCH: u32 = 64;
/// How often a service that waits for the others looks for them.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// What the service is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Opens the connections, from `next` on; gives up at `deadline`.
    Connecting { next: u32, deadline: Instant },
    /// Stores the keys; gives up at `deadline`.
    Preloading { deadline: Instant },
    /// Waits for the services of the other threads.
    Meeting,
    /// Carries the load.
    Running,
    /// Closes the connections, from `next` on.
    Closing { next: u32 },
    /// Nothing left to do.
    Over,
}

/// One elastic thread's part of a load, made by [`super::services`].
#[derive(Debug)]
pub struct LoadService {
    load: LoadConfig,
    workload: Arc<Workload>,
    target: Endpoint,
    /// This thread, of how many.
    part: (u32, u32),
    phase_shift_ns: u64,
    shared: Arc<Shared>,
    stage: Option<Stage>,
    generator: Generator,
    lines: Lines,
    /// Connections that the generator at work has, and how many of them are open.
    connections: u32,
    opened: u32,
    first_failure: Option<String>,
    usage: WindowUsage,
    wake_at: Option<Instant>,
    /// Lines to offer room again; kept for its memory.
    retry: Vec<u32>,
}

impl LoadService {
    /// Part `part.0` of `part.1` of `load`.
    pub(super) fn new(
        load: &LoadConfig,
        part: (u32, u32),
        target: Endpoint,
        workload: Arc<Workload>,
        shared: Arc<Shared>,
    ) -> Result<Self, ConfigError> {
        let phase_shift_ns = load.phase_shift_ns(part.0);
        let load = load.split(part.0, part.1)?;
        let (generator, connections) = Generator::first(&load, &workload)?;
        let lines = Lines::new(target, load.connections.max(connections));
        Ok(Self {
            load,
            workload,
            target,
            part,
            phase_shift_ns,
            shared,
            stage: None,
            generator,
            lines,
            connections,
            opened: 0,
            first_failure: None,
            usage: WindowUsage::default(),
            // At once: the connections are to be opened.
            wake_at: Some(Instant::ZERO),
            retry: Vec::new(),
        })
    }

    fn on_event(&mut self, now: Instant, event: Event<'_>, calls: &mut Calls<'_>) {
        let now_ns = now.as_nanos();
        match event {
            Event::Connected { cookie, outcome, .. } => {
                self.on_connected(now, cookie, outcome, calls)
            }
            Event::Recv { handle, cookie, data, window, .. } => {
                let Some(number) = self.lines.find_open(cookie) else { return };
                self.lines.on_window(number, window);
                self.on_writable(number, calls);
                let mut outbox = self.lines.outbox(calls);
                // The bytes are read in this very call: their buffer goes back first, so that
                // the acknowledgement and the next request share a frame.
                outbox.recv_done(handle, data.len());
                self.generator.on_received(number, data, now_ns, &mut outbox);
            }
            Event::Sent { cookie, window, .. } => {
                let Some(number) = self.lines.find_open(cookie) else { return };
                self.lines.on_window(number, window);
                self.on_writable(number, calls);
            }
            Event::Eof { cookie, .. } => self.on_ended(now_ns, cookie, None, calls),
            Event::Dead { cookie, reason, .. } => {
                self.on_ended(now_ns, cookie, Some(reason), calls);
            }
            Event::Failed { call, cookie, error, .. } => {
                // Nothing that is called can fail on a connection that is open: whatever did has
                // left its stream in an unknown state.
                let Some(number) = self.lines.find_open(cookie) else { return };
                self.note(|| format!("{call:?} failed: {error:?}"));
                self.lines.outbox(calls).abort(number);
                self.generator.on_lost(number, now_ns);
            }
            // Nobody is expected to connect to a load generator, or to send it datagrams; and it does not
            // ask to be run again.
            Event::Knock { handle, .. } => self.lines.outbox(calls).refuse(handle),
            Event::Datagram { .. }
            | Event::Again { .. }
            | Event::Listening { .. }
            | Event::Info { .. } => {}
        }
    }

    fn on_connected(
        &mut self,
        now: Instant,
        cookie: Cookie,
        outcome: Result<(Handle, u32), ConnectError>,
        calls: &mut Calls<'_>,
    ) {
        let Some(number) = self.lines.find(cookie) else {
            // It was given up before it was open.
            if let Ok((handle, _)) = outcome {
                self.lines.outbox(calls).refuse(handle);
            }
            return;
        };
        match outcome {
            Ok((handle, window)) => {
                self.lines.on_connected(number, handle, window);
                match &mut self.generator {
                    Generator::Load(engine) => {
                        engine.on_opened(number);
                        self.opened += 1;
                    }
                    Generator::Churn(engine) => {
                        let mut outbox = self.lines.outbox(calls);
                        engine.on_connected(number, now.as_nanos(), &mut outbox);
                    }
                }
            }
            Err(error) => {
                let (reason, advice) = describe(error);
                let target = self.target;
                self.note(|| format!("connect to {target}: {reason}; {advice}"));
                self.lines.on_ended(number);
                match &mut self.generator {
                    Generator::Load(_) => self.fail_to_connect(reason, advice),
                    Generator::Churn(engine) => engine.on_failed(number, now.as_nanos()),
                }
            }
        }
    }

    /// The peer has closed (`None`: its FIN came), or the connection has ended.
    fn on_ended(
        &mut self,
        now_ns: u64,
        cookie: Cookie,
        reason: Option<DeadReason>,
        calls: &mut Calls<'_>,
    ) {
        let Some(number) = self.lines.find_open(cookie) else { return };
        let orderly = matches!(reason, None | Some(DeadReason::Closed));
        if let Generator::Churn(engine) = &mut self.generator
            && orderly
            && engine.is_closing(number)
        {
            self.lines.on_ended(number);
            engine.on_peer_closed(number, now_ns);
            return;
        }
        self.note(|| match reason {
            None => "the service closed the connection".to_owned(),
            Some(reason) => format!("the connection ended: {reason:?}"),
        });
        match reason {
            // Half of it is still open.
            None => self.lines.outbox(calls).abort(number),
            Some(_) => self.lines.on_ended(number),
        }
        self.generator.on_lost(number, now_ns);
    }

    fn on_writable(&mut self, number: u32, calls: &mut Calls<'_>) {
        self.generator.on_writable(number, &mut self.lines.outbox(calls));
    }

    /// Keeps the first failure, in words. Off the hot path: a failure ends a connection.
    fn note(&mut self, failure: impl FnOnce() -> String) {
        if self.first_failure.is_none() && !self.is_ending() {
            self.first_failure = Some(failure());
        }
    }

    fn is_ending(&self) -> bool {
        matches!(self.stage, Some(Stage::Closing { .. } | Stage::Over))
    }

    fn fail_to_connect(&mut self, reason: &str, advice: &'static str) {
        self.end(Err(LoadError::Connect {
            target: self.target.to_string(),
            opened: self.opened,
            wanted: self.connections,
            reason: reason.to_owned(),
            advice,
        }));
    }

    /// Delivers the outcome, once, and goes on to close the connections.
    fn end(&mut self, outcome: Result<Measurement, LoadError>) {
        if self.is_ending() {
            return;
        }
        let first_failure = self.first_failure.take();
        self.shared.deliver(outcome.map(|measured| Ran { measured, first_failure }));
        self.stage = Some(Stage::Closing { next: 0 });
    }

    /// Does what the present stage asks for, and gives the moment to go on.
    fn advance(&mut self, now: Instant, calls: &mut Calls<'_>) -> Option<Instant> {
        match self.stage {
            None => {
                let deadline = now + Duration::from_millis(self.load.connect_timeout_ms);
                self.stage = Some(Stage::Connecting { next: 0, deadline });
                Some(now)
            }
            Some(Stage::Connecting { next, deadline }) => {
                self.open_connections(now, next, deadline, calls)
            }
            Some(Stage::Preloading { deadline }) => self.preload(now, deadline, calls),
            Some(Stage::Meeting) => Some(self.meet(now)),
            Some(Stage::Running) => self.run(now, calls),
            Some(Stage::Closing { next }) => self.close_connections(now, next, calls),
            Some(Stage::Over) => None,
        }
    }

    fn open_connections(
        &mut self,
        now: Instant,
        next: u32,
        deadline: Instant,
        calls: &mut Calls<'_>,
    ) -> Option<Instant> {
        if self.opened == self.connections {
            self.begin_preload(now);
            return Some(now);
        }
        if now >= deadline {
            let advice = "is the address right and reachable, and is the service accepting? \
                 (`connect_timeout_ms`)";
            self.fail_to_connect("not all connections opened in time", advice);
            return Some(now);
        }
        let until = self.connections.min(self.opened.saturating_add(CONNECTING_MAX));
        let mut outbox = self.lines.outbox(calls);
        (next..until).for_each(|number| {
            outbox.connect(number);
        });
        self.stage = Some(Stage::Connecting { next: until.max(next), deadline });
        Some(deadline)
    }

    /// All connections are open: the keys are next, where there are any.
    fn begin_preload(&mut self, now: Instant) {
        let (index, threads) = (u64::from(self.part.0), u64::from(self.part.1));
        let keys = u64::from(self.workload.keys());
        let bound = |index: u64| (keys * index / threads) as u32;
        match &mut self.generator {
            Generator::Load(engine) if self.load.preloads() && keys > 0 => {
                engine.begin_preload(bound(index)..bound(index + 1));
                let deadline = now + Duration::from_millis(self.load.preload_timeout_ms);
                self.stage = Some(Stage::Preloading { deadline });
            }
            Generator::Load(_) | Generator::Churn(_) => self.arrive(now),
        }
    }

    fn preload(
        &mut self,
        now: Instant,
        deadline: Instant,
        calls: &mut Calls<'_>,
    ) -> Option<Instant> {
        let poll = self.poll(now, calls);
        match poll.phase {
            Phase::Ready => match self.begin_churn(calls) {
                Ok(()) => self.arrive(now),
                Err(error) => self.end(Err(error.into())),
            },
            Phase::Preloading if now < deadline => {
                return Some(Instant::from_nanos(poll.wake_ns).min(deadline));
            }
            Phase::Preloading => {
                let (keys, limit_ms) = (self.workload.keys(), self.load.preload_timeout_ms);
                self.end(Err(LoadError::PreloadTimeout { keys, limit_ms }));
            }
            _ => {
                let violation = self.generator.finish(now.as_nanos()).violation;
                self.end(Err(LoadError::preload_ended(violation)));
            }
        }
        Some(now)
    }

    /// Where the load is a churn, the generator that stored the keys gives way to it.
    fn begin_churn(&mut self, calls: &mut Calls<'_>) -> Result<(), ConfigError> {
        if !matches!(self.load.mode, Mode::Churn { .. }) {
            return Ok(());
        }
        self.generator = Generator::churn(&self.load, &self.workload)?;
        let mut outbox = self.lines.outbox(calls);
        (0..self.connections).for_each(|number| outbox.abort(number));
        self.connections = self.load.connections;
        Ok(())
    }

    fn arrive(&mut self, now: Instant) {
        self.shared.rendezvous.arrive(now.as_nanos());
        self.stage = Some(Stage::Meeting);
    }

    fn meet(&mut self, now: Instant) -> Instant {
        if let Some(start_ns) = self.shared.rendezvous.start_ns() {
            self.generator.start(start_ns + self.phase_shift_ns);
            self.stage = Some(Stage::Running);
            return now;
        }
        if self.shared.rendezvous.has_failed() {
            self.end(Err(LoadError::OtherThread));
            return now;
        }
        now + LOOK_EVERY
    }

    fn run(&mut self, now: Instant, calls: &mut Calls<'_>) -> Option<Instant> {
        let poll = self.poll(now, calls);
        self.usage.on_phase(poll.phase);
        if poll.phase != Phase::Done {
            return (poll.wake_ns != u64::MAX).then(|| Instant::from_nanos(poll.wake_ns));
        }
        let mut measured = self.generator.finish(now.as_nanos());
        // An elastic thread spins: its processor time says nothing about a request.
        self.usage.add_to(&mut measured, true);
        self.end(Ok(measured));
        Some(now)
    }

    fn close_connections(
        &mut self,
        now: Instant,
        next: u32,
        calls: &mut Calls<'_>,
    ) -> Option<Instant> {
        let count = self.lines.len();
        let until = count.min(next.saturating_add(CLOSE_BATCH));
        let mut outbox = self.lines.outbox(calls);
        (next..until).for_each(|number| outbox.abort(number));
        if until < count || self.lines.is_waiting() {
            self.stage = Some(Stage::Closing { next: until });
            return Some(now);
        }
        self.stage = Some(Stage::Over);
        self.shared.over.fetch_add(1, Ordering::AcqRel);
        None
    }

    fn poll(&mut self, now: Instant, calls: &mut Calls<'_>) -> Poll {
        self.generator.poll(now.as_nanos(), &mut self.lines.outbox(calls))
    }

    /// What those who watch the run are shown.
    fn phase(&self) -> Phase {
        match self.stage {
            None | Some(Stage::Connecting { .. }) => Phase::Idle,
            Some(Stage::Preloading { .. }) => Phase::Preloading,
            Some(Stage::Meeting) => Phase::Ready,
            Some(Stage::Running) => self.generator.phase(),
            Some(Stage::Closing { .. } | Stage::Over) => Phase::Done,
        }
    }
}

impl Service for LoadService {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        let mut retry = std::mem::take(&mut self.retry);
        self.lines.begin_batch(calls, &mut retry);
        for event in events.iter() {
            self.on_event(now, event, calls);
        }
        for &number in &retry {
            self.on_writable(number, calls);
        }
        self.retry = retry;
        let before = self.stage;
        self.wake_at = self.advance(now, calls);
        if self.lines.is_waiting() {
            self.wake_at = Some(now);
        }
        if self.part.0 == 0 && (self.stage != before || self.stage == Some(Stage::Running)) {
            let phase = self.phase() as u32;
            // Read before it is written: the line stays shared while nothing changes.
            if self.shared.phase.load(Ordering::Relaxed) != phase {
                self.shared.phase.store(phase, Ordering::Relaxed);
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

/// What went wrong, and what to do.
fn describe(error: ConnectError) -> (&'static str, &'static str) {
    match error {
        ConnectError::Refused => {
            ("connection refused", "does a service listen on that address and port?")
        }
        ConnectError::TimedOut => (
            "no answer",
            "is the address right, and does a firewall drop the packets? (`connect_timeout_ms`)",
        ),
        ConnectError::Unreachable => (
            "the next hop does not answer",
            "is the address in the dataplane's subnet, or a gateway configured?",
        ),
        ConnectError::NoPort => {
            ("no local port is free", "use fewer connections, or close them by reset (`rst`)")
        }
        ConnectError::NoMemory => {
            ("the table of connections is full", "raise the dataplane's limit of connections")
        }
        ConnectError::BadAddress => {
            ("the dataplane does not have the local address", "name one of `network.address`")
        }
        ConnectError::Forbidden => {
            ("the operator's policy forbids it", "allow that address and port in `[policy]`")
        }
    }
}
