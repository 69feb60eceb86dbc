//! The elastic threads of a running service, for the control loop's executor and for commands by hand.
//!
//! Whatever is asked bears a number; what its answer means is looked up here. An answer that never comes is the
//! control loop's to notice (it has a time limit for each decision); here it is counted and said once.
//!
//! What is true lives in the service. So where a request is refused because a flow group is at home elsewhere,
//! the homes in the segment are told as what happened.

use std::collections::BTreeMap;

use control::metrics::{GroupId, ThreadId};
use control::{Found, Outcome, RequestId};

use endpoint::{Answer, Done, MoveSummary, Refused, RefusedKind, Request};
use statseg::State;

use crate::link::{Gone, Link};

/// Requests whose answers are waited for; the oldest is given up beyond.
const PENDING_MAX: usize = 256;
/// A refusal reaches the loop so much later, in nanoseconds: it would ask again in its next turn, a thousand times a second.
const REFUSED_HOLD_NS: u64 = 200_000_000;
/// An answer that has not come after so long is said to be missing, in nanoseconds.
pub const ANSWER_NS: u64 = 5_000_000_000;

/// Who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    /// The control loop; to move flow groups, by this request.
    Loop(RequestId),
    /// A person, by the ticket of the command.
    Hand(u64),
    /// The daemon, to put a thread where it belongs.
    Daemon,
}

struct Pending {
    asker: Asker,
    request: Request,
    since_ns: u64,
    said: bool,
}

/// Something to write down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A request was refused.
    Refused(Request, Refused),
    /// A request has no answer for so long.
    Unanswered(Request),
    /// Flow groups have moved.
    Moved {
        /// From there.
        from: u16,
        /// To there.
        to: u16,
        /// How it was.
        moved: MoveSummary,
    },
}

/// What became of a command by hand: its ticket, and the answer.
pub type HandReply = (u64, Result<Option<MoveSummary>, Refused>);

/// See the module's comment.
pub struct EndpointThreads {
    link: Box<dyn Link>,
    /// Where each thread belongs, if anywhere.
    cpus: Vec<Option<usize>>,
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
    /// The threads of a service that has been reached; each runs at its place of `cpus` from its next grant on.
    pub fn new(link: Box<dyn Link>, cpus: Vec<Option<usize>>) -> Self {
        Self {
            link,
            cpus,
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

    /// The moment, for all that follows.
    pub fn set_now(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// A person asks; the answer comes with `ticket` in [`hands`](Self::hands).
    pub fn ask_by_hand(&mut self, ticket: u64, request: Request) {
        if let Err(reason) = self.ask(Asker::Hand(ticket), request) {
            self.hands.push((ticket, Err(Refused::new(RefusedKind::System, reason))));
        }
    }

    /// Asks the service to end; the answer is of no interest, its end is.
    pub fn ask_to_end(&mut self) -> Result<(), String> {
        self.ask(Asker::Daemon, Request::End)
    }

    /// Forgets the control loop's requests: whoever comes next begins with what there is.
    pub fn forget_loop(&mut self) {
        for pending in self.pending.values_mut() {
            if matches!(pending.asker, Asker::Loop(_)) {
                pending.asker = Asker::Daemon;
            }
        }
        self.ready.clear();
        self.held.clear();
    }

    /// What there is, for a control loop that begins; clock and background are the caller's to know.
    pub fn found(&self) -> Found {
        let threads = self.link.description().threads;
        let runs =
            |thread: &u16| matches!(self.link.state(*thread), State::Running | State::Starting);
        Found {
            running: (0..threads).filter(runs).map(ThreadId).collect(),
            homes: self.link.homes().into_iter().map(ThreadId).collect(),
            clock: control::Clock::Fixed,
            background_cores: 0,
        }
    }

    /// How the service stands otherwise than `running` and `homes` say, which are what the control loop knows: what
    /// others asked for has happened since, an earlier daemon that was killed among them. Nothing while the loop's own
    /// requests are under way: their answers say it.
    pub fn differences(&self, running: &[ThreadId], homes: &[ThreadId]) -> Vec<Outcome> {
        let awaited = self.pending.values().any(|pending| !pending.said);
        let threads = 0..self.link.description().threads;
        let leaving = threads.clone().any(|thread| self.link.state(thread) == State::Leaving);
        if awaited || leaving || !self.ready.is_empty() || !self.held.is_empty() {
            return Vec::new();
        }
        let of_thread = |thread: u16| match self.link.state(thread) {
            State::Running if !running.contains(&ThreadId(thread)) => {
                Some(Outcome::Granted(ThreadId(thread)))
            }
            State::Parked if running.contains(&ThreadId(thread)) => {
                Some(Outcome::Parked(ThreadId(thread)))
            }
            _ => None,
        };
        let shown = self.link.homes();
        let elsewhere = |group: &u16| {
            let at = usize::from(*group);
            homes.get(at).zip(shown.get(at)).is_some_and(|(known, shown)| known.0 != *shown)
        };
        let moved = self.by_home((0..self.link.description().groups).filter(elsewhere));
        let moved = moved.into_iter().map(|(home, groups)| migrated(None, home, &groups));
        threads.filter_map(of_thread).chain(moved).collect()
    }

    /// Puts threads that run elsewhere than where they belong to their place; how many those were.
    pub fn put_in_place(&mut self) -> usize {
        let wrong: Vec<u16> = (0..self.link.description().threads)
            .filter(|&thread| self.link.state(thread) == State::Running)
            .filter(|&thread| self.is_displaced(thread))
            .collect();
        wrong.iter().for_each(|&thread| self.place(thread));
        wrong.len()
    }

    fn is_displaced(&self, thread: u16) -> bool {
        let belongs = self.cpus.get(usize::from(thread)).copied().flatten();
        let shown = self.link.reading().thread(thread).and_then(|shown| shown.processor);
        belongs.is_some() && shown != belongs
    }

    fn place(&mut self, thread: u16) {
        let asked = |pending: &Pending| matches!(pending.request, Request::Place { thread: other, .. } if other == thread);
        if self.pending.values().any(asked) {
            return;
        }
        if let Some(cpu) = self.cpus.get(usize::from(thread)).copied().flatten() {
            // Where the service is gone, everything else says so as well.
            let _ = self.ask(Asker::Daemon, Request::Place { thread, cpu });
        }
    }

    fn ask(&mut self, asker: Asker, request: Request) -> Result<(), String> {
        if let Some(Gone(reason)) = &self.gone {
            return Err(reason.clone());
        }
        let id = match self.link.ask(request.clone()) {
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
        self.pending.insert(id, Pending { asker, request, since_ns: self.now_ns, said: false });
        Ok(())
    }

    fn give_up(&mut self, pending: &Pending) {
        if let Asker::Hand(ticket) = pending.asker {
            let reason = "too many requests are without an answer";
            self.hands.push((ticket, Err(Refused::new(RefusedKind::TooMany, reason))));
        }
    }

    /// Takes in what the service has answered.
    pub fn pump(&mut self) {
        if self.gone.is_none() {
            match self.link.answers() {
                Ok(answers) => answers.into_iter().for_each(|Answer { id, result }| {
                    if let Some(pending) = self.pending.remove(&id) {
                        self.answered(pending, result);
                    }
                }),
                Err(gone) => self.gone = Some(gone),
            }
        }
        for pending in self.pending.values_mut() {
            if !pending.said && self.now_ns.saturating_sub(pending.since_ns) > ANSWER_NS {
                pending.said = true;
                self.notes.push(Note::Unanswered(pending.request.clone()));
            }
        }
    }

    fn answered(&mut self, pending: Pending, result: Result<Done, Refused>) {
        let result = result.map(|done| match done {
            Done::Moved(moved) => Some(moved),
            _ => None,
        });
        if let (Request::Move { from, to, .. }, Ok(moved)) = (&pending.request, &result) {
            let moved = moved.unwrap_or_default();
            self.notes.push(Note::Moved { from: *from, to: *to, moved });
        }
        if let Err(refused) = &result {
            self.notes.push(Note::Refused(pending.request.clone(), refused.clone()));
        }
        match pending.asker {
            Asker::Hand(ticket) => self.hands.push((ticket, result)),
            Asker::Loop(id) => self.tell_loop(id, pending.request, result.err()),
            Asker::Daemon => {}
        }
    }

    fn tell_loop(&mut self, id: RequestId, request: Request, refused: Option<Refused>) {
        let kind = refused.map(|refused| refused.kind);
        let outcome = match (request, kind) {
            (Request::Grant { thread }, None) => Outcome::Granted(ThreadId(thread)),
            (Request::Grant { thread }, Some(_)) => Outcome::GrantFailed(ThreadId(thread)),
            (Request::Park { thread }, None) => Outcome::Parked(ThreadId(thread)),
            // It runs on. With its groups known, the loop moves them.
            (Request::Park { thread }, Some(RefusedKind::HasGroups)) => {
                self.tell_homes(None, 0..self.link.description().groups);
                Outcome::Granted(ThreadId(thread))
            }
            (Request::Move { to, groups, .. }, None) => migrated(Some(id), to, &groups),
            (Request::Move { groups, .. }, Some(kind)) => {
                if kind == RefusedKind::NotHome {
                    self.tell_homes(Some(id), groups.iter().copied());
                }
                Outcome::MigrationFailed { request: id, groups: ids(&groups) }
            }
            // Parking that fails otherwise is asked for again when its time is over; nothing else is the loop's.
            _ => return,
        };
        match kind {
            None => self.ready.push(outcome),
            Some(_) => self.held.push((self.now_ns + REFUSED_HOLD_NS, outcome)),
        }
    }

    /// Tells where flow groups are at home by the segment, one outcome for each home: what became of a request,
    /// or what was found.
    fn tell_homes(&mut self, request: Option<RequestId>, groups: impl Iterator<Item = u16>) {
        let homes = self.by_home(groups);
        self.ready.extend(homes.iter().map(|(home, groups)| migrated(request, *home, groups)));
    }

    /// Flow groups by where the segment says that they are at home; those that there are not are left out.
    fn by_home(&self, groups: impl Iterator<Item = u16>) -> BTreeMap<u16, Vec<u16>> {
        let homes = self.link.homes();
        let mut by_home: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        for group in groups {
            if let Some(home) = homes.get(usize::from(group)) {
                by_home.entry(*home).or_default().push(group);
            }
        }
        by_home
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

    /// Resumes a thread, at its place.
    pub fn grant(&mut self, thread: ThreadId) {
        if self.is_displaced(thread.0) {
            self.place(thread.0);
        }
        let request = Request::Grant { thread: thread.0 };
        if self.ask(Asker::Loop(RequestId::default()), request).is_err() {
            self.ready.push(Outcome::GrantFailed(thread));
        }
    }

    /// Suspends a thread that has no flow group.
    pub fn park(&mut self, thread: ThreadId) {
        // A failure is noticed by the loop, which asks again.
        let _ = self.ask(Asker::Loop(RequestId::default()), Request::Park { thread: thread.0 });
    }

    /// Moves flow groups. Those that are there already have arrived; the others are asked for from where the segment
    /// says that they are.
    pub fn migrate(&mut self, id: RequestId, to: ThreadId, groups: &[GroupId]) {
        for (home, groups) in self.by_home(groups.iter().map(|group| group.0)) {
            if home == to.0 {
                self.ready.push(migrated(Some(id), home, &groups));
                continue;
            }
            let request = Request::Move { from: home, to: to.0, groups: groups.clone() };
            if self.ask(Asker::Loop(id), request).is_err() {
                let failed = Outcome::MigrationFailed { request: id, groups: ids(&groups) };
                self.ready.push(failed);
            }
        }
    }

    /// What has become of the loop's requests, since the last call.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        self.pump();
        let now_ns = self.now_ns;
        let mut outcomes = std::mem::take(&mut self.ready);
        outcomes.extend(self.held.extract_if(.., |held| held.0 <= now_ns).map(|held| held.1));
        outcomes
    }
}

fn migrated(request: Option<RequestId>, to: u16, groups: &[u16]) -> Outcome {
    Outcome::Migrated { request, to: ThreadId(to), groups: ids(groups) }
}

fn ids(groups: &[u16]) -> Vec<GroupId> {
    groups.iter().copied().map(GroupId).collect()
}
