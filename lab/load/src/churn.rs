//! Connection churn: connect, a few requests, close, and again, on `N` connections at a time.
//!
//! Like the [`Engine`](crate::Engine), without I/O: the transport is a [`Dialer`]. One cycle is
//! from the call to connect to the last response and, where the connection is closed by FIN, to
//! the peer's own FIN; closing by RST ends it at once (IX §5.2 and Figure 4 count such cycles).
//! How a connection was closed stands in the report, since closing by FIN leaves TIME-WAIT at the
//! client, whose ports it uses up.

use std::collections::VecDeque;
use std::sync::Arc;

use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::codec::Outcome;
use crate::config::{CloseMode, LoadConfig, Mode};
use crate::connection::{Connection, Outstanding, Sender};
use crate::course::{Course, Phase, Poll};
use crate::measurement::Measurement;
use crate::setting::ConfigError;
use crate::workload::Workload;

/// Connections that are opened in one poll at most.
const BATCH_MAX: usize = 64;
/// How long a slot rests after a failed cycle: a refused port must not turn into a busy loop.
const RETRY_NS: u64 = 1_000_000;
/// A cycle that takes longer has failed.
const CYCLE_MAX_NS: u64 = 5_000_000_000;
/// How often the cycles' ages are looked at.
const AGE_CHECK_NS: u64 = 50_000_000;

/// A transport that also opens and closes connections. A *slot* is the place of one connection at
/// a time, 0 to `connections`.
pub trait Dialer: Sender {
    /// Begins to connect `slot`. `on_connected` or `on_failed` follows; `false` is a failure at
    /// once, without a further call.
    fn connect(&mut self, slot: u32) -> bool;

    /// Ends the connection of `slot`. After [`CloseMode::Fin`], `on_peer_closed` follows when the
    /// peer's FIN has come; after [`CloseMode::Rst`] nothing follows.
    fn close(&mut self, slot: u32, how: CloseMode);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No connection.
    Resting,
    /// The handshake is under way.
    Connecting,
    /// Requests remain, the one under way included.
    Asking { left: u32 },
    /// Half-closed; the peer's FIN is awaited.
    Closing,
}

#[derive(Debug)]
struct Slot {
    stage: Stage,
    /// When the cycle began.
    began_ns: u64,
    connection: Connection,
}

/// The churning generator of one thread.
#[derive(Debug)]
pub struct ChurnEngine {
    workload: Arc<Workload>,
    requests: u32,
    close: CloseMode,
    slots: Vec<Slot>,
    /// Slots to connect at once.
    ready: VecDeque<u32>,
    /// Slots that rest after a failure, each with the moment at which it may be used again. All
    /// rest for the same time, so that the queue is in order.
    resting: VecDeque<(u64, u32)>,
    /// Slots that are not resting.
    busy: usize,
    rng: Xoshiro256PlusPlus,
    scratch: Vec<u8>,
    next_age_check_ns: u64,
    course: Course,
    result: Measurement,
}

impl ChurnEngine {
    /// The generator that `config` describes.
    ///
    /// # Errors
    /// A setting that cannot be used, or a mode other than churn.
    pub fn new(config: &LoadConfig, workload: Arc<Workload>) -> Result<Self, ConfigError> {
        config.validate()?;
        let Mode::Churn { requests, close } = config.mode else {
            return Err(ConfigError::new("mode", config.mode, "churn"));
        };
        let slots = (0..config.connections).map(|_| Slot {
            stage: Stage::Resting,
            began_ns: 0,
            connection: Connection::new(1),
        });
        Ok(Self {
            workload,
            requests,
            close,
            slots: slots.collect(),
            ready: VecDeque::with_capacity(config.connections as usize),
            resting: VecDeque::with_capacity(config.connections as usize),
            busy: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(config.seed),
            scratch: Vec::new(),
            next_age_check_ns: 0,
            course: Course::new(config),
            result: Measurement::new(config.measure_ms * 1_000_000),
        })
    }

    /// Where the run stands.
    pub const fn phase(&self) -> Phase {
        self.course.phase
    }

    /// Whether `slot` is half-closed and waits for the peer's FIN.
    pub fn is_closing(&self, slot: u32) -> bool {
        self.slots.get(slot as usize).is_some_and(|state| state.stage == Stage::Closing)
    }

    /// Starts the load at `at_ns`.
    pub fn start(&mut self, at_ns: u64) {
        if self.course.phase != Phase::Idle {
            return;
        }
        self.course.start(at_ns);
        self.next_age_check_ns = at_ns.saturating_add(AGE_CHECK_NS);
        self.ready.extend(0..self.slots.len() as u32);
    }

    /// Opens what is due at `now_ns`, a bounded batch, and moves on through the phases.
    pub fn poll(&mut self, now_ns: u64, dialer: &mut impl Dialer) -> Poll {
        self.course.advance(now_ns);
        if self.course.phase == Phase::Draining
            && (self.busy == 0 || now_ns >= self.course.drain_until_ns)
        {
            self.course.phase = Phase::Done;
        }
        let wake_ns = match self.course.phase {
            Phase::WarmingUp | Phase::Measuring => self.dial_due(now_ns, dialer),
            _ => u64::MAX,
        };
        if self.course.phase == Phase::Done || self.course.phase == Phase::Idle {
            return Poll { phase: self.course.phase, wake_ns };
        }
        if now_ns >= self.next_age_check_ns {
            self.next_age_check_ns = now_ns.saturating_add(AGE_CHECK_NS);
            self.end_old_cycles(now_ns, dialer);
        }
        let wake_ns = wake_ns.min(self.course.ends_ns()).min(self.next_age_check_ns);
        Poll { phase: self.course.phase, wake_ns }
    }

    /// The connection of `slot` is established.
    pub fn on_connected(&mut self, slot: u32, now_ns: u64, dialer: &mut impl Dialer) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if state.stage != Stage::Connecting {
            return;
        }
        state.connection.reopen();
        state.stage = Stage::Asking { left: self.requests };
        self.ask(slot, now_ns, dialer);
    }

    /// Bytes arrived for `slot` at `now_ns`.
    pub fn on_received(&mut self, slot: u32, bytes: &[u8], now_ns: u64, dialer: &mut impl Dialer) {
        let in_window = self.course.window.contains(&now_ns);
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        let mut rest = bytes;
        loop {
            let Stage::Asking { left } = state.stage else { return };
            match state.connection.receive(&self.workload, &mut rest) {
                Ok(None) => break,
                Ok(Some((outcome, done))) => {
                    // Responses only count what they contain; the latency is the cycle's.
                    self.result.on_response(outcome, done.verify, None, false);
                    if outcome == Outcome::Error {
                        return self.fail(slot, now_ns, dialer);
                    }
                    self.result.counts.answers += u64::from(in_window);
                    state.stage = Stage::Asking { left: left - 1 };
                }
                Err(violation) => {
                    self.result.violation.get_or_insert(violation);
                    return self.fail(slot, now_ns, dialer);
                }
            }
        }
        match state.stage {
            Stage::Asking { left: 0 } => self.end(slot, now_ns, dialer),
            Stage::Asking { .. } if state.connection.has_room() => self.ask(slot, now_ns, dialer),
            _ => {}
        }
    }

    /// The transport has room for bytes of `slot` again.
    pub fn on_writable(&mut self, slot: u32, dialer: &mut impl Dialer) {
        if let Some(state) = self.slots.get_mut(slot as usize) {
            state.connection.flush(slot, dialer);
        }
    }

    /// The peer of `slot` has sent its FIN, and the transport has let go of the connection.
    pub fn on_peer_closed(&mut self, slot: u32, now_ns: u64) {
        match self.slots.get(slot as usize).map(|state| state.stage) {
            Some(Stage::Closing) => self.succeed(slot, now_ns),
            Some(Stage::Connecting | Stage::Asking { .. }) => self.on_failed(slot, now_ns),
            Some(Stage::Resting) | None => {}
        }
    }

    /// Connecting `slot` failed, or its connection broke; the transport has let go of it.
    pub fn on_failed(&mut self, slot: u32, now_ns: u64) {
        let Some(state) = self.slots.get_mut(slot as usize) else { return };
        if state.stage == Stage::Resting {
            return;
        }
        state.stage = Stage::Resting;
        state.connection.close(|_| {});
        self.busy -= 1;
        self.resting.push_back((now_ns.saturating_add(RETRY_NS), slot));
        self.result.counts.connections_lost += 1;
        self.result.counts.lost += 1;
        if self.course.window.contains(&state.began_ns) {
            self.result.on_hopeless();
        }
    }

    /// Ends the run at `now_ns` and gives what was counted: a request of the measurement is a
    /// whole cycle. Cycles of the window that are under way count with their age. What is counted
    /// afterwards is lost.
    pub fn finish(&mut self, now_ns: u64) -> Measurement {
        self.course.phase = Phase::Done;
        let window = self.course.window.clone();
        for slot in &self.slots {
            if slot.stage != Stage::Resting && window.contains(&slot.began_ns) {
                self.result.on_unanswered(now_ns.saturating_sub(slot.began_ns));
            }
        }
        std::mem::replace(&mut self.result, Measurement::new(0))
    }

    fn dial_due(&mut self, now_ns: u64, dialer: &mut impl Dialer) -> u64 {
        for _ in 0..BATCH_MAX {
            if let Some(slot) = self.ready.pop_front() {
                self.dial(slot, now_ns, dialer);
                continue;
            }
            match self.resting.front() {
                None => return u64::MAX,
                Some(&(due_ns, _)) if due_ns > now_ns => return due_ns,
                Some(&(_, slot)) => {
                    self.resting.pop_front();
                    self.dial(slot, now_ns, dialer);
                }
            }
        }
        now_ns
    }

    fn dial(&mut self, slot: u32, now_ns: u64, dialer: &mut impl Dialer) {
        let state = &mut self.slots[slot as usize];
        debug_assert_eq!(state.stage, Stage::Resting, "only resting slots wait to be dialled");
        state.stage = Stage::Connecting;
        state.began_ns = now_ns;
        self.busy += 1;
        self.result.counts.requests += u64::from(now_ns >= self.course.window.start);
        if !dialer.connect(slot) {
            self.on_failed(slot, now_ns);
        }
    }

    fn ask(&mut self, slot: u32, now_ns: u64, dialer: &mut impl Dialer) {
        let verify = self.course.verifies();
        let request = self.workload.draw(&mut self.rng);
        self.scratch.clear();
        self.workload.append(request, &mut self.scratch);
        let connection = &mut self.slots[slot as usize].connection;
        connection.push(Outstanding { intended_ns: now_ns, request, verify });
        connection.send(slot, &self.scratch, dialer);
    }

    /// All responses are there.
    fn end(&mut self, slot: u32, now_ns: u64, dialer: &mut impl Dialer) {
        dialer.close(slot, self.close);
        match self.close {
            CloseMode::Fin => self.slots[slot as usize].stage = Stage::Closing,
            CloseMode::Rst => self.succeed(slot, now_ns),
        }
    }

    fn succeed(&mut self, slot: u32, now_ns: u64) {
        let state = &mut self.slots[slot as usize];
        state.stage = Stage::Resting;
        state.connection.close(|_| {});
        self.busy -= 1;
        let window = self.course.window.clone();
        if window.contains(&state.began_ns) {
            let cycle_ns = now_ns.saturating_sub(state.began_ns);
            self.result.latency_ns.saturating_record(cycle_ns.max(1));
        }
        self.result.counts.completed += u64::from(window.contains(&now_ns));
        self.ready.push_back(slot);
    }

    fn fail(&mut self, slot: u32, now_ns: u64, dialer: &mut impl Dialer) {
        dialer.abort(slot);
        self.on_failed(slot, now_ns);
    }

    fn end_old_cycles(&mut self, now_ns: u64, dialer: &mut impl Dialer) {
        for slot in 0..self.slots.len() as u32 {
            let state = &self.slots[slot as usize];
            let age_ns = now_ns.saturating_sub(state.began_ns);
            if state.stage != Stage::Resting && age_ns > CYCLE_MAX_NS {
                self.fail(slot, now_ns, dialer);
            }
        }
    }
}

#[cfg(test)]
mod tests;
