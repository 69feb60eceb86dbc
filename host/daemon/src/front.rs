//! The thread that talks to people: the control socket and the page of metrics, in one loop that waits for nobody.
//!
//! Everything is bounded: connections (of all, of people who may only look, of each of them), bytes both ways, calls a
//! turn. What is refused or cut off is counted, and told to whom it concerns.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::commands::{Answered, Command, Failure};
use crate::desk::Desk;
use crate::listen::{Listener, Origin};
use crate::machine::monotonic_ns;
use crate::metrics::http::{self, Asked};
use crate::metrics::{FrontCounts, render};
use crate::stream::Pipe;
use crate::unsafe_peer::Peer;
use crate::varlink::{Access, Role, Session, Wants};

/// Connections to the control socket.
pub const SESSIONS_MAX: usize = 256;
/// Of them, of people who may not change things: the others always have room.
const OTHERS_MAX: usize = 128;
/// And of each such user.
const OF_USER_MAX: usize = 32;
/// Connections of everybody but root and the daemon's user, who always have room for the rest.
const GUESTS_MAX: usize = SESSIONS_MAX - 32;
/// And of each user who may change things as a member of the group.
const OF_MEMBER_MAX: usize = 64;
/// Connections beyond those that are told so, at a time; more are closed without a word.
const TURNED_AWAY_MAX: usize = 64;
/// Connections to the page of metrics. One more takes the place of the oldest of the party that holds the most.
const PAGES_MAX: usize = 64;
/// Connections that are taken in one turn.
const ACCEPT_MAX: usize = 32;
/// Nobody is let in for so long after there were no descriptors, in nanoseconds.
const BREATHER_NS: u64 = 100_000_000;
/// A page that is not asked for and read within so long is cut off, in nanoseconds.
const PAGE_NS: u64 = 10_000_000_000;
/// The loop turns at least so often, in seconds: it says that it lives.
const TURN_S: i64 = 1;

/// A connection to the page of metrics.
struct PageSession {
    pipe: Pipe,
    origin: Origin,
    until_ns: u64,
    answered: bool,
}

/// See the module's comment.
pub struct Front {
    desk: Arc<Desk>,
    access: Access,
    control: Listener,
    metrics: Option<Listener>,
    sessions: BTreeMap<u64, Session>,
    pages: BTreeMap<u64, PageSession>,
    next: u64,
    counts: FrontCounts,
    /// No connections are taken until then.
    full_until_ns: u64,
}

/// Which descriptor woke us.
#[derive(Clone, Copy)]
enum Woke {
    Bell,
    Control,
    Metrics,
    Session(u64),
    Page(u64),
}

impl Front {
    /// Listens at these sockets.
    pub fn new(
        desk: Arc<Desk>,
        access: Access,
        control: Listener,
        metrics: Option<Listener>,
    ) -> Self {
        Self {
            desk,
            access,
            control,
            metrics,
            sessions: BTreeMap::new(),
            pages: BTreeMap::new(),
            next: 1,
            counts: FrontCounts::default(),
            full_until_ns: 0,
        }
    }

    /// Serves until the desk says that it shall end.
    pub fn run(mut self) {
        while !self.desk.is_stopping() {
            self.turn();
        }
        // What was answered last is sent where that is possible at once.
        self.take_told(monotonic_ns());
        for session in self.sessions.values_mut() {
            let _ = session.pipe.flush(monotonic_ns());
        }
    }

    fn turn(&mut self) {
        let woken = self.wait();
        let now_ns = monotonic_ns();
        self.desk.set_front_alive(now_ns);
        for (woke, flags) in woken {
            match woke {
                Woke::Bell => self.desk.front.hear(),
                Woke::Control => self.accept_sessions(now_ns),
                Woke::Metrics => self.accept_pages(now_ns),
                Woke::Session(number) => self.serve(number, flags, now_ns),
                Woke::Page(number) => self.serve_page(number, flags, now_ns),
            }
        }
        self.take_told(now_ns);
        // Calls that came together with others: their turn is now.
        let ready: Vec<u64> =
            self.sessions.iter().filter(|(_, one)| one.has_call()).map(|(n, _)| *n).collect();
        ready.into_iter().for_each(|number| self.serve(number, PollFlags::empty(), now_ns));
        self.clear_up(now_ns);
    }

    /// Waits until something is to be done.
    fn wait(&self) -> Vec<(Woke, PollFlags)> {
        let mut names = vec![Woke::Bell];
        let mut fds = vec![PollFd::new(&self.desk.front, PollFlags::IN)];
        if monotonic_ns() >= self.full_until_ns {
            names.push(Woke::Control);
            fds.push(PollFd::new(&self.control, PollFlags::IN));
            if let Some(metrics) = &self.metrics {
                names.push(Woke::Metrics);
                fds.push(PollFd::new(metrics, PollFlags::IN));
            }
        }
        for (number, session) in &self.sessions {
            names.push(Woke::Session(*number));
            let reads = session.listens() || session.ends();
            fds.push(PollFd::new(&session.pipe, session.pipe.interest(reads)));
        }
        for (number, page) in &self.pages {
            names.push(Woke::Page(*number));
            fds.push(PollFd::new(&page.pipe, page.pipe.interest(true)));
        }
        let is_ready = self.sessions.values().any(Session::has_call);
        let seconds = if is_ready { 0 } else { TURN_S };
        let most = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // Interrupted by a signal: the next turn looks again.
        let _ = poll(&mut fds, Some(&most));
        let flags = fds.iter().map(PollFd::revents);
        names.into_iter().zip(flags).filter(|(_, flags)| !flags.is_empty()).collect()
    }

    /// All that wait, within bounds; each is given to `take`.
    fn accept(
        &mut self,
        of: impl Fn(&Self) -> Option<&Listener>,
        now_ns: u64,
        take: impl Fn(&mut Self, OwnedFd, Origin),
    ) {
        for _ in 0..ACCEPT_MAX {
            let accepted = of(self).map_or(Ok(None), Listener::accept);
            match accepted {
                Ok(Some((stream, origin))) => take(self, stream, origin),
                Ok(None) => return,
                Err(error) => {
                    let reason = error.to_string();
                    tracing::warn!(service = "daemon", kind = "accept-failed", reason);
                    self.full_until_ns = now_ns + BREATHER_NS;
                    return;
                }
            }
        }
    }

    fn accept_sessions(&mut self, now_ns: u64) {
        self.accept(
            |this| Some(&this.control),
            now_ns,
            |this, stream, _| {
                let Ok(peer) = Peer::of(&stream) else {
                    this.counts.control_refused += 1;
                    return;
                };
                let role = this.access.role(&peer);
                let mut session = Session::new(Pipe::new(stream, now_ns), role, peer.uid);
                if let Some(limit) = this.limit(role, peer.uid) {
                    this.counts.control_refused += 1;
                    if this.sessions.len() >= SESSIONS_MAX + TURNED_AWAY_MAX {
                        return;
                    }
                    session.turn_away(limit, now_ns);
                }
                let number = this.number();
                this.sessions.insert(number, session);
                this.serve(number, PollFlags::IN, now_ns);
            },
        );
    }

    /// The limit that one more connection of this user would exceed.
    fn limit(&self, role: Role, uid: u32) -> Option<usize> {
        let heard = || self.sessions.values().filter(|session| !session.ends());
        let is_owner = |uid: u32| uid == 0 || uid == self.access.own_uid;
        let of_user = heard().filter(|session| session.uid == uid).count();
        let readers = heard().filter(|session| session.role < Role::Change).count();
        let guests = heard().filter(|session| !is_owner(session.uid)).count();
        // Of how many connections there are so many already.
        let bounds: &[(usize, usize)] = match role {
            _ if is_owner(uid) => &[(heard().count(), SESSIONS_MAX)],
            Role::Change => &[(guests, GUESTS_MAX), (of_user, OF_MEMBER_MAX)],
            Role::Read | Role::Nobody => {
                &[(guests, GUESTS_MAX), (readers, OTHERS_MAX), (of_user, OF_USER_MAX)]
            }
        };
        bounds.iter().find(|(count, max)| count >= max).map(|(_, max)| *max)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn serve(&mut self, number: u64, flags: PollFlags, now_ns: u64) {
        if let Err(_broken) = self.try_serve(number, flags, now_ns) {
            self.sessions.remove(&number);
        }
    }

    fn try_serve(&mut self, number: u64, flags: PollFlags, now_ns: u64) -> io::Result<()> {
        let snapshot = self.desk.snapshot();
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(()) };
        if flags.intersects(PollFlags::HUP | PollFlags::ERR) {
            session.hung_up();
        }
        while let Some(wants) = session.take(&self.access, &snapshot, now_ns)? {
            match wants {
                Wants::Reload => self.desk.ask_to_reload(),
                Wants::Command(service, what) => {
                    // The session's own number: it has one command under way at most.
                    session.waits(number, service.clone());
                    let command = Command { ticket: number, service, what };
                    if !self.desk.ask(command) {
                        let busy = Answered { ticket: number, result: Err(Failure::Busy) };
                        session.answer(&busy, now_ns);
                    }
                }
            }
        }
        session.pipe.flush(now_ns)
    }

    /// Answers and events that the other thread has left.
    fn take_told(&mut self, now_ns: u64) {
        let (answers, events, lost) = self.desk.told();
        self.counts.lost_events += lost;
        for answered in &answers {
            // Whoever asked may be gone.
            if let Some(session) = self.sessions.get_mut(&answered.ticket) {
                session.answer(answered, now_ns);
            }
        }
        for event in &events {
            for session in self.sessions.values_mut() {
                self.counts.lost_events += u64::from(!session.tell(event, now_ns));
            }
        }
        if !(answers.is_empty() && events.is_empty()) {
            self.sessions.retain(|_, session| session.pipe.flush(now_ns).is_ok());
        }
    }

    fn accept_pages(&mut self, now_ns: u64) {
        self.accept(
            |this| this.metrics.as_ref(),
            now_ns,
            |this, stream, origin| {
                if this.pages.len() >= PAGES_MAX {
                    this.evict_page(origin);
                }
                let (pipe, until_ns) = (Pipe::new(stream, now_ns), now_ns + PAGE_NS);
                let number = this.number();
                this.pages.insert(number, PageSession { pipe, origin, until_ns, answered: false });
                this.serve_page(number, PollFlags::IN, now_ns);
            },
        );
    }

    /// Ends a connection to the page, so that a new one of `newcomer` has its place: of the party that holds the most
    /// with the new one, the oldest that has not asked, or else the oldest.
    fn evict_page(&mut self, newcomer: Origin) {
        let mut held: BTreeMap<Origin, usize> = BTreeMap::from([(newcomer, 1)]);
        for page in self.pages.values() {
            *held.entry(page.origin).or_default() += 1;
        }
        // Numbers grow: the smallest is the oldest.
        let oldest = self
            .pages
            .iter()
            .max_by_key(|(number, page)| (held[&page.origin], !page.answered, Reverse(**number)));
        let Some(number) = oldest.map(|(number, _)| *number) else { return };
        let Some(mut page) = self.pages.remove(&number) else { return };
        self.counts.metrics_refused += 1;
        if !page.answered {
            page.pipe.put(&http::no("503 Service Unavailable"), page.until_ns);
            // A client that has gone needs no answer.
            let _ = page.pipe.flush(page.until_ns);
        }
    }

    fn serve_page(&mut self, number: u64, flags: PollFlags, now_ns: u64) {
        let broken = flags.intersects(PollFlags::ERR);
        if broken || !matches!(self.try_page(number, now_ns), Ok(true)) {
            self.pages.remove(&number);
        }
    }

    /// Whether it goes on.
    fn try_page(&mut self, number: u64, now_ns: u64) -> io::Result<bool> {
        let Some(page) = self.pages.get_mut(&number) else { return Ok(false) };
        if !page.answered {
            page.pipe.fill(http::HEAD_MAX + 1)?;
            match http::asked(&page.pipe.input) {
                None => return Ok(!page.pipe.ended),
                Some(Asked::No(status)) => page.pipe.put(&http::no(status), now_ns),
                Some(Asked::Page { head }) => {
                    self.counts.control = self.sessions.len() as u64;
                    self.counts.metrics = self.pages.len() as u64;
                    let body = render(&self.desk.snapshot(), &self.counts);
                    let Some(page) = self.pages.get_mut(&number) else { return Ok(false) };
                    page.pipe.put(&http::page(&body, head), now_ns);
                }
            }
        }
        let Some(page) = self.pages.get_mut(&number) else { return Ok(false) };
        page.answered = true;
        page.pipe.flush(now_ns)?;
        Ok(!page.pipe.linger(now_ns))
    }

    fn clear_up(&mut self, now_ns: u64) {
        let before = self.sessions.len();
        self.sessions
            .retain(|_, session| !(session.is_stalled(now_ns) || session.is_half_sent(now_ns)));
        self.counts.control_refused += (before - self.sessions.len()) as u64;
        self.sessions.retain(|_, session| !session.is_over(now_ns));
        let counts = &mut self.counts;
        self.pages.retain(|_, page| {
            let late = now_ns >= page.until_ns;
            // Who was told everything and goes is not cut off.
            counts.metrics_refused += u64::from(late && (!page.answered || page.pipe.unsent() > 0));
            let over = page.answered && page.pipe.linger(now_ns);
            !(late || over)
        });
    }
}
