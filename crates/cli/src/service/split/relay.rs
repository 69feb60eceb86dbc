//! Steering a dataplane that is another process: the starter serves the control socket, the dataplane carries out.
//!
//! ```text
//! client  ->  starter: Relay  -- Order::Steer(number, what) -->  dataplane: Attended  ->  Controls
//!                             <-- Told::Steered(number, result) --
//! ```
//!
//! Flow groups move where the threads go on without their application, and where it makes no difference to the
//! application which of its threads is told of a connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use endpoint::{Description, Done, MoveSummary, Outcome, Refused, RefusedKind, Steering, Token};
use serde::{Deserialize, Serialize};
use statseg::Reading;
use tailplane::runtime::Controls;

use super::control::send;
use super::{Order, Told};
use crate::service::control::{Orders, refusal};

/// Orders without an answer, at most: fewer than the socket between the two holds.
const OPEN_MAX: usize = 8;

/// An order for the dataplane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// The starter's number for it.
    pub number: u64,
    /// What is to be done.
    pub what: Steered,
}

/// What a dataplane can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steered {
    /// A thread shall serve.
    Grant(u16),
    /// A thread shall leave its processor to others.
    Park(u16),
    /// A thread shall run on this processor.
    Place(u16, usize),
    /// A thread shall move flow groups to another.
    Move {
        /// Their home.
        from: u16,
        /// Their home from then on.
        to: u16,
        /// Which.
        groups: Vec<u16>,
    },
}

/// An answer of the dataplane, to the order of this number.
type Answer = (u64, Result<Option<MoveSummary>, Refused>);

/// What the dataplane has said of orders, until the control socket's server asks.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<Vec<Answer>>>);

impl Answers {
    /// Something came.
    pub fn put(&self, number: u64, result: Result<Option<MoveSummary>, Refused>) {
        let mut all = self.all();
        // A dataplane that says more than it was asked is not heard.
        if all.len() < OPEN_MAX {
            all.push((number, result));
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// The starter's side.
#[derive(Debug)]
pub struct Relay {
    description: Description,
    segment: Arc<Reading>,
    control: OwnedFd,
    answers: Answers,
    /// Orders without an answer.
    open: Vec<(u64, Token, Done)>,
    next: u64,
    end: Arc<AtomicBool>,
}

impl Relay {
    /// To the dataplane at the other end of `control`, whose answers come by `answers`. `end` is set where a client asks
    /// for the service's end.
    pub fn new(
        description: Description,
        segment: Arc<Reading>,
        control: OwnedFd,
        answers: Answers,
        end: Arc<AtomicBool>,
    ) -> Self {
        Self { description, segment, control, answers, open: Vec::new(), next: 0, end }
    }

    fn pass(&mut self, token: Token, what: Steered, done: Done) -> Option<Outcome> {
        let refuse = |kind, reason: String| Some(Err(Refused::new(kind, reason)));
        if self.end.load(Ordering::Relaxed) {
            return refuse(RefusedKind::Leaving, "the service is ending".into());
        }
        if self.open.len() >= OPEN_MAX {
            let reason = format!("{OPEN_MAX} orders have no answer yet: wait for one");
            return refuse(RefusedKind::TooMany, reason);
        }
        let number = self.next;
        if let Err(error) = send(&self.control, &Order::Steer(Steer { number, what }), &[]) {
            return refuse(RefusedKind::Leaving, format!("the dataplane has gone: {error:#}"));
        }
        self.next += 1;
        self.open.push((number, token, done));
        None
    }
}

impl Steering for Relay {
    fn describe(&self) -> Description {
        self.description.clone()
    }
    fn segment(&self) -> io::Result<OwnedFd> {
        self.segment.descriptor()
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
        let answers = std::mem::take(&mut *self.answers.all());
        let outcome = |(number, result): Answer| {
            let at = self.open.iter().position(|(other, ..)| *other == number)?;
            let (_, token, done) = self.open.swap_remove(at);
            let say = |moved: Option<MoveSummary>| match done {
                Done::Moved(_) => Done::Moved(moved.unwrap_or_default()),
                done => done,
            };
            Some((token, result.map(say)))
        };
        answers.into_iter().filter_map(outcome).collect()
    }
}

/// The dataplane's side.
#[derive(Debug)]
pub struct Attended {
    orders: Orders,
}

impl Attended {
    /// Carries out by `controls`.
    pub fn new(controls: Arc<Controls>) -> Self {
        Self { orders: Orders::new(controls) }
    }

    /// Whether something is to be told.
    pub fn is_waiting(&self) -> bool {
        self.orders.is_waiting()
    }

    /// Begins with an order. Answers what there is to say of it at once.
    pub fn begin(&mut self, Steer { number, what }: Steer) -> Option<Told> {
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
        self.orders.reports().into_iter().map(told).collect()
    }
}
