//! Flow groups that move between two elastic threads under load, on a veth pair with an indirection table (IX §4.5):
//! how long each phase takes, and whether anything was lost or came out of order.
//!
//! ```text
//! caller, a dataplane --- uplink --- the kernel forwards --- table --- veth --- two elastic threads: echo
//!                                                              ^                       |
//!                                                              '--- written by them ---'
//! ```
//!
//! As a control plane does it, a thread is *added* by one request that gives it every other flow group of the first,
//! and *removed* by one that gives them back.

mod caller;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use endpoint::{Ask, Done, MoveSummary, Request};
use measure::{Disturbance, QUIET, Usage};
use runtime::{Controls, CoreReport, RuntimeConfig, RuntimeError};
use runtime::{ElasticConfig, FLOW_GROUPS, GroupSet, MigrationStats, StackConfig};
use statseg::{Layout, Segment};
use tailplane::{Endpoint, SharedSlots};
use world::controlled::migration::{Direction, Recorded};

use self::caller::{Caller, Talk};
use crate::demo::child::holds_within;
use crate::demo::ends::{CHUNKS, port_of, runtime_of};
use crate::demo::processors::{CLIENT_CPU, SERVER_CPU};
use service::lab::Lab;
use service::lab::constants::{DATAPLANE_ADDRESS, DATAPLANE_INTERFACE, SUBNET_BITS};
use service::lab::uplink::{
    GATEWAY_OF_THE_DATAPLANE, UPLINK_ADDRESS, UPLINK_GATEWAY, UPLINK_INTERFACE,
};
use service::port::{Port, PortConfig};

const TARGET: Endpoint = Endpoint::v4(DATAPLANE_ADDRESS, 7);
/// Elastic threads of the service.
const THREADS: u32 = 2;
/// How long anything that waits for something waits at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often the controller looks for a report.
const LOOK: Duration = Duration::from_micros(50);

/// What the device does with the flow groups that move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Its table is written, and a probe tells when what was on its way has come.
    Probed,
    /// Its table is written, and the first packet at the new home tells that.
    Unprobed,
    /// It has none: packets are forwarded between the threads.
    None,
}

impl Table {
    /// As it is called in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probed => "table and probe",
            Self::Unprobed => "table, first packet",
            Self::None => "no table, timer",
        }
    }
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The device.
    pub table: Table,
    /// Migrations: half of them add a thread, half remove it.
    pub moves: usize,
    /// Connections of the caller.
    pub connections: usize,
    /// The mean time between two words, whatever the answers. `None`: silence while flow groups move.
    pub word_every: Option<Duration>,
    /// From the end of a migration to the next.
    pub pause: Duration,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// Each migration.
    pub recorded: Vec<Recorded>,
    /// Connections that moved, all migrations together.
    pub connections: u64,
    /// What the service's threads counted.
    pub migrations: MigrationStats,
    /// Words that came back, per second in which flow groups were moved.
    pub words_per_s: f64,
    /// Words that came back in all.
    pub words: u64,
    /// Signs that something was lost or reordered, each with its name.
    pub anomalies: Vec<(&'static str, u64)>,
    /// Those of them that devices have counted.
    pub device_drops: u64,
    /// Packets that came to a thread which is not home to them, and were forwarded.
    pub forwarded: u64,
    /// Of each of the service's threads, the share of the time in which it did something.
    pub busy: Vec<f64>,
    /// What others did to the processors meanwhile.
    pub disturbance: Disturbance,
    /// How frames travel at the service's end.
    pub driver: String,
}

impl Found {
    /// Whether others left the processors to it. That its own threads wait for each other is part of what is measured.
    pub fn is_quiet(&self) -> bool {
        self.disturbance.within(&Disturbance { waited_ns: u64::MAX, ..QUIET })
    }

    /// Whether devices have dropped frames while others had the processors: before a thread had seen them, as rings
    /// overflow whose thread stands still. What is missing then, and what comes before it, was lost there.
    pub fn is_overrun(&self) -> bool {
        !self.is_quiet() && self.device_drops > 0
    }

    /// How many signs there are.
    pub fn anomalous(&self) -> u64 {
        self.anomalies.iter().map(|(_, count)| count).sum()
    }
}

/// Moves flow groups as planned, in a lab of two queues with an uplink.
///
/// # Errors
/// What could not be opened; a migration that was refused or has no end; a caller that is not answered.
pub fn run(lab: &Lab, plan: &Plan) -> anyhow::Result<Found> {
    ensure!(lab.queues() == THREADS, "the lab has {} queues, not {THREADS}", lab.queues());
    let near = port_of(DATAPLANE_INTERFACE, lab.dataplane(), DATAPLANE_ADDRESS, THREADS);
    let mut near = Port::open(&PortConfig { chunks: CHUNKS, ..near })?;
    let mut far = Port::open(&port_of(UPLINK_INTERFACE, lab.client(), UPLINK_ADDRESS, 1))?;
    let controls = controls(plan, lab)?;
    let mut serving = StackConfig::new(DATAPLANE_ADDRESS, SUBNET_BITS, near.mac());
    serving.set_gateway(GATEWAY_OF_THE_DATAPLANE);
    serving.tcp_listen = vec![TARGET.port];
    let mut calling = StackConfig::new(UPLINK_ADDRESS, SUBNET_BITS, far.mac());
    calling.set_gateway(UPLINK_GATEWAY);
    let calling = runtime_of(calling, IDLE_SPIN);
    let batch_max = ElasticConfig::default().batch as u32;
    let layout = Layout { threads: THREADS as u16, groups: FLOW_GROUPS as u16, batch_max };
    let segment = Segment::create("table5", &layout).context("making the statistics segment")?;
    let cpus = vec![SERVER_CPU, CLIENT_CPU];
    let shown = Some(Arc::clone(&segment));
    let serving = RuntimeConfig { cpus, segment: shown, ..runtime_of(serving, IDLE_SPIN) };
    let talk = Talk::default();
    let slots = Arc::new(SharedSlots::new(THREADS as usize, 4_096));
    let [serves, over, done] = [const { AtomicBool::new(false) }; 3];
    let drops = lab.drops()?;
    let every = plan.word_every.unwrap_or(Duration::from_millis(1));
    let (sides, moved) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let queues = near.take_queues();
            let make = |core| echo::Echo::shared(core, &slots);
            let ready = || serves.store(true, Ordering::Relaxed);
            let (region, steered) = (&near.region, Some(&controls));
            reports(runtime::run_controlled(&serving, region, queues, make, ready, steered, &over))
        });
        let client = scope.spawn(|| {
            let begins = || Ok(serves.load(Ordering::Relaxed) || over.load(Ordering::Relaxed));
            holds_within(PATIENCE, LOOK, begins)?;
            let make = |_| Caller::new(TARGET, plan.connections, every, &talk);
            let queues = far.take_queues();
            reports(runtime::run(&calling, &far.region, queues, make, &done))
        });
        let ends = || server.is_finished() || client.is_finished();
        let (controls, talk, shown) = (&controls, &talk, &segment);
        let moved = Controller { plan, controls, talk, shown, ends: &ends }.work();
        done.store(true, Ordering::Relaxed);
        let client = joined(client);
        over.store(true, Ordering::Relaxed);
        let server = joined(server);
        // Why a side ended is the better reason.
        Ok::<_, anyhow::Error>(([server?, client?], moved?))
    })?;
    let drops = lab.drops()? - drops;
    Ok(found(plan, &sides, moved, &talk, drops, near.opened.description.clone()))
}

fn controls(plan: &Plan, lab: &Lab) -> anyhow::Result<Controls> {
    let controls = Controls::new(THREADS as usize);
    Ok(match plan.table {
        Table::Probed => controls.with_table(lab.steer()?)?,
        Table::Unprobed => controls.with_table(lab.steer_without_probes()?)?,
        Table::None => controls,
    })
}

/// How long a thread without work looks for some before it sleeps: there are more threads than processors.
pub const IDLE_SPIN: Duration = Duration::from_micros(20);

fn reports<S>(ran: Result<Vec<(CoreReport, S)>, RuntimeError>) -> anyhow::Result<Vec<CoreReport>> {
    Ok(ran?.into_iter().map(|(report, _)| report).collect())
}

fn joined<R>(thread: ScopedJoinHandle<'_, anyhow::Result<R>>) -> anyhow::Result<R> {
    thread.join().map_err(|_| anyhow::anyhow!("a dataplane panicked"))?
}

/// Who asks for migrations.
struct Controller<'a> {
    plan: &'a Plan,
    controls: &'a Controls,
    talk: &'a Talk,
    /// What the service's threads show.
    shown: &'a Segment,
    /// Whether a side has ended by itself.
    ends: &'a dyn Fn() -> bool,
}

/// What it did.
struct Work {
    moved: Vec<(Direction, MoveSummary)>,
    took: Duration,
    /// Time in which each of the service's threads did something meanwhile.
    busy: Vec<Duration>,
    disturbance: Disturbance,
    /// Words that came back meanwhile.
    words: u64,
    /// Words that had no answer at the end.
    unanswered: u64,
}

impl Controller<'_> {
    fn work(&self) -> anyhow::Result<Work> {
        let Self { plan, talk, .. } = *self;
        let heard = || talk.heard.load(Ordering::Relaxed);
        self.wait("all connections are open and talk", || {
            talk.open.load(Ordering::Relaxed) == plan.connections as u64
                && heard() > 2 * plan.connections as u64
        })?;
        // One thread has all, as before another one is added.
        self.request(1, 0, self.controls.groups_of(1))?;
        if plan.word_every.is_none() {
            self.fall_silent()?;
        }
        let busy_of = |core| self.shown.board(core).map_or(0, |board| board.snapshot().busy_ns);
        let all = |core: u32| Duration::from_nanos(busy_of(core as u16));
        let busy = || (0..THREADS).map(all).collect::<Vec<_>>();
        let usage = Usage::now(&[]);
        let (began, before, busy_before) = (Instant::now(), heard(), busy());
        let mut moved = Vec::with_capacity(plan.moves);
        for number in 0..plan.moves {
            sleep(plan.pause);
            moved.push(match number % 2 {
                0 => {
                    let groups = self.controls.groups_of(0);
                    let half = groups.iter().step_by(2).collect();
                    (Direction::AddCore, self.request(0, 1, half)?)
                }
                _ => (Direction::RemoveCore, self.request(1, 0, self.controls.groups_of(1))?),
            });
        }
        let (took, words) = (began.elapsed(), heard() - before);
        let busy = busy().iter().zip(busy_before).map(|(now, before)| *now - before).collect();
        let disturbance = usage.disturbance_since(&[]);
        let unanswered = match self.fall_silent() {
            Ok(()) => 0,
            Err(_) => talk.said.load(Ordering::Relaxed) - heard(),
        };
        Ok(Work { moved, took, busy, disturbance, words, unanswered })
    }

    fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) -> anyhow::Result<()> {
        let held = holds_within(PATIENCE, LOOK, || Ok(holds() || (self.ends)()))?;
        ensure!(held && !(self.ends)(), "it was waited in vain until {what}");
        Ok(())
    }

    /// Has the caller say nothing more, and waits for its last answers.
    fn fall_silent(&self) -> anyhow::Result<()> {
        self.talk.silent.store(true, Ordering::Relaxed);
        let of = || [&self.talk.said, &self.talk.heard].map(|count| count.load(Ordering::Relaxed));
        let mut last = of();
        self.wait("all words have their answers", || {
            // Twice the same: it has seen the flag.
            sleep(Duration::from_millis(5));
            let now = of();
            now[0] == now[1] && now == std::mem::replace(&mut last, now)
        })
    }

    fn request(&self, from: u16, to: u16, groups: GroupSet) -> anyhow::Result<MoveSummary> {
        let request = Request::Move { from, to, groups: groups.iter().collect() };
        self.controls.begin(Ask { id: 0, request })?;
        let mut report = None;
        self.wait("a migration is complete", || {
            report = self.controls.reports().pop();
            report.is_some()
        })?;
        match report.map(|report| report.result).transpose().context("a migration was given up")? {
            Some(Done::Moved(moved)) => Ok(moved),
            other => bail!("a migration has no report but {other:?}"),
        }
    }
}

fn found(
    plan: &Plan,
    sides: &[Vec<CoreReport>; 2],
    work: Work,
    talk: &Talk,
    drops: u64,
    driver: String,
) -> Found {
    let [server, client] = sides;
    let both = || server.iter().chain(client);
    let total = |of: fn(&CoreReport) -> u64| both().map(of).sum::<u64>();
    let mut migrations = MigrationStats::default();
    server.iter().for_each(|report| migrations += report.migrations);
    let at_rings = total(|report| report.nic.rx_dropped + report.nic.rx_no_buffer);
    let anomalies = vec![
        ("words out of order, connections that ended", talk.wrong.load(Ordering::Relaxed)),
        ("words without an answer", work.unanswered),
        ("segments sent again", total(|report| report.stack.tcp_retransmissions)),
        ("segments out of order", total(|report| report.stack.tcp_out_of_order)),
        ("segments dropped", total(|report| report.stack.tcp_dropped_segments)),
        ("segments out of the window", total(|report| report.stack.tcp_unacceptable)),
        ("packets dropped between threads", total(|report| report.cycle.forward_drops)),
        ("packets dropped at a new home", total(|report| report.migrations.parked_drops)),
        ("frames dropped at full rings", at_rings),
        ("frames not sent", total(|report| report.nic.tx_dropped + report.stack.tx_dropped)),
        ("frames dropped by the pairs", drops),
    ];
    let share = |busy: &Duration| busy.as_secs_f64() / work.took.as_secs_f64().max(1e-9);
    Found {
        recorded: work.moved.iter().map(|(direction, moved)| recorded(*direction, moved)).collect(),
        connections: work.moved.iter().map(|(_, moved)| u64::from(moved.connections)).sum(),
        migrations,
        words_per_s: match plan.word_every {
            Some(_) => work.words as f64 / work.took.as_secs_f64(),
            None => 0.0,
        },
        words: talk.heard.load(Ordering::Relaxed),
        anomalies,
        device_drops: at_rings + drops,
        forwarded: server.iter().map(|report| report.stack.forwarded).sum(),
        busy: work.busy.iter().map(share).collect(),
        disturbance: work.disturbance,
        driver,
    }
}

fn recorded(direction: Direction, moved: &MoveSummary) -> Recorded {
    let [prepare_us, wait_us, rpc_us, deferred_us] = moved.phase_ns.map(|ns| ns as f64 / 1e3);
    let packets = moved.packets_deferred.into();
    Recorded { direction, prepare_us, wait_us, rpc_us, deferred_us, packets }
}
