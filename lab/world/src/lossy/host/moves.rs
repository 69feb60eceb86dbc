//! A host whose flow groups move from core to core all the time, as a controller that cannot decide would have
//! it (IX §4.5).

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{MigrationStats, MoveCommand, MoveControl, MoveError, move_mailbox};
use stack::{FLOW_GROUPS, GroupSet, Shared};

use super::{Host, Thread};
use crate::device::{CoreTable, Device, group_of};
use crate::dice::Dice;
use crate::lossy::watch::ensure;
use crate::network::{Network, Steer};

/// Commands of a core that may be without a report.
const MAILBOX: usize = 4;

/// How often flow groups move, and where frames come.
#[derive(Clone, Copy, Debug)]
pub struct MovesConfig {
    /// The mean time from one command to the next, while anything happens.
    pub every: Duration,
    /// Where the network puts frames.
    pub steering: Steering,
}

/// To which of a host's queues a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// To any.
    Random,
    /// Those of a flow to one and the same, whatever the home of its flow group.
    Fixed,
    /// To the home of the flow group, as soon as that has changed.
    Home,
    /// To where the device's indirection table says, which the cores write; and there a while later.
    Table {
        /// Whether the device has probes.
        probes: bool,
    },
}

/// How much later a frame is in its queue than the device has chosen it, at most.
pub(crate) const LAG: Duration = Duration::from_micros(60);

/// The controller.
pub(super) struct Moves {
    config: MovesConfig,
    controls: Vec<MoveControl>,
    shared: Arc<Shared>,
    next: Instant,
    dice: Dice,
    device: Option<Arc<Device>>,
    /// Commands that were complete, and refused.
    pub moved: u64,
    pub refused: u64,
    failure: Option<String>,
}

impl Moves {
    pub fn new<'a>(
        config: MovesConfig,
        shared: Arc<Shared>,
        threads: impl Iterator<Item = &'a mut Thread>,
        device: Option<Arc<Device>>,
        dice: Dice,
    ) -> Self {
        let obey = |thread: &mut Thread| {
            let (control, mailbox) = move_mailbox(MAILBOX);
            thread.obey(match &device {
                Some(device) => mailbox.with_device(Box::new(CoreTable(Arc::clone(device)))),
                None => mailbox,
            });
            control
        };
        let (controls, next) = (threads.map(obey).collect(), Instant::ZERO);
        Self { config, controls, shared, next, dice, device, moved: 0, refused: 0, failure: None }
    }

    /// Sends the probes on their way that the cores have asked for.
    pub fn send_probes(&self, network: &mut Network, port: usize, now: Instant) {
        if let Some(device) = &self.device {
            for (queue, probe) in device.take_probes() {
                network.inject(now, port, queue, probe);
            }
        }
    }

    /// Some groups of one core, to another. Now and then one that is not there, or a core that is not.
    fn command(&mut self, now: Instant) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let Self { dice, controls, shared, .. } = self;
        self.next = now + dice.duration(Duration::ZERO, 2 * self.config.every);
        let core = dice.below(controls.len() as u64) as usize;
        let to = match dice.chance(0.02) {
            true => dice.below(200),
            false => dice.below(controls.len() as u64),
        } as u8;
        let share = dice.pick(&[0.02, 0.2, 1.0]);
        let mut at_home = |group: &u16| {
            let stray = dice.chance(0.0005);
            stray || usize::from(shared.home_of(*group)) == core && dice.chance(share)
        };
        let groups: GroupSet = (0..FLOW_GROUPS as u16).filter(&mut at_home).collect();
        let command = MoveCommand { token: now.as_nanos(), groups, to };
        controls[core].post(command).is_ok().then_some(core)
    }

    fn read_reports(&mut self) {
        for control in &mut self.controls {
            while let Some(report) = control.report() {
                match report.outcome {
                    Ok(moved) => {
                        self.moved += 1;
                        if moved.groups == 0 {
                            self.failure = Some("a migration of nothing".to_owned());
                        }
                    }
                    Err(MoveError::HasLeft { .. } | MoveError::Leaving) => {
                        self.failure = Some(format!("nobody left: {report:?}"));
                    }
                    Err(_) => self.refused += 1,
                }
            }
        }
    }

    /// What does not add up, once all is quiet.
    pub fn audit(&self, total: &MigrationStats) -> Result<(), String> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let open: usize = self.controls.iter().map(MoveControl::open).sum();
        let of = (total.begun, total.completed, total.refused);
        let is_done = open == 0 && of == (self.moved, self.moved, self.refused);
        ensure(is_done, || format!("{open} commands are open: {total:?}"))
    }
}

impl Host {
    /// What the controller does after the cores' cycles at `now`. Answers a core that is to be woken.
    pub(super) fn control(&mut self, now: Instant) -> Option<usize> {
        let moves = self.moves.as_mut()?;
        moves.read_reports();
        moves.command(now)
    }

    /// Counters of migrations, of all cores.
    pub fn migrations(&self) -> MigrationStats {
        let mut total = MigrationStats::default();
        self.cores.iter().for_each(|core| total += core.thread.migrations());
        total
    }
}

/// Has the network put frames to a host's port where `steering` says. Answers the device, if it has a table.
pub(super) fn steer(
    shared: &Arc<Shared>,
    steering: Steering,
    network: &mut Network,
    (port, queues): (usize, usize),
) -> Option<Arc<Device>> {
    let steer = match steering {
        Steering::Random => return None,
        Steering::Fixed => by_group(shared, queues, |_, group| group.into()),
        Steering::Home => by_group(shared, queues, |shared, group| shared.home_of(group).into()),
        Steering::Table { probes } => {
            let device = Device::new(shared, probes);
            let table = Arc::clone(&device);
            network.steer(port, by_group(shared, queues, move |_, group| table.queue_of(group)));
            network.lag(port, LAG);
            return Some(device);
        }
    };
    network.steer(port, steer);
    None
}

/// Chooses queues by flow groups, as `queue_of` says; the first for all that has none.
fn by_group(
    shared: &Arc<Shared>,
    queues: usize,
    queue_of: impl Fn(&Shared, u16) -> usize + 'static,
) -> Steer {
    let shared = Arc::clone(shared);
    Box::new(move |frame| {
        group_of(&shared, frame).map_or(0, |group| queue_of(&shared, group) % queues)
    })
}
