//! A queue with the servers behind it, as the driver of a run sees it.

use std::cmp::Ordering;

use crate::observer::Observer;

/// A queue with its servers. Times never go back from call to call.
pub(crate) trait Station {
    /// Serves until `to`: all who leave before or at that time have left. Does nothing where `arrive` reports the
    /// departure.
    fn advance<O: Observer>(&mut self, _to: f64, _observer: &mut O) {}

    /// A request arrives at `now`, to which the station has been advanced.
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, observer: &mut O);

    /// Requests in it that have not left; zero where a departure is told with the arrival.
    fn present(&self) -> usize {
        0
    }
}

/// What happens at a time. A heap of these has what happens first on top.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed<T> {
    pub at: f64,
    pub what: T,
}

impl<T> Ord for Timed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at)
    }
}

impl<T> PartialOrd for Timed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Timed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Timed<T> {}

/// The lesser of two numbers that are ones: `f64::min` also looks for what is none.
#[inline]
pub(crate) fn lesser(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

/// The greater of two numbers that are ones.
#[inline]
pub(crate) fn greater(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}
