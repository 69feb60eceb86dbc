//! Lots of work between two looks at the clock: a look is dear, and a stall must be noticed.

use measure::Stopwatch;

/// How long a lot is meant to be.
const LOT_NS: u64 = 20_000;
/// Turns of the largest lot.
const LOT_MAX: u32 = 4_096;

/// Lots of some 20 us each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lots {
    clock: Stopwatch,
    last_ns: u64,
    /// Turns until the next look.
    pub(crate) size: u32,
}

impl Lots {
    pub(crate) fn begin(clock: Stopwatch) -> Self {
        Self { clock, last_ns: clock.now_ns(), size: 1 }
    }

    /// A lot is done: the time, and how long the lot took.
    pub(crate) fn done(&mut self) -> (u64, u64) {
        let now_ns = self.clock.now_ns();
        let took_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if took_ns < LOT_NS / 2 && self.size < LOT_MAX {
            self.size *= 2;
        } else if took_ns > LOT_NS * 2 && self.size > 1 {
            self.size /= 2;
        }
        (now_ns, took_ns)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lots_grow_to_what_a_look_at_the_clock_may_cost() {
        let mut lots = Lots::begin(Stopwatch::start());
        for _ in 0..64 {
            lots.done();
        }
        assert_eq!(lots.size, LOT_MAX);
        std::thread::sleep(Duration::from_micros(300));
        let (now_ns, took_ns) = lots.done();
        assert!(took_ns >= 300_000 && now_ns >= took_ns);
        assert!(lots.size < LOT_MAX);
    }
}
