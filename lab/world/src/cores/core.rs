//! One virtual core: where it is in its cycle, and what its time went to.

use clock::{Duration, Instant};
use dataplane::CycleStats;
use derive_more::{AddAssign, Mul};

/// Where the time of a core went, in nanoseconds. What is missing to the whole is waiting: an idle core
/// that polls.
#[derive(Debug, Clone, Copy, Default, PartialEq, AddAssign, Mul)]
pub struct Budget {
    /// Steps 1, 2 and 4 to 6: receiving, protocol processing, calls, sending.
    pub network_ns: f64,
    /// Crossing to the application and its handling of events.
    pub crossing_ns: f64,
    /// The requests' own service times.
    pub application_ns: f64,
    /// Work taken from other cores: the lines that move with it.
    pub steal_ns: f64,
    /// Other cores' network layers run here: the lines that move with them, not what the packets cost.
    pub borrow_ns: f64,
    /// Turns made of events, for any core to take.
    pub turn_ns: f64,
    /// Being interrupted by kicks: what that takes beside the network layer that is then run.
    pub kick_ns: f64,
    /// Waiting for the own network layer while another core ran it.
    pub waiting_ns: f64,
}

impl Budget {
    /// All but waiting.
    pub fn busy_ns(&self) -> f64 {
        let sharing_ns =
            self.steal_ns + self.borrow_ns + self.kick_ns + self.turn_ns + self.waiting_ns;
        self.network_ns + self.crossing_ns + self.application_ns + sharing_ns
    }
}

/// What a core did, counted by the world and not by the scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, AddAssign)]
pub struct Counts {
    /// Cycles that did something.
    pub cycles: u64,
    /// Frames taken from the core's own queue.
    pub packets: u64,
    /// Frames taken from other cores' queues: their network layer was run here.
    pub packets_abroad: u64,
    /// Crossings to the application.
    pub crossings: u64,
    /// Requests served.
    pub requests: u64,
    /// Events handed to the application.
    pub events: u64,
    /// Those of connections that are at home on another core.
    pub events_abroad: u64,
    /// Connections whose events these were, one for each crossing that it took part in.
    pub steals: u64,
    /// Batched system calls executed.
    pub calls: u64,
    /// Turns made.
    pub turns: u64,
    /// Times that another core's network layer was run here.
    pub borrows: u64,
    /// Times that a kick ran the own one.
    pub kicks: u64,
    /// Frames sent.
    pub frames: u64,
}

/// A core's sleep, in nanoseconds from the run's begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nap {
    /// When it fell asleep; 0 where that was before the run.
    pub from_ns: u64,
    /// When its thread took its first step; `u64::MAX` where it still sleeps.
    pub to_ns: u64,
}

impl Nap {
    /// Whether it sleeps at this moment.
    pub fn holds(&self, at_ns: u64) -> bool {
        self.from_ns <= at_ns && at_ns < self.to_ns
    }
}

/// What a core does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    /// Steps 1 and 2.
    Begin,
    /// Step 3.
    Serve,
    /// Steps 4 to 6.
    Finish,
    /// It polls, at `since` and every so often after it, and nothing it looks at has changed. What its timers say
    /// at `deadline` it notices itself.
    Idle { since: Instant, deadline: Option<Instant> },
    /// It sleeps until it is woken, its device has something, or its timer ends.
    Asleep,
}

/// How soon an idle core looks again at a timer that should have fired: a tick of the timing wheel.
const TIMER_AGAIN: Duration = Duration::from_micros(16);

/// See the module's comment.
#[derive(Debug, Clone)]
pub(crate) struct Core {
    pub next: Next,
    /// When; the far future for an idle core that no timer ends.
    pub at: Instant,
    /// When it last had work: polls that find nothing, and looks at others' network layers, are none.
    pub worked_at: Instant,
    /// When an idle core that notices nothing goes to sleep.
    pub sleeps_at: Instant,
    pub budget: Budget,
    pub counts: Counts,
    /// What its thread had counted when it was last asked.
    pub seen: CycleStats,
    /// Until when another core has its network layer.
    pub lent_until: Instant,
    /// When it slept, from and to, in a replay.
    pub naps: Vec<(Instant, Instant)>,
}

/// How an idle core notices that something has changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Noticing {
    /// Time from one poll to the next, in nanoseconds.
    pub poll_ns: f64,
    /// An idle core sleeps after so much time, if it does.
    pub sleep_after_ns: Option<f64>,
    /// What being woken then takes.
    pub wake_ns: f64,
}

impl Core {
    /// A core that is about to poll for the first time.
    pub fn new(now: Instant) -> Self {
        let (budget, counts) = (Budget::default(), Counts::default());
        let seen = CycleStats::default();
        let sleeps_at = Instant::FAR_FUTURE;
        let (next, at, worked_at, lent_until) = (Next::Begin, now, now, now);
        let naps = Vec::new();
        Self { next, at, worked_at, sleeps_at, budget, counts, seen, lent_until, naps }
    }

    /// The core has found nothing at `now`. What its timers say, `deadline`, it will notice itself.
    pub fn rest(&mut self, now: Instant, deadline: Option<Instant>, noticing: &Noticing) {
        // One that this very cycle should have seen is looked at again in a while, not for ever.
        let deadline = deadline.map(|at| if at > now { at } else { now + TIMER_AGAIN });
        self.next = Next::Idle { since: now, deadline };
        self.sleeps_at = match noticing.sleep_after_ns {
            // After another poll, where it has been idle for as long.
            Some(ns) => after(self.worked_at, ns.ceil()).max(after(now, noticing.poll_ns)),
            None => Instant::FAR_FUTURE,
        };
        self.at = self.sleeps_at;
        if let Some(deadline) = deadline {
            self.notice(deadline, noticing);
        }
    }

    /// The core has armed every source and found nothing once more.
    pub fn sleep(&mut self, noticing: &Noticing) {
        let Next::Idle { deadline, .. } = self.next else { return };
        self.next = Next::Asleep;
        self.at = Instant::FAR_FUTURE;
        if let Some(deadline) = deadline {
            self.wake(deadline, noticing);
        }
    }

    /// Something that a polling core looks at changes at `at`: it notices with its first poll from then on. The
    /// polls that it would have made meanwhile would have found nothing, and are left out; their phase is kept. A
    /// core that sleeps by then notices nothing.
    pub fn notice(&mut self, at: Instant, noticing: &Noticing) {
        let Next::Idle { since, .. } = self.next else { return };
        let idle_ns = at.since(since).as_nanos() as f64;
        let noticed_ns = if noticing.poll_ns > 0.0 {
            // The poll at `since` is over: the next one is the first that can see it.
            (idle_ns / noticing.poll_ns).ceil().max(1.0) * noticing.poll_ns
        } else {
            idle_ns
        };
        // Up, never down: a poll before the change would not see it.
        let noticed = since + Duration::from_nanos(noticed_ns.ceil() as u64);
        if noticed < self.at {
            self.at = noticed;
        }
    }

    /// Somebody wakes the core at `at`, or what it sleeps for happens then: its device has a frame, its timer ends.
    /// One that polls notices as ever.
    pub fn wake(&mut self, at: Instant, noticing: &Noticing) {
        if self.next != Next::Asleep {
            return self.notice(at, noticing);
        }
        self.at = self.at.min(after(at, noticing.wake_ns));
    }
}

/// The moment `ns` nanoseconds after `at`, to the nearest one.
pub(crate) fn after(at: Instant, ns: f64) -> Instant {
    at + Duration::from_nanos(ns.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: Noticing = Noticing { poll_ns: 100.0, sleep_after_ns: None, wake_ns: 0.0 };
    const AT: fn(u64) -> Instant = Instant::from_nanos;

    #[test]
    fn an_idle_core_notices_at_its_next_poll_and_keeps_its_phase() {
        let mut core = Core::new(AT(0));
        core.rest(AT(1_030), None, &POLL);
        assert_eq!(core.at, Instant::FAR_FUTURE);
        core.notice(AT(1_431), &POLL);
        assert_eq!(core.at, AT(1_530));
        core.notice(AT(1_600), &POLL);
        assert_eq!(core.at, AT(1_530), "what comes later does not delay it");
        core.wake(AT(1_430), &POLL);
        assert_eq!(core.at, AT(1_430), "the poll sees what comes at its very moment");
        core.rest(AT(1_030), Some(AT(1_031)), &POLL);
        assert_eq!(core.at, AT(1_130), "a timer is seen by the next poll");
        core.rest(AT(1_030), None, &Noticing { poll_ns: 0.0, ..POLL });
        core.notice(AT(1_033), &Noticing { poll_ns: 0.0, ..POLL });
        assert_eq!(core.at, AT(1_033));
    }

    #[test]
    fn a_core_that_sleeps_has_to_be_woken() {
        let noticing = Noticing { sleep_after_ns: Some(500.0), wake_ns: 7_000.0, ..POLL };
        let mut core = Core::new(AT(0));
        core.rest(AT(0), Some(AT(9_000)), &noticing);
        core.notice(AT(350), &noticing);
        assert_eq!(core.at, AT(400));
        core.rest(AT(0), Some(AT(9_000)), &noticing);
        core.notice(AT(501), &noticing);
        assert_eq!((core.at, core.sleeps_at), (AT(500), AT(500)), "it polls no more by then");
        core.sleep(&noticing);
        assert_eq!(core.at, AT(16_000), "its timer wakes it");
        core.notice(AT(600), &noticing);
        assert_eq!(core.at, AT(16_000), "it does not look");
        core.wake(AT(600), &noticing);
        assert_eq!(core.at, AT(7_600));
        core.rest(AT(7_600), None, &noticing);
        assert_eq!(core.sleeps_at, AT(7_700), "woken in vain, it sleeps again at once");
        core.worked_at = AT(8_000);
        core.rest(AT(8_100), None, &noticing);
        assert_eq!(core.sleeps_at, AT(8_500));
    }

    #[test]
    fn only_an_idle_core_notices() {
        let mut core = Core::new(AT(50));
        core.notice(AT(10), &POLL);
        core.wake(AT(10), &POLL);
        assert_eq!((core.at, core.next), (AT(50), Next::Begin));
    }
}
