//! The coordinator: waits for the agents, gives each its share, starts them together, and adds up.
//!
//! [`Coordinator::bind`] opens the port, [`Coordinator::gather`] waits, [`Fleet::run`] carries one
//! load, as often as wanted, and [`Fleet::finish`] lets the agents go. One thread accepts, one for
//! each connection shakes hands, two serve each agent; all that happens goes through one channel to
//! whoever calls.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::agent_report::AgentReport;
use super::clock::{EXCHANGES, Exchange, Reading, skew_bound_ns};
use super::door::{Door, Event};
use super::error::RemoteError;
use super::handshake::{Introduced, Secret};
use super::link::Link;
use super::message::{Done, Said, Task, ToAgent, ToCoordinator};
use super::reckoning::{bounded, reckon};
use crate::config::LoadConfig;
use crate::kernel::KernelConfig;
use crate::report::LoadReport;
use crate::setting::check_range;

/// Most agents of one run.
pub const AGENTS_MAX: u32 = 1_024;
/// An agent must answer about its clock within this.
const PONG_MAX: Duration = Duration::from_secs(5);
/// What an agent may take beyond what its task allows: to wake up, to send its result.
const GRACE: Duration = Duration::from_secs(15);
/// How long to wait for the agents to go.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Least time between the word to start and the start.
const LEAD_NS: u64 = 20_000_000;

/// Whom to wait for, and where.
#[derive(Debug, Clone)]
pub struct CoordinatorConfig {
    /// The address that agents dial.
    pub listen: SocketAddr,
    /// How many must come, 1 to [`AGENTS_MAX`].
    pub agents: u32,
    /// How long to wait for them.
    pub wait: Duration,
    /// What agents must have, too.
    pub secret: Option<Secret>,
}

/// A port on which agents are waited for.
#[derive(Debug)]
pub struct Coordinator {
    config: CoordinatorConfig,
    address: SocketAddr,
    door: Door,
    events: Receiver<Event>,
}

impl Coordinator {
    /// Opens the port.
    ///
    /// # Errors
    /// A setting that cannot be used, or a port that cannot be opened.
    pub fn bind(config: CoordinatorConfig) -> Result<Self, RemoteError> {
        check_range("agents", config.agents, 1, AGENTS_MAX)?;
        let fail = |source| RemoteError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let (sender, events) = std::sync::mpsc::channel();
        let door = Door::open(listener, config.secret.clone(), sender).map_err(fail)?;
        Ok(Self { config, address, door, events })
    }

    /// The address on which it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a user must know where anybody may connect; `None` where only this machine can, or where
    /// a secret is needed.
    pub fn warning(&self) -> Option<String> {
        (self.config.secret.is_none() && !self.address.ip().is_loopback()).then(|| {
            format!(
                "{} is open to everybody who can reach it: whoever connects can take an agent's place \
                 and report anything, and agents on other machines refuse a coordinator without a \
                 secret; give both sides a `--secret-file`",
                self.address
            )
        })
    }

    /// Waits until all agents are there. `notes` takes a line for whoever watches.
    ///
    /// # Errors
    /// Too few came in time.
    pub fn gather(self, notes: &mut dyn FnMut(&str)) -> Result<Fleet, RemoteError> {
        let Self { config, address, door, events } = self;
        let deadline = Instant::now() + config.wait;
        let wanted = config.agents as usize;
        let mut fleet =
            Fleet { members: Vec::new(), events, door, origin: Instant::now(), jobs: 0, came: 0 };
        while fleet.members.len() < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            match fleet.events.recv_timeout(left) {
                Ok(Event::Came(stream, peer, introduced)) => {
                    let admitted = fleet.admit(stream, peer, *introduced);
                    let count = fleet.members.len();
                    notes(&match admitted {
                        Ok(name) => {
                            format!("agent {name} at {peer} has come ({count} of {wanted})")
                        }
                        Err(error) => format!("the agent at {peer} was lost: {error}"),
                    });
                }
                Ok(Event::Refused(peer, reason)) => notes(&format!("refused {peer}: {reason}")),
                Ok(Event::Gone(id, error)) => {
                    for gone in fleet.members.extract_if(.., |member| member.id == id) {
                        notes(&format!("agent {} went away: {error}", gone.about.name));
                    }
                }
                Ok(Event::Said(..)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let names: Vec<_> = fleet.members.iter().map(|m| &*m.about.name).collect();
                    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
                    let (came, wait_s) = (fleet.members.len(), config.wait.as_secs());
                    fleet.end(Some("too few agents came".to_owned()));
                    return Err(RemoteError::Peer(format!(
                        "{came} of {wanted} agents came within {wait_s} s ({names}); start each \
                         with `tailplane load-agent {address}`"
                    )));
                }
            }
        }
        fleet.door.close(format!("all {wanted} agents of the run are there already"));
        Ok(fleet)
    }
}

/// An agent that has come.
#[derive(Debug)]
struct Member {
    id: usize,
    link: Link,
    about: AgentReport,
    /// How it was lost.
    lost: Option<String>,
}

/// The agents of a run, ready to carry loads.
#[derive(Debug)]
pub struct Fleet {
    members: Vec<Member>,
    events: Receiver<Event>,
    door: Door,
    /// Where the coordinator's clock begins.
    origin: Instant,
    /// Tasks given so far.
    jobs: u32,
    /// Agents that have come so far, those that left among them.
    came: usize,
}

impl Fleet {
    /// The agents' names.
    pub fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.about.name).collect()
    }

    /// Takes in somebody who has shaken hands: the name it has from now on.
    fn admit(
        &mut self,
        stream: TcpStream,
        peer: SocketAddr,
        introduced: Introduced,
    ) -> std::io::Result<String> {
        let Introduced { name: wanted, host, seals } = introduced;
        let id = self.came;
        self.came += 1;
        let events = self.door.events();
        let link = Link::new(stream, seals, move |at, read| {
            let event = read.map_or_else(
                |error| Event::Gone(id, error),
                |message: ToCoordinator| Event::Said(id, at, message),
            );
            events.send(event).is_ok()
        })?;
        // Identical processes on one machine have one name until here.
        let taken = |name: &str| self.members.iter().any(|member| member.about.name == name);
        let mut name = wanted.clone();
        let mut number = 1;
        while taken(&name) {
            number += 1;
            name = format!("{wanted}-{number}");
        }
        let address = peer.to_string();
        let about = AgentReport { name: name.clone(), host, address, ..AgentReport::default() };
        self.members.push(Member { id, link, about, lost: None });
        Ok(name)
    }

    /// Carries `load` over all agents, by each on the threads of `transport` and the agent's own cores:
    /// the report of all of them, partial where an agent was lost after the start.
    ///
    /// # Errors
    /// A setting that cannot be used; an agent that cannot carry out its share, or is lost, before
    /// the start; no agent with a result.
    pub fn run(
        &mut self,
        load: &LoadConfig,
        transport: &KernelConfig,
    ) -> Result<LoadReport, RemoteError> {
        load.validate()?;
        let of = self.members.len() as u32;
        let share = load.share(of.saturating_sub(1), of)?;
        share.validate()?;
        transport.validate(&share)?;
        self.jobs += 1;
        let prepared = self.prepare(load, transport).and_then(|()| self.read_clocks());
        let readings = match prepared {
            Ok(readings) => readings,
            Err(error) => {
                // The others wait for a start that will not come.
                self.tell_all(&ToAgent::Abort);
                return Err(error);
            }
        };
        let start_ns =
            self.now_ns() + LEAD_NS + readings.iter().map(Reading::lead_ns).max().unwrap_or(0);
        for (member, reading) in self.members.iter_mut().zip(&readings) {
            member.about.clock_bound_us = reading.bound_at(start_ns) as f64 / 1e3;
            // Where it cannot be sent, its reader says so.
            let _ = member.link.send(&ToAgent::Start { at_ns: reading.there(start_ns) });
        }
        let window_ms = load.warmup_ms + load.measure_ms + load.drain_ms;
        let results = self.collect(start_ns, Duration::from_millis(window_ms) + GRACE);
        let outcomes = self.members.iter().map(|member| member.about.clone()).zip(results);
        reckon(load, transport, outcomes.collect(), skew_bound_ns(&readings, start_ns))
    }

    /// Lets the agents go: they end without an error.
    pub fn finish(mut self) {
        self.end(None);
    }

    /// Lets the agents go because of `reason`: they end with it as their error.
    pub fn give_up(mut self, reason: &str) {
        self.end(Some(reason.to_owned()));
    }

    /// Says that there is nothing more to do, and waits until the agents have gone: a connection that
    /// is closed under what the other side still says may lose what was said to it.
    fn end(&mut self, reason: Option<String>) {
        self.tell_all(&ToAgent::End { reason });
        let deadline = Instant::now() + FAREWELL_MAX;
        while self.members.iter().any(|member| member.lost.is_none()) {
            if matches!(self.next(deadline), Heard::Nothing) {
                return;
            }
        }
    }

    fn tell_all(&self, message: &ToAgent) {
        for member in &self.members {
            // An agent that is gone needs not be told.
            let _ = member.link.send(message);
        }
    }

    /// Nanoseconds of the coordinator's clock.
    fn now_ns(&self) -> u64 {
        self.at_ns(Instant::now())
    }

    fn at_ns(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.origin).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    /// Gives every agent its task, and waits until all are ready.
    fn prepare(&mut self, load: &LoadConfig, transport: &KernelConfig) -> Result<(), RemoteError> {
        for member in &self.members {
            if let Some(reason) = &member.lost {
                return Err(lost_before_start(&member.about.name, reason));
            }
        }
        let agents = self.members.len() as u32;
        for (member, index) in self.members.iter().zip(0u32..) {
            let task = Task {
                job: self.jobs,
                load: load.clone(),
                index,
                agents,
                transport: transport.clone(),
            };
            // Where it cannot be sent, its reader says so.
            let _ = member.link.send(&ToAgent::Task(Box::new(task)));
        }
        let preload_ms = if load.preloads() { load.preload_timeout_ms } else { 0 };
        // Churn connects twice: for the keys, and for the load.
        let limit_ms = load.connect_timeout_ms.saturating_mul(2).saturating_add(preload_ms);
        let deadline = Instant::now() + Duration::from_millis(limit_ms) + GRACE;
        let late = format!("it was not ready within {} s", limit_ms / 1_000 + GRACE.as_secs());
        let mut ready = vec![false; self.members.len()];
        while let Some(missing) = ready.iter().position(|ready| !ready) {
            if let (at, _, Said::Ready) = self.hear(deadline, missing, &late)? {
                ready[at] = true;
            }
        }
        Ok(())
    }

    /// What an agent says before the start; `missing` is lost because it is `late` where none says
    /// anything until `deadline`.
    ///
    /// # Errors
    /// An agent has failed or is lost.
    fn hear(
        &mut self,
        deadline: Instant,
        missing: usize,
        late: &str,
    ) -> Result<(usize, Instant, Said), RemoteError> {
        match self.next(deadline) {
            Heard::Said(at, _, Said::Failed { error }) => {
                let name = &self.members[at].about.name;
                Err(RemoteError::Peer(format!("agent {name}: {}", bounded(error))))
            }
            Heard::Said(at, moment, said) => Ok((at, moment, said)),
            Heard::Lost(at, reason) => Err(self.lost(at, &reason)),
            Heard::Nothing => Err(self.lost(missing, late)),
        }
    }

    /// Asks every agent for its clock.
    fn read_clocks(&mut self) -> Result<Vec<Reading>, RemoteError> {
        let mut readings = Vec::with_capacity(self.members.len());
        for asked in 0..self.members.len() {
            let mut exchanges = Vec::with_capacity(EXCHANGES as usize);
            for _ in 0..EXCHANGES {
                let asked_ns = self.now_ns();
                // Where it cannot be sent, its reader says so.
                let _ = self.members[asked].link.send(&ToAgent::Ping);
                let deadline = Instant::now() + PONG_MAX;
                let (moment, remote_ns) = loop {
                    match self.hear(deadline, asked, "it did not answer about its clock")? {
                        (at, moment, Said::Pong { now_ns }) if at == asked => {
                            break (moment, now_ns);
                        }
                        _ => {}
                    }
                };
                let answered_ns = self.at_ns(moment);
                exchanges.push(Exchange { asked_ns, remote_ns, answered_ns });
            }
            let Some(reading) = Reading::of(&exchanges) else {
                return Err(self.lost(asked, "its clock cannot be read"));
            };
            readings.push(reading);
        }
        Ok(readings)
    }

    /// Waits for every agent's result, until `limit` after the start.
    fn collect(&mut self, start_ns: u64, limit: Duration) -> Vec<Result<Box<Done>, String>> {
        let deadline = self.origin + Duration::from_nanos(start_ns) + limit;
        let mut results: Vec<Option<Result<Box<Done>, String>>> = Vec::new();
        results.resize_with(self.members.len(), || None);
        while results.iter().any(Option::is_none) {
            match self.next(deadline) {
                Heard::Said(at, _, Said::Done(done)) => results[at] = Some(Ok(done)),
                Heard::Said(at, _, Said::Failed { error }) => {
                    results[at] = Some(Err(bounded(error)))
                }
                Heard::Said(..) => {}
                Heard::Lost(at, reason) => {
                    // A result that has come before is whole.
                    results[at].get_or_insert(Err(reason));
                }
                Heard::Nothing => {
                    for (result, member) in results.iter_mut().zip(&mut self.members) {
                        let reason = "it sent no result in time";
                        if result.is_none() {
                            member.lost = Some(reason.to_owned());
                        }
                        result.get_or_insert_with(|| Err(reason.to_owned()));
                    }
                }
            }
        }
        results.into_iter().flatten().collect()
    }

    /// What an agent says about the present task, or that one is lost, until `deadline`.
    fn next(&mut self, deadline: Instant) -> Heard {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let position = |id| self.members.iter().position(|member| member.id == id);
            match self.events.recv_timeout(left) {
                Ok(Event::Said(id, moment, message)) if message.job == self.jobs => {
                    if let Some(at) = position(id) {
                        return Heard::Said(at, moment, message.what);
                    }
                }
                Ok(Event::Gone(id, error)) => {
                    if let Some(at) = position(id) {
                        let reason = error.to_string();
                        self.members[at].lost = Some(reason.clone());
                        return Heard::Lost(at, reason);
                    }
                }
                // An old task's answer, and whoever comes too late: the door says so to them.
                Ok(Event::Said(..) | Event::Came(..) | Event::Refused(..)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Heard::Nothing;
                }
            }
        }
    }

    fn lost(&mut self, at: usize, reason: &str) -> RemoteError {
        let member = &mut self.members[at];
        member.lost = Some(reason.to_owned());
        lost_before_start(&member.about.name, reason)
    }
}

fn lost_before_start(name: &str, reason: &str) -> RemoteError {
    RemoteError::Peer(format!(
        "agent {name} was lost before the load started: {reason}; start it again"
    ))
}

/// What [`Fleet::next`] heard; agents by their place among the members.
enum Heard {
    Said(usize, Instant, Said),
    Lost(usize, String),
    Nothing,
}
