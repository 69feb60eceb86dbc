//! A running service's control socket: what is asked for there is carried out by the elastic threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use endpoint::{
    Description, Done, Door, MoveSummary, Outcome, PROTOCOL_VERSION, Refused, RefusedKind, Server,
    Steering, Token,
};
use runtime::{ControlError, Controls, MoverError, Order};
use runtime::{FLOW_GROUPS, GroupSet, MoveCommand, MoveError, MoveReport, Phase};
use statseg::Segment;

use super::config::RunConfig;

/// A control socket, from before the service serves until it has ended.
#[derive(Debug)]
pub struct ControlSocket {
    door: Mutex<Option<Door>>,
    server: Mutex<Option<Server>>,
    /// For people: where it is, or why there is none.
    pub told: String,
}

impl ControlSocket {
    /// Reserves the socket of a configuration's service.
    ///
    /// # Errors
    /// It cannot be had, and the configuration insists on it.
    pub fn open(config: &RunConfig) -> anyhow::Result<Self> {
        let none = |told: String| Self { door: Mutex::default(), server: Mutex::default(), told };
        let Some(name) = config.control.service_name(&config.path) else {
            return Ok(none("none (`control.socket` is false)".into()));
        };
        match Door::open(&endpoint::run_dir(), &name) {
            Ok(door) => {
                let told = format!("{} (`tailplane status {name}`)", door.path().display());
                Ok(Self { door: Mutex::new(Some(door)), ..none(told) })
            }
            Err(error) if config.control.socket == Some(true) => {
                Err(error).context("`control.socket` is true")
            }
            Err(error) => Ok(none(format!("none: {error}"))),
        }
    }

    /// Serves it from now on, once, if there is one.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn serve(&self, steering: impl Steering) -> anyhow::Result<()> {
        let door = self.door.lock().unwrap_or_else(|broken| broken.into_inner()).take();
        let Some(door) = door else { return Ok(()) };
        let server = door.serve(steering)?;
        *self.server.lock().unwrap_or_else(|broken| broken.into_inner()) = Some(server);
        Ok(())
    }
}

/// What a service of this configuration is.
pub fn describe(config: &RunConfig, driver: &str) -> Description {
    let plane = &config.dataplane;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
    Description {
        name: config.control.service_name(&config.path).unwrap_or_default(),
        pid: std::process::id(),
        started_unix_ms: began.as_millis() as u64,
        config_path: path.to_string_lossy().into_owned(),
        config_text: config.text.clone(),
        threads: plane.threads as u16,
        cpus: (0..plane.threads as usize).map(|at| plane.cpus.get(at).copied()).collect(),
        batch_max: plane.batch as u32,
        groups: FLOW_GROUPS as u16,
        scheduler: plane.describe_scheduler(),
        domain: plane.describe_domain(),
        driver: driver.to_owned(),
        steers: false,
        movable: plane.is_movable(),
        version: PROTOCOL_VERSION,
    }
}

/// Steers elastic threads of this process.
#[derive(Debug)]
pub struct Steered {
    description: Description,
    segment: Arc<Segment>,
    orders: Orders,
    stop: Arc<AtomicBool>,
}

impl Steered {
    /// Of a service that ends when `stop` is set.
    pub fn new(
        description: Description,
        segment: Arc<Segment>,
        controls: Arc<Controls>,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let description = Description { steers: controls.steers(), ..description };
        Self { description, segment, orders: Orders::new(controls), stop }
    }

    fn unless_leaving(&self) -> Result<(), Refused> {
        let leaving = || Refused::new(RefusedKind::Leaving, "the service is ending");
        (!self.stop.load(Ordering::Relaxed)).then_some(()).ok_or_else(leaving)
    }

    fn order(&mut self, token: Token, done: Done, ordered: Ordered) -> Option<Outcome> {
        let given = self.unless_leaving().and_then(|()| ordered(&self.orders.controls));
        match given {
            Ok(order) => {
                self.orders.give(token, order, done);
                None
            }
            Err(refused) => Some(Err(refused)),
        }
    }
}

type Ordered<'a> = &'a dyn Fn(&Controls) -> Result<Order, Refused>;

impl Steering for Steered {
    fn describe(&self) -> Description {
        self.description.clone()
    }
    fn segment(&self) -> io::Result<OwnedFd> {
        self.segment.descriptor()
    }
    fn grant(&mut self, token: Token, thread: u16) -> Option<Outcome> {
        self.order(token, Done::Granted, &|controls| controls.grant(thread.into()).map_err(refusal))
    }
    fn park(&mut self, token: Token, thread: u16) -> Option<Outcome> {
        self.order(token, Done::Parked, &|controls| controls.park(thread.into()).map_err(refusal))
    }
    fn move_groups(&mut self, token: Token, from: u16, to: u16, groups: &[u16]) -> Option<Outcome> {
        let begun = self.unless_leaving().and_then(|()| self.orders.begin(token, from, to, groups));
        begun.err().map(Err)
    }
    fn place(&mut self, token: Token, thread: u16, cpu: usize) -> Option<Outcome> {
        let place = |controls: &Controls| controls.place(thread.into(), cpu).map_err(refusal);
        self.order(token, Done::Placed, &place)
    }
    fn end(&mut self) -> Outcome {
        self.orders.controls().end(&self.stop);
        Ok(Done::Ending)
    }
    fn reports(&mut self) -> Vec<(Token, Outcome)> {
        self.orders.reports()
    }
}

/// Orders and moves that were given, and what became of them.
#[derive(Debug)]
pub struct Orders {
    controls: Arc<Controls>,
    given: Vec<(Token, Order, Done)>,
    /// Migrations without a report: the home that was asked.
    moves: Vec<(Token, usize)>,
}

impl Orders {
    /// Of these threads.
    pub fn new(controls: Arc<Controls>) -> Self {
        Self { controls, given: Vec::new(), moves: Vec::new() }
    }

    /// The threads.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// Whether something has no report yet.
    pub fn is_waiting(&self) -> bool {
        !self.given.is_empty() || !self.moves.is_empty()
    }

    /// An order was given: what is to be said once it was carried out.
    pub fn give(&mut self, token: Token, order: Order, done: Done) {
        self.given.push((token, order, done));
    }

    /// Asks thread `from` to move flow groups.
    ///
    /// # Errors
    /// Why not; nothing was asked then.
    pub fn begin(
        &mut self,
        token: Token,
        from: u16,
        to: u16,
        groups: &[u16],
    ) -> Result<(), Refused> {
        if let Some(group) = groups.iter().find(|group| usize::from(**group) >= FLOW_GROUPS) {
            let reason =
                format!("there is no flow group {group}: there are {FLOW_GROUPS}, from 0 on");
            return Err(Refused::new(RefusedKind::NoSuchThread, reason));
        }
        let cores = self.controls.cores();
        let target = u8::try_from(to).ok().filter(|to| usize::from(*to) < cores);
        let target = target
            .ok_or_else(|| refusal(MoverError::NoSuchThread { core: to.into(), cores }.into()))?;
        let groups: GroupSet = groups.iter().copied().collect();
        let command = MoveCommand { token: token.0, groups, to: target };
        self.controls.post(from.into(), command).map_err(refusal)?;
        self.moves.push((token, from.into()));
        Ok(())
    }

    /// What has become of orders and moves since the last call.
    pub fn reports(&mut self) -> Vec<(Token, Outcome)> {
        let mut found = Vec::new();
        let controls = &self.controls;
        self.given.retain(|(token, order, done)| match controls.outcome(*order) {
            None => true,
            Some(outcome) => {
                found.push((*token, outcome.map(|()| done.clone()).map_err(refusal)));
                false
            }
        });
        let homes: Vec<usize> = self.moves.iter().map(|(_, from)| *from).collect();
        for from in homes {
            if let Some(report) = self.controls.report(from) {
                self.moves.retain(|(token, _)| token.0 != report.token);
                found.push((Token(report.token), moved(report)));
            }
        }
        found
    }
}

fn moved(report: MoveReport) -> Outcome {
    let moved = report.outcome.map_err(|error| {
        let kind = match error {
            MoveError::NoSuchThread { .. } | MoveError::NoGroups => RefusedKind::NoSuchThread,
            MoveError::SameThread { .. } | MoveError::NotHome { .. } => RefusedKind::NotHome,
            MoveError::UnderWay { .. } => RefusedKind::UnderWay,
            MoveError::TooMany => RefusedKind::TooMany,
            MoveError::HasLeft { .. } | MoveError::Leaving => RefusedKind::Leaving,
        };
        Refused::new(kind, error.to_string())
    })?;
    Ok(Done::Moved(MoveSummary {
        groups: moved.groups,
        connections: moved.connections,
        packets_deferred: moved.packets,
        phase_ns: Phase::ALL.map(|phase| moved.times.of_ns(phase)),
    }))
}

/// Why an order was not given, or not carried out, as clients are told.
pub fn refusal(error: ControlError) -> Refused {
    let kind = match error {
        ControlError::Mover(MoverError::NoSuchThread { .. }) => RefusedKind::NoSuchThread,
        ControlError::Mover(MoverError::Full { .. }) => RefusedKind::TooMany,
        ControlError::Mover(MoverError::NotRunning) => RefusedKind::Leaving,
        ControlError::HasGroups { .. } => RefusedKind::HasGroups,
        ControlError::Moving { .. } | ControlError::Pending { .. } => RefusedKind::UnderWay,
        ControlError::IsParked { .. } | ControlError::NotMovable => RefusedKind::NotMovable,
        ControlError::Processor { .. }
        | ControlError::Mover(
            MoverError::Entries { .. } | MoverError::TooFewQueues { .. } | MoverError::Key { .. },
        ) => RefusedKind::System,
    };
    Refused::new(kind, error.to_string())
}
