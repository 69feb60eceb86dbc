//! An agent: dials the coordinator, carries out what it is told, and sends what it measured.
//!
//! It needs to know nothing but the coordinator's address, so that a launcher starts all of them
//! alike.

use std::fmt::Display;
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use measure::conditions::kernel_and_processor;

use super::carried::Carried;
use super::error::RemoteError;
use super::frame::FrameError;
use super::handshake::{Secret, host_name, present};
use super::link::Link;
use super::message::{Done, Said, Task, ToAgent, ToCoordinator};
use crate::error::LoadError;
use crate::kernel::{KernelConfig, Place, run_parts};
use crate::measurement::Ran;
use crate::rendezvous::Rendezvous;
use crate::setting::check_range;
use crate::workload::Workload;

/// How long one try to connect may take.
const TRY_MAX: Duration = Duration::from_secs(3);
/// How long to wait before the next try.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// How often to look whether all threads are ready; only before the load.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How an agent is to run.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The coordinator, `HOST:PORT`; a name is looked up anew for each try.
    pub coordinator: String,
    /// What the agent is called in reports; by default as its machine.
    pub name: Option<String>,
    /// The core of each thread; empty leaves them where the kernel puts them.
    pub cores: Vec<usize>,
    /// How long to wait for the coordinator to be there.
    pub wait: Duration,
    /// What the coordinator must have, too. Without one only a coordinator on a loopback address is obeyed: anybody who
    /// can answer at the coordinator's address could send load wherever this machine reaches.
    pub secret: Option<Secret>,
}

/// What an agent waits for.
enum Event {
    /// The coordinator said something.
    Told(ToAgent),
    /// The coordinator is gone.
    Gone(FrameError),
    /// The threads of the load have ended.
    Over(Box<Result<Ran, LoadError>>),
}

/// Serves one coordinator until it says that there is nothing more to do. `notes` takes a line for
/// whoever watches.
///
/// # Errors
/// No coordinator, one on another machine where there is no secret, one that refuses this agent, one that is lost: the
/// load is stopped at once.
pub fn serve(config: &AgentConfig, notes: &mut dyn FnMut(&str)) -> Result<(), RemoteError> {
    let stream = dial(config, notes)?;
    let peer = stream.peer_addr().map_err(|error| lost(config, error))?;
    if !may_obey(peer.ip(), config.secret.as_ref()) {
        return Err(RemoteError::Peer(format!(
            "cannot obey the coordinator at {}: it is on another machine, and this agent has no \
             secret to know it by; give both the same `--secret-file` (`openssl rand -hex 32` makes \
             a good one)",
            config.coordinator
        )));
    }
    let host = host_name();
    let name = config.name.as_deref().unwrap_or(&host);
    let seals = present(&stream, (name, &host), config.secret.as_ref(), &config.coordinator)?;
    notes(&format!("agent {name} serves the coordinator at {}", config.coordinator));
    let (sender, events) = mpsc::channel();
    let told = sender.clone();
    let link = Link::new(stream, seals, move |_, read| {
        let event = read.map_or_else(Event::Gone, Event::Told);
        told.send(event).is_ok()
    })
    .map_err(|error| lost(config, error))?;
    let agent = Agent { config, link, events, sender, origin: Instant::now() };
    let mut next_task = None;
    loop {
        if let Some(task) = next_task.take() {
            let task: Box<Task> = task;
            notes(&format!("agent {name}: {}, {}", task.load.workload, task.load.mode));
            next_task = agent.carry_out(&task)?;
            continue;
        }
        match agent.next(None) {
            Some(Event::Told(ToAgent::Task(task))) => next_task = Some(task),
            Some(Event::Told(ToAgent::End { reason: None })) => return Ok(()),
            Some(Event::Told(ToAgent::End { reason: Some(reason) })) => {
                return Err(agent.ended(&reason));
            }
            Some(Event::Gone(error)) => return Err(lost(config, error)),
            // What belongs to a task that is over.
            Some(Event::Told(_) | Event::Over(_)) | None => {}
        }
    }
}

/// Whether an agent with this secret lets a coordinator at `peer` say what to send where.
pub(super) fn may_obey(peer: IpAddr, secret: Option<&Secret>) -> bool {
    secret.is_some() || peer.to_canonical().is_loopback()
}

/// Connects, and tries again while nobody is there.
fn dial(config: &AgentConfig, notes: &mut dyn FnMut(&str)) -> Result<TcpStream, RemoteError> {
    let (coordinator, wait_s) = (&config.coordinator, config.wait.as_secs());
    let deadline = Instant::now() + config.wait;
    let mut said = false;
    loop {
        let reason = match try_dial(coordinator) {
            Ok(stream) => return Ok(stream),
            Err(error) => error.to_string(),
        };
        if Instant::now() + TRY_EVERY >= deadline {
            return Err(RemoteError::Peer(format!(
                "could not reach the coordinator at {coordinator} within {wait_s} s: {reason}; is \
                 `tailplane load … --agents N --listen ADDRESS:PORT` running there?"
            )));
        }
        if !said {
            notes(&format!(
                "no coordinator at {coordinator} yet ({reason}); trying for {wait_s} s"
            ));
            said = true;
        }
        std::thread::sleep(TRY_EVERY);
    }
}

fn try_dial(coordinator: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in coordinator.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TRY_MAX) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn lost(config: &AgentConfig, reason: impl Display) -> RemoteError {
    RemoteError::Peer(format!(
        "the coordinator at {} was lost, the load is stopped: {reason}",
        config.coordinator
    ))
}

struct Agent<'a> {
    config: &'a AgentConfig,
    link: Link,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// Where the agent's clock begins.
    origin: Instant,
}

impl Agent<'_> {
    /// Nanoseconds of the agent's clock.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The next event; `None` where there was none within `limit`.
    fn next(&self, limit: Option<Duration>) -> Option<Event> {
        match limit {
            // The agent holds a sender itself: the channel never closes.
            None => self.events.recv().ok(),
            Some(limit) => self.events.recv_timeout(limit).ok(),
        }
    }

    fn say(&self, task: &Task, what: Said) -> Result<(), RemoteError> {
        let message = ToCoordinator { job: task.job, what };
        self.link.send(&message).map_err(|error| lost(self.config, error))
    }

    fn ended(&self, reason: &str) -> RemoteError {
        let coordinator = &self.config.coordinator;
        RemoteError::Peer(format!("the coordinator at {coordinator} ended the run: {reason}"))
    }

    /// Carries out `task`. What goes wrong with it is told to the coordinator; an error here ends the
    /// agent. Where the task was given up, the next one may have come already.
    fn carry_out(&self, task: &Task) -> Result<Option<Box<Task>>, RemoteError> {
        let rendezvous = &Rendezvous::held(task.transport.threads);
        std::thread::scope(|scope| {
            let (sender, cores, origin) = (self.sender.clone(), &self.config.cores, self.origin);
            scope.spawn(move || {
                let outcome = work(task, cores, (origin, rendezvous));
                // The receiver is the agent's, which outlives the scope.
                let _ = sender.send(Event::Over(Box::new(outcome)));
            });
            let followed = self.follow(task, rendezvous);
            if followed.is_err() {
                // Ends the threads of the load, for which the scope waits.
                rendezvous.fail();
            }
            followed
        })
    }

    /// Does what the coordinator says while the threads of the load are at work.
    fn follow(
        &self,
        task: &Task,
        rendezvous: &Rendezvous,
    ) -> Result<Option<Box<Task>>, RemoteError> {
        let (mut is_ready, mut aborted, mut told_late_ns) = (false, false, 0);
        let mut next_task = None;
        loop {
            if !is_ready && !aborted && rendezvous.all_there() {
                is_ready = true;
                self.say(task, Said::Ready)?;
            }
            match self.next((!is_ready).then_some(LOOK_EVERY)) {
                None => {}
                Some(Event::Told(ToAgent::Ping)) => {
                    self.say(task, Said::Pong { now_ns: self.now_ns() })?;
                }
                Some(Event::Told(ToAgent::Start { at_ns })) => {
                    told_late_ns = self.now_ns().saturating_sub(at_ns);
                    // Equal gaps of several agents interleave.
                    let shift_ns = task.load.phase_shift_ns(task.index);
                    rendezvous.open_at(at_ns.saturating_add(shift_ns));
                }
                Some(Event::Told(ToAgent::Abort)) => {
                    aborted = true;
                    rendezvous.fail();
                }
                Some(Event::Told(ToAgent::End { reason })) => {
                    return Err(self.ended(reason.as_deref().unwrap_or("it gave no reason")));
                }
                // The threads of the one that was given up are still on their way out.
                Some(Event::Told(ToAgent::Task(task))) if aborted && next_task.is_none() => {
                    next_task = Some(task);
                }
                Some(Event::Told(ToAgent::Task(_))) => {
                    return Err(lost(self.config, "it gave a task while one was running"));
                }
                Some(Event::Gone(error)) => return Err(lost(self.config, error)),
                // Nobody waits for the outcome of what was given up.
                Some(Event::Over(_)) if aborted => return Ok(next_task),
                Some(Event::Over(outcome)) => {
                    self.say(task, self.outcome(*outcome, told_late_ns))?;
                    return Ok(None);
                }
            }
        }
    }

    fn outcome(&self, outcome: Result<Ran, LoadError>, told_late_ns: u64) -> Said {
        match outcome {
            Err(error) => Said::Failed { error: error.to_string() },
            Ok(ran) => {
                let [kernel, processor] = kernel_and_processor();
                Said::Done(Box::new(Done {
                    measured: Carried::of(&ran.measured),
                    first_failure: ran.first_failure,
                    told_late_ns,
                    kernel,
                    processor,
                    cores: self.config.cores.clone(),
                }))
            }
        }
    }
}

/// Carries the agent's share of `task` on threads that have `cores`, as [`run_parts`] is timed.
fn work(task: &Task, cores: &[usize], timing: (Instant, &Rendezvous)) -> Result<Ran, LoadError> {
    task.load.validate()?;
    check_range("agent's index", task.index, 0, task.agents.saturating_sub(1))?;
    let share = task.load.share(task.index, task.agents)?;
    share.validate()?;
    let transport = KernelConfig { cores: cores.to_vec(), ..task.transport.clone() };
    transport.validate(&share)?;
    // All agents agree on the keys and their values: the seed is the whole load's.
    let workload = Arc::new(Workload::new(&task.load.workload, task.load.seed)?);
    let place = Place { index: task.index, of: task.agents };
    Ran::of_threads(&share, run_parts(&share, &transport, &workload, place, timing)?)
}
