//! What is recorded, second by second.

use crate::controlled::server::{Latencies, Second};
use clock::{Duration, Instant};

use super::Governor;

/// How often what is drawn is added up, at least.
pub(super) const METER_EVERY: Duration = Duration::from_millis(10);
/// How often the record has an entry.
pub(super) const SECOND: Duration = Duration::from_secs(1);

impl Governor<'_> {
    /// Adds up what was drawn since the last time, given for how long each thread has been busy.
    pub fn meter(&mut self, now: Instant, busy_ns: impl Iterator<Item = f64>) {
        if self.next_meter <= now {
            self.next_meter = now + METER_EVERY;
        }
        let passed_ns = now.since(std::mem::replace(&mut self.metered, now)).as_nanos() as f64;
        let mut used_ns = vec![0.0; self.meter.beside.len()];
        for ((before, busy_ns), place) in self.busy_ns.iter_mut().zip(busy_ns).zip(&self.places) {
            used_ns[place.core as usize] += busy_ns - std::mem::replace(before, busy_ns);
        }
        // A step is counted when it begins: the last one may reach beyond the moment.
        let used = |core: usize, threads: usize| {
            (used_ns[core] / (passed_ns * threads.max(1) as f64)).min(1.0)
        };
        if passed_ns > 0.0 {
            self.meter.pass(self.model, passed_ns / 1e9, used);
        }
    }

    /// Whether a second is over; `latencies` are those of the answers that came in it.
    pub fn second(&mut self, now: Instant, latencies: &mut Latencies) {
        if self.next_second > now {
            return;
        }
        self.next_second = now + SECOND;
        let (watts, background) = self.meter.take();
        let now_ns = self.since(now) as f64;
        let steps = |back_ms: u32| self.pattern.rps(now_ns - f64::from(back_ms) * 1e6 + 5e5);
        let loads = (1..=2_000).map(steps);
        let (low, high) = loads.fold((f64::MAX, 0.0f64), |(l, h), rps| (l.min(rps), h.max(rps)));
        let second = Second {
            rps: latencies.requests(),
            p99_us: latencies.quantile_us(0.99),
            watts,
            background,
            step: self.controller.at(),
            load_rps: (low, high),
            capacity_rps: std::mem::replace(&mut self.capacity_rps, f64::MAX),
            // Whose delay it was, an answer does not tell.
            late: Default::default(),
            groups_moved: std::mem::take(&mut self.groups_moved),
        };
        latencies.clear();
        self.record.seconds.push(second);
        self.record.events.extend(self.controller.take_events());
        self.reckon_speeds();
    }
}
