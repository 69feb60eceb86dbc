//! Steering a dataplane that is another process: the starter serves the control socket, the dataplane carries out.
//!
//! ```text
//! client  ->  starter: Relay  -- Order::Steer(number, what) -->  dataplane: Attended  ->  Controls
//!                             <-- Told::Steered(number, result) --
//! ```
//!
//! Flow groups stay where they are: the application keeps its connections to each thread's arrays.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use endpoint::{Description, Done, Outcome, Refused, RefusedKind, Steering, Token};
use serde::{Deserialize, Serialize};
use statseg::Reading;
use tailplane::runtime::{self, Controls};

use super::control::send;
use super::{Order, Told};
use crate::service::control::refusal;

/// Orders without an answer, at most: fewer than the socket between the two holds.
const OPEN_MAX: usize = 8;

/// An order for the dataplane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// The starter's number for it.
    pub number: u64,
    /// What is to be done.
    pub what: Steered,
}

/// What a dataplane can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steered {
    /// A thread shall serve.
    Grant(u16),
    /// A thread shall leave its processor to others.
    Park(u16),
    /// A thread shall run on this processor.
    Place(u16, usize),
}

/// What the dataplane has said of orders, until the control socket's server asks.
#[derive(Clone, Debug, Default)]
pub struct Answers(Arc<Mutex<Vec<Answer>>>);

/// The number of an order, and what became of it.
type Answer = (u64, Result<(), Refused>);

impl Answers {
    /// Something came.
    pub fn put(&self, number: u64, result: Result<(), Refused>) {
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
    fn move_groups(&mut self, _: Token, _: u16, _: u16, _: &[u16]) -> Option<Outcome> {
        Some(Err(refusal(runtime::ControlError::NotMovable)))
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
            Some((token, result.map(|()| done)))
        };
        answers.into_iter().filter_map(outcome).collect()
    }
}

/// The dataplane's side.
#[derive(Debug)]
pub struct Attended<'a> {
    controls: &'a Controls,
    open: Vec<(u64, runtime::Order)>,
}

impl<'a> Attended<'a> {
    /// Carries out by `controls`.
    pub fn new(controls: &'a Controls) -> Self {
        Self { controls, open: Vec::new() }
    }

    /// Whether something is to be told.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Begins with an order. Answers what there is to say of it at once.
    pub fn begin(&mut self, Steer { number, what }: Steer) -> Option<Told> {
        let ordered = match what {
            Steered::Grant(thread) => self.controls.grant(thread.into()),
            Steered::Park(thread) => self.controls.park(thread.into()),
            Steered::Place(thread, cpu) => self.controls.place(thread.into(), cpu),
        };
        match ordered {
            Ok(order) => {
                self.open.push((number, order));
                None
            }
            Err(error) => Some(Told::Steered { number, result: Err(refusal(error)) }),
        }
    }

    /// What has become of orders.
    pub fn told(&mut self) -> Vec<Told> {
        let mut told = Vec::new();
        self.open.retain(|(number, order)| match self.controls.outcome(*order) {
            None => true,
            Some(outcome) => {
                told.push(Told::Steered { number: *number, result: outcome.map_err(refusal) });
                false
            }
        });
        told
    }
}
