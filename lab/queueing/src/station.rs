//! A queue with the servers behind it, as the driver of a run sees it.

use crate::observer::Observer;

/// A queue with its servers. Times never go back from call to call.
pub(crate) trait Station {
    /// Serves until `to`: all who leave before or at that time have left.
    fn advance<O: Observer>(&mut self, to: f64, observer: &mut O);

    /// A request arrives at `now`, to which the station has been advanced.
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, observer: &mut O);

    /// Requests in it that have not left; zero where a departure is told with the arrival.
    fn present(&self) -> usize;
}

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
