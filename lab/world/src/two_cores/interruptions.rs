//! When a thread that always spins was not running: its looks at the clock lie far apart.

use clock::{Duration, Instant};

use crate::cores::Interruption;

/// Two looks that are so far apart had something else between them: a service that spins takes a fortieth of that
/// from one to the next, and a cycle without work a tenth.
pub(super) const SPINNING: Duration = Duration::from_micros(1);
/// See [`SPINNING`].
pub(super) const IDLING: Duration = Duration::from_micros(3);
/// Most that are kept: of 10 us each they would be three seconds.
const MOST: usize = 1 << 18;

/// Those of one thread.
#[derive(Debug)]
pub(super) struct Interruptions {
    seen: Vec<(Instant, Duration)>,
}

impl Interruptions {
    pub fn new() -> Self {
        // Before the run: it must not be interrupted by this.
        Self { seen: Vec::with_capacity(MOST) }
    }

    /// The thread looked at the clock twice, and did nothing between that takes `least`.
    pub fn looked(&mut self, before: Instant, now: Instant, least: Duration) {
        if now.since(before) >= least {
            self.took(before, now);
        }
    }

    /// The thread is known to have done something else.
    pub fn took(&mut self, from: Instant, to: Instant) {
        if self.seen.len() < MOST {
            self.seen.push((from, to.since(from)));
        }
    }

    /// Those of `core` from `began` on.
    pub fn since(self, core: usize, began: Instant) -> impl Iterator<Item = Interruption> {
        let from = self.seen.into_iter().filter(move |(at, _)| *at >= began);
        from.map(move |(at, took)| Interruption {
            after_ns: at.since(began).as_nanos() as u64,
            core,
            took_ns: took.as_nanos() as u64,
        })
    }
}
