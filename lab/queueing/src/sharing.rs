//! Processor sharing, exactly: an event costs the logarithm of the requests present.
//!
//! All k requests are served at the same rate r = min(1, n / k), so one clock that runs at r counts
//! for all of them the service that each has had: a request of size x that came when it read v
//! leaves when it reads v + x, whoever comes and goes between. A heap by that reading has the next
//! departure on top.

use std::collections::BinaryHeap;

use crate::observer::{Departure, Observer};
use crate::station::{Station, Timed};

/// One request in service.
#[derive(Debug, Clone, Copy)]
struct Sharer {
    arrival: f64,
    size: f64,
}

/// Servers that all requests present share.
#[derive(Debug, Clone)]
pub(crate) struct Sharing {
    servers: f64,
    now: f64,
    /// Service that each request would have had, had it been here since the station was last empty.
    served: f64,
    /// By what the clock of service reads when each leaves.
    sharers: BinaryHeap<Timed<Sharer>>,
}

impl Sharing {
    pub fn new(servers: u32) -> Self {
        let servers = f64::from(servers.max(1));
        Self { servers, now: 0.0, served: 0.0, sharers: BinaryHeap::with_capacity(64) }
    }

    fn busy(&self) -> f64 {
        self.servers.min(self.sharers.len() as f64)
    }
}

impl Station for Sharing {
    #[inline]
    fn advance<O: Observer>(&mut self, to: f64, observer: &mut O) {
        while let Some(&Timed { at: leaves, what: sharer }) = self.sharers.peek() {
            let (present, busy) = (self.sharers.len() as f64, self.busy());
            let rate = busy / present;
            // Rounding may leave the clock a little beyond a departure.
            let at = self.now + ((leaves - self.served) / rate).max(0.0);
            if at > to {
                self.served += (to - self.now) * rate;
                observer.span(self.now, to, present, busy);
                break;
            }
            observer.span(self.now, at, present, busy);
            (self.now, self.served) = (at, leaves);
            self.sharers.pop();
            let Sharer { arrival, size } = sharer;
            observer.departed(&Departure { arrival, departure: at, size });
        }
        if self.sharers.is_empty() {
            // The clock starts anew, so that it never grows coarse.
            self.served = 0.0;
        }
        // What is never (the end of all departures) is no time.
        if to.is_finite() {
            self.now = to;
        }
    }

    #[inline]
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, _observer: &mut O) {
        debug_assert_eq!(self.now, now);
        self.sharers.push(Timed { at: self.served + size, what: Sharer { arrival: now, size } });
    }

    fn present(&self) -> usize {
        self.sharers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{Tally, Window};

    #[derive(Default)]
    struct Departures(Vec<(f64, f64)>);

    impl Observer for Departures {
        fn departed(&mut self, request: &Departure) {
            self.0.push((request.arrival, request.departure));
        }
    }

    fn departures(servers: u32, requests: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let (mut station, mut found) = (Sharing::new(servers), Departures::default());
        for &(arrival, size) in requests {
            station.advance(arrival, &mut found);
            station.arrive(arrival, size, &mut found);
        }
        station.advance(f64::INFINITY, &mut found);
        assert_eq!(station.present(), 0);
        found.0
    }

    #[test]
    fn two_who_share_take_twice_as_long() {
        // Alone from 0 to 1, together from 1 to 3, the first alone again until 5.
        let found = departures(1, &[(0.0, 4.0), (1.0, 1.0)]);
        assert_eq!(found, [(1.0, 3.0), (0.0, 5.0)]);
        // Two servers for two requests: nobody waits; for three, each has two thirds of one.
        assert_eq!(departures(2, &[(0.0, 4.0), (1.0, 1.0)]), [(1.0, 2.0), (0.0, 4.0)]);
        let found = departures(2, &[(0.0, 2.0), (0.0, 2.0), (0.0, 2.0)]);
        assert!(found.iter().all(|&(_, at)| (at - 3.0).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn spans_say_who_was_there() {
        let (mut station, window) = (Sharing::new(1), Window { start: 0.0, end: 10.0 });
        let mut tally = Tally::new(window);
        station.arrive(0.0, 4.0, &mut tally);
        station.advance(1.0, &mut tally);
        station.arrive(1.0, 1.0, &mut tally);
        station.advance(f64::INFINITY, &mut tally);
        assert!((tally.mean_present() - 0.7).abs() < 1e-12);
        assert!((tally.busy_fraction(1) - 0.5).abs() < 1e-12);
        assert!((tally.little() - 0.7).abs() < 1e-12);
    }
}
