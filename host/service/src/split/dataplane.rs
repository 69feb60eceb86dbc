//! The dataplane of the `process` domain: `tailplane dataplane`, started by [`starter`](super::starter).
//!
//! Its control socket is its standard input. It takes what the starter passes, lets the application join, gives up
//! all system calls that a dataplane does not make, those that make threads when all of these run, and serves until
//! the starter hangs up or the application goes.

use std::io::stdin;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use mem::{ChunkBytes, Region};
use nic::QueueSet;
use nic::af_xdp::{AdoptedQueue, AfXdp, XdpSocket};
use nic::device::Mtu;
use nic::shm::{ShmConfig, ShmNic, ShmOffer};
use runtime::{Register, RuntimeConfig, Scheduler, beside};
use rustix::event::PollFlags;
use sandbox::SyscallPolicy;
use tailplane::MacAddr;

use super::control::{DESCRIPTORS_MAX, receive, send};
use super::half_open::{self, HalfOpen, Search};
use super::orders::{Order, PassedWire, Role, Start, Told};
use super::passed_table::PassedTable;
use super::relay::Attended;
use super::table::{Answers, RemoteTable};
use crate::application::{Joined, LOOK, NotJoined, hello, keep_own_realtime};
use crate::config::{DomainName, RunConfig};
use crate::ready::is_ready;
use crate::{host, report};

/// Between two looks at what became of orders.
const ORDER_LOOK: Duration = Duration::from_millis(1);

/// Serves as the dataplane of the starter at the other end of the standard input, and tells it how that went.
///
/// # Errors
/// There is no starter.
pub fn serve() -> anyhow::Result<()> {
    let control = stdin().as_fd().try_clone_to_owned().context("taking the control socket")?;
    let told = match run(&control) {
        Ok(()) => Told::Ended,
        Err(error) => {
            let causes = error.chain().map(ToString::to_string).collect();
            match error.is::<NotJoined>() {
                true => Told::NotJoined(causes),
                false => Told::Failed(causes),
            }
        }
    };
    send(&control, &told, &[]).with_context(|| match told {
        Told::Failed(causes) | Told::NotJoined(causes) => causes.join(": "),
        _ => "`tailplane run` starts this".to_owned(),
    })
}

/// Queue pairs that can be driven, those of each elastic thread.
enum Queues {
    AfXdp(Vec<QueueSet<AfXdp>>),
    Shm(Vec<ShmNic>),
}

impl Queues {
    /// Whether the device completes the checksums of what is sent.
    fn complete_checksums(&self) -> bool {
        match self {
            Self::AfXdp(sets) => {
                sets.first().is_some_and(|set| set.capabilities().tx_checksum_offload)
            }
            Self::Shm(_) => false,
        }
    }
}

/// All that a dataplane is made of.
struct Passed {
    config: RunConfig,
    /// Its program's name and the domain's socket.
    application: Option<(String, OwnedFd)>,
    region: Arc<Region>,
    queues: Queues,
    mac: MacAddr,
    mtu: Mtu,
    table: Option<PassedTable>,
    /// The memory of the register of peers, where there is one.
    register: Option<OwnedFd>,
}

/// Waits until packet memory is ours alone. False: the starter has gone.
fn is_alone(control: &OwnedFd) -> anyhow::Result<bool> {
    match receive(control, 0)? {
        Some((Order::Alone, _)) => Ok(true),
        Some(_) => bail!("another order came before the dataplane was alone"),
        None => Ok(false),
    }
}

fn run(control: &OwnedFd) -> anyhow::Result<()> {
    let (order, descriptors) =
        receive(control, DESCRIPTORS_MAX)?.context("`tailplane run` starts this, and has gone")?;
    let Order::Start(start) = order else { bail!("another order came before the start") };
    let Some(passed) = Passed::take(control, start, descriptors)? else { return Ok(()) };
    let Passed { config, application, region, queues, mac, mtu, table, register } = passed;
    let mut runtime = host::runtime(&config, mac, mtu)?;
    runtime.stack.tx_checksum_offload = queues.complete_checksums();
    runtime.stack.rss_key = table.as_ref().and_then(PassedTable::key);
    runtime.stack.policy = config.policy.network(config.service.all_ports())?;
    let (lanes, most) = (config.dataplane.threads as usize, config.tcp.max_connections);
    let Some((program, socket)) = application else {
        let register = register.context("no register of peers was passed")?;
        let left = Register::left(register, most).context("joining the register of peers")?;
        silence(&mut runtime, &region, lanes);
        return until_hang_up(control, None, |stop| {
            let search = Search::new(left, lanes, stop);
            let resets = |_| HalfOpen::new(&search);
            match queues {
                Queues::AfXdp(queues) => {
                    runtime::run(&runtime, &region, queues, resets, stop).map(|_| ())
                }
                Queues::Shm(nics) => {
                    runtime::run(&runtime, &region, nics, resets, stop).map(|_| ())
                }
            }
            .map_err(Into::into)
        });
    };
    if let Some(register) = register {
        let register = Register::join(register, most).context("joining the register of peers")?;
        runtime.register = Some(register);
    }
    let joined = Joined::new(hello(&config, &runtime), lanes, &region, socket, &program)?;
    let (segment, mut controls) = (host::segment(&config)?, host::controls(&config));
    let answers = Arc::new(Answers::default());
    if let Some(table) = table {
        let control = control.try_clone().context("duplicating the control socket")?;
        controls = controls.with_table(RemoteTable::new(control, table, Arc::clone(&answers)))?;
    }
    let controls = Arc::new(controls);
    let shown = segment.descriptor().context("duplicating the statistics segment")?;
    runtime.segment = Some(segment);
    let ready = || report_ready(control, controls.is_movable(), &shown);
    let attended = Attended::new(Arc::clone(&controls), joined.placers(), answers);
    let (reports, _) = until_hang_up(control, Some(attended), |stop| {
        joined.run(stop, |nears, stop| {
            let nears = config.policy.charge(nears);
            let steered = Some(&*controls);
            Ok(match queues {
                Queues::AfXdp(queues) => {
                    runtime::run_protected(&runtime, &region, queues, nears, ready, steered, stop)
                }
                Queues::Shm(nics) => {
                    runtime::run_protected(&runtime, &region, nics, nears, ready, steered, stop)
                }
            }?)
        })
    })?;
    report::summarize(&reports);
    Ok(())
}

/// Gives up making threads, which all run now, and the priority of the first one, from which they have inherited theirs
/// and which only waits for them from now on. Reports to the starter, with the statistics segment, that the dataplane
/// serves.
fn report_ready(control: &OwnedFd, movable: bool, segment: &OwnedFd) {
    let given_up = runtime::make_first_ordinary()
        .context("cannot make the first thread an ordinary one")
        .and_then(|()| {
            SyscallPolicy::dataplane().enforce().context("cannot give up making threads")
        });
    let told = match given_up {
        Ok(()) => Told::Ready { movable },
        // The starter ends what spoke its last word.
        Err(error) => Told::Failed(error.chain().map(ToString::to_string).collect()),
    };
    let segment = matches!(told, Told::Ready { .. }).then(|| segment.as_fd());
    // Nobody hears it: then the next word is that.
    _ = send(control, &told, segment.as_slice());
}

/// Gives up the system calls that a dataplane needs for nothing but its start, and runs `serve` with a flag that is set
/// as soon as the starter hangs up. Its orders are `attended` to meanwhile, where there are any.
fn until_hang_up<R>(
    control: &OwnedFd,
    mut attended: Option<Attended>,
    serve: impl FnOnce(&AtomicBool) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let stop = AtomicBool::new(false);
    // All of this process's threads, those to come too.
    SyscallPolicy::dataplane().with_threads().enforce().context("giving up system calls")?;
    let look = || {
        if has_news(control, attended.as_ref()) && !heeds(control, attended.as_mut()) {
            match &attended {
                Some(attended) => attended.end(&stop),
                None => stop.store(true, Ordering::Relaxed),
            }
            return false;
        }
        for told in attended.as_mut().map_or(Vec::new(), Attended::reports) {
            _ = send(control, &told, &[]);
        }
        true
    };
    beside("orders", keep_own_realtime, look, || serve(&stop))?
}

/// The settings of a dataplane that answers for one that was killed: it knows no connection and serves no port.
fn silence(runtime: &mut RuntimeConfig, region: &Region, threads: usize) {
    half_open::settle(&mut runtime.stack);
    runtime.scheduler = Scheduler::RunToCompletion;
    runtime.cpus.clear();
    runtime.realtime = None;
    runtime.pool_keep = region.chunks() as usize / threads / 2;
}

/// Takes a word of the starter. Answers false where it means the end: it has hung up, or makes no sense.
fn heeds(control: &OwnedFd, attended: Option<&mut Attended>) -> bool {
    match (receive::<Order>(control, 0), attended) {
        (Ok(Some((Order::Steer(ask), _))), Some(attended)) => {
            if let Some(told) = attended.begin(ask) {
                // Nobody hears it: then the next word is that.
                _ = send(control, &told, &[]);
            }
            true
        }
        (Ok(Some((Order::Table { number, answer }, _))), Some(attended)) => {
            attended.answers().came(number, answer);
            true
        }
        (Ok(Some((Order::Place(pairs), _))), Some(attended)) => {
            attended.place(&pairs);
            true
        }
        _ => false,
    }
}

/// Waits a little for a word of the starter.
fn has_news(control: &OwnedFd, attended: Option<&Attended>) -> bool {
    let is_waiting = attended.is_some_and(Attended::is_waiting);
    let most = if is_waiting { ORDER_LOOK } else { LOOK };
    is_ready(control, PollFlags::IN, most)
}

impl Passed {
    /// Takes what the starter has passed, and waits until it has bound the queues. None: the starter has gone.
    fn take(control: &OwnedFd, start: Start, given: Vec<OwnedFd>) -> anyhow::Result<Option<Self>> {
        let mut config = RunConfig::parse(&start.config)?;
        config.dataplane.domain = DomainName::Process;
        (config.service.app, config.service.port) = (start.app, Some(start.port));
        (config.dataplane.cpus, config.dataplane.realtime) = (start.cpus, Some(start.realtime));
        let mut given = given.into_iter();
        let mut next =
            |what: &'static str| given.next().with_context(|| format!("no {what} was passed"));
        let chunk = match start.wire {
            PassedWire::AfXdp { chunk_bytes, .. } => {
                ChunkBytes::of(chunk_bytes).context("there are no chunks of that size")?
            }
            PassedWire::Shm => ChunkBytes::Small,
        };
        let region = Region::join_of(next("packet memory")?, chunk)?;
        let application = match start.role {
            Role::Serve { program } => Some((program, next("socket of the application")?)),
            Role::Farewell => None,
        };
        let (queues, mac, mtu, table, register) = match start.wire {
            PassedWire::AfXdp {
                interface,
                queues: count,
                rx_buffers,
                mtu_bytes,
                frame_chunks,
                receive_mtu_bytes,
                tx_checksum_offload,
                table,
                ..
            } => {
                let register = next("register of peers")?;
                let mac = interface.mac;
                let mtu = Mtu { send: mtu_bytes, frame_chunks, receive: receive_mtu_bytes };
                let mut mapped = Vec::new();
                for queue in 0..count {
                    let facts = AdoptedQueue {
                        interface: interface.clone(),
                        queue,
                        rx_buffers,
                        assume_rx_checksums: false,
                        tx_checksum_offload,
                        is_sole_owner: true,
                    };
                    mapped.push(XdpSocket::adopt(next("AF_XDP socket")?, &region, facts)?);
                }
                send(control, &Told::Mapped, &[])?;
                if !is_alone(control)? {
                    return Ok(None);
                }
                let driven = mapped.into_iter().map(AfXdp::new).collect::<Result<_, _>>()?;
                let queues = QueueSet::deal(driven, config.dataplane.threads as usize)?;
                (Queues::AfXdp(queues), mac, mtu, table, Some(register))
            }
            PassedWire::Shm => {
                let offer = ShmOffer {
                    memory: next("memory of the wire")?,
                    wake_creator: next("bell of the wire")?,
                    wake_joiner: next("bell of the wire")?,
                };
                let shm = ShmConfig::default();
                let nics = vec![ShmNic::take_over(offer, &shm)?];
                if !is_alone(control)? {
                    return Ok(None);
                }
                (Queues::Shm(nics), shm.mac, Mtu::ETHERNET, None, None)
            }
        };
        Ok(Some(Self { config, application, region, queues, mac, mtu, table, register }))
    }
}
