//! Steering a dataplane that is another process: the starter serves the control socket, the dataplane carries out.
//!
//! ```text
//! client  ->  starter: Relay  -- Order::Steer(Ask) -->     dataplane: Attended  ->  Controls
//!                             <-- Told::Steered(Answer) --
//! ```
//!
//! Flow groups move where the threads go on without their application, and where it makes no difference to the
//! application which of its threads is told of a connection.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use endpoint::{Answer, Ask, Description, Done, Outcome, Refused, RefusedKind, Request, Steering};
use process::Placer;
use runtime::Controls;
use statseg::Reading;

use super::bounds::Bounds;
use super::control::send;
use super::orders::{Order, Told};
use super::plan::Pair;
use super::table::Answers;

/// Requests without an answer of the dataplane, at most.
const OPEN_MAX: usize = 8;
/// How long a client waits for the dataplane's answer. A move of flow groups takes milliseconds.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Numbers of the requests by which the starter itself places a thread, from here on: clients' are counted from 0 on.
const OWN_IDS: u64 = 1 << 63;
const NOT_YET: &str = "the dataplane does not serve yet: ask again";

/// What the dataplane has said, from the thread that hears it to the control socket's server.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Said>>);

#[derive(Debug, Default)]
struct Said {
    /// Its statistics segment, or why there is none; nothing before it serves.
    shown: Option<Result<Arc<Reading>, String>>,
    /// Whether flow groups can be moved.
    movable: bool,
    /// Requests that it has not answered, also those whose clients wait no longer.
    open: Vec<Open>,
    /// Requests that it has answered.
    answered: Vec<(Open, Outcome)>,
    /// Where clients have placed elastic threads.
    placed: BTreeMap<u16, usize>,
}

/// A request that was passed to the dataplane.
#[derive(Debug)]
struct Open {
    ask: Ask,
    given: Instant,
    /// Its client was refused meanwhile, since the answer takes too long.
    is_late: bool,
}

impl Heard {
    /// The dataplane serves.
    pub fn serves(&self, shown: Result<Arc<Reading>, String>, movable: bool) {
        let mut said = self.said();
        (said.shown, said.movable) = (Some(shown), movable);
    }

    /// The dataplane has answered a request. False: that request has no such answer to come.
    pub fn answered(&self, answer: Answer) -> bool {
        let mut said = self.said();
        let Answer { id, result } = answer.printable();
        let Some(at) = said.open.iter().position(|open| open.ask.id == id) else { return false };
        if result.as_ref().is_ok_and(|done| !said.open[at].ask.request.is_done_by(done)) {
            return false;
        }
        // Bounded by the requests that were passed on.
        let open = said.open.swap_remove(at);
        said.answered.push((open, result));
        true
    }

    /// Where clients have placed elastic threads since the last call.
    pub fn placed(&self) -> BTreeMap<u16, usize> {
        std::mem::take(&mut self.said().placed)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

/// The starter's side.
#[derive(Debug)]
pub struct Relay {
    /// What the service is.
    pub description: Description,
    /// The dataplane is at the other end.
    pub control: OwnedFd,
    /// What another thread has heard of the dataplane.
    pub heard: Heard,
    /// The processors that it runs within.
    pub bounds: Bounds,
    /// Set where a client asks for the service's end.
    pub end: Arc<AtomicBool>,
}

impl Relay {
    fn pass(&mut self, ask: Ask) -> Result<(), Refused> {
        let refuse = |kind, reason: String| Err(Refused::new(kind, reason));
        if self.end.load(Ordering::Relaxed) {
            return refuse(RefusedKind::Leaving, "the service is ending".into());
        }
        let mut said = self.heard.said();
        if said.shown.is_none() {
            return refuse(RefusedKind::System, NOT_YET.into());
        }
        if said.open.len() >= OPEN_MAX {
            let reason = format!("{OPEN_MAX} orders have no answer yet: wait for one");
            return refuse(RefusedKind::TooMany, reason);
        }
        // The dataplane's answer waits for this lock.
        if let Some((_, cpu)) = placing(&ask) {
            self.bounds.admit(cpu);
        }
        if let Err(error) = send(&self.control, &Order::Steer(ask.clone()), &[]) {
            self.settle(&ask, false);
            return refuse(RefusedKind::System, format!("cannot reach the dataplane: {error:#}"));
        }
        said.open.push(Open { ask, given: Instant::now(), is_late: false });
        Ok(())
    }

    /// A request that places a thread is over, and has done so or not.
    fn settle(&self, ask: &Ask, has_moved: bool) {
        if let Some((thread, cpu)) = placing(ask) {
            self.bounds.settle(thread.into(), cpu, has_moved);
        }
    }
}

/// The elastic thread that a request places, and where. A number that no processor can have is the dataplane's to refuse.
fn placing(ask: &Ask) -> Option<(u16, u32)> {
    match ask.request {
        Request::Place { thread, cpu } => Some((thread, u32::try_from(cpu).ok()?)),
        _ => None,
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
    fn begin(&mut self, ask: Ask) -> Option<Outcome> {
        if ask.request == Request::End {
            self.end.store(true, Ordering::Relaxed);
            return Some(Ok(Done::Ending));
        }
        self.pass(ask).err().map(Err)
    }
    /// Refuses also the clients of requests that the dataplane has not answered in time. It may carry them out yet: until
    /// it answers, a request stays open, and the processor where it places a thread within the bounds.
    fn reports(&mut self) -> Vec<Answer> {
        let said = &mut *self.heard.said();
        let mut reports = Vec::new();
        for (Open { ask, is_late, .. }, result) in said.answered.drain(..) {
            self.settle(&ask, result.is_ok());
            if let (Ok(_), Some((thread, cpu))) = (&result, placing(&ask)) {
                said.placed.insert(thread, cpu as usize);
            }
            reports.extend((!is_late).then_some(Answer { id: ask.id, result }));
        }
        let reason =
            format!("the dataplane has not answered within {} s", ANSWERS_WITHIN.as_secs());
        for open in &mut said.open {
            if !open.is_late && open.given.elapsed() > ANSWERS_WITHIN {
                open.is_late = true;
                let refused = Refused::new(RefusedKind::System, reason.clone());
                reports.push(Answer { id: open.ask.id, result: Err(refused) });
            }
        }
        reports
    }
}

/// The dataplane's side.
#[derive(Debug)]
pub struct Attended {
    controls: Arc<Controls>,
    placers: Vec<Placer>,
    /// Where the starter has placed each elastic thread.
    placed: Vec<Option<u32>>,
    /// Whether the thread has not seen yet that the starter places it elsewhere.
    is_placing: Vec<bool>,
    /// Requests of clients for threads that the starter is about to place: they begin after that.
    deferred: Vec<Ask>,
    /// Where elastic threads wait for what became of the indirection table.
    answers: Arc<Answers>,
}

impl Attended {
    /// Carries out by `controls`, and places the application's threads by `placers`.
    pub fn new(controls: Arc<Controls>, placers: Vec<Placer>, answers: Arc<Answers>) -> Self {
        let (placed, is_placing) = (vec![None; placers.len()], vec![false; placers.len()]);
        Self { controls, placers, placed, is_placing, deferred: Vec::new(), answers }
    }

    /// Where answers about the indirection table go.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Ends the run that `stop` ends.
    pub fn end(&self, stop: &AtomicBool) {
        self.controls.end(stop);
    }

    /// Has all threads run where the starter says. An elastic thread that has another order to carry out moves when
    /// the starter says so again.
    pub fn place(&mut self, pairs: &[Pair]) {
        for (thread, (pair, placer)) in pairs.iter().zip(&self.placers).enumerate() {
            let cpu = pair.elastic as usize;
            let request = Request::Place { thread: thread as u16, cpu };
            let ask = Ask { id: OWN_IDS + thread as u64, request };
            if self.placed[thread] != Some(pair.elastic) && self.controls.begin(ask).is_ok() {
                self.placed[thread] = Some(pair.elastic);
                self.is_placing[thread] = true;
            }
            if placer.placed() != pair.place() {
                placer.place(pair.place());
            }
        }
    }

    /// Whether there will be something to report.
    pub fn is_waiting(&self) -> bool {
        self.controls.is_waiting() || !self.deferred.is_empty()
    }

    /// Begins with a request. Answers what there is to report of it at once.
    pub fn begin(&mut self, ask: Ask) -> Option<Told> {
        if let Request::Grant { thread } | Request::Park { thread } | Request::Place { thread, .. } =
            ask.request
            && self.is_placing.get(usize::from(thread)) == Some(&true)
        {
            self.deferred.push(ask);
            return None;
        }
        let id = ask.id;
        let refused = self.controls.begin(ask).err()?;
        Some(Told::Steered(Answer { id, result: Err(refused) }))
    }

    /// What has become of requests.
    pub fn reports(&mut self) -> Vec<Told> {
        let mut all = Vec::new();
        for answer in self.controls.reports() {
            match answer.id.checked_sub(OWN_IDS) {
                Some(thread) => self.is_placing[thread as usize] = false,
                None => all.push(Told::Steered(answer)),
            }
        }
        let deferred = std::mem::take(&mut self.deferred);
        all.extend(deferred.into_iter().filter_map(|ask| self.begin(ask)));
        all
    }
}
