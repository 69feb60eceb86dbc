//! The old home's end of migrations: when is it safe to give flow groups away. See the parent's comment.

use alloc::vec::Vec;

use clock::{Duration, Instant};
use stack::GroupSet;

use super::{MOVES_MAX, MigrationConfig, MoveCommand, MoveError, MoveId};

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// For the fences, or their timer.
    Preparing { deadline: Instant },
    /// For the probe at the old home; or, without one, for the first packet at the new home; or the timer.
    Waiting { deadline: Instant },
    /// As many packets as stood in the receive ring then, and had been taken from it, are still to be processed.
    Draining { left: usize },
    /// The groups take nothing in; the application may have some of their connections in hand.
    Sealed,
    /// They are the new home's.
    Handed,
}

/// What the device put into the old home's queue behind all that came before its table was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Nothing.
    None,
    /// A probe with this token, which has not come.
    Sent(u64),
    /// It has come, so that all before it is out of the receive ring.
    Come,
}

/// One migration, as its old home sees it.
#[derive(Debug)]
pub(crate) struct Departure {
    pub id: MoveId,
    pub token: u64,
    pub set: GroupSet,
    pub to: u8,
    stage: Stage,
    /// Cores that have not answered the fence, one bit each.
    unfenced: u128,
    met: bool,
    probe: Probe,
    pub connections: u32,
    pub commanded_at: Instant,
    pub prepared_at: Instant,
    pub sealed_at: Instant,
}

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct Departures {
    core: u8,
    timer: Duration,
    fence: Duration,
    /// Migrations that went on without a core's answer to the fence.
    unanswered: u64,
    moves: Vec<Departure>,
    next_number: u32,
}

impl Departures {
    pub fn new(core: u8, config: &MigrationConfig) -> Self {
        let MigrationConfig { timer, fence, .. } = *config;
        Self { core, timer, fence, unanswered: 0, moves: Vec::new(), next_number: 0 }
    }

    /// Migrations that went on without a core's answer to the fence.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Whose these are.
    pub fn core(&self) -> u8 {
        self.core
    }

    /// Whether none is under way.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Takes a command up. `here`: groups that this core owns and that are free to go; `coming`: those that
    /// are on their way here; `alive`: cores that have not left, one bit each, this one among them.
    ///
    /// # Errors
    /// Why nothing is to happen.
    pub fn begin(
        &mut self,
        now: Instant,
        command: &MoveCommand,
        [here, coming]: [GroupSet; 2],
        cores: u8,
        alive: u128,
    ) -> Result<&Departure, MoveError> {
        let MoveCommand { token, groups: set, to } = *command;
        let first = |set: GroupSet| set.iter().next();
        if set.is_empty() {
            return Err(MoveError::NoGroups);
        }
        if to >= cores {
            return Err(MoveError::NoSuchThread { to, cores });
        }
        let leaving = self.moves.iter().fold(GroupSet::NONE, |all, one| all.union(one.set));
        if let Some(group) = first(set.common(leaving.union(coming))) {
            return Err(MoveError::UnderWay { group });
        }
        let mut elsewhere = set;
        elsewhere.remove(here);
        if let Some(group) = first(elsewhere) {
            return Err(MoveError::NotHome { group });
        }
        if to == self.core {
            return Err(MoveError::SameThread { to });
        }
        if alive & (1 << to) == 0 {
            return Err(MoveError::HasLeft { to });
        }
        if self.moves.len() >= MOVES_MAX {
            return Err(MoveError::TooMany);
        }
        let id = MoveId { from: self.core, number: self.next_number };
        self.next_number = self.next_number.wrapping_add(1);
        self.moves.push(Departure {
            id,
            token,
            set,
            to,
            stage: Stage::Preparing { deadline: now + self.fence },
            unfenced: alive & !(1 << self.core),
            met: false,
            probe: Probe::None,
            connections: 0,
            commanded_at: now,
            prepared_at: now,
            sealed_at: now,
        });
        Ok(&self.moves[self.moves.len() - 1])
    }

    fn find(&mut self, id: MoveId) -> Option<&mut Departure> {
        self.moves.iter_mut().find(|one| one.id == id)
    }

    /// A core says that it sends nothing more of the groups here.
    pub fn fenced(&mut self, id: MoveId, core: u8) {
        if let Some(one) = self.find(id) {
            one.unfenced &= !(1 << core);
        }
    }

    /// A packet has come to the new home.
    pub fn met(&mut self, id: MoveId) {
        if let Some(one) = self.find(id) {
            one.met = true;
        }
    }

    /// The device has put a probe with this token into this core's queue.
    pub fn probing(&mut self, id: MoveId, token: u64) {
        if let Some(one) = self.find(id) {
            one.probe = Probe::Sent(token);
        }
    }

    /// Whether probes are still to come.
    #[inline]
    pub fn awaits_probes(&self) -> bool {
        self.moves.iter().any(|one| matches!(one.probe, Probe::Sent(_)))
    }

    /// A probe has come out of the receive ring. Answers whether it was waited for.
    pub fn probed(&mut self, token: u64) -> bool {
        let found = self.moves.iter_mut().find(|one| one.probe == Probe::Sent(token));
        found.map(|one| one.probe = Probe::Come).is_some()
    }

    /// Cores that have not left, one bit each. Those that have send nothing more. Answers the migrations whose
    /// new home is among them, which are not under way any more.
    pub fn alive(&mut self, alive: u128) -> Vec<Departure> {
        for one in &mut self.moves {
            one.unfenced &= alive;
        }
        self.moves.extract_if(.., |one| alive & (1 << one.to) == 0).collect()
    }

    /// Gives up all that are not handed over yet.
    pub fn give_up(&mut self) -> Vec<Departure> {
        self.moves.extract_if(.., |one| one.stage != Stage::Handed).collect()
    }

    /// So many packets were processed. `dry`: all that there were, and the device had no more.
    pub fn processed(&mut self, packets: usize, dry: bool) {
        for one in &mut self.moves {
            if let Stage::Draining { left } = &mut one.stage {
                *left = if dry { 0 } else { left.saturating_sub(packets) };
            }
        }
    }

    /// Goes on, after a cycle. `ring`: packets in the receive ring; `taken`: those that were taken from it, and from
    /// other cores, and are not processed. Answers the groups that are to be sealed now.
    pub fn step(&mut self, now: Instant, ring: usize, taken: usize) -> GroupSet {
        let mut seal = GroupSet::NONE;
        for one in &mut self.moves {
            if let Stage::Preparing { deadline } = one.stage
                && (one.unfenced == 0 || now >= deadline)
            {
                self.unanswered += u64::from(one.unfenced != 0);
                one.prepared_at = now;
                one.stage = Stage::Waiting { deadline: now + self.timer };
            }
            if let Stage::Waiting { deadline } = one.stage {
                one.stage = match one.probe {
                    // What stands in the ring is younger than the probe.
                    Probe::Come => Stage::Draining { left: taken },
                    Probe::None if one.met => Stage::Draining { left: (ring + taken).max(1) },
                    // One at least: the device may not tell how many it has.
                    _ if now >= deadline => Stage::Draining { left: (ring + taken).max(1) },
                    _ => one.stage,
                };
            }
            if one.stage == (Stage::Draining { left: 0 }) {
                one.stage = Stage::Sealed;
                one.sealed_at = now;
                seal = seal.union(one.set);
            }
        }
        seal
    }

    /// As [`step`](Self::step), without waiting for anybody.
    pub fn step_at_once(&mut self, now: Instant) -> GroupSet {
        for one in &mut self.moves {
            if let Stage::Preparing { .. } | Stage::Waiting { .. } = one.stage {
                (one.stage, one.prepared_at) = (Stage::Draining { left: 0 }, now);
            }
        }
        self.step(now, 0, 0)
    }

    /// Those that wait for the application to be done with their connections.
    pub fn sealed(&self) -> impl Iterator<Item = (MoveId, GroupSet, u8)> {
        let sealed = self.moves.iter().filter(|one| one.stage == Stage::Sealed);
        sealed.map(|one| (one.id, one.set, one.to))
    }

    /// Whether some are sealed.
    #[inline]
    pub fn has_sealed(&self) -> bool {
        self.sealed().next().is_some()
    }

    /// Whether a cycle is due though nothing may have come: something is drained, or sealed.
    pub fn is_pending(&self) -> bool {
        self.moves.iter().any(|one| matches!(one.stage, Stage::Draining { .. }))
    }

    /// The groups, with so many connections, are on their way.
    pub fn handed(&mut self, id: MoveId, connections: u32) {
        if let Some(one) = self.find(id) {
            one.connections = connections;
            one.stage = Stage::Handed;
        }
    }

    /// The new home has done all. Answers the migration, which is not under way any more.
    pub fn done(&mut self, id: MoveId) -> Option<Departure> {
        let at = self.moves.iter().position(|one| one.id == id)?;
        Some(self.moves.swap_remove(at))
    }

    /// When a timer ends a wait.
    pub fn next_deadline(&self) -> Option<Instant> {
        let deadline = |one: &Departure| match (one.stage, one.probe) {
            (Stage::Waiting { .. }, Probe::Come) => None,
            (Stage::Waiting { .. }, Probe::None) if one.met => None,
            (Stage::Waiting { deadline } | Stage::Preparing { deadline }, _) => Some(deadline),
            _ => None,
        };
        self.moves.iter().filter_map(deadline).min()
    }
}

impl Departure {
    /// Whether a probe ended the wait.
    pub fn was_probed(&self) -> bool {
        self.probe == Probe::Come
    }

    /// Whether the groups take nothing in.
    pub fn is_sealed(&self) -> bool {
        self.stage == Stage::Sealed
    }

    /// Whether the groups have left.
    pub fn is_handed(&self) -> bool {
        self.stage == Stage::Handed
    }
}
