//! Who watches a run: told of every request that leaves and of how the servers were used.
//!
//! An observer is a type parameter, so that a run that only counts pays for nothing else. [`Tally`]
//! is the one that answers most questions; [`Exceeding`] the one that a search needs.

use crate::tail::Tail;

/// A request that has been served.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Departure {
    /// When it came.
    pub arrival: f64,
    /// When it left.
    pub departure: f64,
    /// What it needed of a server.
    pub size: f64,
}

impl Departure {
    /// From arrival to departure: queueing delay and service time.
    pub fn sojourn(&self) -> f64 {
        self.departure - self.arrival
    }
}

/// The part of a run that counts: after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// From this time on.
    pub start: f64,
    /// Until before this one.
    pub end: f64,
}

impl Window {
    /// Whether a request counts that arrived at `arrival`.
    #[inline]
    pub fn holds(&self, arrival: f64) -> bool {
        self.start <= arrival && arrival < self.end
    }

    /// How much of the time from `from` to `to` lies in it.
    #[inline]
    pub fn overlap(&self, from: f64, to: f64) -> f64 {
        let from = if from > self.start { from } else { self.start };
        let to = if to < self.end { to } else { self.end };
        let both = to - from;
        if both > 0.0 { both } else { 0.0 }
    }

    /// Its length.
    pub fn length(&self) -> f64 {
        self.end - self.start
    }
}

/// What a run tells.
pub trait Observer {
    /// A request leaves. They come in the order of departure from each queue's servers where there
    /// is preemption or sharing, and in the order of arrival under FCFS.
    fn departed(&mut self, request: &Departure);

    /// From `from` to `to`, `present` requests and `busy` servers are to be added to what other
    /// spans say of the same time.
    fn span(&mut self, from: f64, to: f64, present: f64, busy: f64) {
        let _ = (from, to, present, busy);
    }
}

/// What a run was: the distribution of sojourn times, and how the servers were used.
#[derive(Debug, Clone)]
pub struct Tally {
    /// The part of the run that is counted.
    pub window: Window,
    /// Sojourn times of the requests that arrived in the window.
    pub sojourn: Tail,
    present_time: f64,
    busy_time: f64,
}

impl Tally {
    /// Empty.
    pub fn new(window: Window) -> Self {
        Self { window, sojourn: Tail::new(), present_time: 0.0, busy_time: 0.0 }
    }

    /// L: requests present at a time, as a mean over the window.
    pub fn mean_present(&self) -> f64 {
        self.present_time / self.window.length()
    }

    /// λW, which is L by Little's law: arrivals of the window in a unit of time, times their mean
    /// sojourn time. Beside [`Self::mean_present`] it shows that nobody was lost or counted twice;
    /// they differ by those who were present at either end of the window.
    pub fn little(&self) -> f64 {
        self.sojourn.count() as f64 / self.window.length() * self.sojourn.mean()
    }

    /// The share of the time in which a server was busy, as a mean over `servers` of them.
    pub fn busy_fraction(&self, servers: u32) -> f64 {
        self.busy_time / (self.window.length() * f64::from(servers))
    }
}

impl Observer for Tally {
    #[inline]
    fn departed(&mut self, request: &Departure) {
        if self.window.holds(request.arrival) {
            self.sojourn.record(request.sojourn());
        }
    }

    #[inline]
    fn span(&mut self, from: f64, to: f64, present: f64, busy: f64) {
        let time = self.window.overlap(from, to);
        self.present_time += time * present;
        self.busy_time += time * busy;
    }
}

/// How many requests took longer than a bound.
#[derive(Debug, Clone)]
pub struct Exceeding {
    window: Window,
    bound: f64,
    requests: u64,
    above: u64,
}

/// Rounding may lengthen a sojourn by this share: the clock of a run has 53 bits.
const ROUNDING: f64 = 1e-7;

impl Exceeding {
    /// Counts sojourn times above `bound`.
    pub fn new(window: Window, bound: f64) -> Self {
        Self { window, bound: bound * (1.0 + ROUNDING), requests: 0, above: 0 }
    }

    /// The share of the requests that took longer.
    pub fn share(&self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.above as f64 / self.requests as f64 }
    }
}

impl Observer for Exceeding {
    #[inline]
    fn departed(&mut self, request: &Departure) {
        let counts = u64::from(self.window.holds(request.arrival));
        self.requests += counts;
        self.above += counts & u64::from(request.sojourn() > self.bound);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_window_counts() {
        let window = Window { start: 10.0, end: 20.0 };
        let mut tally = Tally::new(window);
        let mut exceeding = Exceeding::new(window, 3.0);
        for (arrival, departure) in [(9.0, 19.0), (10.0, 13.0), (19.0, 24.0), (20.0, 29.0)] {
            let request = Departure { arrival, departure, size: 1.0 };
            tally.departed(&request);
            exceeding.departed(&request);
            tally.span(arrival, departure, 1.0, 0.5);
        }
        assert_eq!(tally.sojourn.count(), 2);
        assert_eq!(tally.sojourn.mean(), 4.0);
        assert_eq!(tally.little(), 0.8);
        // 9, 3 and 1 of the window.
        assert!((tally.mean_present() - 1.3).abs() < 1e-12);
        assert!((tally.busy_fraction(2) - 0.325).abs() < 1e-12);
        assert_eq!(exceeding.share(), 0.5);
        assert_eq!(Exceeding::new(window, 1.0).share(), 0.0);
    }
}
