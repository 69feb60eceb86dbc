//! Steering a dataplane that is another process: the starter serves the control socket, the dataplane carries out.
//!
//! ```text
//! client  ->  starter: Relay  -- Order::Steer(number, what) -->  dataplane: Attended  ->  Controls
//!                             <-- Told::Steered(number, result) --
//! ```
//!
//! Flow groups move where the threads go on without their application, and where it makes no difference to the
//! application which of its threads is told of a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use endpoint::{Description, Done, MoveSummary, Outcome, Refused, RefusedKind, Steering, Token};
use process::Placer;
use runtime::Controls;
use statseg::Reading;

use super::bounds::Bounds;
use super::control::send;
use super::orders::{Order, Told};
use super::plan::Pair;
use super::steer::{Steer, Steered};
use super::table::Answers;
use crate::control::{Orders, refusal};

/// Orders without an answer of the dataplane, at most.
const OPEN_MAX: usize = 8;
/// How long a client waits for the dataplane's answer. A move of flow groups takes milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
const NOT_YET: &str = "the dataplane does not serve yet: ask again";

/// An answer of the dataplane, to the order of this number.
type Answer = (u64, Result<Option<MoveSummary>, Refused>);

/// What the dataplane has said, from the thread that hears it to the control socket's server.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Its statistics segment, or why there is none; nothing before it serves.
    shown: Option<Result<Arc<Reading>, String>>,
    /// Whether flow groups can be moved.
    movable: bool,
    /// Orders that it has not answered.
    unanswered: BTreeSet<u64>,
    answers: Vec<Answer>,
    /// Where clients have placed elastic threads.
    placed: BTreeMap<u16, usize>,
}

impl Heard {
    /// The dataplane serves.
    pub fn serves(&self, shown: Result<Arc<Reading>, String>, movable: bool) {
        let mut said = self.said();
        (said.shown, said.movable) = (Some(shown), movable);
    }

    /// The dataplane has answered an order. False: that order has no answer to come.
    pub fn answered(&self, number: u64, result: Result<Option<MoveSummary>, Refused>) -> bool {
        let mut said = self.said();
        let is_expected = said.unanswered.remove(&number);
        if is_expected {
            // Bounded by the orders that were given.
            said.answers.push((number, result.map_err(Refused::printable)));
        }
        is_expected
    }

    /// Where clients have placed elastic threads since the last call.
    pub fn placed(&self) -> BTreeMap<u16, usize> {
        std::mem::take(&mut self.said().placed)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// An order that the dataplane has not answered.
#[derive(Debug)]
struct Open {
    number: u64,
    /// Whose it is; none where it was refused meanwhile, since the answer takes too long.
    token: Option<Token>,
    done: Done,
    given: Instant,
    /// The elastic thread that it places, and where.
    places: Option<(u16, u32)>,
}

/// The starter's side.
#[derive(Debug)]
pub struct Relay {
    description: Description,
    control: OwnedFd,
    heard: Heard,
    bounds: Bounds,
    open: Vec<Open>,
    next: u64,
    end: Arc<AtomicBool>,
}

impl Relay {
    /// To the dataplane at the other end of `control`, of which another thread has `heard`, and which runs within `bounds`.
    /// `end` is set where a client asks for the service's end.
    pub fn new(
        description: Description,
        control: OwnedFd,
        heard: Heard,
        bounds: Bounds,
        end: Arc<AtomicBool>,
    ) -> Self {
        Self { description, control, heard, bounds, open: Vec::new(), next: 0, end }
    }

    fn pass(&mut self, token: Token, what: Steered, done: Done) -> Option<Outcome> {
        let refuse = |kind, reason: String| Some(Err(Refused::new(kind, reason)));
        if self.end.load(Ordering::Relaxed) {
            return refuse(RefusedKind::Leaving, "the service is ending".into());
        }
        let number = self.next;
        let mut said = self.heard.said();
        if said.shown.is_none() {
            return refuse(RefusedKind::System, NOT_YET.into());
        }
        // Also those whose clients wait no longer: the dataplane may answer them yet.
        if said.unanswered.len() >= OPEN_MAX {
            let reason = format!("{OPEN_MAX} orders have no answer yet: wait for one");
            return refuse(RefusedKind::TooMany, reason);
        }
        // Before it can be answered.
        said.unanswered.insert(number);
        let places = match what {
            Steered::Place(thread, cpu) => Some((thread, cpu)),
            _ => None,
        };
        // A number that no processor can have is the dataplane's to refuse.
        let places = places.and_then(|(thread, cpu)| Some((thread, u32::try_from(cpu).ok()?)));
        places.iter().for_each(|(_, cpu)| self.bounds.admit(*cpu));
        if let Err(error) = send(&self.control, &Order::Steer(Steer { number, what }), &[]) {
            said.unanswered.remove(&number);
            settle(&self.bounds, places, false);
            return refuse(RefusedKind::System, format!("cannot reach the dataplane: {error:#}"));
        }
        self.next += 1;
        let token = Some(token);
        self.open.push(Open { number, token, done, given: Instant::now(), places });
        None
    }

    /// Refuses the clients of orders that the dataplane has not answered in time. It may carry them out yet: until it
    /// answers, an order stays open, and the processor where it places a thread within the bounds.
    fn late(&mut self) -> Vec<(Token, Outcome)> {
        let reason =
            format!("the dataplane has not answered within {} s", ANSWERS_WITHIN.as_secs());
        let late = self.open.iter_mut().filter(|order| order.given.elapsed() > ANSWERS_WITHIN);
        let refused = |token| (token, Err(Refused::new(RefusedKind::System, reason.clone())));
        late.filter_map(|order| order.token.take()).map(refused).collect()
    }
}

/// The order that `places` a thread is over.
fn settle(bounds: &Bounds, places: Option<(u16, u32)>, has_moved: bool) {
    if let Some((thread, cpu)) = places {
        bounds.settle(thread.into(), cpu, has_moved);
    }
}

impl Steering for Relay {
    fn describe(&self) -> Description {
        Description { movable: self.heard.said().movable, ..self.description.clone() }
    }
    fn segment(&self) -> io::Result<OwnedFd> {
        match &self.heard.said().shown {
            Some(Ok(segment)) => segment.descriptor(),
            Some(Err(why)) => Err(io::Error::other(why.clone())),
            None => Err(io::Error::other(NOT_YET)),
        }
    }
    fn grant(&mut self, token: Token, thread: u16) -> Option<Outcome> {
        self.pass(token, Steered::Grant(thread), Done::Granted)
    }
    fn park(&mut self, token: Token, thread: u16) -> Option<Outcome> {
        self.pass(token, Steered::Park(thread), Done::Parked)
    }
    fn move_groups(&mut self, token: Token, from: u16, to: u16, groups: &[u16]) -> Option<Outcome> {
        let groups = groups.to_vec();
        let done = Done::Moved(MoveSummary::default());
        self.pass(token, Steered::Move { from, to, groups }, done)
    }
    fn place(&mut self, token: Token, thread: u16, cpu: usize) -> Option<Outcome> {
        self.pass(token, Steered::Place(thread, cpu), Done::Placed)
    }
    fn end(&mut self) -> Outcome {
        self.end.store(true, Ordering::Relaxed);
        Ok(Done::Ending)
    }
    fn reports(&mut self) -> Vec<(Token, Outcome)> {
        let answers = std::mem::take(&mut self.heard.said().answers);
        let outcome = |(number, result): Answer| {
            let at = self.open.iter().position(|order| order.number == number)?;
            let Open { token, done, places, .. } = self.open.swap_remove(at);
            let placed = places.filter(|_| result.is_ok());
            self.heard.said().placed.extend(placed.map(|(thread, cpu)| (thread, cpu as usize)));
            settle(&self.bounds, places, placed.is_some());
            let say = |moved: Option<MoveSummary>| match done {
                Done::Moved(_) => Done::Moved(moved.unwrap_or_default()),
                done => done,
            };
            Some((token?, result.map(say)))
        };
        let mut reports: Vec<_> = answers.into_iter().filter_map(outcome).collect();
        reports.extend(self.late());
        reports
    }
}

/// The dataplane's side.
#[derive(Debug)]
pub struct Attended {
    orders: Orders,
    placers: Vec<Placer>,
    /// Where the starter has placed each elastic thread.
    placed: Vec<Option<u32>>,
    /// The last order by which it did so.
    placing: Vec<Option<runtime::Order>>,
    /// Orders of clients for threads that the starter is about to place: they begin after that.
    deferred: Vec<Steer>,
    /// Where elastic threads wait for what became of the indirection table.
    answers: Arc<Answers>,
}

impl Attended {
    /// Carries out by `controls`, and places the application's threads by `placers`.
    pub fn new(controls: Arc<Controls>, placers: Vec<Placer>, answers: Arc<Answers>) -> Self {
        let (placed, placing) = (vec![None; placers.len()], vec![None; placers.len()]);
        let orders = Orders::new(controls);
        Self { orders, placers, placed, placing, deferred: Vec::new(), answers }
    }

    /// Where answers about the indirection table go.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Ends the run that `stop` ends.
    pub fn end(&self, stop: &AtomicBool) {
        self.orders.controls().end(stop);
    }

    /// Has all threads run where the starter says. An elastic thread that has another order to carry out moves when
    /// the starter says so again.
    pub fn place(&mut self, pairs: &[Pair]) {
        for (thread, (pair, placer)) in pairs.iter().zip(&self.placers).enumerate() {
            if self.placed[thread] != Some(pair.elastic)
                && let Ok(order) = self.orders.controls().place(thread, pair.elastic as usize)
            {
                self.placed[thread] = Some(pair.elastic);
                self.placing[thread] = Some(order);
            }
            if placer.placed() != pair.place() {
                placer.place(pair.place());
            }
        }
    }

    /// Whether something is to be told.
    pub fn is_waiting(&self) -> bool {
        self.orders.is_waiting() || !self.deferred.is_empty()
    }

    /// Whether the thread has not seen yet that the starter places it elsewhere.
    fn is_being_placed(&self, thread: u16) -> bool {
        let order = self.placing.get(usize::from(thread)).copied().flatten();
        order.is_some_and(|order| self.orders.controls().outcome(order).is_none())
    }

    /// Begins with an order. Answers what there is to say of it at once.
    pub fn begin(&mut self, steer: Steer) -> Option<Told> {
        if let Steered::Grant(thread) | Steered::Park(thread) | Steered::Place(thread, _) =
            steer.what
            && self.is_being_placed(thread)
        {
            self.deferred.push(steer);
            return None;
        }
        let Steer { number, what } = steer;
        let (controls, token) = (self.orders.controls(), Token(number));
        let ordered = match what {
            Steered::Grant(thread) => controls.grant(thread.into()).map(|o| (o, Done::Granted)),
            Steered::Park(thread) => controls.park(thread.into()).map(|o| (o, Done::Parked)),
            Steered::Place(thread, cpu) => {
                controls.place(thread.into(), cpu).map(|order| (order, Done::Placed))
            }
            Steered::Move { from, to, groups } => {
                let refused = self.orders.begin(token, from, to, &groups).err()?;
                return Some(Told::Steered { number, result: Err(refused) });
            }
        };
        match ordered {
            Ok((order, done)) => {
                self.orders.give(token, order, done);
                None
            }
            Err(error) => Some(Told::Steered { number, result: Err(refusal(error)) }),
        }
    }

    /// What has become of orders.
    pub fn told(&mut self) -> Vec<Told> {
        let told = |(token, outcome): (Token, Outcome)| {
            let moved = |done| match done {
                Done::Moved(moved) => Some(moved),
                _ => None,
            };
            Told::Steered { number: token.0, result: outcome.map(moved) }
        };
        let mut all: Vec<Told> = self.orders.reports().into_iter().map(told).collect();
        let deferred = std::mem::take(&mut self.deferred);
        all.extend(deferred.into_iter().filter_map(|steer| self.begin(steer)));
        all
    }
}
