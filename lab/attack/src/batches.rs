//! Random batches of calls against the dataplane's side of the domain, without a second process: the liar is asked
//! in the same thread, so that a seed replays every batch.
//!
//! Half of them meet [`arrays`] in hand, where each issued call is checked; half a whole [`stack`] with a client.

mod arrays;
mod stack;

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use mem::Region;
use process::{Geometry, Hello, Host, Near, NearStats, Waiting};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use crate::joined::{Greeted, Joined};
use crate::lies::{Falsehood, Liar};

/// Payload bytes of a segment.
const SEGMENT_BYTES: usize = 1_448;
/// Crossings of one batch of events beyond which it never ends, the events being as few as they are.
const CROSSINGS_MAX: u32 = 100_000;
/// Of so many batches one is lied about before it is there: answers to older ones.
const TOLD_BEFORE: u32 = 8;

/// What came of the batches.
#[derive(Debug, Default)]
pub struct Tally {
    /// Batches handed over.
    pub crossings: u64,
    /// Calls without sense.
    pub violations: u64,
    /// Calls beyond the room for them.
    pub refused: u64,
    /// Calls issued, by kind, as the arrays number them.
    pub issued: [u64; 10],
    /// Events told, by kind.
    pub told: [u64; 11],
    /// Requests that the client had right answers to.
    pub answered: u64,
    /// The longest that one batch took, and which it was.
    pub longest: (Duration, u64),
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const CALLS: [&str; 10] = [
            "connect", "accept", "send", "received", "close", "abort", "again", "datagram",
            "listen", "inform",
        ];
        const EVENTS: [&str; 11] = [
            "knock",
            "connected",
            "not connected",
            "received",
            "sent",
            "end of stream",
            "again",
            "dead",
            "datagram",
            "failed",
            "others",
        ];
        let listed = |names: &[&str], counts: &[u64]| {
            let each = names.iter().zip(counts).map(|(name, count)| format!("{name} {count}"));
            each.collect::<Vec<_>>().join(", ")
        };
        writeln!(
            f,
            "{} crossings: {} calls without sense, {} beyond the room for them",
            self.crossings, self.violations, self.refused
        )?;
        writeln!(f, "  issued  {}", listed(&CALLS, &self.issued))?;
        writeln!(f, "  told    {}", listed(&EVENTS, &self.told))?;
        let (longest, which) = self.longest;
        write!(
            f,
            "  {} requests of the client answered; the longest batch took {longest:?} (number {which})",
            self.answered
        )
    }
}

impl Tally {
    fn add(&mut self, stats: &NearStats, told: [u64; 11]) {
        self.told.iter_mut().zip(told).for_each(|(all, these)| *all += these);
        self.crossings += stats.crossings();
        self.violations += stats.violations();
        self.refused += stats.refused();
    }

    fn took(&mut self, duration: Duration, batch: u64) {
        if duration > self.longest.0 {
            self.longest = (duration, batch);
        }
    }
}

/// The application: asked by the dataplane's side whenever it waits for one.
struct Other {
    liar: Liar,
    joined: Joined,
    now: clock::Instant,
    /// Crossings in the batch of events at hand.
    crossings: u32,
    gone: Arc<AtomicBool>,
}

impl Other {
    /// Hears, and lies about, the batch at hand. One that does not end is ended.
    fn answer(&mut self) -> clock::Instant {
        self.crossings += 1;
        if self.crossings > CROSSINGS_MAX {
            self.gone.store(true, Ordering::Relaxed);
        }
        self.liar.listen(&self.joined);
        self.liar.lie(&self.joined);
        self.joined.done(self.joined.batch());
        self.now += Duration::from_micros(1);
        self.now
    }

    /// Begins a batch of events: now and then with what will be found as its calls.
    fn begin(&mut self, now: clock::Instant) {
        use rand::RngExt;
        (self.now, self.crossings) = (self.now.max(now), 0);
        if self.liar.random.random_range(0..TOLD_BEFORE) != 0 {
            self.liar.listen(&self.joined);
            self.liar.lie(&self.joined);
            self.joined.done(self.joined.batch().wrapping_add(1).max(1));
        }
    }
}

/// Both sides of a domain.
struct Domain {
    near: Near<'static>,
    other: Arc<Mutex<Other>>,
    gone: Arc<AtomicBool>,
}

fn lock(other: &Mutex<Other>) -> MutexGuard<'_, Other> {
    other.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Domain {
    fn new(
        region: &Arc<Region>,
        geometry: Geometry,
        seed: u64,
        falsehood: Falsehood,
    ) -> anyhow::Result<Self> {
        let pair =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (here, there) = pair.context("making the domain's socket")?;
        let hello = Hello {
            geometry,
            waiting: Waiting::default(),
            segment_bytes: SEGMENT_BYTES,
            sums: true,
        };
        let host = Host::new(hello, 1, region)?;
        host.greet(here.as_fd())?;
        let joined = Greeted::receive(there)?.answer(false)?.swap_remove(0);
        let gone = Arc::new(AtomicBool::new(false));
        let near = host.meet(here.as_fd(), &gone)?.pop().context("one elastic thread")?;
        let liar = Liar::new(seed, falsehood);
        let (now, gone_here) = (clock::Instant::ZERO, Arc::clone(&gone));
        let other = Other { liar, joined, now, crossings: 0, gone: gone_here };
        let other = Arc::new(Mutex::new(other));
        let asked = Arc::clone(&other);
        let near = near.with_meanwhile(move || lock(&asked).answer());
        Ok(Self { near, other, gone })
    }

    /// Whether every batch of events came to an end.
    fn check_ends(&self) -> anyhow::Result<()> {
        ensure!(
            !self.gone.load(Ordering::Relaxed),
            "one batch of events took more than {CROSSINGS_MAX} crossings: it does not end"
        );
        Ok(())
    }
}

/// Tells how far it is, and, where it does not come to its end, how to get there again.
struct Progress {
    name: &'static str,
    seed: u64,
    count: u64,
    done: u64,
    began: Instant,
    told: Instant,
    finished: bool,
}

impl Progress {
    fn new(name: &'static str, count: u64, seed: u64) -> Self {
        let now = Instant::now();
        Self { name, seed, count, done: 0, began: now, told: now, finished: false }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(4_096) && self.told.elapsed() > Duration::from_secs(2) {
            self.told = Instant::now();
            let Self { name, done, count, began, .. } = self;
            let seconds = began.elapsed().as_secs_f64();
            // Where nobody listens nobody misses it.
            let _ = writeln!(
                std::io::stderr(),
                "{name}: {:5.1} % of {count} batches, {:.0} a second",
                100.0 * *done as f64 / *count as f64,
                *done as f64 / seconds
            );
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.finished {
            let Self { name, seed, count, done, .. } = self;
            let _ = writeln!(
                std::io::stderr(),
                "{name}: failed in batch {done}; again: tailplane-attack batches --only {name} --count {count} --seed {seed}"
            );
        }
    }
}

/// Rounds of each half.
const ROUNDS: u64 = 8;

/// Runs so many batches of a round, which follow from a seed.
type OneRound = fn(u64, u64, u64, &mut Progress, &mut Tally) -> anyhow::Result<()>;

/// Runs `count` batches of one half.
fn half(name: &'static str, count: u64, seed: u64, one_round: OneRound) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let mut progress = Progress::new(name, count, seed);
    for round in 0..ROUNDS {
        let batches = count / ROUNDS + u64::from(round < count % ROUNDS);
        one_round(batches, round, seed, &mut progress, &mut tally)
            .with_context(|| format!("round {round}"))?;
    }
    progress.finished = true;
    Ok(tally)
}

/// Runs `count` batches; `only` names one half.
///
/// # Errors
/// Something did not hold; which, and how to see it again.
pub fn run(
    count: u64,
    seed: u64,
    only: Option<&str>,
) -> anyhow::Result<Vec<(&'static str, Tally)>> {
    let mut tallies = Vec::new();
    let halves: [(&'static str, OneRound); 2] =
        [("arrays", arrays::one_round), ("stack", stack::one_round)];
    ensure!(
        only.is_none_or(|only| halves.iter().any(|(name, _)| *name == only)),
        "there are batches against `arrays` and against a `stack`"
    );
    for (name, one_round) in halves {
        match only {
            Some(only) if only != name => {}
            Some(_) => tallies.push((name, half(name, count, seed, one_round)?)),
            None => tallies.push((name, half(name, count / 2, seed, one_round)?)),
        }
    }
    Ok(tallies)
}
