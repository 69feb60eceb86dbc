//! A data-plane core: QWAIT, serve a batch, reconsider (HyperPlane Algorithm 1).
//!
//! ```text
//! turn    mail        tenants that come and go
//!         timers      queues that were deferred are enabled again
//!         next        which queue has work: the notifier's answer
//!         visit       look, room, rate; copy; serve; complete: at most batch x weight requests
//!         finish      take them off the doorbell; wake the tenant if it waits
//! idle    after so many empty turns: arm, then sleep
//! ```
//!
//! `turn` takes a clock and makes no system call but to wake a tenant that sleeps, so that tests run it
//! on virtual time. No lock is taken and nothing is allocated, but when mail is there.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use clock::{Clock, Instant};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::counters::{Counters, Counts};
use crate::geometry::SLOT_BYTES_MAX;
use crate::handler::{Handler, Outcome, TenantQueue};
use crate::link::Link;
use crate::notify::{Notifier, Visit};
use crate::queue_pair::{Look, Room};

/// A queue without room for a completion is looked at again after this.
const ROOM_RETRY: Duration = Duration::from_millis(1);
/// A queue over its rate is looked at again after this at the earliest: a tenant with many queues
/// costs so many visits in that time, however high its rate.
const RATE_RETRY_MIN: Duration = Duration::from_micros(100);
/// And after this at the latest, so that a raised limit is noticed.
const RATE_RETRY_MAX: Duration = Duration::from_secs(1);
/// Turns with work between two looks at the timers: a look reads the clock.
const TIMER_TURNS: u32 = 16;
/// Timers that one turn ends at most.
const TIMERS_A_TURN: usize = 64;
/// Longest sleep. Mail and work end it before.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// What control tells a core.
#[derive(Debug)]
pub(crate) enum Mail {
    /// A tenant joined.
    Attach(Arc<Link>),
    /// A tenant is gone.
    Detach(u64),
}

/// What control and a core share, beside the channel of letters, which is bounded.
#[derive(Debug)]
pub(crate) struct Letterbox {
    /// Mail is there: one load a turn, of a line that seldom changes.
    pub(crate) flag: AtomicBool,
    /// A tenant's class has changed; looked at with the mail.
    pub(crate) classes_changed: AtomicBool,
    /// The core is to end; looked at with the mail.
    pub(crate) stop: AtomicBool,
    /// Ends the core's sleep.
    pub(crate) wake: OwnedFd,
    pub(crate) counters: Counters,
}

impl Letterbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self {
            flag: AtomicBool::new(false),
            classes_changed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake: eventfd(0, flags)?,
            counters: Counters::default(),
        })
    }

    /// Makes the core look, awake or asleep. After the letter was sent.
    pub(crate) fn ring(&self) {
        self.flag.store(true, Ordering::SeqCst);
        // Non-blocking; full means readable, which is what is wanted.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Limits of a core's visits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreConfig {
    pub(crate) number: usize,
    /// Its set, and so which of a tenant's ready words are its.
    pub(crate) set: u32,
    /// Requests of a visit, times the queue's weight.
    pub(crate) batch: u32,
    /// Empty turns before it sleeps.
    pub(crate) spin_looks: u32,
}

/// A tenant's ready word in a slot.
#[derive(Debug)]
struct Attached {
    link: Arc<Link>,
    word: u32,
}

/// A queue that was deferred: ordered by when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    due: Instant,
    slot: u32,
    bit: u32,
    tenant: u64,
}

/// Whether a queue is set aside after a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aside {
    /// No.
    No,
    /// Until then: it is over its rate, or has no room.
    Until(Instant),
    /// Until the service names it.
    UntilNamed,
}

/// One core.
pub(crate) struct Core {
    config: CoreConfig,
    notifier: Notifier,
    handler: Box<dyn Handler>,
    mail: Receiver<Mail>,
    letterbox: Arc<Letterbox>,
    /// By slot.
    attached: Vec<Option<Attached>>,
    /// Each deferred queue once: it is disabled until its timer ends.
    timers: BinaryHeap<Reverse<Timer>>,
    /// Each queue whose head the service serves later, with its slot and bit: it is disabled until the
    /// service names it.
    parked: HashMap<TenantQueue, (u32, u32)>,
    /// Whether the service works by itself, and the queues that it named last.
    works_by_itself: bool,
    named: Vec<TenantQueue>,
    turns: u32,
    stopped: bool,
    /// A request and a reply in private memory.
    request: Box<[u8]>,
    reply: Box<[u8]>,
}

impl Core {
    pub(crate) fn new(
        config: CoreConfig,
        slots: u32,
        notifier: Notifier,
        handler: Box<dyn Handler>,
        mail: Receiver<Mail>,
        letterbox: Arc<Letterbox>,
    ) -> Self {
        let buffer = || vec![0; SLOT_BYTES_MAX as usize].into_boxed_slice();
        Self {
            config,
            notifier,
            works_by_itself: handler.works_by_itself(),
            named: Vec::new(),
            parked: HashMap::new(),
            handler,
            mail,
            letterbox,
            attached: (0..slots).map(|_| None).collect(),
            timers: BinaryHeap::new(),
            turns: 0,
            stopped: false,
            request: buffer(),
            reply: buffer(),
        }
    }

    /// Turns until it is told to stop.
    pub(crate) fn run(&mut self, clock: &impl Clock) {
        let mut empty = 0;
        while !self.stopped {
            if self.turn(clock) {
                empty = 0;
            } else if empty < self.config.spin_looks {
                empty += 1;
                std::hint::spin_loop();
            } else {
                self.sleep(clock);
            }
        }
    }

    /// One turn. False: there was nothing to do.
    #[inline]
    pub(crate) fn turn(&mut self, clock: &impl Clock) -> bool {
        if self.letterbox.flag.load(Ordering::Acquire) {
            self.read_mail();
        }
        self.turns = self.turns.wrapping_add(1);
        if !self.timers.is_empty() && self.turns.is_multiple_of(TIMER_TURNS) {
            self.run_timers(clock.now());
        }
        let worked = self.works_by_itself && self.work(clock.now());
        if let Some(visit) = self.notifier.next() {
            self.visit(visit, clock);
            return true;
        }
        !self.timers.is_empty() && self.run_timers(clock.now()) || worked
    }

    /// Has the service work, and enables the queues that it names.
    fn work(&mut self, now: Instant) -> bool {
        let mut named = std::mem::take(&mut self.named);
        let worked = self.handler.work(now, &mut named);
        for queue in named.drain(..) {
            let Some((slot, bit)) = self.parked.remove(&queue) else { continue };
            self.enable(slot, bit, queue.tenant);
        }
        self.named = named;
        worked
    }

    /// Enables a queue of a tenant, if that is still there. True where it is.
    fn enable(&mut self, slot: u32, bit: u32, tenant: u64) -> bool {
        let place = self.attached.get(slot as usize).and_then(Option::as_ref);
        let place = place.filter(|place| place.link.id == tenant);
        if let Some(Attached { link, word }) = place {
            self.notifier.set_enabled(link, *word, (slot, bit), true);
        }
        place.is_some()
    }

    #[cold]
    fn read_mail(&mut self) {
        // Before the letters are read: who writes one later sets it again.
        self.letterbox.flag.store(false, Ordering::SeqCst);
        while let Ok(letter) = self.mail.try_recv() {
            match letter {
                Mail::Attach(link) => self.attach(&link),
                Mail::Detach(tenant) => self.detach(tenant),
            }
        }
        if self.letterbox.classes_changed.swap(false, Ordering::AcqRel) {
            self.classify();
        }
        self.stopped = self.letterbox.stop.load(Ordering::Acquire);
    }

    /// Goes by the classes that all tenants have now.
    fn classify(&mut self) {
        for (slot, place) in self.attached.iter().enumerate() {
            if let Some(Attached { link, .. }) = place {
                self.notifier.set_class(slot as u32, link.class.load(Ordering::Relaxed));
            }
        }
    }

    fn attach(&mut self, link: &Arc<Link>) {
        for word in 0..link.geometry.words() {
            let mine = link.geometry.word(word).filter(|word| word.set == self.config.set);
            let (Some(mine), Some(&slot)) = (mine, link.slots.get(word as usize)) else { continue };
            let Some(place) = self.attached.get_mut(slot as usize) else { continue };
            // No descriptor left, or no kernel memory: the tenant's queues are not served by this
            // core, which its counters show; nobody else is touched.
            if self.notifier.attach(link, word, slot).is_ok() {
                *place = Some(Attached { link: Arc::clone(link), word });
                self.notifier.set_class(slot, link.class.load(Ordering::Relaxed));
                self.timers.reserve(mine.queues as usize);
            }
        }
    }

    fn detach(&mut self, tenant: u64) {
        for (slot, place) in self.attached.iter_mut().enumerate() {
            if place.as_ref().is_some_and(|attached| attached.link.id == tenant) {
                self.notifier.detach(slot as u32);
                *place = None;
            }
        }
        self.timers.retain(|Reverse(timer)| timer.tenant != tenant);
        self.parked.retain(|queue, _| queue.tenant != tenant);
        self.handler.gone(tenant);
    }

    /// Enables the queues whose time has come. True where there was one.
    #[cold]
    fn run_timers(&mut self, now: Instant) -> bool {
        let mut any = false;
        for _ in 0..TIMERS_A_TURN {
            let Some(&Reverse(Timer { due, slot, bit, tenant })) = self.timers.peek() else {
                break;
            };
            if due > now {
                break;
            }
            self.timers.pop();
            any |= self.enable(slot, bit, tenant);
        }
        any
    }

    /// Serves a queue: at most a batch times its weight.
    // long: one visit from the first look to the counting, of which each step needs the ones before.
    #[inline]
    fn visit(&mut self, visit: Visit, clock: &impl Clock) {
        let place = self.attached.get(visit.slot as usize).and_then(Option::as_ref);
        let Some(Attached { link, word }) = place else {
            // A slot that this core does not know: none is ever made ready.
            self.notifier.finish(visit, 0, true);
            return;
        };
        let (link, word) = (Arc::as_ref(link), *word);
        let queue = link.geometry.queue_at(word, visit.bit);
        let Some(pair) = link.queues.get(queue as usize) else {
            self.notifier.finish(visit, 0, true);
            return;
        };
        let from = TenantQueue { tenant: link.id, queue };
        let quantum = visit.count.min(self.config.batch.saturating_mul(pair.weight().max(1)));
        let limited = link.limiter.is_limited();
        let mut counts = Counts { visits: 1, ..Counts::default() };
        let (mut taken, mut empty, mut aside) = (0, false, Aside::No);
        while taken < quantum {
            let look = pair.look(&link.memory);
            if look == Look::Nothing {
                // The doorbell claimed more than there is.
                (empty, counts.lies) = (true, counts.lies + 1);
                break;
            }
            let room = pair.room(&link.memory);
            if room != Room::Free {
                counts.lies += u64::from(room == Room::Lied);
                counts.no_room += 1;
                aside = Aside::Until(clock.now() + ROOM_RETRY);
                break;
            }
            let len = if let Look::Request(len) = look { len } else { 0 };
            if limited {
                let now = clock.now();
                if let Err(later) = link.limiter.take(now, u64::from(len)) {
                    counts.deferred += 1;
                    let due = later.max(now + RATE_RETRY_MIN).min(now + RATE_RETRY_MAX);
                    aside = Aside::Until(due);
                    break;
                }
            }
            if look == Look::TooLong {
                taken += 1;
                pair.complete(&link.memory, None);
                (counts.lies, counts.refused) = (counts.lies + 1, counts.refused + 1);
                continue;
            }
            let request = pair.take(&link.memory, len, &mut self.request);
            // A tenant's slot holds the reply, too.
            let reply = &mut self.reply[..link.geometry.shape().slot_bytes as usize];
            let Outcome::Reply(bytes) = self.handler.handle(from, request, reply) else {
                aside = Aside::UntilNamed;
                break;
            };
            taken += 1;
            let bytes = bytes.min(reply.len());
            pair.complete(&link.memory, Some(&reply[..bytes]));
            counts.served += 1;
            counts.bytes_in += u64::from(len);
            counts.bytes_out += bytes as u64;
        }
        counts.spurious = u64::from(taken == 0 && aside == Aside::No);
        if aside != Aside::No {
            // Disabled before it is given back, so that no other core takes it in between.
            self.notifier.set_enabled(link, word, (visit.slot, visit.bit), false);
        }
        let Visit { slot, bit, .. } = visit;
        match aside {
            Aside::No => {}
            Aside::Until(due) => {
                self.timers.push(Reverse(Timer { due, slot, bit, tenant: link.id }))
            }
            Aside::UntilNamed => _ = self.parked.insert(from, (slot, bit)),
        }
        self.notifier.finish(visit, taken, empty);
        if taken > 0 {
            counts.wakes = u64::from(link.wake_if_waiting());
        }
        link.counters[self.config.number].add(&counts);
        self.letterbox.counters.add(&counts);
    }

    /// Sleeps until a tenant rings, mail comes, or a timer is due.
    #[cold]
    fn sleep(&mut self, clock: &impl Clock) {
        let by_itself = self.works_by_itself;
        if by_itself && self.handler.wait_fd().is_none() || !self.notifier.arm() {
            std::hint::spin_loop();
            return;
        }
        // Mail that came before the last look; mail that comes now makes the descriptor readable.
        let idle = !by_itself || self.handler.arm();
        if idle && !self.letterbox.flag.load(Ordering::SeqCst) {
            let due = self.timers.peek().map(|Reverse(timer)| timer.due.since(clock.now()));
            let timeout = due.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
            let timeout = Timespec::try_from(timeout).ok();
            if let Some(work) = self.notifier.descriptor() {
                let wake = self.letterbox.wake.as_fd();
                let device = self.handler.wait_fd().unwrap_or(wake);
                let mut fds =
                    [work, wake, device].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                // An interruption ends a sleep early, which is allowed.
                let _ = poll(&mut fds, timeout.as_ref());
            }
            self.letterbox.counters.add(&Counts { sleeps: 1, ..Counts::default() });
        }
        self.notifier.disarm();
        if by_itself {
            self.handler.disarm();
        }
        // Control's, non-blocking and shared with nobody else; empty is what is wanted.
        let _ = rustix::io::read(&self.letterbox.wake, &mut [0; 8]);
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
