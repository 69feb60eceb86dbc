//! The elastic threads of a running service, for the control loop's executor and for commands by hand.
//!
//! Whatever is asked bears a number; what its answer means is looked up here. An answer that never comes is the
//! control loop's to notice (it has a time limit for each decision); here it is counted and said once.
//!
//! What is true lives in the service. So where a request is refused because a flow group is at home elsewhere,
//! the homes in the segment are told as what happened.

use std::collections::BTreeMap;

use control::actuator::ElasticThreads;
use control::metrics::{GroupId, ThreadId};
use control::{Found, Outcome};

use crate::link::{Gone, Link, Moved, Order, Refusal, RefusedKind, ThreadState};

/// Requests whose answers are waited for; the oldest is given up beyond.
const PENDING_MAX: usize = 256;
/// A refusal reaches the loop so much later, in nanoseconds: it would ask again in its next turn, a thousand times a second.
const REFUSED_HOLD_NS: u64 = 200_000_000;
/// An answer that has not come after so long is said to be missing, in nanoseconds.
pub const ANSWER_NS: u64 = 5_000_000_000;

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// The control loop.
    Loop,
    /// A person, by the ticket of the command.
    Hand(u64),
    /// The daemon, to put a thread where it belongs.
    Daemon,
}

struct Pending {
    asker: Asker,
    order: Order,
    since_ns: u64,
    said: bool,
}

/// Something to write down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A request was refused.
    Refused(Order, Refusal),
    /// A request has no answer for so long.
    Unanswered(Order),
    /// Flow groups have moved.
    Moved {
        /// From there.
        from: u16,
        /// To there.
        to: u16,
        /// How it was.
        moved: Moved,
    },
}

/// What became of a command by hand: its ticket, and the answer.
pub type HandReply = (u64, Result<Option<Moved>, Refusal>);

/// See the module's comment.
pub struct EndpointThreads {
    link: Box<dyn Link>,
    /// Where each thread belongs, if anywhere.
    cpus: Vec<Option<u32>>,
    pending: BTreeMap<u64, Pending>,
    ready: Vec<Outcome>,
    /// Outcomes that are told later.
    held: Vec<(u64, Outcome)>,
    hands: Vec<HandReply>,
    notes: Vec<Note>,
    gone: Option<Gone>,
    now_ns: u64,
}

impl EndpointThreads {
    /// The threads of a service that has been reached.
    pub fn new(link: Box<dyn Link>) -> Self {
        Self {
            link,
            cpus: Vec::new(),
            pending: BTreeMap::new(),
            ready: Vec::new(),
            held: Vec::new(),
            hands: Vec::new(),
            notes: Vec::new(),
            gone: None,
            now_ns: 0,
        }
    }

    /// The service.
    pub fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// Each thread runs there from its next grant on.
    pub fn belong(&mut self, cpus: Vec<Option<u32>>) {
        self.cpus = cpus;
    }

    /// The moment, for all that follows.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A person asks; the answer comes with `ticket` in [`hands`](Self::hands).
    pub fn ask_by_hand(&mut self, ticket: u64, order: Order) {
        if let Err(reason) = self.ask(Asker::Hand(ticket), order) {
            let refusal = Refusal { kind: RefusedKind::System, reason };
            self.hands.push((ticket, Err(refusal)));
        }
    }

    /// Asks the service to end; the answer is of no interest, its end is.
    pub fn ask_to_end(&mut self) -> Result<(), String> {
        self.ask(Asker::Daemon, Order::End)
    }

    /// Forgets the control loop's requests: whoever comes next begins with what there is.
    pub fn forget_loop(&mut self) {
        for pending in self.pending.values_mut().filter(|pending| pending.asker == Asker::Loop) {
            pending.asker = Asker::Daemon;
        }
        self.ready.clear();
        self.held.clear();
    }

    /// What there is, for a control loop that begins; clock and background are the caller's to know.
    pub fn found(&self) -> Found {
        let threads = self.link.described().threads;
        let runs = |thread: &u16| {
            matches!(self.link.state(*thread), ThreadState::Running | ThreadState::Starting)
        };
        let groups = 0..self.link.described().groups;
        Found {
            running: (0..threads).filter(runs).map(ThreadId).collect(),
            homes: groups.map(|group| ThreadId(self.link.home(group))).collect(),
            clock: control::Clock::Fixed,
            background_cores: 0,
        }
    }

    /// Puts threads that run elsewhere than where they belong to their place; how many those were.
    pub fn put_in_place(&mut self) -> usize {
        let wrong: Vec<u16> = (0..self.link.described().threads)
            .filter(|&thread| self.link.state(thread) == ThreadState::Running)
            .filter(|&thread| self.is_displaced(thread))
            .collect();
        wrong.iter().for_each(|&thread| self.place(thread));
        wrong.len()
    }

    fn is_displaced(&self, thread: u16) -> bool {
        let belongs = self.cpus.get(usize::from(thread)).copied().flatten();
        belongs.is_some() && self.link.reading(thread).cpu != belongs
    }

    fn place(&mut self, thread: u16) {
        let asked = |pending: &Pending| matches!(pending.order, Order::Place { thread: other, .. } if other == thread);
        if self.pending.values().any(asked) {
            return;
        }
        if let Some(cpu) = self.cpus.get(usize::from(thread)).copied().flatten() {
            // Where the service is gone, everything else says so as well.
            let _ = self.ask(Asker::Daemon, Order::Place { thread, cpu });
        }
    }

    fn ask(&mut self, asker: Asker, order: Order) -> Result<(), String> {
        if let Some(Gone(reason)) = &self.gone {
            return Err(reason.clone());
        }
        let id = match self.link.ask(&order) {
            Ok(id) => id,
            Err(gone) => {
                let reason = gone.0.clone();
                self.gone = Some(gone);
                return Err(reason);
            }
        };
        if self.pending.len() == PENDING_MAX
            && let Some((_, oldest)) = self.pending.pop_first()
        {
            self.give_up(&oldest);
        }
        self.pending.insert(id, Pending { asker, order, since_ns: self.now_ns, said: false });
        Ok(())
    }

    fn give_up(&mut self, pending: &Pending) {
        if let Asker::Hand(ticket) = pending.asker {
            let reason = "too many requests are without an answer".to_owned();
            self.hands.push((ticket, Err(Refusal { kind: RefusedKind::TooMany, reason })));
        }
    }

    /// Takes in what the service has answered.
    pub fn pump(&mut self) {
        if self.gone.is_none() {
            match self.link.replies() {
                Ok(replies) => replies.into_iter().for_each(|reply| {
                    if let Some(pending) = self.pending.remove(&reply.id) {
                        self.answered(pending, reply.result);
                    }
                }),
                Err(gone) => self.gone = Some(gone),
            }
        }
        for pending in self.pending.values_mut() {
            if !pending.said && self.now_ns.saturating_sub(pending.since_ns) > ANSWER_NS {
                pending.said = true;
                self.notes.push(Note::Unanswered(pending.order.clone()));
            }
        }
    }

    fn answered(&mut self, pending: Pending, result: Result<Option<Moved>, Refusal>) {
        if let (Order::Move { from, to, .. }, Ok(moved)) = (&pending.order, &result) {
            let moved = moved.unwrap_or_default();
            self.notes.push(Note::Moved { from: *from, to: *to, moved });
        }
        if let Err(refusal) = &result {
            self.notes.push(Note::Refused(pending.order.clone(), refusal.clone()));
        }
        match pending.asker {
            Asker::Hand(ticket) => self.hands.push((ticket, result)),
            Asker::Loop => self.tell_loop(pending.order, result.err()),
            Asker::Daemon => {}
        }
    }

    fn tell_loop(&mut self, order: Order, refusal: Option<Refusal>) {
        let later_ns = self.now_ns + REFUSED_HOLD_NS;
        match (order, refusal) {
            (Order::Grant { thread }, None) => {
                self.ready.push(Outcome::Granted(ThreadId(thread)));
            }
            (Order::Grant { thread }, Some(_)) => {
                self.held.push((later_ns, Outcome::GrantFailed(ThreadId(thread))));
            }
            (Order::Park { thread }, None) => self.ready.push(Outcome::Parked(ThreadId(thread))),
            (Order::Park { thread }, Some(refusal)) => {
                // It runs on. With its groups known, the loop moves them; else it asks again when its time is over.
                if refusal.kind == RefusedKind::HasGroups {
                    self.tell_homes(0..self.link.described().groups);
                    self.held.push((later_ns, Outcome::Granted(ThreadId(thread))));
                }
            }
            (Order::Move { to, groups, .. }, None) => {
                let groups = groups.into_iter().map(GroupId).collect();
                self.ready.push(Outcome::Migrated { to: ThreadId(to), groups });
            }
            (Order::Move { groups, .. }, Some(refusal)) => {
                if refusal.kind == RefusedKind::NotHome {
                    self.tell_homes(groups.iter().copied());
                }
                let groups = groups.into_iter().map(GroupId).collect();
                self.held.push((later_ns, Outcome::MigrationFailed { groups }));
            }
            (Order::Place { .. } | Order::End, _) => {}
        }
    }

    /// Tells where flow groups are at home by the segment, one outcome for each home.
    fn tell_homes(&mut self, groups: impl Iterator<Item = u16>) {
        let mut by_home: BTreeMap<u16, Vec<GroupId>> = BTreeMap::new();
        for group in groups {
            by_home.entry(self.link.home(group)).or_default().push(GroupId(group));
        }
        let told = by_home.into_iter();
        self.ready
            .extend(told.map(|(home, groups)| Outcome::Migrated { to: ThreadId(home), groups }));
    }

    /// What became of commands by hand, since the last call.
    pub fn hands(&mut self) -> Vec<HandReply> {
        std::mem::take(&mut self.hands)
    }

    /// What is to be written down, since the last call.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Why the service does not answer any more, once it does not.
    pub fn gone(&self) -> Option<&str> {
        self.gone.as_ref().map(|gone| gone.0.as_str())
    }

    /// Requests that are under way.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }
}

impl ElasticThreads for EndpointThreads {
    fn grant(&mut self, thread: ThreadId) {
        if self.is_displaced(thread.0) {
            self.place(thread.0);
        }
        if self.ask(Asker::Loop, Order::Grant { thread: thread.0 }).is_err() {
            self.ready.push(Outcome::GrantFailed(thread));
        }
    }

    fn park(&mut self, thread: ThreadId) {
        // A failure is noticed by the loop, which asks again.
        let _ = self.ask(Asker::Loop, Order::Park { thread: thread.0 });
    }

    /// Groups that are there already have arrived; the others are asked for from where the segment says that they
    /// are, which `from` may not be.
    fn migrate(&mut self, _from: ThreadId, to: ThreadId, groups: &[GroupId]) {
        let mut by_home: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for group in groups {
            by_home.entry(self.link.home(group.0)).or_default().push(group.0);
        }
        for (home, groups) in by_home {
            let known = || groups.iter().copied().map(GroupId).collect();
            if home == to.0 {
                self.ready.push(Outcome::Migrated { to, groups: known() });
                continue;
            }
            let order = Order::Move { from: home, to: to.0, groups: groups.clone() };
            if self.ask(Asker::Loop, order).is_err() {
                self.ready.push(Outcome::MigrationFailed { groups: known() });
            }
        }
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        self.pump();
        let now_ns = self.now_ns;
        let mut outcomes = std::mem::take(&mut self.ready);
        outcomes.extend(self.held.extract_if(.., |held| held.0 <= now_ns).map(|held| held.1));
        outcomes
    }
}
