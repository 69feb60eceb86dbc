//! Receive moderation: where packets come so often that waiting gathers several, a thread leaves its ring
//! alone for a while, as a NIC with adaptive interrupt coalescing does (`rx-usecs`).
//!
//! Bounded, adaptive batching (IX §3) never waits, which is right for latency: a batch grows where
//! the thread falls behind. At a moderate load it never does, so each packet pays alone for what
//! a batch would share: on a device without zero copy, a system call and a round of the kernel's deferred
//! work. Waiting some tens of microseconds there shares them, which leaves the processor to others.
//!
//! It must never slow a peer that waits for its answer before it asks again: one request at a time comes
//! every few microseconds, too, but nothing gathers behind it. So waiting is tried for a few cycles, and
//! given up, for longer and longer, where packets then come more rarely than before.
//!
//! A state machine without a clock: the driver of the thread waits.

use clock::{Duration, Instant};

/// Packets that are worth sharing a cycle; more are not waited for.
const WORTHWHILE: u32 = 8;
/// Packets by which the rate without waiting is judged.
const EPOCH_PACKETS: u32 = 128;
/// Cycles of a trial.
const TRIAL_CYCLES: u32 = 8;
/// Cycles between two looks at whether it still pays.
const EPOCH_CYCLES: u32 = 64;
/// How long a trial that failed is the last one: doubled each time, up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a ring may be left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModerationPolicy {
    /// Longest wait from one look at the ring to the next, which is also what it adds to a request's
    /// latency at most. Zero, which is the default: it is never left alone.
    pub longest: Duration,
}

/// See the module's comment.
#[derive(Debug)]
pub struct Moderation {
    policy: ModerationPolicy,
    phase: Phase,
    /// Of the present epoch.
    since: Instant,
    packets: u32,
    cycles: u32,
    next_trial: Instant,
    backoff: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The ring is looked at all the time.
    Watching,
    /// It is left alone for `wait` after each look; before, a packet came every `usual_gap`.
    Waiting { wait: Duration, usual_gap: Duration, on_trial: bool },
}

impl Moderation {
    /// A thread that begins at `now`, watching.
    pub fn new(policy: ModerationPolicy, now: Instant) -> Self {
        Self {
            policy,
            phase: Phase::Watching,
            since: now,
            packets: 0,
            cycles: 0,
            next_trial: now,
            backoff: BACKOFF.0,
        }
    }

    /// Tells of a cycle that began at `now` and took `packets`. Answers the moment before which the
    /// ring should not be looked at again, if there is one.
    pub fn after_cycle(&mut self, now: Instant, packets: usize) -> Option<Instant> {
        if self.policy.longest.is_zero() {
            return None;
        }
        match self.phase {
            Phase::Watching if packets == 0 => return None,
            Phase::Watching => self.watch(now, packets as u32),
            Phase::Waiting { .. } => self.wait(now, packets as u32),
        }
        match self.phase {
            Phase::Watching => None,
            Phase::Waiting { wait, .. } => Some(now + wait),
        }
    }

    fn begin(&mut self, phase: Phase, now: Instant) {
        (self.phase, self.since, self.packets, self.cycles) = (phase, now, 0, 0);
    }

    fn watch(&mut self, now: Instant, packets: u32) {
        // A silence is no part of a rate; and what the first cycle took came before it.
        if now.since(self.since) > self.policy.longest * EPOCH_PACKETS {
            return self.begin(Phase::Watching, now);
        }
        self.packets += packets;
        self.cycles += 1;
        if self.packets < EPOCH_PACKETS {
            return;
        }
        let gap = now.since(self.since) / self.packets;
        let alone = self.packets < self.cycles * WORTHWHILE / 2;
        let gathers = gap * 2 <= self.policy.longest;
        let phase = match alone && gathers && now >= self.next_trial {
            true => Phase::Waiting { wait: self.wait_for(gap), usual_gap: gap, on_trial: true },
            false => Phase::Watching,
        };
        self.begin(phase, now);
    }

    fn wait(&mut self, now: Instant, packets: u32) {
        let Phase::Waiting { wait, usual_gap, on_trial } = self.phase else { return };
        self.packets += packets;
        self.cycles += 1;
        if self.cycles < if on_trial { TRIAL_CYCLES } else { EPOCH_CYCLES } {
            return;
        }
        let gap = now.since(self.since) / self.packets.max(1);
        // Few packets tell the rate roughly.
        let slower = if on_trial { usual_gap * 3 / 2 } else { usual_gap * 5 / 4 };
        if self.packets < 2 * self.cycles || gap > slower {
            self.next_trial = now + self.backoff;
            self.backoff = (self.backoff * 2).min(BACKOFF.1);
            return self.begin(Phase::Watching, now);
        }
        if !on_trial {
            self.backoff = BACKOFF.0;
        }
        // Part of the way, so that one epoch does not decide.
        let wait = (wait * 3 + self.wait_for(gap)) / 4;
        self.begin(Phase::Waiting { wait, usual_gap, on_trial: false }, now);
    }

    fn wait_for(&self, gap: Duration) -> Duration {
        (gap * WORTHWHILE).min(self.policy.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST_US: u64 = 50;
    /// Of a cycle that found nothing.
    const POLL_NS: u64 = 200;
    /// Of one that served packets: some for the batch, some for each.
    const BATCH_NS: u64 = 2_000;
    const PACKET_NS: u64 = 1_000;

    #[derive(Default)]
    struct Served {
        packets: u64,
        busy_cycles: u64,
        longest_wait_ns: u64,
    }

    impl Served {
        fn batch(&self) -> f64 {
            self.packets as f64 / self.busy_cycles as f64
        }
    }

    /// Serves what `arrivals` says (moments of arrivals, told what was served last) for `ms`.
    fn serve(longest_us: u64, ms: u64, mut arrive: impl FnMut(u64, u64) -> Vec<u64>) -> Served {
        let policy = ModerationPolicy { longest: Duration::from_micros(longest_us) };
        let mut moderation = Moderation::new(policy, Instant::ZERO);
        let (mut now, mut served) = (0, Served::default());
        let (mut waiting, mut taken) = (Vec::new(), 0);
        while now < ms * 1_000_000 {
            waiting.extend(arrive(now, taken));
            let due = waiting.iter().filter(|at| **at <= now).count();
            for at in waiting.extract_if(.., |at| *at <= now) {
                served.longest_wait_ns = served.longest_wait_ns.max(now - at);
            }
            taken = due as u64;
            served.packets += taken;
            served.busy_cycles += u64::from(due > 0);
            let end = now + if due > 0 { BATCH_NS + PACKET_NS * taken } else { POLL_NS };
            let not_before = moderation.after_cycle(Instant::from_nanos(now), due);
            now = end.max(not_before.map_or(0, |at| at.as_nanos()));
        }
        served
    }

    /// Arrivals every `gap_ns`, whoever is served.
    fn open_loop(gap_ns: u64) -> impl FnMut(u64, u64) -> Vec<u64> {
        let mut next = 0;
        move |now, _| {
            let mut arrived = Vec::new();
            while next <= now {
                arrived.push(next);
                next += gap_ns;
            }
            arrived
        }
    }

    /// So many clients, of which each asks again `think_ns` after its answer.
    fn closed_loop(clients: u64, think_ns: u64) -> impl FnMut(u64, u64) -> Vec<u64> {
        let mut first = true;
        move |now, served| {
            let count = if std::mem::take(&mut first) { clients } else { served };
            (0..count).map(|client| now + think_ns + client * 50).collect()
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of thousands of cycles, nothing of them unsafe")]
    fn a_moderate_load_is_gathered_and_nobody_waits_longer_than_allowed() {
        let plain = serve(0, 100, open_loop(12_500));
        assert!(plain.batch() < 1.05, "{}", plain.batch());
        let gathered = serve(LONGEST_US, 100, open_loop(12_500));
        assert!(gathered.batch() > 3.5, "{}", gathered.batch());
        assert_eq!(gathered.packets / 10, plain.packets / 10, "all are served");
        let bound = LONGEST_US * 1_000 + BATCH_NS + WORTHWHILE as u64 * PACKET_NS;
        assert!(gathered.longest_wait_ns <= bound, "{}", gathered.longest_wait_ns);
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of thousands of cycles, nothing of them unsafe")]
    fn what_comes_rarely_or_in_batches_anyway_is_not_waited_for() {
        let rare = serve(LONGEST_US, 100, open_loop(30_000));
        assert!(rare.longest_wait_ns < BATCH_NS + PACKET_NS + POLL_NS, "{}", rare.longest_wait_ns);
        // At nearly its capacity a thread falls behind by itself.
        let (busy, plain) =
            (serve(LONGEST_US, 100, open_loop(1_100)), serve(0, 100, open_loop(1_100)));
        assert!((busy.batch() / plain.batch() - 1.0).abs() < 0.1, "{}", busy.batch());
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of thousands of cycles, nothing of them unsafe")]
    fn a_client_that_waits_for_its_answer_is_hardly_slowed() {
        for clients in [1, 2, 3] {
            let plain = serve(0, 1_000, closed_loop(clients, 9_000));
            let tried = serve(LONGEST_US, 1_000, closed_loop(clients, 9_000));
            let share = tried.packets as f64 / plain.packets as f64;
            assert!(share > 0.99, "{clients} clients: {share}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "hundreds of thousands of cycles, nothing of them unsafe")]
    fn it_ends_when_the_load_does() {
        let mut arrive = open_loop(12_500);
        let mut rare = 60_000_000;
        let served = serve(LONGEST_US, 200, move |now, taken| {
            if now < 50_000_000 {
                return arrive(now, taken);
            }
            let arrived = rare <= now;
            let at = rare;
            rare += if arrived { 100_000 } else { 0 };
            if arrived { vec![at] } else { Vec::new() }
        });
        // 50 ms of four and more at a time, then one at a time.
        let alone = (200 - 60) * 10;
        assert!(served.busy_cycles < alone + 4_000 / 3 && served.busy_cycles > alone);
    }

    #[test]
    fn off_it_asks_for_nothing() {
        let mut moderation = Moderation::new(ModerationPolicy::default(), Instant::ZERO);
        for at in 0..10_000u64 {
            assert_eq!(moderation.after_cycle(Instant::from_micros(at * 5), 1), None);
        }
    }
}
