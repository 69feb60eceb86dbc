//! What a service shows of its threads, a thousand times a second, and what that says of a load that steps up and down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use statseg::State;

use service::watch::{Service, now_ns};

/// From look to look.
const LOOK: Duration = Duration::from_millis(1);
/// The rate is that of so many looks together.
const WINDOW: usize = 50;
/// The load has stepped up once the rate is so far on the way from low to high: over what chance makes of the low one, and
/// under what one thread takes of the high one.
const STEP_SHARE: f64 = 0.25;

/// One look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// Packets that all threads have taken.
    pub packets: u64,
    /// Whether the second thread serves.
    pub granted: bool,
    /// How long the packet that had waited longest had waited, in nanoseconds.
    pub waited_ns: u64,
}

/// Looks until `done`.
pub fn record(service: &Service, done: &AtomicBool) -> Vec<Look> {
    let mut looks = Vec::with_capacity(1 << 16);
    while !done.load(Ordering::Relaxed) {
        let threads = service.reading.threads();
        let running = |thread: &&statseg::ThreadCounters| thread.state == State::Running;
        looks.push(Look {
            at_ns: now_ns(),
            packets: threads.iter().map(|thread| thread.packets).sum(),
            granted: threads.get(1).filter(running).is_some(),
            waited_ns: threads.iter().map(|thread| thread.oldest_waiting_ns).max().unwrap_or(0),
        });
        std::thread::sleep(LOOK);
    }
    looks
}

/// One time that the load stepped up, and down again; moments in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swing {
    /// The load had stepped up.
    pub up_ns: u64,
    /// A packet had waited longer than the bound.
    pub violation_ns: Option<u64>,
    /// The second thread served; none also where it served when the load stepped up: that is no answer to it.
    pub granted_ns: Option<u64>,
    /// The load had stepped down; none where the looks end before.
    pub down_ns: Option<u64>,
    /// The second thread was parked; none also where it did not serve when the load stepped down.
    pub parked_ns: Option<u64>,
}

impl Swing {
    /// From the violation until the second thread served, in ms: 0 where it was granted, after the step, before that.
    pub fn reacted_ms(&self) -> Option<f64> {
        let granted_ns = self.granted_ns?;
        Some(granted_ns.saturating_sub(self.violation_ns.unwrap_or(granted_ns)) as f64 / 1e6)
    }

    /// From the step up until the second thread served, in ms.
    pub fn granted_ms(&self) -> Option<f64> {
        Some(self.granted_ns?.saturating_sub(self.up_ns) as f64 / 1e6)
    }

    /// From the step down until the second thread was parked, in ms.
    pub fn parked_ms(&self) -> Option<f64> {
        Some(self.parked_ns?.saturating_sub(self.down_ns?) as f64 / 1e6)
    }
}

/// When the load first stepped up from `low` to `high`, in packets per second: none where it did not.
pub fn first_step_ns(looks: &[Look], (low, high): (f64, f64)) -> Option<u64> {
    let threshold = low + (high - low) * STEP_SHARE;
    let came = |first: &Look, last: &Look| last.packets.saturating_sub(first.packets) as f64;
    let expected =
        |first: &Look, last: &Look| threshold * last.at_ns.saturating_sub(first.at_ns) as f64 / 1e9;
    // For two windows, one after the other: connections are opened in a moment.
    let is_high = |first: &Look, last: &Look| came(first, last) >= expected(first, last).max(1.0);
    let found = looks.windows(2 * WINDOW + 1).position(|window| {
        is_high(&window[0], &window[WINDOW]) && is_high(&window[WINDOW], &window[2 * WINDOW])
    })?;
    // Before the step less comes than the threshold says, and after it more: it is where what came is furthest behind.
    let around = &looks[found.saturating_sub(WINDOW)..=found + WINDOW];
    let behind = |look: &&Look| expected(&around[0], look) - came(&around[0], look);
    around.iter().max_by(|a, b| behind(a).total_cmp(&behind(b))).map(|look| look.at_ns)
}

/// What was done about each swing of a load that first stepped up at `first_ns`, and again each `period_ns`; it stepped
/// down half of that later. A packet that waited longer than `bound_ns` is a violation.
pub fn swings(looks: &[Look], (first_ns, period_ns): (u64, u64), bound_ns: u64) -> Vec<Swing> {
    let end_ns = looks.last().map_or(0, |look| look.at_ns);
    let half_ns = period_ns / 2;
    let of = |up_ns: u64| {
        let down_ns = up_ns + half_ns;
        let high = || looks.iter().filter(|look| (up_ns..down_ns).contains(&look.at_ns));
        let mut low =
            looks.iter().filter(|look| (down_ns..down_ns + half_ns).contains(&look.at_ns));
        let first = |look: &Look| look.at_ns;
        let serves_at = |at_ns: u64| {
            let before = looks.iter().rev().find(|look| look.at_ns < at_ns);
            before.is_some_and(|look| look.granted)
        };
        let (served_at_up, served_at_down) = (serves_at(up_ns), serves_at(down_ns));
        Swing {
            up_ns,
            violation_ns: high().find(|look| look.waited_ns > bound_ns).map(first),
            granted_ns: high().find(|look| look.granted && !served_at_up).map(first),
            down_ns: (down_ns < end_ns).then_some(down_ns),
            parked_ns: low.find(|look| !look.granted && served_at_down).map(first),
        }
    };
    let ups = (0..).map(|swing| first_ns + swing * period_ns.max(1));
    ups.take_while(|up_ns| up_ns + half_ns / 2 < end_ns).map(of).collect()
}

/// When the second thread served: from, to, in nanoseconds.
pub fn granted(looks: &[Look]) -> Vec<(u64, u64)> {
    let spells = looks.chunk_by(|a, b| a.granted == b.granted).filter(|spell| spell[0].granted);
    spells.map(|spell| (spell[0].at_ns, spell[spell.len() - 1].at_ns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A second each of 1, 10 and 1 packets a millisecond; granted from 1,020 to 2,500 ms; waits from 1,005 ms on.
    fn looks() -> Vec<Look> {
        let mut packets = 0;
        let of = |ms: u64| {
            packets += if (1_000..2_000).contains(&ms) { 10 } else { 1 };
            Look {
                at_ns: ms * MS,
                packets,
                granted: (1_020..2_500).contains(&ms),
                waited_ns: if (1_005..1_030).contains(&ms) { 3 * MS } else { 0 },
            }
        };
        (0..3_000).map(of).collect()
    }

    #[test]
    fn a_swing_is_found_with_what_was_done_about_it() {
        let looks = looks();
        let up_ns = first_step_ns(&looks, (1_000.0, 10_000.0)).expect("it steps up");
        assert!(up_ns.abs_diff(1_000 * MS) <= 2 * MS, "{up_ns}");
        // Connections are opened before: that is no step.
        let mut opened = looks.clone();
        opened.iter_mut().skip(100).for_each(|look| look.packets += 300);
        assert_eq!(first_step_ns(&opened, (1_000.0, 10_000.0)), Some(up_ns));
        // One thread takes half of the high load, until the other one helps.
        let mut capped = looks.clone();
        let mut packets = 0;
        for look in &mut capped {
            let ms = look.at_ns / MS;
            packets +=
                if (1_000..2_000).contains(&ms) { if ms < 1_300 { 5 } else { 10 } } else { 1 };
            look.packets = packets;
        }
        let up_ns = first_step_ns(&capped, (1_000.0, 10_000.0)).expect("it steps up");
        assert!(up_ns.abs_diff(1_000 * MS) <= 2 * MS, "{up_ns}");
        let found = swings(&looks, (1_000 * MS, 2_000 * MS), 2 * MS);
        let expected = Swing {
            up_ns: 1_000 * MS,
            violation_ns: Some(1_005 * MS),
            granted_ns: Some(1_020 * MS),
            down_ns: Some(2_000 * MS),
            parked_ns: Some(2_500 * MS),
        };
        assert_eq!(found, [expected]);
        assert_eq!((expected.reacted_ms(), expected.granted_ms()), (Some(15.0), Some(20.0)));
        assert_eq!(expected.parked_ms(), Some(500.0));
    }

    #[test]
    fn spells_of_service_are_told_apart() {
        assert_eq!(granted(&looks()), [(1_020 * MS, 2_499 * MS)]);
        assert_eq!(granted(&looks()[..1_000]), []);
    }

    #[test]
    fn what_was_not_done_is_missing() {
        let mut looks = looks();
        looks.iter_mut().for_each(|look| (look.granted, look.waited_ns) = (false, 0));
        let times = (1_000 * MS, 2_000 * MS);
        let found = swings(&looks, times, 2 * MS);
        assert_eq!((found[0].granted_ms(), found[0].reacted_ms()), (None, None));
        // One that never served is not parked either.
        assert_eq!((found[0].violation_ns, found[0].parked_ms()), (None, None));
        // One that is granted before anybody waits has reacted at once, and one that never stops is not parked.
        looks.iter_mut().for_each(|look| look.granted = look.at_ns >= 1_002 * MS);
        let found = swings(&looks, times, 2 * MS);
        assert_eq!((found[0].reacted_ms(), found[0].parked_ms()), (Some(0.0), None));
        // One that served before the step has not reacted to it.
        looks.iter_mut().for_each(|look| look.granted = look.at_ns >= 900 * MS);
        let found = swings(&looks, times, 2 * MS);
        assert_eq!((found[0].reacted_ms(), found[0].granted_ms()), (None, None));
        assert_eq!(swings(&looks[..900], times, 2 * MS), []);
        assert_eq!(first_step_ns(&looks[..900], (1_000.0, 10_000.0)), None);
    }
}
